"""Hooks see every phase, in order; what is said meanwhile is heard."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman._stepping import step
from dragoman.conversation import (
    Message,
    StopReason,
    ToolCall,
    ToolResult,
)
from dragoman.engines.scripted import AsyncScriptedEngine, ScriptedEngine
from dragoman.errors import ConfigurationError
from dragoman.loop.hooks import LoopHooks
from dragoman.loop.io import PlainIO
from dragoman.loop.orchestrator import AsyncOrchestrator, Orchestrator
from dragoman.loop.run import LoopRun
from dragoman.tools.definition import tool
from tests.loop.running import ASKED, Way, add, calls, every_way


class Noting(LoopHooks):
    def __init__(self) -> None:
        self.noted: list[str] = []

    def before_model(self, run: LoopRun) -> None:
        self.noted.append("before_model")

    def after_model(self, run: LoopRun, reply: Any) -> None:
        assert run.conversation.last == reply.message
        self.noted.append("after_model")

    def before_tools(self, run: LoopRun, calls: tuple[ToolCall, ...]) -> None:
        self.noted.append(f"before_tools {len(calls)}")

    def tool_started(self, run: LoopRun, call: ToolCall) -> None:
        self.noted.append(f"started {call.id}")

    def tool_finished(self, run: LoopRun, result: ToolResult) -> None:
        self.noted.append(f"finished {result.call_id}")

    def after_tools(self, run: LoopRun, results: tuple[ToolResult, ...]) -> None:
        assert run.conversation.is_valid
        self.noted.append(f"after_tools {len(results)}")


EXPECTED = [
    "before_model",
    "after_model",
    "before_tools 1",
    "started c1",
    "finished c1",
    "after_tools 1",
    "before_model",
    "after_model",
]


@every_way
def test_hooks_are_told_in_order(way: Way) -> None:
    hook = Noting()
    way([calls(1), "Three."], hooks=[hook])
    assert hook.noted == EXPECTED


def test_hooks_of_an_async_run_may_be_async() -> None:
    noted: list[str] = []

    class Slow(LoopHooks):
        async def before_model(self, run: LoopRun) -> None:
            await asyncio.sleep(0)
            noted.append("before")

        async def tool_started(self, run: LoopRun, call: ToolCall) -> None:
            await asyncio.sleep(0)
            noted.append(call.id)

    async def main() -> None:
        async with AsyncOrchestrator(AsyncScriptedEngine([calls(1), "x"]), [add], hooks=[Slow()]) as loop:
            await loop.run(ASKED)

    asyncio.run(main())
    assert noted == ["before", "c1", "before"]


def test_an_async_hook_in_a_plain_run_is_an_error_that_says_so() -> None:
    class Slow(LoopHooks):
        async def before_model(self, run: LoopRun) -> None:
            await asyncio.sleep(0)

    loop = Orchestrator(ScriptedEngine(["x"]), hooks=[Slow()])
    with loop, pytest.raises(ConfigurationError, match="waits for an event loop"):
        loop.run(ASKED)


@every_way
def test_a_tool_does_not_run_if_the_hook_before_it_fails(way: Way) -> None:
    ran_tools: list[int] = []

    @tool
    def note(a: int, b: int) -> int:
        """Note that it ran."""
        ran_tools.append(a)
        return a

    class Refusing(LoopHooks):
        def tool_started(self, run: LoopRun, call: ToolCall) -> None:
            message = "the disk is full"
            raise OSError(message)

    with pytest.raises(OSError, match="disk is full"):
        way([calls(1, name="note"), "x"], [note], hooks=[Refusing()])
    assert ran_tools == []


PHASES = ["before_model", "after_model", "before_tools", "tool_started", "tool_finished", "after_tools"]


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("phase", PHASES)
def test_a_hook_that_fails_ends_the_run_in_the_same_way_in_both_colours(phase: str, awaited: bool) -> None:
    def failing(*_: Any) -> None:
        message = "the hook failed"
        raise OSError(message)

    async def failing_later(*_: Any) -> None:
        failing()

    def hook(fails: Any) -> LoopHooks:
        made = LoopHooks()
        setattr(made, phase, fails)
        return made

    with Orchestrator(ScriptedEngine([calls(1), "x"]), [add], hooks=[hook(failing)]) as loop:
        plain = loop.start(ASKED)
        with pytest.raises(OSError, match="the hook failed"):
            list(loop.drive(plain))

    async def main() -> LoopRun:
        engine = AsyncScriptedEngine([calls(1), "x"])
        async with AsyncOrchestrator(engine, [add], hooks=[hook(failing_later if awaited else failing)]) as loop:
            run = loop.start(ASKED)
            with pytest.raises(OSError, match="the hook failed"):
                async for _ in loop.drive(run):
                    pass
            return run

    on_loop = asyncio.run(main())
    for run in (plain, on_loop):
        assert run.conversation.is_valid
        assert run.ending is None
        with pytest.raises(ConfigurationError, match="ended with an error"):
            _ = run.result
    assert [message.role for message in plain.conversation.messages] == [
        message.role for message in on_loop.conversation.messages
    ]


class Steering(LoopHooks):
    def __init__(self, at: str) -> None:
        self.at = at
        self.done = False

    def _steer(self, run: LoopRun, at: str) -> None:
        if at == self.at and not self.done:
            self.done = True
            run.add(Message.user("In metres, please."))

    def after_model(self, run: LoopRun, reply: Any) -> None:
        self._steer(run, "tools" if run.conversation.pending_tool_calls else "end")

    def tool_started(self, run: LoopRun, call: ToolCall) -> None:
        self._steer(run, "during tools")


def test_what_is_said_to_a_reply_that_broke_off_waits_for_the_next_run() -> None:
    broken = Message(role="assistant", blocks=calls(1).blocks, stop_reason=StopReason.INTERRUPTED)
    with Orchestrator(ScriptedEngine(["never"]), [add]) as loop:
        run = loop.start(ASKED.plus(broken))
        run.add(Message.user("And?"))
        step(run.complete(PlainIO(loop.engine, loop.executor)))
    assert [message.text for message in run.unread] == ["And?"]
    assert run.conversation.is_valid


@every_way
@pytest.mark.parametrize("at", ["tools", "during tools", "end"])
def test_a_message_added_meanwhile_is_read_before_the_model_speaks_next(way: Way, at: str) -> None:
    ran = way([calls(1), "Three.", "Three metres."], hooks=[Steering(at)])
    assert ran.result is not None
    roles = [message.role for message in ran.result.conversation.messages]
    expected = {
        "end": ["user", "assistant", "tool", "assistant", "user", "assistant"],
    }.get(at, ["user", "assistant", "tool", "user", "assistant"])
    assert roles == expected
    assert ran.calls[-1].conversation.messages[-1].text == "In metres, please."
    assert ran.result.conversation.is_valid
