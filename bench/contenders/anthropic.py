"""The anthropic SDK: `messages.create`, plain and streamed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from anthropic import Anthropic, AsyncAnthropic

from bench.contenders.common import (
    KEY,
    MAX_TOKENS,
    MODELS,
    PROMPT,
    SCHEMA,
    SYSTEM,
    TOOL_PROMPT,
    Delivered,
    said,
    schemas,
    weather,
)

DIALECTS = ("anthropic",)

_COMMON: dict[str, Any] = {"model": MODELS["anthropic"], "max_tokens": MAX_TOKENS, "system": SYSTEM}
_HELLO = [{"role": "user", "content": PROMPT}]
_ASK = [{"role": "user", "content": TOOL_PROMPT}]
_TOOLS = [{"name": "weather", "description": "What the weather is like.", "input_schema": SCHEMA}]


def _with_result(first: Any) -> list[Any]:
    use = next(block for block in first.content if block.type == "tool_use")
    result = {"type": "tool_result", "tool_use_id": use.id, "content": weather(**use.input)}
    return [*_ASK, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]


def _history(messages: int) -> list[Any]:
    return [{"role": each.role, "content": each.text} for each in said(messages)]


def _many(functions: Sequence[Callable[..., Any]]) -> list[Any]:
    return [
        {"name": each["name"], "description": each["description"], "input_schema": each["parameters"]}
        for each in schemas(functions)
    ]


class Plain:
    def __init__(self, root: str, dialect: str) -> None:
        self._create: Any = Anthropic(api_key=KEY, base_url=root).messages.create

    def turn(self) -> str:
        return self._create(messages=_HELLO, **_COMMON).content[0].text

    def stream(self) -> Delivered:
        events = characters = 0
        for event in self._create(messages=_HELLO, stream=True, **_COMMON):
            events += 1
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                characters += len(event.delta.text)
        return Delivered(events, characters)

    def tool_loop(self) -> str:
        first = self._create(messages=_ASK, tools=_TOOLS, **_COMMON)
        return self._create(messages=_with_result(first), tools=_TOOLS, **_COMMON).content[0].text

    def history(self, messages: int) -> Callable[[], str]:
        before = _history(messages)
        return lambda: self._create(messages=[*before, *_HELLO], **_COMMON).content[0].text

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], str]:
        tools = _many(functions)
        return lambda: self._create(messages=_HELLO, tools=tools, **_COMMON).content[0].text


class OnLoop:
    def __init__(self, root: str, dialect: str) -> None:
        self._create: Any = AsyncAnthropic(api_key=KEY, base_url=root).messages.create

    async def turn(self) -> str:
        return (await self._create(messages=_HELLO, **_COMMON)).content[0].text

    async def stream(self) -> Delivered:
        events = characters = 0
        async for event in await self._create(messages=_HELLO, stream=True, **_COMMON):
            events += 1
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                characters += len(event.delta.text)
        return Delivered(events, characters)

    async def tool_loop(self) -> str:
        first = await self._create(messages=_ASK, tools=_TOOLS, **_COMMON)
        return (await self._create(messages=_with_result(first), tools=_TOOLS, **_COMMON)).content[0].text

    def history(self, messages: int) -> Callable[[], Awaitable[str]]:
        before = _history(messages)

        async def turn() -> str:
            return (await self._create(messages=[*before, *_HELLO], **_COMMON)).content[0].text

        return turn

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], Awaitable[str]]:
        tools = _many(functions)

        async def turn() -> str:
            return (await self._create(messages=_HELLO, tools=tools, **_COMMON)).content[0].text

        return turn
