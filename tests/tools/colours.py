"""One set of tests for both colours: each test runs a batch plainly and on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from dragoman.conversation import ToolCall, ToolResult
from dragoman.tools import Executed, ToolExecutor, ToolRun

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
