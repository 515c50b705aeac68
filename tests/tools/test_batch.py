"""What becomes of calls that are done, cancelled, given up, or cannot even begin."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from dragoman._stop import Stop, current_stop, sleep
from dragoman.conversation import ToolCall, ToolFinished, ToolStarted
from dragoman.errors import ToolAbortedError
from dragoman.tools import (
    Allow,
    Decision,
    Deny,
    ToolConfig,
    ToolContext,
    ToolErrorHandling,
    ToolExecutor,
    ToolRun,
    tool,
)
from tests.tools.cases import Runner, call, echo, one, wait_until

ABORT = ToolConfig(tool_error_handling=ToolErrorHandling.ABORT)


def calls(*names: str) -> list[ToolCall]:
    return [ToolCall(str(number), name) for number, name in enumerate(names, 1)]


def test_a_call_that_was_done_when_another_aborted_keeps_its_result(execute_all: Runner) -> None:
    together = threading.Barrier(2, timeout=10)  # or the second call would take the thread of the first

    def pay() -> str:
        together.wait()
        return "paid"

    def boom() -> None:
        together.wait()
        raise ValueError("no luck")

    def third() -> None: ...

    def busy(call: ToolCall, run: ToolRun):  # type: ignore[no-untyped-def]
        if call.name == "third":  # it keeps the scheduler from looking until both others are done
            wait_until(lambda: len(executor._workers._idle) >= 2)
            time.sleep(0.05)  # and have told of it
        yield

    executor = ToolExecutor([pay, boom, third], ABORT, middleware=[busy])
    with pytest.raises(ToolAbortedError) as caught:
        execute_all(executor, calls("boom", "pay", "third"))
    failed, done, _ = caught.value.results
    assert (failed.error_type, done.text) == ("execution", "paid")


def test_a_call_that_ends_while_another_is_judged_is_not_waited_for_any_more(execute_all: Runner) -> None:
    async def check(call: ToolCall, *_: object) -> Decision:
        if call.name == "first":
            return Allow()
        await asyncio.to_thread(wait_until, lambda: bool(executor._workers._idle))
        await asyncio.sleep(0.05)  # the first one has told of its end by now, and nothing else will ring
        return Deny("not now")

    def first() -> str:
        return "done"

    executor = ToolExecutor([first, tool(first, name="second")], permission=check)
    done, denied = execute_all(executor, calls("first", "second")).results
    assert (done.text, denied.error_type) == ("done", "denied")


@pytest.mark.parametrize("how", ["abort", "leave"])
def test_a_tool_hears_that_nobody_waits_for_it_any_more(execute_all: Runner, how: str) -> None:
    begun, heard = threading.Event(), threading.Event()

    def watches(context: ToolContext[None]) -> None:
        begun.set()
        wait_until(lambda: context.cancelled)
        heard.set()

    def boom() -> None:
        begun.wait(10)
        raise ValueError("no luck")

    async def leave() -> None:
        task = asyncio.ensure_future(executor.aexecute_all(calls("watches")))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    executor = ToolExecutor([watches, boom], ABORT)
    if how == "abort":
        with pytest.raises(ToolAbortedError):
            execute_all(executor, calls("watches", "boom"))
    else:
        asyncio.run(leave())
    assert heard.wait(5)


def test_a_call_for_which_no_thread_is_to_be_had_has_its_result(
    execute_all: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    start, started = threading.Thread.start, []

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("dragoman"):
            started.append(thread)
            if len(started) > 1:
                gate.set()
                raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)

    def work() -> str:
        gate.wait(10)
        return "done"

    executed = execute_all(ToolExecutor([work]), calls("work", "work"))
    assert [result.error_type for result in executed.results] == [None, "execution"]
    assert "can't start new thread" in executed.results[1].text


def test_nothing_begins_after_a_cancellation() -> None:
    run = ToolRun()

    @tool
    def stop() -> str:
        run.cancel()
        return "stopped"

    with ToolExecutor([stop], ToolConfig(max_parallel_tools=1)) as executor:
        batch = executor.batch(calls("stop", "stop"), run)
        list(executor.events(batch))
        assert [result.error_type for result in batch.results] == [None, "cancelled"]
        assert list(executor.events(batch)) == []


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
        batch = executor.batch([call("echo", '{"text": "x"}')])  # and so does leaving one that has begun
        begun = executor.events(batch)
        assert isinstance(next(begun), ToolStarted)
        begun.close()
        assert [r.error_type for r in batch.results] == ["cancelled"]


@pytest.mark.parametrize("how", ["cancel", "deadline", "leave"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_stopped_run_does_not_wait_for_a_tool_that_blocks(execute_all: Runner, how: str, count: int) -> None:
    release, stop = threading.Event(), Stop(time.monotonic() + 0.1 if how == "deadline" else None)

    begun: list[str] = []

    @tool
    def blocks() -> None:
        begun.append("begun")
        release.wait(30)

    executor = ToolExecutor([blocks, echo])
    if how == "cancel":
        threading.Timer(0.1, stop.cancel).start()
    began = time.monotonic()
    if how == "leave":
        batch = executor.batch([*calls(*["blocks"] * count), call("echo", '{"text": "x"}')])
        events = executor.events(batch)
        assert any(isinstance(event, ToolFinished) for event in events)  # as far as the first that is finished
        events.close()
        results = batch.results[:count]
    else:
        results = execute_all(executor, calls(*["blocks"] * count), ToolRun(stop=stop)).results
    assert time.monotonic() - began < 5
    assert [r.error_type for r in results] == ["timeout" if how == "deadline" else "cancelled"] * count
    assert executor.abandoned == len(begun)  # beside other work the deadline may come before they begin
    release.set()
    wait_until(lambda: executor.abandoned == 0)


@pytest.mark.parametrize("cap", [1, 5])
def test_the_stop_of_a_call_is_the_current_one_while_it_runs(execute_all: Runner, cap: int) -> None:
    """Whoever waits for something on behalf of the tool is woken: here a plain sleep, and any await."""
    run = ToolRun()

    @tool
    def plain(context: ToolContext[None]) -> None:
        assert current_stop() is context.stop
        threading.Timer(0.1, run.cancel).start()
        sleep(30)

    @tool(timeout=20)
    async def on_loop(context: ToolContext[None]) -> None:
        assert current_stop() is context.stop
        assert context.stop.left() is not None
        raise LookupError("seen")

    executor = ToolExecutor([plain, on_loop], ToolConfig(max_parallel_tools=cap))
    began = time.monotonic()
    executed = execute_all(executor, calls("on_loop", "plain"), run)
    assert time.monotonic() - began < 10
    assert [result.error_type for result in executed.results] == ["execution", "cancelled"]
    assert "seen" in executed.results[0].text
    assert current_stop() is None
