"""pydantic-ai: one `Agent`, kept; streams as `run_stream_events` gives them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pydantic_ai import Agent, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, SystemPromptPart, UserPromptPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider

from bench.contenders.common import (
    BASES,
    KEY,
    MAX_TOKENS,
    MODELS,
    PROMPT,
    SYSTEM,
    TOOL_PROMPT,
    Delivered,
    aweather,
    said,
    weather,
)

_KINDS: dict[str, tuple[Any, Any]] = {
    "openai_chat": (OpenAIChatModel, OpenAIProvider),
    "openai_responses": (OpenAIResponsesModel, OpenAIProvider),
    "anthropic": (AnthropicModel, AnthropicProvider),
    "gemini": (GoogleModel, GoogleProvider),
}


def _history(messages: int) -> list[ModelMessage]:
    found: list[ModelMessage] = []
    for each in said(messages):
        if each.role == "assistant":
            found.append(ModelResponse(parts=[TextPart(each.text)]))
        else:
            system = [SystemPromptPart(SYSTEM)] if not found else []
            found.append(ModelRequest(parts=[*system, UserPromptPart(each.text)]))
    return found


class _Base:
    weather: Callable[..., Any] = staticmethod(weather)

    def __init__(self, root: str, dialect: str) -> None:
        kind, provider = _KINDS[dialect]
        self._model = kind(MODELS[dialect], provider=provider(api_key=KEY, base_url=root + BASES[dialect]))
        # Told no limit, it asks Anthropic for so much that it must stream even what is wanted whole.
        self._settings: Any = {"max_tokens": MAX_TOKENS} if dialect == "anthropic" else {}
        self._agent = self._made()
        self._with_tool = self._made([self.weather])

    def _made(self, tools: Sequence[Callable[..., Any]] = ()) -> Any:
        return Agent(self._model, system_prompt=SYSTEM, tools=tools, model_settings=self._settings)


def _length(event: Any) -> int:
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return len(event.delta.content_delta)
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return len(event.part.content)
    return 0


class Plain(_Base):
    def turn(self) -> str:
        return self._agent.run_sync(PROMPT).output

    def stream(self) -> Delivered:
        events = characters = 0
        for text in self._agent.run_stream_sync(PROMPT).stream_text(delta=True, debounce_by=None):
            events += 1
            characters += len(text)
        return Delivered(events, characters)

    def tool_loop(self) -> str:
        return self._with_tool.run_sync(TOOL_PROMPT).output

    def history(self, messages: int) -> Callable[[], str]:
        before = _history(messages)
        return lambda: self._agent.run_sync(PROMPT, message_history=before).output

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], str]:
        agent = self._made(functions)
        return lambda: agent.run_sync(PROMPT).output


class OnLoop(_Base):
    weather = staticmethod(aweather)

    async def turn(self) -> str:
        return (await self._agent.run(PROMPT)).output

    async def stream(self) -> Delivered:
        events = characters = 0
        async with self._agent.run_stream_events(PROMPT) as stream:
            async for event in stream:
                events += 1
                characters += _length(event)
        return Delivered(events, characters)

    async def tool_loop(self) -> str:
        return (await self._with_tool.run(TOOL_PROMPT)).output

    def history(self, messages: int) -> Callable[[], Awaitable[str]]:
        before = _history(messages)

        async def turn() -> str:
            return (await self._agent.run(PROMPT, message_history=before)).output

        return turn

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], Awaitable[str]]:
        agent = self._made(functions)

        async def turn() -> str:
            return (await agent.run(PROMPT)).output

        return turn
