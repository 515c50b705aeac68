"""Tools and calls that many tests of the executor use, and one set of tests for both colours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import pytest

from dragoman.conversation import ToolCall, ToolResult
from dragoman.tools import Executed, RetryConfig, Tool, ToolExecutor, ToolRun, tool
from dragoman.tools.arguments.reader import Arguments

NO_WAIT = RetryConfig(backoff_base=0)


@tool
def echo(text: str) -> str:
    return text


@tool
async def aecho(text: str) -> str:
    await asyncio.sleep(0)
    return text


@tool
def boom() -> None:
    raise ValueError("no luck")


@tool
async def aboom() -> None:
    raise ValueError("no luck")


def call(name: str, arguments: str = "", id: str = "1") -> ToolCall:
    return ToolCall(id, name, arguments)


def eventually(happened: Callable[[], bool]) -> bool:
    """Whether something happens within ten seconds: what ends in another thread or process may take a moment."""
    end = time.monotonic() + 10
    while not happened() and time.monotonic() < end:
        time.sleep(0.005)
    return happened()


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait until something has happened in another thread; fail if it does not."""
    assert eventually(happened)


def arguments_of(function: Callable[..., object]) -> Arguments:
    return Tool.from_function(function, name="it").arguments


def values_of(arguments: Arguments, text: str) -> tuple[object, ...]:
    """What a call with this JSON gives to the function, in the order of its parameters."""
    positional, keywords = arguments.bind(arguments.decode(text))
    return (*positional, *keywords.values())


Runner = Callable[..., Executed]


def run_plain(executor: ToolExecutor, calls: Iterable[ToolCall], run: ToolRun | None = None) -> Executed:
    with executor:
        return executor.execute_all(calls, run)


def run_async(executor: ToolExecutor, calls: Iterable[ToolCall], run: ToolRun | None = None) -> Executed:
    async def main() -> Executed:
        async with executor:
            executed = await executor.aexecute_all(calls, run)
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            assert not left, f"tasks left behind: {left}"
            return executed

    return asyncio.run(main())


both_colours = pytest.mark.parametrize("execute_all", [run_plain, run_async], ids=["plain", "async"])


def one(executed: Executed) -> ToolResult:
    [result] = executed.results
    assert executed.pending == ()
    return result
