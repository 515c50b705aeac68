"""What the scheduler does with calls that are done, given up, or cannot even begin."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from dragoman.conversation import ToolCall, ToolStarted
from dragoman.errors import ToolAbortedError
from dragoman.tools import ToolConfig, ToolContext, ToolErrorHandling, ToolExecutor, ToolRun, tool
from tests.tools.colours import Runner, both_colours

ABORT = ToolConfig(tool_error_handling=ToolErrorHandling.ABORT)


def calls(*names: str) -> list[ToolCall]:
    return [ToolCall(str(number), name) for number, name in enumerate(names, 1)]


def wait_until_idle(executor: ToolExecutor, threads: int) -> None:
    """Until so many workers have done their work, and told of it."""
    deadline = time.monotonic() + 10
    while len(executor._workers._idle) < threads and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)


@both_colours
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
            wait_until_idle(executor, 2)
        yield

    executor = ToolExecutor([pay, boom, third], ABORT, middleware=[busy])
    with pytest.raises(ToolAbortedError) as caught:
        execute_all(executor, calls("boom", "pay", "third"))
    failed, done, _ = caught.value.results
    assert (failed.error_type, done.text) == ("execution", "paid")


@both_colours
@pytest.mark.parametrize("how", ["abort", "leave"])
def test_a_tool_hears_that_nobody_waits_for_it_any_more(execute_all: Runner, how: str) -> None:
    begun, heard = threading.Event(), threading.Event()

    def watches(context: ToolContext[None]) -> None:
        begun.set()
        deadline = time.monotonic() + 10
        while not context.cancelled and time.monotonic() < deadline:
            time.sleep(0.005)
        if context.cancelled:
            heard.set()

    def boom() -> None:
        begun.wait(10)
        raise ValueError("no luck")

    executor = ToolExecutor([watches, boom], ABORT)
    if how == "abort":
        with pytest.raises(ToolAbortedError):
            execute_all(executor, calls("watches", "boom"))
    else:

        async def main() -> None:
            task = asyncio.ensure_future(executor.aexecute_all(calls("watches")))
            await asyncio.to_thread(begun.wait, 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
    assert heard.wait(5)


@both_colours
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


def fine(text: str = "") -> str:
    return f"<{text}>"


def test_a_single_call_that_is_left_or_interrupted_was_cancelled() -> None:
    def press() -> None:
        raise KeyboardInterrupt

    with ToolExecutor([fine, press]) as executor:
        batch = executor.batch([ToolCall("1", "fine", "{}")])
        begun = executor.events(batch)
        assert isinstance(next(begun), ToolStarted)
        begun.close()
        assert [result.error_type for result in batch.results] == ["cancelled"]
        batch = executor.batch([ToolCall("1", "press", "{}")])
        with pytest.raises(KeyboardInterrupt):
            list(executor.events(batch))
        assert [result.error_type for result in batch.results] == ["cancelled"]
