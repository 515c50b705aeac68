"""Threads, signals and the loop thread of a plain program."""

from __future__ import annotations

import asyncio
import math
import signal
import threading
import time
from typing import Any

import pytest

from dragoman.conversation import ToolCall
from dragoman.tools.config import ToolConfig
from dragoman.tools.definition import tool
from dragoman.tools.execution.executor import ToolExecutor
from dragoman.tools.execution.run import ToolRun


def calls(*names: str) -> list[ToolCall]:
    return [ToolCall(str(number), name) for number, name in enumerate(names, 1)]


@tool
async def aecho() -> str:
    await asyncio.sleep(0)
    return "x"


@pytest.mark.parametrize("exit_kind", [SystemExit, KeyboardInterrupt])
def test_an_async_tool_cannot_end_the_loop_of_the_others(exit_kind: type[BaseException]) -> None:
    async def leave() -> None:
        raise exit_kind("bye")

    with ToolExecutor([leave, aecho]) as executor:
        left, stayed = executor.execute_all(calls("leave", "aecho")).results
        assert (left.error_type, exit_kind.__name__ in left.text, stayed.text) == ("execution", True, "x")
        assert executor.execute_all(calls("aecho")).results[0].text == "x"


@pytest.mark.parametrize("plainly", [True, False])
def test_an_async_tool_that_would_wait_for_its_own_loop_is_told_so(plainly: bool) -> None:
    async def outer() -> str:
        return executor.execute(ToolCall("2", "inner")).text

    async def inner() -> str:
        return "x"

    def sneaky() -> Any:
        return inner()

    executor = ToolExecutor([outer, tool(sneaky, name="inner") if plainly else inner])
    with executor:
        assert "its own event loop would stand still" in executor.execute(ToolCall("1", "outer")).text


@pytest.mark.parametrize("seconds", [math.inf, 1e30])
def test_a_tool_may_have_all_the_time_in_the_world(seconds: float) -> None:
    @tool(timeout=seconds)
    def slow() -> str:
        time.sleep(0.05)
        return "done"

    with ToolExecutor([slow], ToolConfig(execution_timeout=0.01)) as executor:
        assert executor.execute(ToolCall("1", "slow")).text == "done"
        assert asyncio.run(executor.aexecute(ToolCall("1", "slow"))).text == "done"


@pytest.mark.slow
def test_a_signal_handler_may_cancel_the_run() -> None:
    current = ToolRun()

    @tool
    def nap() -> None:
        time.sleep(0.001)

    before = signal.signal(signal.SIGALRM, lambda *_: current.cancel())
    try:
        with ToolExecutor([nap, aecho]) as executor:
            for number in range(400):  # at many moments of a run, the waiting among them
                current = ToolRun()
                signal.setitimer(signal.ITIMER_REAL, 0.00005 * (number % 40 + 1))
                results = executor.execute_all(calls("nap", "aecho"), current).results
                assert {result.error_type for result in results} <= {None, "cancelled"}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_tool_that_returns_a_coroutine_waits_for_it_on_the_loop_thread() -> None:
    async def where() -> str:
        return threading.current_thread().name

    def sneaky() -> Any:
        return where()

    with ToolExecutor([sneaky]) as executor:
        assert executor.execute(ToolCall("1", "sneaky")).text == "dragoman-loop"
