"""What happens to one call, where the foreign code around it misbehaves."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from dragoman.conversation import Text, ToolCall, ToolResult
from dragoman.errors import ToolAbortedError, ToolExecutionError
from dragoman.tools.config import RetryConfig, ToolConfig, ToolErrorHandling
from dragoman.tools.context import ToolContext
from dragoman.tools.definition import tool
from dragoman.tools.execution.executor import ToolExecutor
from dragoman.tools.execution.one_tool import execute_tool
from dragoman.tools.execution.run import ToolRun
from tests.tools.execution.colours import Runner, both_colours, one

NO_WAIT = ToolConfig(retry=RetryConfig(backoff_base=0))
CALL = ToolCall("1", "work")


@tool
def work() -> str:
    return "done"


# --- tries -----------------------------------------------------------------------------------------------------------


@both_colours
def test_a_try_that_was_given_up_does_not_live_on_in_the_time_of_the_next(execute_all: Runner) -> None:
    second_begun, seen = threading.Event(), threading.Event()
    first: list[tuple[int, bool]] = []

    @tool(timeout=0.05, retries=1)
    def work(context: ToolContext[None]) -> str:
        if context.attempt == 2:
            second_begun.set()
            return "done"
        second_begun.wait(10)
        first.append((context.attempt, context.cancelled))
        seen.set()
        return "late"

    assert one(execute_all(ToolExecutor([work], NO_WAIT), [CALL])).text == "done"
    assert seen.wait(10)
    assert first == [(1, True)]


@both_colours
def test_a_retry_gets_the_arguments_that_the_model_gave(execute_all: Runner) -> None:
    seen: list[list[int]] = []

    @tool(retries=1)
    def work(numbers: list[int]) -> str:
        seen.append(list(numbers))
        numbers.clear()
        if len(seen) == 1:
            raise OSError("not now")
        return "done"

    asked = ToolCall("1", "work", '{"numbers": [1, 2]}')
    assert one(execute_all(ToolExecutor([work], NO_WAIT), [asked])).text == "done"
    assert seen == [[1, 2], [1, 2]]


@both_colours
def test_a_failure_that_the_tool_puts_into_words_is_a_failure(execute_all: Runner) -> None:
    @tool
    def work() -> ToolResult:
        return ToolResult("", "", (Text("refused"),), is_error=True)

    with pytest.raises(ToolAbortedError, match="refused"):
        execute_all(ToolExecutor([work], ToolConfig(tool_error_handling=ToolErrorHandling.ABORT)), [CALL])
    with pytest.raises(ToolExecutionError, match="refused"):
        execute_tool([work], "work")
    assert one(execute_all(ToolExecutor([work]), [CALL])).text == "refused"


# --- permission ------------------------------------------------------------------------------------------------------


@both_colours
@pytest.mark.parametrize("answer", [None, True, False, "allow"])
def test_a_check_that_says_neither_yes_nor_no_has_not_allowed_anything(execute_all: Runner, answer: Any) -> None:
    async def later(*_: object) -> Any:
        return answer

    for check in (lambda *_: answer, later):
        result = one(execute_all(ToolExecutor([work], permission=check), [CALL]))  # type: ignore[arg-type]
        assert (result.error_type, "Allow, Deny or Ask" in result.text) == ("denied", True)


@both_colours
def test_a_check_that_nobody_waits_for_is_closed(execute_all: Runner) -> None:
    run = ToolRun()

    async def asked(*_: object) -> Any:
        raise AssertionError("never begun")

    def check(*_: object) -> Any:
        run.cancel()
        return asked()  # Python complains, and so fails this test, if nobody ever awaits or closes it

    result = one(execute_all(ToolExecutor([work], permission=check), [CALL], run))
    assert result.error_type == "cancelled"


@both_colours
def test_a_tool_that_cannot_say_whether_it_needs_approval_is_not_run(execute_all: Runner) -> None:
    careful = tool(work.function, name="work", requires_approval=lambda call: bool(call.parsed["path"]))
    result = one(execute_all(ToolExecutor([careful]), [CALL]))
    assert (result.error_type, "KeyError" in result.text) == ("denied", True)


# --- middleware ------------------------------------------------------------------------------------------------------


@both_colours
def test_whatever_middleware_asks_for_answers_the_call_of_the_model(execute_all: Runner) -> None:
    def elsewhere(call: ToolCall, run: ToolRun):  # type: ignore[no-untyped-def]
        yield ToolCall("other id", "work", "")

    def other() -> str:
        return "not this"

    result = one(execute_all(ToolExecutor([other, work], middleware=[elsewhere]), [ToolCall("1", "other")]))
    assert (result.call_id, result.name, result.text) == ("1", "other", "done")
    approved = tool(work.function, name="work", requires_approval=True)
    [pending] = execute_all(ToolExecutor([other, approved], middleware=[elsewhere]), [ToolCall("1", "other")]).pending
    assert (pending.call.id, pending.call.name) == ("1", "work")


@both_colours
def test_middleware_may_make_a_failure_of_a_result(execute_all: Runner) -> None:
    def strict(call: ToolCall, run: ToolRun):  # type: ignore[no-untyped-def]
        yield
        return ToolResult(call.id, call.name, (Text("not good enough"),), is_error=True)

    abort = ToolConfig(tool_error_handling=ToolErrorHandling.ABORT)
    with pytest.raises(ToolAbortedError, match="not good enough"):
        execute_all(ToolExecutor([work], abort, middleware=[strict]), [CALL])


@both_colours
def test_middleware_that_fails_while_it_is_closed_hurts_nobody(
    execute_all: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[str] = []

    def outer(call: ToolCall, run: ToolRun):  # type: ignore[no-untyped-def]
        try:
            yield
        finally:
            closed.append("outer")

    def broken(call: ToolCall, run: ToolRun):  # type: ignore[no-untyped-def]
        try:
            yield
        finally:
            closed.append("broken")
            raise OSError("no luck")

    approved = tool(work.function, name="work", requires_approval=True)
    with caplog.at_level(logging.ERROR):
        executed = execute_all(ToolExecutor([approved], middleware=[outer, broken]), [CALL, ToolCall("2", "work")])
    assert [pending.call.id for pending in executed.pending] == ["1", "2"]
    assert closed == ["broken", "outer"] * 2  # from the inside out
    assert "a middleware failed while it was being closed" in caplog.text
