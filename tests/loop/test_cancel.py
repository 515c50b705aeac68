"""Leaving a run at any point leaves a valid history."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dragoman._stepping import step, step_through
from dragoman.conversation import (
    Conversation,
    Event,
    Message,
    TextDelta,
)
from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from dragoman.loop import AsyncOrchestrator, Cancelled, Done, Orchestrator, PlainIO
from dragoman.tools import tool
from tests.loop.running import ASKED, add, calls

SCRIPT = [Message.assistant("I add.", *calls(1, 2).blocks), "Three and four."]


def _events_of(script: list[Any]) -> int:
    with Orchestrator(ScriptedEngine(script, piece=3), [add]) as loop, loop.stream(ASKED) as stream:
        return len(list(stream))


TOTAL = _events_of(SCRIPT)


@given(st.integers(0, TOTAL), st.booleans())
def test_leaving_a_stream_anywhere_leaves_a_valid_history_that_can_be_continued(left_at: int, told: bool) -> None:
    seen: list[Event] = []
    with Orchestrator(ScriptedEngine([*SCRIPT, "Again."], piece=3), [add]) as loop:
        with loop.stream(ASKED) as stream:
            for number, event in enumerate(stream):
                seen.append(event)
                if number == left_at:
                    if not told:
                        break
                    stream.cancel()
        conversation = stream.conversation
        assert conversation.is_valid
        said = "".join([event.text for event in seen if isinstance(event, TextDelta)])
        assert "".join([each.text for each in conversation.messages if each.role == "assistant"]) == said
        assert isinstance(stream.result.ending, Cancelled | Done)
        again = loop.run(conversation.plus(Message.user("Go on."))) if left_at < TOTAL else None
        assert again is None or again.conversation.is_valid


@given(st.integers(0, TOTAL))
def test_leaving_an_async_stream_anywhere_leaves_a_valid_history(left_at: int) -> None:
    async def main() -> Conversation:
        async with AsyncOrchestrator(AsyncScriptedEngine(SCRIPT, piece=3), [add]) as loop:
            async with loop.stream(ASKED) as stream:
                number = 0
                async for _ in stream:
                    if number == left_at:
                        break
                    number += 1
            assert not asyncio.all_tasks() - {asyncio.current_task()}
            return stream.conversation

    assert asyncio.run(main()).is_valid


@pytest.mark.parametrize("streamed", [False, True])
def test_cancelling_while_a_tool_runs_ends_the_run_at_once(streamed: bool) -> None:
    started, release = threading.Event(), threading.Event()

    @tool
    def slow(a: int, b: int) -> int:
        """Takes its time."""
        started.set()
        release.wait(30)
        return a

    # Two calls: a single one runs in the caller's own thread, which nobody can walk away from.
    engine = ScriptedEngine([Message.assistant(*calls(1, name="slow").blocks, *calls(2).blocks), "never"])
    with Orchestrator(engine, [slow, add]) as loop:
        run = loop.start(ASKED)

        def cancel() -> None:
            started.wait(30)
            run.cancel()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        for _ in step_through(run.events(PlainIO(loop.engine, loop.executor), streamed=streamed)):
            pass
        canceller.join()
        release.set()
        assert isinstance(run.result.ending, Cancelled)
        assert run.conversation.is_valid
        assert run.conversation.messages[-1].tool_results[0].error_type == "cancelled"


def test_ctrl_c_in_a_tool_leaves_a_valid_history() -> None:
    @tool
    def interrupted(a: int, b: int) -> int:
        """Is interrupted."""
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
        return a + b

    with Orchestrator(ScriptedEngine([calls(1, name="interrupted")]), [interrupted]) as loop:
        run = loop.start(ASKED)
        with pytest.raises(KeyboardInterrupt):
            step(run.complete(PlainIO(loop.engine, loop.executor)))
        assert run.conversation.is_valid
        assert isinstance(run.result.ending, Cancelled)
