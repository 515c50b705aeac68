"""dragoman, through its chat clients. They are stateless here, so that every turn has the same history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bench.contenders.common import (
    ARGUMENTS,
    BASES,
    KEY,
    MODELS,
    PROMPT,
    SYSTEM,
    TOOL_PROMPT,
    Delivered,
    aweather,
    nothing,
    said,
    weather,
)
from dragoman import (
    AsyncChatClient,
    ChatClient,
    Conversation,
    Message,
    TextDelta,
    ToolCall,
    ToolExecutor,
    conversation_from_json,
    conversation_to_json,
)

_PROVIDERS = {
    "openai_chat": "openai",
    "openai_responses": "openai-responses",
    "anthropic": "anthropic",
    "gemini": "gemini",
}


_WITHOUT_CAP = {"openai_chat": "openai-compatible"}
"""For many tools: of OpenAI's own models it is known that they take 128, and more are refused before they are sent."""


def _given(root: str, dialect: str, *, many_tools: bool = False) -> dict[str, Any]:
    provider = _WITHOUT_CAP.get(dialect, _PROVIDERS[dialect]) if many_tools else _PROVIDERS[dialect]
    return {
        "model": f"{provider}:{MODELS[dialect]}",
        "system": SYSTEM,
        "stateless": True,
        "key": KEY,
        "base_url": root + BASES[dialect],
    }


def _conversation(messages: int) -> Conversation:
    speakers = {"user": Message.user, "assistant": Message.assistant}
    return Conversation(SYSTEM).plus(*[speakers[each.role](each.text) for each in said(messages)])


class Plain:
    def __init__(self, root: str, dialect: str) -> None:
        self._client = ChatClient(**_given(root, dialect))
        self._without_cap = ChatClient(**_given(root, dialect, many_tools=True))
        self._with_tool = ChatClient(self._client.engine, [weather], system=SYSTEM, stateless=True)

    def turn(self) -> str:
        return str(self._client.chat(PROMPT))

    def stream(self) -> Delivered:
        events = characters = 0
        with self._client.stream_chat(PROMPT) as stream:
            for event in stream:
                events += 1
                if isinstance(event, TextDelta):
                    characters += len(event.text)
        return Delivered(events, characters)

    def tool_loop(self) -> str:
        return str(self._with_tool.chat(TOOL_PROMPT))

    def history(self, messages: int) -> Callable[[], str]:
        """The conversation has had a turn before, as any but a new one has."""
        before: list[Conversation] = []

        def turn() -> str:
            if not before:
                before.append(self._client.chat(PROMPT, conversation=_conversation(messages - 2)).conversation)
            return str(self._client.chat(PROMPT, conversation=before[0]))

        return turn

    def loaded(self, messages: int) -> Callable[[], str]:
        text = conversation_to_json(_conversation(messages))
        return lambda: str(self._client.chat(PROMPT, conversation=conversation_from_json(text)))

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], str]:
        client = ChatClient(self._without_cap.engine, functions, system=SYSTEM, stateless=True)
        return lambda: str(client.chat(PROMPT))

    def dispatch(self) -> Callable[[], object]:
        executor, call = ToolExecutor([nothing]), ToolCall("1", "nothing", ARGUMENTS)
        return lambda: executor.execute(call)

    def close(self) -> None:
        self._with_tool.close()
        self._without_cap.close()
        self._client.close()


class OnLoop:
    def __init__(self, root: str, dialect: str) -> None:
        self._client = AsyncChatClient(**_given(root, dialect))
        self._without_cap = AsyncChatClient(**_given(root, dialect, many_tools=True))
        self._with_tool = AsyncChatClient(self._client.engine, [aweather], system=SYSTEM, stateless=True)

    async def turn(self) -> str:
        return str(await self._client.chat(PROMPT))

    async def stream(self) -> Delivered:
        events = characters = 0
        async with self._client.stream_chat(PROMPT) as stream:
            async for event in stream:
                events += 1
                if isinstance(event, TextDelta):
                    characters += len(event.text)
        return Delivered(events, characters)

    async def tool_loop(self) -> str:
        return str(await self._with_tool.chat(TOOL_PROMPT))

    def history(self, messages: int) -> Callable[[], Awaitable[str]]:
        """The conversation has had a turn before, as any but a new one has."""
        before: list[Conversation] = []

        async def turn() -> str:
            if not before:
                first = await self._client.chat(PROMPT, conversation=_conversation(messages - 2))
                before.append(first.conversation)
            return str(await self._client.chat(PROMPT, conversation=before[0]))

        return turn

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], Awaitable[str]]:
        client = AsyncChatClient(self._without_cap.engine, functions, system=SYSTEM, stateless=True)

        async def turn() -> str:
            return str(await client.chat(PROMPT))

        return turn

    async def aclose(self) -> None:
        await self._with_tool.aclose()
        await self._without_cap.aclose()
        await self._client.aclose()
