"""Running tools for a program without an event loop.

Owns: where each function runs: in the caller's thread, in a worker thread, or (async ones) on the loop thread.
Must not know: policies and results.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Coroutine, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from dragoman.conversation import ToolFinished, ToolStarted

from .batch import Batch, Running, Wait
from .effects import Invoke
from .threads import LoopThread, WorkerThreads

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["PlainBackend", "awaited", "awaited_elsewhere", "events"]


async def awaited(invoke: Invoke, *, not_here: tuple[type[BaseException], ...] = (SystemExit,)) -> Any:
    """Await the function. SystemExit would end the event loop, and with it every other call; here it is an error."""
    try:
        return await invoke.function()
    except not_here as error:
        message = f"the tool tried to end the program ({type(error).__name__}: {error})"
        raise RuntimeError(message) from error


def awaited_elsewhere(invoke: Invoke) -> Coroutine[Any, Any, Any]:
    """The same on the loop thread, where Ctrl-C of the user never arrives: a KeyboardInterrupt is the tool's own."""
    return awaited(invoke, not_here=(SystemExit, KeyboardInterrupt))


class PlainBackend:
    """Starts functions in threads."""

    def __init__(self, workers: WorkerThreads, loop: LoopThread) -> None:
        self._workers: WorkerThreads = workers
        self._loop: LoopThread = loop
        # A queue of this kind, since its `put` may interrupt its own `get`: a signal handler may cancel the run.
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def start(self, invoke: Invoke, *, alone: bool) -> Running | None:
        if invoke.is_async:
            return self._watched(self._loop.submit(lambda: awaited_elsewhere(invoke)))
        if not alone or invoke.timeout is not None:
            return self._watched(self._workers.submit(invoke.function))
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

    def wake(self, _done: object = None) -> None:
        """End the wait, or the next one; from any thread."""
        self._wakes.put(None)

    def wait(self, seconds: float | None) -> None:
        """Wait until something that was started is done, or somebody calls `wake`, or the time is over."""
        with suppress(queue.Empty):
            # To wait too long is an error in Python; to come back once in some centuries is not.
            self._wakes.get(timeout=None if seconds is None else min(seconds, threading.TIMEOUT_MAX))
            while True:  # one look at what is done serves all that have called
                self._wakes.get_nowait()

    def _watched(self, future: Future[Any]) -> Future[Any]:
        future.add_done_callback(self.wake)
        return future


def events(batch: Batch, backend: PlainBackend) -> Generator[ToolStarted | ToolFinished, None, None]:
    """Carry the batch out in this thread, and tell what happens as it happens."""
    forget = None
    steps = batch.steps(backend)
    try:
        for step in steps:
            if not isinstance(step, Wait):
                yield step
                continue
            if forget is None:  # not before the first wait: most single calls are done without one
                forget = batch.run.on_cancel(backend.wake)
            backend.wait(step.seconds)
    finally:
        if forget is not None:
            forget()
        steps.close()
