from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dragoman.errors import ConfigurationError, ToolAbortedError, ToolExecutionError
from dragoman.tools import RetryConfig, ToolConfig, ToolContext, ToolErrorHandling, ToolExecutor, ToolRun, tool
from tests.tools.cases import NO_WAIT, Runner, aecho, boom, both_colours, call, echo, one


@both_colours
def test_abort_really_aborts_and_loses_nothing(execute_all: Runner) -> None:
    release = threading.Event()

    @tool
    def slow() -> str:
        release.wait(30)
        return "late"

    executor = ToolExecutor(
        [slow, boom, echo], ToolConfig(tool_error_handling=ToolErrorHandling.ABORT, max_parallel_tools=2)
    )
    calls = [call("slow"), call("boom", id="2"), call("echo", '{"text": "x"}', "3")]
    with pytest.raises(ToolAbortedError, match="no luck") as caught:
        execute_all(executor, calls)
    release.set()
    assert [r.error_type for r in caught.value.results] == ["cancelled", "execution", "cancelled"]
    assert "tool 'boom' failed and the run was aborted" in caught.value.results[2].text
    assert isinstance(caught.value.__cause__, ToolExecutionError)


@both_colours
def test_how_errors_are_handled_may_be_said_by_name(execute_all: Runner) -> None:
    config: Any = {"tool_error_handling": "abort"}
    with pytest.raises(ToolAbortedError):
        execute_all(ToolExecutor([boom], ToolConfig(**config)), [call("boom")])


@both_colours
def test_only_allowed_tools_run(execute_all: Runner) -> None:
    executor = ToolExecutor([echo, aecho], ToolConfig(allowed_tools=frozenset(["aecho"])))
    result = one(execute_all(executor, [call("echo", '{"text": "x"}')]))
    assert result.error_type == "not_found"
    assert "'aecho'" in result.text


@both_colours
def test_budgets_hold_over_a_run(execute_all: Runner) -> None:
    twice = tool(echo.function, name="twice", budget=2)
    executor = ToolExecutor([twice, echo], ToolConfig(budgets={"echo": 1, "twice": 99}))
    text = '{"text": "x"}'
    run = ToolRun()
    first = execute_all(executor, [call("twice", text), call("echo", text, "2")], run)
    second = execute_all(executor, [call("twice", text), call("echo", text, "2"), call("twice", text, "3")], run)
    assert [r.error_type for r in first.results] == [None, None]
    assert [r.error_type for r in second.results] == [None, "budget", "budget"]
    assert "2 times" in second.results[2].text


@pytest.mark.parametrize(
    "settings",
    [
        {"max_parallel_tools": 0},
        {"max_iterations": -1},
        {"execution_timeout": -1.0},
        {"run_timeout": float("nan")},
        {"budgets": {"x": -1}},
        {"max_result_size": -1},
        {"tool_error_handling": "nonsense"},
        {"allowed_tools": "read_file"},  # not every tool whose name is a part of it
        {"retry": 3},
        {"tool_eror_handling": "abort"},
    ],
)
def test_senseless_configuration_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        ToolConfig(**settings)
    with pytest.raises(ConfigurationError, match="jitter"):
        RetryConfig(jitter=-1)


def test_a_budget_holds_under_many_threads() -> None:
    run, spent = ToolRun(), []
    together = threading.Barrier(8)

    def spend() -> None:
        together.wait()
        spent.extend(run.spend("f", 50) for _ in range(50))

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spent.count(True) == run.counts["f"] == 50
    assert run.spend("g", None)


class Flaky:
    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.attempts: list[int] = []

    def __call__(self, context: ToolContext[None]) -> str:
        self.attempts.append(context.attempt)
        if len(self.attempts) <= self.failures:
            raise OSError("not now")
        return "done"


RETRY = ToolConfig(tool_error_handling=ToolErrorHandling.RETRY, retry=NO_WAIT)
CONTINUE = ToolConfig(retry=NO_WAIT)


@both_colours
@pytest.mark.parametrize(
    ("config", "retries", "failures", "attempts", "ok"),
    [
        (CONTINUE, None, 1, 1, False),  # nobody allowed a retry
        (CONTINUE, 2, 2, 3, True),  # the tool allows it
        (CONTINUE, 1, 5, 2, False),
        (RETRY, None, 2, 3, True),  # the policy allows it
        (RETRY, None, 9, 3, False),
        (RETRY, 0, 1, 1, False),  # the tool forbids it
    ],
)
def test_retries_where_the_tool_or_the_policy_allows_them(
    execute_all: Runner, config: ToolConfig, retries: int | None, failures: int, attempts: int, ok: bool
) -> None:
    flaky = Flaky(failures)
    result = one(execute_all(ToolExecutor([tool(flaky, name="flaky", retries=retries)], config), [call("flaky")]))
    assert flaky.attempts == list(range(1, attempts + 1))
    assert (result.is_error, result.retries) == (not ok, attempts - 1)


@both_colours
def test_a_timeout_is_retried_too(execute_all: Runner) -> None:
    attempts: list[int] = []

    @tool(timeout=0.05, retries=1)
    async def slow_at_first(context: ToolContext[None]) -> str:
        attempts.append(context.attempt)
        await asyncio.sleep(0 if context.attempt == 2 else 30)
        return "done"

    result = one(execute_all(ToolExecutor([slow_at_first], CONTINUE), [call("slow_at_first")]))
    assert (result.text, result.retries, attempts) == ("done", 1, [1, 2])


@both_colours
def test_what_cannot_end_better_is_not_retried(execute_all: Runner) -> None:
    executor = ToolExecutor([tool(echo.function, name="echo", retries=5)], RETRY)
    assert one(execute_all(executor, [call("echo", "{}")])).retries == 0


@both_colours
def test_the_wait_is_really_taken(execute_all: Runner) -> None:
    config = ToolConfig(retry=RetryConfig(backoff_base=0.1, jitter=0))
    result = one(execute_all(ToolExecutor([tool(Flaky(1), name="flaky", retries=1)], config), [call("flaky")]))
    assert result.duration is not None
    assert result.duration >= 0.1
