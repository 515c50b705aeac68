"""Runs of the loop on scripted engines, in both colours, streamed or not, written once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from dragoman.conversation import Conversation, Event, Message, ToolCall
from dragoman.engines.scripted import AsyncScriptedEngine, ScriptedCall, ScriptedEngine
from dragoman.errors import DragomanError
from dragoman.loop.orchestrator import AsyncOrchestrator, Orchestrator
from dragoman.loop.run import RunResult
from dragoman.tools.definition import tool

ASKED = Conversation("Be brief.").plus(Message.user("Add one and two."))


@tool
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


def calls(*numbers: int, name: str = "add") -> Message:
    """A reply that calls a tool once for each number."""
    return Message.assistant(*[ToolCall(f"c{number}", name, f'{{"a": {number}, "b": 2}}') for number in numbers])


class Ran(NamedTuple):
    """What a caller has in hand afterwards."""

    result: RunResult | None
    events: list[Event]
    calls: list[ScriptedCall]
    error: DragomanError | None


Way = Callable[..., Ran]


def plain_whole(
    script: Any, tools: Any = (add,), conversation: Conversation = ASKED, *args: Any, **options: Any
) -> Ran:
    approvals = options.pop("approvals", ())
    engine = ScriptedEngine(script)
    with Orchestrator(engine, tools, *args, **options) as loop:
        try:
            return Ran(loop.run(conversation, approvals=approvals), [], engine.calls, None)
        except DragomanError as error:
            return Ran(None, [], engine.calls, error)


def plain_stream(
    script: Any, tools: Any = (add,), conversation: Conversation = ASKED, *args: Any, **options: Any
) -> Ran:
    approvals = options.pop("approvals", ())
    engine = ScriptedEngine(script)
    events: list[Event] = []
    with (
        Orchestrator(engine, tools, *args, **options) as loop,
        loop.stream(conversation, approvals=approvals) as stream,
    ):
        try:
            events.extend(stream)
        except DragomanError as error:
            return Ran(None, events, engine.calls, error)
        return Ran(stream.result, events, engine.calls, None)


def async_whole(
    script: Any, tools: Any = (add,), conversation: Conversation = ASKED, *args: Any, **options: Any
) -> Ran:
    approvals = options.pop("approvals", ())

    async def main() -> Ran:
        engine = AsyncScriptedEngine(script)
        async with AsyncOrchestrator(engine, tools, *args, **options) as loop:
            try:
                return Ran(await loop.run(conversation, approvals=approvals), [], engine.calls, None)
            except DragomanError as error:
                return Ran(None, [], engine.calls, error)

    return asyncio.run(main())


def async_stream(
    script: Any, tools: Any = (add,), conversation: Conversation = ASKED, *args: Any, **options: Any
) -> Ran:
    approvals = options.pop("approvals", ())

    async def main() -> Ran:
        engine = AsyncScriptedEngine(script)
        events: list[Event] = []
        loop = AsyncOrchestrator(engine, tools, *args, **options)
        async with loop, loop.stream(conversation, approvals=approvals) as stream:
            try:
                async for event in stream:
                    events.append(event)  # noqa: PERF401 -- what came before an error counts
            except DragomanError as error:
                return Ran(None, events, engine.calls, error)
            return Ran(stream.result, events, engine.calls, None)

    return asyncio.run(main())


WAYS: dict[str, Way] = {
    "plain-whole": plain_whole,
    "plain-stream": plain_stream,
    "async-whole": async_whole,
    "async-stream": async_stream,
}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
