"""Hooks see every phase, in order; what is said meanwhile is heard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dragoman._stepping import exhaust, step
from dragoman.conversation import (
    Message,
    StopReason,
    ToolCall,
)
from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from dragoman.errors import ConfigurationError
from dragoman.loop import AsyncOrchestrator, AsyncRunStream, LoopHooks, LoopRun, Orchestrator, PlainIO
from dragoman.tools import tool
from tests.loop.running import ASKED, Way, add, calls, every_way

PHASES = ["before_model", "after_model", "before_tools", "tool_started", "tool_finished", "after_tools"]


def hooks_with(phases: list[str], make: Callable[[str], Any]) -> LoopHooks:
    hooks = LoopHooks()
    for phase in phases:
        setattr(hooks, phase, make(phase))
    return hooks


@every_way
def test_hooks_are_called_in_order(way: Way) -> None:
    noted: list[str] = []

    def make(phase: str) -> Callable[..., None]:
        def note(run: LoopRun, *what: Any) -> None:
            assert run.conversation.is_valid or phase not in ("before_model", "after_tools")
            assert phase != "after_model" or run.conversation.last == what[0].message
            noted.append(phase)

        return note

    way([calls(1), "Three."], hooks=[hooks_with(PHASES, make)])
    assert noted == [*PHASES, "before_model", "after_model"]


def test_an_async_hook_in_a_plain_run_is_an_error_that_says_so() -> None:
    class Slow(LoopHooks):
        async def before_model(self, run: LoopRun) -> None:
            await asyncio.sleep(0)

    loop = Orchestrator(ScriptedEngine(["x"]), hooks=[Slow()])
    with loop, pytest.raises(ConfigurationError, match="awaits an event loop"):
        loop.run(ASKED)


SCRIPT = [calls(1, name="note"), "x"]


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("phase", PHASES)
def test_a_hook_that_fails_ends_the_run_in_the_same_way_in_both_colours(phase: str, awaited: bool) -> None:
    ran: list[int] = []

    @tool
    def note(a: int, b: int) -> int:
        """Note that it ran."""
        ran.append(a)
        return a

    def failing(*_: Any) -> None:
        message = "the hook failed"
        raise OSError(message)

    async def failing_later(*_: Any) -> None:
        failing()

    with Orchestrator(ScriptedEngine(SCRIPT), [note], hooks=[hooks_with([phase], lambda _: failing)]) as loop:
        plain = loop.stream(ASKED)
        with pytest.raises(OSError, match="the hook failed"):
            list(plain)

    async def main() -> AsyncRunStream:
        engine = AsyncScriptedEngine(SCRIPT)
        hooks = hooks_with([phase], lambda _: failing_later if awaited else failing)
        async with AsyncOrchestrator(engine, [note], hooks=[hooks]) as loop:
            stream = loop.stream(ASKED)
            with pytest.raises(OSError, match="the hook failed"):
                async for _ in stream:
                    pass
            return stream

    on_loop = asyncio.run(main())
    assert bool(ran) == (phase in ("tool_finished", "after_tools"))
    for run in (plain, on_loop):
        assert run.conversation.is_valid
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


def test_messages_added_to_an_interrupted_reply_wait_for_the_next_run() -> None:
    broken = Message(role="assistant", blocks=calls(1).blocks, stop_reason=StopReason.INTERRUPTED)
    with Orchestrator(ScriptedEngine(["never"]), [add]) as loop:
        run = loop.start(ASKED.plus(broken))
        run.add(Message.user("And?"))
        step(exhaust(run.events(PlainIO(loop.engine, loop.executor), streamed=False)))
    assert [message.text for message in run.unread] == ["And?"]
    assert run.conversation.is_valid


@every_way
@pytest.mark.parametrize("at", ["tools", "during tools", "end"])
def test_a_message_added_during_a_turn_is_read_before_the_next_reply(way: Way, at: str) -> None:
    ran = way([calls(1), "Three.", "Three metres."], hooks=[Steering(at)])
    roles = [message.role for message in ran.result.conversation.messages]
    answered = ["assistant"] if at == "end" else []
    assert roles == ["user", "assistant", "tool", *answered, "user", "assistant"]
    assert ran.calls[-1].conversation.messages[-1].text == "In metres, please."
    assert ran.result.conversation.is_valid
