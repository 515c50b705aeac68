from __future__ import annotations

import asyncio
import threading
import time

import pytest

from dragoman.conversation import (
    ToolFinished,
)
from dragoman.tools import ToolConfig, ToolContext, ToolExecutor, ToolRun, tool
from tests.tools.cases import call, echo
from tests.tools.colours import Runner, both_colours, one


@both_colours
def test_cancelling_the_run_ends_it_with_a_result_for_every_call(execute_all: Runner) -> None:
    run = ToolRun()

    @tool
    def waits(context: ToolContext[None]) -> str:
        threading.Timer(0.05, run.cancel).start()
        while not context.cancelled:
            time.sleep(0.005)
        context.raise_if_cancelled()
        return "never"

    executor = ToolExecutor([waits, echo], ToolConfig(max_parallel_tools=2))
    calls = [call("waits"), call("waits", id="2"), call("echo", '{"text": "x"}', "3")]
    executed = execute_all(executor, calls, run)
    assert [r.error_type for r in executed.results] == ["cancelled"] * 3
    assert one(execute_all(executor, [call("echo", '{"text": "x"}')], run)).error_type == "cancelled"


def test_cancelling_the_task_leaves_complete_results_and_nothing_running() -> None:
    cleaned: list[str] = []

    @tool
    async def waits() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            cleaned.append("cleaned up")

    async def main() -> None:
        async with ToolExecutor([waits, echo]) as executor:
            batch = executor.batch([call("waits"), call("echo", '{"text": "x"}', "2")])
            one_is_done = asyncio.Event()

            async def consume() -> None:
                async for event in executor.aevents(batch):
                    if isinstance(event, ToolFinished):
                        one_is_done.set()

            task = asyncio.create_task(consume())
            await one_is_done.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [r.error_type for r in batch.results] == ["cancelled", None]
            assert cleaned == ["cleaned up"]
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_ctrl_c_in_the_callers_thread_goes_through_and_leaves_complete_results() -> None:
    @tool
    def interrupted() -> None:
        raise KeyboardInterrupt

    with ToolExecutor([interrupted, echo], ToolConfig(max_parallel_tools=1)) as executor:
        batch = executor.batch([call("echo", '{"text": "x"}'), call("interrupted", id="2"), call("echo", "{}", "3")])
        with pytest.raises(KeyboardInterrupt):
            list(executor.events(batch))
    assert [r.error_type for r in batch.results] == [None, "cancelled", "cancelled"]


def test_leaving_the_events_early_cancels_the_rest() -> None:
    release = threading.Event()

    @tool
    def slow() -> None:
        release.wait(30)

    with ToolExecutor([slow, echo]) as executor:
        batch = executor.batch([call("slow"), call("echo", '{"text": "x"}', "2")])
        events = executor.events(batch)
        for event in events:
            if isinstance(event, ToolFinished):
                break
        events.close()
        assert [r.error_type for r in batch.results] == ["cancelled", None]
        assert executor.abandoned == 1
        release.set()
