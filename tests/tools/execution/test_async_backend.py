"""Plain functions under an event loop, and cancelling a run from elsewhere."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.conversation import ToolCall
from dragoman.tools.definition import tool
from dragoman.tools.execution.executor import ToolExecutor
from dragoman.tools.execution.run import ToolRun


def test_a_function_that_raises_stop_iteration_has_its_result() -> None:
    @tool
    def first() -> str:
        return next(iter(()))

    async def main() -> None:
        async with ToolExecutor([first]) as executor:
            result = await asyncio.wait_for(executor.aexecute(ToolCall("1", "first")), timeout=10)
            assert (result.error_type, "StopIteration" in result.text) == ("execution", True)

    asyncio.run(main())


def test_a_run_may_be_cancelled_when_the_loop_of_its_events_is_gone() -> None:
    @tool
    async def wait() -> None:
        await asyncio.sleep(30)

    run = ToolRun()
    loop = asyncio.new_event_loop()
    with ToolExecutor([wait]) as executor:
        events = executor.aevents(executor.batch([ToolCall("1", "wait")], run))
        loop.run_until_complete(anext(events))
        listening = list(run._listeners)
        loop.run_until_complete(events.aclose())
    loop.close()
    for listener in listening:  # as `cancel` does that has begun before the events were closed
        listener()
    run.cancel()
    assert run.cancelled


def test_a_cancelled_group_of_tasks_leaves_nothing_behind() -> None:
    async def main() -> None:
        begun = asyncio.Event()

        @tool
        async def wait() -> None:
            begun.set()
            await asyncio.sleep(30)

        async def boom() -> None:
            await begun.wait()
            raise ValueError("no luck")

        async def together(executor: ToolExecutor) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(executor.aexecute_all([ToolCall("1", "wait"), ToolCall("2", "wait")]))
                group.create_task(boom())

        async with ToolExecutor([wait]) as executor:
            with pytest.raises(ExceptionGroup):
                await together(executor)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
