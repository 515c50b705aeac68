"""Where the functions of tools run, and how they are waited for: the I/O of tool execution, in both colours.

A batch has a runner of its own. Plain functions run in worker threads, so that whoever waits can be woken whatever they
do; async ones on the caller's event loop, or on one loop thread where there is none.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from .threads import Job, LoopThread, WorkerThreads

if TYPE_CHECKING:
    import asyncio

_GRACE_SECONDS = 0.2
"""How long cancelled tasks may take for their clean-up before nobody waits for them any more."""


class Runner:
    """Runs functions for a plain program. `inline`: plain ones without a time limit run in the caller's thread."""

    def __init__(self, workers: WorkerThreads, loop: LoopThread | None = None, *, inline: bool = False) -> None:
        self._workers: WorkerThreads = workers
        self._loop: LoopThread | None = loop
        self._inline: bool = inline
        # A bell of this kind, since a `put` may interrupt a `get` of its own thread: a signal handler may stop the run.
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._deliver: Callable[[Callable[[], None]], None] | None = None
        """Where the end of a plain function is told, if not in its thread."""

    def start(self, function: Callable[[], Any], *, is_async: bool, is_limited: bool) -> Job:
        """Begin a function. One that is limited in time never runs in the caller's thread."""
        job = Job(self._deliver)
        if is_async:
            self._start_async(job, function)
        elif self._inline and not is_limited:
            job.run(function)
            self.wake()
        else:
            self._workers.start(partial(job.run, function), self.wake)
        return job

    def _start_async(self, job: Job, function: Callable[[], Any]) -> None:
        assert self._loop is not None
        future = self._loop.submit(partial(job.arun, function))
        job.cancel = future.cancel
        future.add_done_callback(job.end_unbegun)
        future.add_done_callback(self.wake)

    async def wait(self, until: float | None) -> None:
        """Wait until a function is done, or `wake` was called, or it is that late. It may also be nothing at all."""
        left = None if until is None else min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)
        with suppress(queue.Empty):
            self._bell.get(timeout=left)

    def wake(self, _done: object = None) -> None:
        """End the waiting, from any thread."""
        self._bell.put(None)

    def give_up(self, job: Job) -> None:
        """Nobody waits for this function any more; what cannot be cancelled is counted as abandoned."""
        job.give_up()
        self._workers.abandon(job)

    async def close(self) -> None:
        """Let cancelled functions clean up, within reason."""


class AsyncRunner(Runner):
    """Runs functions for a program with an event loop: async ones as tasks of the running loop."""

    def __init__(self, workers: WorkerThreads) -> None:
        import asyncio  # which plain programs do not load

        super().__init__(workers)
        self._deliver = self._tell_loop
        self._running: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._event: asyncio.Event = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def _tell_loop(self, end: Callable[[], None]) -> None:
        # On the loop: what the function has given it to do before comes first.
        try:
            self._running.call_soon_threadsafe(end)
        except RuntimeError:  # it was closed in the meantime
            end()

    def _start_async(self, job: Job, function: Callable[[], Any]) -> None:
        task = self._running.create_task(job.arun(function))
        self._tasks.add(task)
        job.cancel = task.cancel
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(job.end_unbegun)
        task.add_done_callback(self.wake)

    async def wait(self, until: float | None) -> None:
        timer = None if until is None else self._running.call_later(until - time.monotonic(), self._event.set)
        try:
            await self._event.wait()
        finally:
            if timer is not None:
                timer.cancel()
        self._event.clear()

    def wake(self, _done: object = None) -> None:
        with suppress(RuntimeError):  # the loop may have been closed in the meantime, and nobody waits
            self._running.call_soon_threadsafe(self._event.set)

    async def close(self) -> None:
        if self._tasks:  # they were cancelled
            import asyncio

            await asyncio.wait(self._tasks, timeout=_GRACE_SECONDS)
