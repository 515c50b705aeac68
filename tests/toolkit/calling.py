"""Calling the ready tools through the executor, as a run does, in both colours."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dragoman.conversation import ToolCall, ToolResult
from dragoman.tools import AnyTool, ToolConfig, ToolExecutor, ToolRun
from tests.tools.cases import Runner, one, run_async, run_plain

Call = Callable[..., ToolResult]


def _calling(execute_all: Runner) -> Call:
    def called(
        tool: AnyTool, *, run: ToolRun | None = None, config: ToolConfig | None = None, **arguments: object
    ) -> ToolResult:
        made = ToolCall("1", tool.name, json.dumps(arguments))
        return one(execute_all(ToolExecutor([tool], config), [made], run))

    return called


call, acall = _calling(run_plain), _calling(run_async)
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
