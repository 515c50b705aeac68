from __future__ import annotations

import threading
from typing import Any

import pytest

from dragoman.errors import ConfigurationError, ToolAbortedError, ToolExecutionError
from dragoman.tools import RetryConfig, ToolConfig, ToolErrorHandling, ToolExecutor, ToolRun, tool
from tests.tools.cases import aecho, boom, call, echo
from tests.tools.colours import Runner, both_colours, one


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
    ],
)
def test_senseless_configuration_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        ToolConfig(**settings)
    with pytest.raises(ConfigurationError, match="jitter"):
        RetryConfig(jitter=-1)
