from __future__ import annotations

import asyncio
import time
from concurrent import futures

import pytest

from dragoman.conversation import (
    ToolCall,
)
from dragoman.errors import ToolExecutionError
from dragoman.tools import ToolConfig, ToolExecutor, tool
from tests.tools.cases import Runner, aboom, aecho, boom, both_colours, call, echo, one


@both_colours
@pytest.mark.parametrize("name", ["echo", "aecho"])
def test_tools_of_both_kinds_run_in_both_colours(execute_all: Runner, name: str) -> None:
    result = one(execute_all(ToolExecutor([echo, aecho]), [call(name, '{"text": "hi"}')]))
    assert (result.text, result.is_error, result.name, result.call_id, result.retries) == ("hi", False, name, "1", 0)
    assert result.duration is not None


@both_colours
@pytest.mark.parametrize("name", ["boom", "aboom"])
def test_a_crashing_tool_becomes_an_error_result(execute_all: Runner, name: str) -> None:
    result = one(execute_all(ToolExecutor([boom, aboom]), [call(name)]))
    assert result.is_error
    assert result.error_type == "execution"
    assert result.text == f"executing tool '{name}': ValueError: no luck"


@both_colours
def test_an_unknown_tool_names_the_nearest(execute_all: Runner) -> None:
    result = one(execute_all(ToolExecutor([echo]), [call("ecko")]))
    assert (result.error_type, result.text) == ("not_found", "tool 'ecko' not found. Did you mean 'echo'?")


@both_colours
@pytest.mark.parametrize("arguments", ['{"text": 3}', "{}", '{"text": "x", "more": 1}', "[1]", '{"text"', "nonsense"])
def test_arguments_that_do_not_fit_are_told_in_one_line(execute_all: Runner, arguments: str) -> None:
    result = one(execute_all(ToolExecutor([echo]), [call("echo", arguments)]))
    assert result.error_type == "validation"
    assert result.text.startswith("invalid arguments for tool 'echo': ")
    assert "\n" not in result.text


@both_colours
def test_a_call_that_broke_off_is_not_run(execute_all: Runner) -> None:
    broken = ToolCall("1", "echo", '{"text": "x"}', partial=True)
    assert one(execute_all(ToolExecutor([echo]), [broken])).error_type == "validation"
    with ToolExecutor([echo]) as executor:
        assert executor.execute(broken).error_type == "validation"


@both_colours
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("cap", [1, 5])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "kind", [SystemExit, GeneratorExit, asyncio.CancelledError, futures.CancelledError, StopIteration]
)
def test_whatever_a_tool_raises_is_its_result(
    execute_all: Runner, count: int, cap: int, is_async: bool, kind: type[BaseException]
) -> None:
    def leave() -> None:
        raise kind("bye")

    async def aleave() -> None:
        raise kind("bye")

    leaving = tool(aleave if is_async else leave, name="leave")
    calls = [call("leave", id=str(number)) for number in range(count)]
    executed = execute_all(ToolExecutor([leaving], ToolConfig(max_parallel_tools=cap)), calls)
    expected = "cancelled" if kind.__name__ == "CancelledError" else "execution"
    assert [result.error_type for result in executed.results] == [expected] * count


@both_colours
@pytest.mark.parametrize("count", [1, 2])
def test_a_keyboard_interrupt_of_another_thread_is_a_result_too(execute_all: Runner, count: int) -> None:
    def press() -> None:  # in a worker, where Ctrl-C of the user never arrives
        raise KeyboardInterrupt

    calls = [call("press", id=str(number)) for number in range(count)]
    results = execute_all(ToolExecutor([press]), calls).results
    assert [result.error_type for result in results] == ["execution"] * count


@both_colours
def test_a_tool_may_choose_the_text_of_its_failure(execute_all: Runner) -> None:
    def picky() -> None:
        raise ToolExecutionError("Only on weekdays.")

    assert one(execute_all(ToolExecutor([picky]), [call("picky")])).text == "Only on weekdays."


@both_colours
def test_results_keep_the_order_of_the_calls(execute_all: Runner) -> None:
    @tool
    def nap(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    naps = [0.05, 0.0, 0.03, 0.01]
    executed = execute_all(ToolExecutor([nap]), [call("nap", f'{{"seconds": {s}}}', str(s)) for s in naps])
    assert [result.call_id for result in executed.results] == [str(s) for s in naps]
