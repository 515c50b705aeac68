from __future__ import annotations

import logging

import pytest

from dragoman.conversation import (
    ToolCall,
    ToolFinished,
    ToolResult,
    ToolStarted,
)
from dragoman.tools import ToolExecutor
from tests.tools.cases import Runner, boom, both_colours, call, echo


def test_events_come_in_pairs_with_the_id_of_the_call() -> None:
    with ToolExecutor([echo, boom]) as executor:
        batch = executor.batch([call("echo", '{"text": "x"}'), call("boom", id="2"), call("nope", id="3")])
        events = list(executor.events(batch))
    started = [event.call.id for event in events if isinstance(event, ToolStarted)]
    finished = [event.result.call_id for event in events if isinstance(event, ToolFinished)]
    assert sorted(started) == sorted(finished) == ["1", "2", "3"]
    for id_ in ("1", "2", "3"):
        kinds = [type(e) for e in events if (e.call.id if isinstance(e, ToolStarted) else e.result.call_id) == id_]
        assert kinds == [ToolStarted, ToolFinished]


@both_colours
def test_the_hook_sees_every_call_once(execute_all: Runner) -> None:
    seen: list[tuple[str, str | None]] = []
    executor = ToolExecutor([echo, boom], on_result=lambda c, r: seen.append((c.id, r.error_type)))
    execute_all(executor, [call("echo", '{"text": "x"}'), call("boom", id="2"), call("nope", id="3")])
    assert sorted(seen) == [("1", None), ("2", "execution"), ("3", "not_found")]


def test_a_failing_hook_does_not_hurt_the_call(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_call: ToolCall, _result: ToolResult) -> None:
        raise RuntimeError("hook")

    with ToolExecutor([echo], on_result=broken) as executor:
        assert executor.execute(call("echo", '{"text": "x"}')).text == "x"
    assert "the on_result hook failed for tool echo" in caplog.text


def test_one_log_line_for_each_call_without_the_users_data(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.tools")
    with ToolExecutor([echo, boom]) as executor:
        executor.execute(call("echo", '{"text": "my secret"}'))
        executor.execute(call("boom", id="2"))
    good, bad = caplog.records
    assert (good.levelno, bad.levelno) == (logging.INFO, logging.WARNING)
    assert "tool=echo call_id=1 outcome=ok" in good.message
    assert "arguments=<21 characters> result=<9 characters>" in good.message
    assert "outcome=execution" in bad.message
    assert good.tool_call["tool"] == "echo"  # type: ignore[attr-defined]
    assert "secret" not in caplog.text


def test_without_logging_set_up_nothing_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    with ToolExecutor([boom]) as executor:
        executor.execute(call("boom"))
    assert capfd.readouterr() == ("", "")
