"""Contenders whose calls and replies have the shape of OpenAI's chat completions: openai, litellm, any-llm, aisuite.

Each gives one function, `create(**arguments)`; the loop of the tools is written by hand, as their documentation does.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bench.contenders.common import (
    ARGUMENTS,
    PROMPT,
    SCHEMA,
    SYSTEM,
    TOOL_PROMPT,
    Delivered,
    nothing,
    said,
    schemas,
    weather,
)

_SYSTEM = {"role": "system", "content": SYSTEM}
HELLO = [_SYSTEM, {"role": "user", "content": PROMPT}]
ASK = [_SYSTEM, {"role": "user", "content": TOOL_PROMPT}]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "description": "What the weather is like.", "parameters": SCHEMA},
    }
]


def history(messages: int) -> list[dict[str, Any]]:
    return [_SYSTEM, *[{"role": each.role, "content": each.text} for each in said(messages)]]


def many(functions: Sequence[Callable[..., Any]]) -> list[Any]:
    return [{"type": "function", "function": schema} for schema in schemas(functions)]


def _with_result(message: Any) -> list[Any]:
    call = message.tool_calls[0]
    result = weather(**json.loads(call.function.arguments))
    return [*ASK, message, {"role": "tool", "tool_call_id": call.id, "content": result}]


def _length(chunk: Any) -> int:
    return len(chunk.choices[0].delta.content or "") if chunk.choices else 0


class Plain:
    create: Callable[..., Any]

    def turn(self) -> str:
        return self.create(messages=HELLO).choices[0].message.content

    def stream(self) -> Delivered:
        events = characters = 0
        for chunk in self.create(messages=HELLO, stream=True):
            events += 1
            characters += _length(chunk)
        return Delivered(events, characters)

    def tool_loop(self) -> str:
        first = self.create(messages=ASK, tools=TOOLS)
        return self.create(messages=_with_result(first.choices[0].message), tools=TOOLS).choices[0].message.content

    def history(self, messages: int) -> Callable[[], str]:
        before = history(messages)
        return lambda: self.create(messages=[*before, HELLO[1]]).choices[0].message.content

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], str]:
        tools = many(functions)
        return lambda: self.create(messages=HELLO, tools=tools).choices[0].message.content

    def dispatch(self) -> Callable[[], object]:
        """Without any validation: these libraries leave that to the program."""
        return lambda: nothing(**json.loads(ARGUMENTS))


class OnLoop:
    create: Callable[..., Awaitable[Any]]

    async def turn(self) -> str:
        return (await self.create(messages=HELLO)).choices[0].message.content

    async def stream(self) -> Delivered:
        events = characters = 0
        chunks = self.create(messages=HELLO, stream=True)
        async for chunk in await chunks if inspect.isawaitable(chunks) else chunks:
            events += 1
            characters += _length(chunk)
        return Delivered(events, characters)

    async def tool_loop(self) -> str:
        first = await self.create(messages=ASK, tools=TOOLS)
        second = await self.create(messages=_with_result(first.choices[0].message), tools=TOOLS)
        return second.choices[0].message.content

    def history(self, messages: int) -> Callable[[], Awaitable[str]]:
        before = history(messages)

        async def turn() -> str:
            return (await self.create(messages=[*before, HELLO[1]])).choices[0].message.content

        return turn

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], Awaitable[str]]:
        tools = many(functions)

        async def turn() -> str:
            return (await self.create(messages=HELLO, tools=tools)).choices[0].message.content

        return turn
