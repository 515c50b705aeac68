"""Leaving a run at any point leaves a valid history."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dragoman._stepping import exhaust, step
from dragoman.conversation import (
    Event,
    Message,
    TextDelta,
)
from dragoman.engines import ScriptedEngine
from dragoman.loop import Cancelled, Done, Orchestrator, PlainIO
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
            step(exhaust(run.events(PlainIO(loop.engine, loop.executor), streamed=False)))
        assert run.conversation.is_valid
        assert isinstance(run.result.ending, Cancelled)
