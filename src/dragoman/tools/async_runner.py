"""Where the functions of tools run on the caller's event loop: async ones as tasks, plain ones in worker threads.

It imports asyncio, so only async runs import it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

from .run import ToolRun
from .runner import Job, TimedOutError, await_tool, discard
from .threads import WorkerThreads

T = TypeVar("T")

_GRACE_SECONDS = 1.0
"""How long a cancelled task may take for its clean-up before nobody waits for it any more."""


class AsyncRunner:
    """Runs functions on the running loop, for one batch."""

    runs_inline: bool = False

    def __init__(self, run: ToolRun, workers: WorkerThreads) -> None:
        self._workers: WorkerThreads = workers
        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._rung: bool = False
        """Whether something has happened since the last wait."""
        self._cancelled: set[asyncio.Future[Any]] = set()
        self._forget: Callable[[], None] = run.on_cancel(self.stop)

    @property
    def is_cancelled(self) -> bool:
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    async def call(self, function: Callable[[], Any], *, is_async: bool, seconds: float | None) -> object:
        if is_async:
            if seconds is None:
                return await await_tool(function)
            return await self._in_time(self._loop.create_task(await_tool(function)), seconds)
        began = self._loop.time()
        thread = self._workers.submit(partial(_stamp, function, self._loop.time))
        future = asyncio.wrap_future(thread, loop=self._loop)
        try:
            value, finished = await (future if seconds is None else self._in_time(future, seconds))
        except BaseException:
            if not thread.done():
                self._workers.abandon(thread)
            thread.add_done_callback(_discard_result)
            raise
        if seconds is not None and finished - began >= seconds:  # it noticed itself that its time was over
            raise TimedOutError
        return value

    async def _in_time(self, task: asyncio.Future[T], seconds: float) -> T:
        try:
            await asyncio.wait([task], timeout=seconds)
            if not task.done():
                raise TimedOutError
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                self._cancelled.add(task)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(work)
        task.add_done_callback(self._ring)
        return task

    async def wait(self) -> None:
        if not self._rung:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._rung = False

    def give_up(self, job: Job) -> None:
        task = cast("asyncio.Task[Any]", job)
        task.cancel()
        self._cancelled.add(task)

    def _ring(self, _done: object = None) -> None:
        self._rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def stop(self) -> None:
        with suppress(RuntimeError):  # the loop may have been closed in the meantime, and nobody waits
            self._loop.call_soon_threadsafe(self._ring)

    async def close(self) -> None:
        self._forget()
        if self._cancelled:
            await asyncio.wait(self._cancelled, timeout=_GRACE_SECONDS)


def _discard_result(thread: Future[Any]) -> None:
    """Nobody takes the result any more; if it is something to be awaited, nobody will."""
    if not thread.cancelled() and thread.exception() is None:
        discard(thread.result()[0])


def _stamp(function: Callable[[], T], clock: Callable[[], float]) -> tuple[T, float]:
    """What the function returns, and when it did, in a thread.

    asyncio's futures take no StopIteration, they would never be done; and a KeyboardInterrupt would end the loop.
    """
    try:
        return function(), clock()
    except (StopIteration, KeyboardInterrupt) as error:
        message = f"the function raised {type(error).__name__}"
        raise RuntimeError(message) from error
