from __future__ import annotations

import asyncio
import threading
import time

import pytest

from dragoman.tools.execution import threads
from dragoman.tools.execution.threads import LoopThread, WorkerThreads


def workers_alive() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dragoman-tool"]


def wait_until_gone(before: list[threading.Thread]) -> None:
    deadline = time.monotonic() + 10
    while [thread for thread in workers_alive() if thread not in before] and time.monotonic() < deadline:
        time.sleep(0.005)
    assert [thread for thread in workers_alive() if thread not in before] == []


def test_an_idle_thread_is_used_again_and_ends_on_close() -> None:
    before = workers_alive()
    workers = WorkerThreads()
    idents = {workers.submit(threading.get_ident).result() for _ in range(5)}
    assert len(idents) == 1
    workers.close()
    wait_until_gone(before)


def test_an_idle_thread_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_IDLE_SECONDS", 0.01)
    before = workers_alive()
    workers = WorkerThreads()
    assert workers.submit(lambda: 1).result() == 1
    wait_until_gone(before)
    assert workers.submit(lambda: 2).result() == 2
    workers.close()


def test_work_after_closing_is_done_by_a_thread_that_then_ends() -> None:
    before = workers_alive()
    workers = WorkerThreads()
    workers.close()
    assert workers.submit(lambda: 1).result() == 1
    wait_until_gone(before)


def test_what_a_function_raises_belongs_to_its_future() -> None:
    workers = WorkerThreads()
    with pytest.raises(KeyboardInterrupt):
        workers.submit(lambda: (_ for _ in ()).throw(KeyboardInterrupt)).result()
    workers.close()


def test_a_thread_taken_in_the_last_moment_does_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_IDLE_SECONDS", 0.001)
    workers = WorkerThreads()
    for n in range(200):  # idle threads give up all the time while new work arrives
        assert workers.submit(lambda n=n: n).result(timeout=10) == n
        time.sleep(0.001)
    workers.close()


def test_closing_the_loop_cancels_what_still_runs() -> None:
    seen: list[str] = []
    loop = LoopThread()
    assert not loop.running

    async def waits() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            seen.append("cleaned up")

    future = loop.submit(waits)
    loop.submit(lambda: asyncio.sleep(0)).result(timeout=10)
    assert loop.running
    loop.close()
    assert future.cancelled()
    assert seen == ["cleaned up"]
    loop.close()  # once more does no harm


def test_the_loop_can_close_itself() -> None:
    loop = LoopThread()

    async def close() -> None:
        loop.close()

    loop.submit(close).result(timeout=10)
    assert not loop.running
