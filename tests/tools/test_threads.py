from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path

import pytest

from dragoman.tools import LoopThread, WorkerThreads, threads
from tests.tools.cases import wait_until


def workers_alive() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "dragoman-tool"}


def test_an_idle_thread_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_IDLE_SECONDS", 0.01)
    before = workers_alive()
    workers = WorkerThreads()
    assert workers.submit(lambda: 1).result() == 1
    wait_until(lambda: workers_alive() <= before)
    assert workers.submit(lambda: 2).result() == 2
    workers.close()


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.close()


async def nothing() -> str:
    return "done"


def test_closing_the_loop_cancels_what_still_runs(loop: LoopThread) -> None:
    seen: list[str] = []
    assert not loop.running

    async def waits() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            seen.append("cleaned up")

    async def waits_for_itself() -> None:
        loop.submit(nothing).result()

    future = loop.submit(waits)
    with pytest.raises(RuntimeError, match="block their event loop"):
        loop.submit(waits_for_itself).result(timeout=10)
    assert loop.running
    loop.close()
    assert future.cancelled()
    assert seen == ["cleaned up"]
    loop.close()  # once more does no harm


def test_closing_frees_those_who_wait_for_a_task_that_will_not_end(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_JOIN_SECONDS", 0.1)

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                continue

    future = loop.submit(stubborn)
    loop.submit(nothing).result(timeout=10)
    loop.close()
    with pytest.raises(CancelledError):
        future.result(timeout=10)
    del future
    gc.collect()  # asyncio complains of the task that was left behind: here, not in the midst of another test


def test_nothing_is_lost_between_submitting_and_closing(loop: LoopThread) -> None:
    loop.submit(nothing).result(timeout=10)
    closer = threading.Thread(target=loop.close)

    def made_while_somebody_closes() -> Coroutine[object, object, str]:
        closer.start()
        closer.join(0.1)
        return nothing()

    with suppress(CancelledError):  # closed before it could begin; whoever waits for it knows
        assert loop.submit(made_while_somebody_closes).result(timeout=10) == "done"
    closer.join()


# --- fork ------------------------------------------------------------------------------------------------------------

FORK = """
import os, signal
from dragoman import ToolCall, ToolExecutor

def plain() -> str:
    return "plain"

async def on_loop() -> str:
    return "on loop"

calls = [ToolCall(str(n), name) for n, name in enumerate(["plain", "plain", "on_loop"])]
executor = ToolExecutor([plain, on_loop])
assert len(executor.execute_all(calls).results) == 3
if os.fork() == 0:
    signal.alarm(20)
    print([result.text for result in executor.execute_all(calls).results], flush=True)
    os._exit(0)
os.wait()
"""


def run(program: str) -> tuple[str, str]:
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout, done.stderr


def test_an_executor_works_in_a_forked_child() -> None:
    assert run(FORK)[0] == "['plain', 'plain', 'on loop']\n"


END = """
import time
from dragoman import ToolCall, ToolExecutor, tool

@tool(timeout=0.05)
def hang() -> None:
    time.sleep(60)

@tool(timeout=0.05)
async def block() -> None:
    time.sleep(60)

executed = ToolExecutor([hang, block]).execute_all([ToolCall("1", "hang"), ToolCall("2", "block")])
print([result.error_type for result in executed.results])
"""


def test_a_hanging_tool_does_not_keep_the_program_from_ending() -> None:
    began = time.monotonic()
    assert run(END) == ("['timeout', 'timeout']\n", "")
    assert time.monotonic() - began < 50


INTERRUPTED = """
import threading
from dragoman import ToolCall, ToolExecutor, tool
from dragoman.tools import threads
from tests.chat.interrupting import Interrupting, in_a_thread_of_its_own

threads._JOIN_SECONDS = 0.05  # Python goes on listing a thread whose start was interrupted, and nobody can join it

@tool
async def look() -> str:
    return "seen"

def interrupt(at):
    interrupting = Interrupting(at, ("tools", threading.__file__))
    executor = ToolExecutor([look])
    try:
        with interrupting.at_work():
            executor.execute(ToolCall("c1", "look", "{}"))
    except KeyboardInterrupt:
        return interrupting.where
    finally:
        executor.close()
    return f"lost at {interrupting.where}" if interrupting.where else None

def every_moment():
    at = 0
    while where := interrupt(at):
        print(where)
        at += 1

in_a_thread_of_its_own(every_moment)
"""


def test_ctrl_c_while_a_thread_starts_is_a_keyboard_interrupt() -> None:
    """In a process of its own, which then lists threads that never began."""
    places = run(INTERRUPTED)[0].splitlines()
    assert any(place.startswith("Condition.wait") for place in places)
    assert not [place for place in places if place.startswith("lost")]
