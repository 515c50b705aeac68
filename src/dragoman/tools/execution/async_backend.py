"""Running tools on the caller's event loop.

Owns: async functions as tasks of that loop, plain ones in worker threads.
Must not know: policies and results. It imports asyncio, so only async runs import it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, cast

from dragoman.conversation import ToolFinished, ToolStarted

from .batch import Batch, Running, Wait
from .effects import Invoke
from .plain_backend import awaited
from .threads import WorkerThreads

__all__ = ["AsyncBackend", "events"]

_GRACE_SECONDS = 1.0
"""How long a cancelled task may take for its clean-up before nobody waits for it any more."""


class AsyncBackend:
    """Starts functions on the running loop."""

    def __init__(self, workers: WorkerThreads) -> None:
        self._workers: WorkerThreads = workers
        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._woken: bool = False
        """Whether something has happened since the last wait."""
        self._in_threads: dict[asyncio.Future[Any], Future[Any]] = {}
        self._cancelled: set[asyncio.Future[Any]] = set()

    def start(self, invoke: Invoke, *, alone: bool) -> Running | None:
        if invoke.is_async:
            future: asyncio.Future[Any] = self._loop.create_task(awaited(invoke))
        else:
            thread = self._workers.submit(partial(_without_stop_iteration, invoke.function))
            future = asyncio.wrap_future(thread, loop=self._loop)
            self._in_threads[future] = thread
        future.add_done_callback(self.wake)
        return future

    def give_up(self, running: Running) -> None:
        future = cast("asyncio.Future[Any]", running)
        future.cancel()
        thread = self._in_threads.pop(future, None)
        if thread is None:
            self._cancelled.add(future)
        else:
            self._workers.abandon(thread)

    def wake(self, _done: object = None) -> None:
        """End the wait, or the next one; on the event loop."""
        if self._waiter is None:
            self._woken = True
        elif not self._waiter.done():
            self._waiter.set_result(None)

    def wake_from_anywhere(self) -> None:
        """The same from any thread."""
        with suppress(RuntimeError):  # the loop may have been closed in the meantime, and nobody waits
            self._loop.call_soon_threadsafe(self.wake)

    async def wait(self, seconds: float | None) -> None:
        """Wait until something that was started is done, or somebody calls `wake`, or the time is over.

        What `asyncio.wait` does, at a fraction of the cost: whoever is started says once that it is done.
        """
        if not self._woken:
            self._waiter = self._loop.create_future()
            timer = None if seconds is None else self._loop.call_later(seconds, self.wake)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        self._woken = False

    async def clean_up(self) -> None:
        """Let cancelled tasks finish their clean-up, within reason."""
        if self._cancelled:
            await asyncio.wait(self._cancelled, timeout=_GRACE_SECONDS)


def _without_stop_iteration(function: Callable[[], Any]) -> Any:
    """Call the function. asyncio's futures do not take a StopIteration: up to Python 3.11 they would never be done."""
    try:
        return function()
    except StopIteration as error:
        message = "the function raised StopIteration"
        raise RuntimeError(message) from error


async def events(batch: Batch, workers: WorkerThreads) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
    """Carry the batch out on this loop, and tell what happens as it happens."""
    backend = AsyncBackend(workers)  # which belongs to the loop on which this is awaited
    forget = batch.run.on_cancel(backend.wake_from_anywhere)
    steps = batch.steps(backend)
    try:
        for step in steps:
            if isinstance(step, Wait):
                await backend.wait(step.seconds)
            else:
                yield step
    finally:
        forget()
        steps.close()
        await backend.clean_up()
