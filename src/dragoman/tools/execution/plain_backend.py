"""Running tools for a program without an event loop.

Owns: where each function runs: in the caller's thread, in a worker thread, or (async ones) on the loop thread.
Must not know: policies and results.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import Any, cast

from dragoman.conversation import ToolFinished, ToolStarted

from .batch import Batch, Running, Wait
from .procedure import Invoke
from .threads import LoopThread, WorkerThreads

__all__ = ["PlainBackend", "awaited", "events"]


async def awaited(invoke: Invoke) -> Any:
    """Await the function. SystemExit would end the event loop, and with it every other call; here it is an error."""
    try:
        return await invoke.function()
    except SystemExit as error:
        message = f"the tool tried to end the program (SystemExit: {error.code})"
        raise RuntimeError(message) from error


class PlainBackend:
    """Starts functions in threads."""

    def __init__(self, workers: WorkerThreads, loop: LoopThread) -> None:
        self._workers: WorkerThreads = workers
        self._loop: LoopThread = loop

    def start(self, invoke: Invoke, *, alone: bool) -> Running | None:
        if invoke.is_async:
            return self._loop.submit(lambda: awaited(invoke))
        if not alone or invoke.timeout is not None:
            return self._workers.submit(invoke.function)
        # Nothing to wait for and nothing else to do: the caller's own thread is the cheapest place, and the one where
        # thread-bound things (database connections, graphics) work.
        try:
            invoke.value = invoke.function()
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever a tool raises belongs to its call
            invoke.error = error
        return None

    def give_up(self, running: Running) -> None:
        future = cast("Future[Any]", running)
        if not future.cancel():  # a thread cannot be stopped
            self._workers.abandon(future)


def events(batch: Batch, backend: PlainBackend) -> Generator[ToolStarted | ToolFinished, None, None]:
    """Carry the batch out in this thread, and tell what happens as it happens."""
    cancelled: Future[None] | None = None
    forget = None
    steps = batch.steps(backend)
    try:
        for step in steps:
            if not isinstance(step, Wait):
                yield step
                continue
            if cancelled is None:  # not before the first wait: most single calls are done without one
                cancelled = Future()
                forget = batch.run.on_cancel(partial(_settle, cancelled))
            wait([*cast("list[Future[Any]]", step.running), cancelled], step.seconds, FIRST_COMPLETED)
    finally:
        if forget is not None:
            forget()
        steps.close()


def _settle(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)
