from __future__ import annotations

import asyncio
import contextvars
import threading
import time

import pytest

from dragoman.conversation import ToolCall
from dragoman.tools import ToolConfig, ToolExecutor, ToolRun, tool
from tests.tools.cases import Runner, both_colours, call


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


def test_what_a_plain_tool_gives_the_event_loop_to_do_is_done_before_its_result_is_known() -> None:
    async def main() -> None:
        loop, seen = asyncio.get_running_loop(), list[str]()

        @tool
        def tell(text: str) -> None:
            loop.call_soon_threadsafe(seen.append, text)

        def slow(call: ToolCall, run: ToolRun):  # type: ignore[no-untyped-def]
            if call.id == "2":  # meanwhile the first one ends, and the loop cannot know
                time.sleep(0.2)
            yield

        executor = ToolExecutor([tell], middleware=[slow], on_result=lambda call, _: seen.append(f"result {call.id}"))
        async with executor:
            await executor.aexecute_all([call("tell", '{"text": "told 1"}'), call("tell", '{"text": "told 2"}', "2")])
        assert [each for each in seen if each.endswith("1")] == ["told 1", "result 1"]

    asyncio.run(main())


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
