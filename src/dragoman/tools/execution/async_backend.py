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
        self._in_threads: dict[asyncio.Future[Any], Future[Any]] = {}
        self._cancelled: set[asyncio.Future[Any]] = set()

    def start(self, invoke: Invoke, *, alone: bool) -> Running | None:
        if invoke.is_async:
            return asyncio.ensure_future(awaited(invoke))
        thread = self._workers.submit(partial(_without_stop_iteration, invoke.function))
        future = asyncio.wrap_future(thread)
        self._in_threads[future] = thread
        return future

    def give_up(self, running: Running) -> None:
        future = cast("asyncio.Future[Any]", running)
        future.cancel()
        thread = self._in_threads.pop(future, None)
        if thread is None:
            self._cancelled.add(future)
        else:
            self._workers.abandon(thread)

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


async def events(batch: Batch, backend: AsyncBackend) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
    """Carry the batch out on this loop, and tell what happens as it happens."""
    loop = asyncio.get_running_loop()
    cancelled: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not cancelled.done():
            cancelled.set_result(None)

    def on_cancel() -> None:  # called from any thread
        with suppress(RuntimeError):  # the loop may have been closed in the meantime, and nobody waits
            loop.call_soon_threadsafe(wake)

    forget = batch.run.on_cancel(on_cancel)
    steps = batch.steps(backend)
    try:
        for step in steps:
            if isinstance(step, Wait):
                running = cast("list[asyncio.Future[Any]]", step.running)
                await asyncio.wait([*running, cancelled], timeout=step.seconds, return_when=asyncio.FIRST_COMPLETED)
            else:
                yield step
    finally:
        forget()
        steps.close()
        await backend.clean_up()
