from __future__ import annotations

import asyncio
import contextvars
import threading
import time

import pytest

from dragoman.tools import ToolConfig, ToolExecutor, tool
from tests.tools.cases import call
from tests.tools.colours import Runner, both_colours


@both_colours
@pytest.mark.parametrize("kind", ["plain tool", "async tool"])
def test_the_cap_on_parallel_calls_is_kept_and_used(execute_all: Runner, kind: str) -> None:
    lock, now, most = threading.Lock(), 0, 0
    together = threading.Barrier(3, timeout=10)

    def enter(change: int) -> None:
        nonlocal now, most
        with lock:
            now += change
            most = max(most, now)

    def plain() -> None:
        enter(1)
        together.wait()  # passes only if three calls really run at the same time
        enter(-1)

    async def on_loop() -> None:
        enter(1)
        await asyncio.to_thread(together.wait)
        enter(-1)

    only = tool(plain if kind == "plain tool" else on_loop, name="t")
    calls = [call("t", id=str(i)) for i in range(9)]
    executed = execute_all(ToolExecutor([only], ToolConfig(max_parallel_tools=3)), calls)
    assert [result.is_error for result in executed.results] == [False] * 9
    assert most == 3


def test_a_cap_of_one_stays_in_the_callers_thread() -> None:
    @tool
    def where() -> str:
        return threading.current_thread().name

    with ToolExecutor([where], ToolConfig(max_parallel_tools=1)) as executor:
        texts = [r.text for r in executor.execute_all([call("where"), call("where", id="2")]).results]
    assert texts == [threading.current_thread().name] * 2


@both_colours
def test_context_variables_reach_the_tool(execute_all: Runner) -> None:
    user = contextvars.ContextVar("user", default="nobody")

    @tool
    def plain() -> str:
        return user.get()

    @tool
    async def on_loop() -> str:
        return user.get()

    token = user.set("me")
    try:
        executed = execute_all(ToolExecutor([plain, on_loop]), [call("plain"), call("on_loop", id="2")])
    finally:
        user.reset(token)
    assert [result.text for result in executed.results] == ["me", "me"]


def test_async_tools_of_a_plain_program_share_one_loop_that_ends_with_the_executor() -> None:
    threads: set[str] = set()

    @tool
    async def where() -> None:
        threads.add(f"{threading.current_thread().name} {id(asyncio.get_running_loop())}")

    before = threading.active_count()
    with ToolExecutor([where]) as executor:
        for _ in range(3):
            executor.execute_all([call("where"), call("where", id="2")])
    assert len(threads) == 1
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before
