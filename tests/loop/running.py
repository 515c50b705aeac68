"""Runs of the loop on scripted engines, in both colours, streamed or not, written once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from dragoman.conversation import Conversation, Event, Message, ToolCall
from dragoman.engines import AsyncScriptedEngine, ScriptedCall, ScriptedEngine
from dragoman.errors import DragomanError
from dragoman.loop import AsyncOrchestrator, Orchestrator, RunResult
from dragoman.tools import tool

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

    given: RunResult | None
    events: list[Event]
    calls: list[ScriptedCall]
    error: DragomanError | None

    @property
    def result(self) -> RunResult:
        assert self.given is not None, self.error
        return self.given

    @property
    def choices(self) -> list[object]:
        """The tool choice of each call of the model."""
        return [call.options.tool_choice for call in self.calls if call.options]


Way = Callable[..., Ran]


def _plain(
    streamed: bool, script: Any, tools: Any = (add,), conversation: Conversation = ASKED, *args: Any, **options: Any
) -> Ran:
    approvals, name = options.pop("approvals", ()), options.pop("name", "scripted:model")
    engine, events = ScriptedEngine(script, name=name), list[Event]()
    with Orchestrator(engine, tools, *args, **options) as loop:
        try:
            if not streamed:
                return Ran(loop.run(conversation, approvals=approvals), events, engine.calls, None)
            with loop.stream(conversation, approvals=approvals) as stream:
                events.extend(stream)
            return Ran(stream.result, events, engine.calls, None)
        except DragomanError as error:
            return Ran(None, events, engine.calls, error)


async def _async(
    streamed: bool, script: Any, tools: Any = (add,), conversation: Conversation = ASKED, *args: Any, **options: Any
) -> Ran:
    approvals, name = options.pop("approvals", ()), options.pop("name", "scripted:model")
    engine, events = AsyncScriptedEngine(script, name=name), list[Event]()
    async with AsyncOrchestrator(engine, tools, *args, **options) as loop:
        try:
            if not streamed:
                return Ran(await loop.run(conversation, approvals=approvals), events, engine.calls, None)
            async with loop.stream(conversation, approvals=approvals) as stream:
                async for event in stream:
                    events.append(event)
            return Ran(stream.result, events, engine.calls, None)
        except DragomanError as error:
            return Ran(None, events, engine.calls, error)


WAYS: dict[str, Way] = {
    "plain-whole": partial(_plain, False),
    "plain-stream": partial(_plain, True),
    "async-whole": lambda *args, **options: asyncio.run(_async(False, *args, **options)),
    "async-stream": lambda *args, **options: asyncio.run(_async(True, *args, **options)),
}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
