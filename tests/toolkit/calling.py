"""Calling the ready tools through the executor, as a run does, in both colours."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dragoman.conversation import ToolCall, ToolResult
from dragoman.tools import AnyTool, ToolConfig, ToolExecutor, ToolRun

Call = Callable[..., ToolResult]


def call(
    tool: AnyTool, *, run: ToolRun | None = None, config: ToolConfig | None = None, **arguments: object
) -> ToolResult:
    """Call a tool in a plain program."""
    with ToolExecutor([tool], config) as executor:
        return executor.execute(ToolCall("1", tool.name, json.dumps(arguments)), run)


def acall(
    tool: AnyTool, *, run: ToolRun | None = None, config: ToolConfig | None = None, **arguments: object
) -> ToolResult:
    """Call a tool on an event loop."""

    async def main() -> ToolResult:
        async with ToolExecutor([tool], config) as executor:
            return await executor.aexecute(ToolCall("1", tool.name, json.dumps(arguments)), run)

    return asyncio.run(main())


both_colours = pytest.mark.parametrize("called", [call, acall], ids=["plain", "async"])


def words(text: str) -> list[str]:
    """The words of a table, which is easier to read in lines than in a column."""
    return text.split()


def good(result: ToolResult) -> str:
    assert not result.is_error, result.text
    return result.text


def bad(result: ToolResult, kind: str) -> str:
    assert (result.is_error, result.error_type) == (True, kind), result.text
    return result.text


def eventually(happened: Callable[[], bool]) -> bool:
    """Whether something happens within ten seconds: what ends in another thread or process may take a moment."""
    end = time.monotonic() + 10
    while not happened() and time.monotonic() < end:
        time.sleep(0.02)
    return happened()


@contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    """Repeat an action in another thread until the block ends."""
    done = threading.Event()
    problems: list[BaseException] = []

    def repeat() -> None:
        try:
            while not done.is_set():
                action()
        except BaseException as error:  # noqa: BLE001 -- shown below
            problems.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert not problems, problems
