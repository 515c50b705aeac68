"""openai-agents: `Runner`, with tracing off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from bench.contenders.common import BASES, KEY, MODELS, PROMPT, SYSTEM, TOOL_PROMPT, Delivered, aweather, said, weather

DIALECTS = ("openai_chat", "openai_responses")

set_tracing_disabled(True)


def _history(messages: int) -> list[Any]:
    return [{"role": each.role, "content": each.text} for each in said(messages)]


class _Base:
    weather: Callable[..., Any] = staticmethod(weather)

    def __init__(self, root: str, dialect: str) -> None:
        kind: Any = OpenAIChatCompletionsModel if dialect == "openai_chat" else OpenAIResponsesModel
        client = AsyncOpenAI(api_key=KEY, base_url=root + BASES[dialect])
        self._model = kind(MODELS[dialect], openai_client=client)
        self._agent = Agent("a", instructions=SYSTEM, model=self._model)
        self._with_tool = Agent("a", instructions=SYSTEM, model=self._model, tools=[function_tool(self.weather)])


class Plain(_Base):
    def turn(self) -> str:
        return Runner.run_sync(self._agent, PROMPT).final_output

    def tool_loop(self) -> str:
        return Runner.run_sync(self._with_tool, TOOL_PROMPT).final_output

    def history(self, messages: int) -> Callable[[], str]:
        before = _history(messages)
        last = {"role": "user", "content": PROMPT}
        return lambda: Runner.run_sync(self._agent, [*before, last]).final_output

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], str]:
        tools = [function_tool(each) for each in functions]
        agent = Agent("a", instructions=SYSTEM, model=self._model, tools=tools)
        return lambda: Runner.run_sync(agent, PROMPT).final_output


class OnLoop(_Base):
    weather = staticmethod(aweather)

    async def turn(self) -> str:
        return (await Runner.run(self._agent, PROMPT)).final_output

    async def stream(self) -> Delivered:
        events = characters = 0
        async for event in Runner.run_streamed(self._agent, PROMPT).stream_events():
            events += 1
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                characters += len(event.data.delta)
        return Delivered(events, characters)

    async def tool_loop(self) -> str:
        return (await Runner.run(self._with_tool, TOOL_PROMPT)).final_output

    def history(self, messages: int) -> Callable[[], Awaitable[str]]:
        before = _history(messages)
        last = {"role": "user", "content": PROMPT}

        async def turn() -> str:
            return (await Runner.run(self._agent, [*before, last])).final_output

        return turn

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], Awaitable[str]]:
        tools = [function_tool(each) for each in functions]
        agent = Agent("a", instructions=SYSTEM, model=self._model, tools=tools)

        async def turn() -> str:
            return (await Runner.run(agent, PROMPT)).final_output

        return turn
