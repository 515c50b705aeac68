"""Where the functions of tools run, and how they are waited for, in a plain program.

`Runner` is the I/O of tool execution: a batch has one of its own, in its colour. The one here uses the caller's thread,
worker threads, and one loop thread for async functions. async_runner.py has the other one; it imports asyncio.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate, iscoroutine
from typing import Any, Protocol, TypeVar, cast

from dragoman._stepping import step

from .run import ToolRun
from .threads import LoopThread, WorkerThreads

T = TypeVar("T")


class TimedOutError(Exception):
    """The function did not finish within its time. Not TimeoutError, which a tool may raise itself."""


class StoppedError(Exception):
    """Nobody waits for the function any more."""


class Job(Protocol):
    """A call under way beside others."""

    def done(self) -> bool: ...
    def result(self) -> Any: ...
    def exception(self) -> BaseException | None: ...


class Runner(Protocol):
    """Runs functions and waits for them."""

    runs_inline: bool
    """Whether a call that has no others beside it is carried out right where it is awaited."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the task that asks is being cancelled from outside."""
        ...

    async def call(self, function: Callable[[], Any], *, is_async: bool, seconds: float | None) -> object:
        """What the function returns. Raises what it raises, or TimedOutError after so long, or StoppedError."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait so long; StoppedError if nobody waits any more."""
        ...

    def start(self, work: Coroutine[Any, Any, T]) -> Job:
        """Carry out this work beside what else goes on."""
        ...

    async def wait(self) -> None:
        """Wait until some work that was started is done, or `stop` was called."""
        ...

    def give_up(self, job: Job) -> None:
        """Nobody waits for this work any more: cancel it if that is possible, else count it as abandoned."""
        ...

    def stop(self) -> None:
        """End all waiting, from any thread."""
        ...

    async def close(self) -> None:
        """Let cancelled work clean up, within reason."""
        ...


async def await_tool(function: Callable[[], Any], foreign: tuple[type[BaseException], ...] = (SystemExit,)) -> Any:
    """Await an async tool. SystemExit would end the event loop, and every other call with it; here it is an error."""
    try:
        return await function()
    except foreign as error:
        message = f"the tool tried to end the program ({type(error).__name__}: {error})"
        raise RuntimeError(message) from error


def discard(awaitable: object) -> None:
    """Close something to be awaited that was never begun, so that Python does not complain that nobody awaited it."""
    if iscoroutine(awaitable):
        if getcoroutinestate(awaitable) == CORO_CREATED:
            awaitable.close()
    elif hasattr(type(awaitable), "__await__") and hasattr(type(awaitable), "close"):
        cast("Any", awaitable).close()


class PlainRunner:
    """Runs functions in the thread of their call, or in threads where they must be left behind when time is over."""

    runs_inline: bool = True
    is_cancelled: bool = False

    def __init__(self, run: ToolRun, workers: WorkerThreads, loop: LoopThread) -> None:
        self._run: ToolRun = run
        self._workers: WorkerThreads = workers
        self._loop: LoopThread = loop
        self._stopped: bool = False
        self._forget: Callable[[], None] | None = None
        # Bells of this kind, since a `put` may interrupt a `get` of its own thread: a signal handler may stop the run.
        self._bells: list[queue.SimpleQueue[None]] = []
        self._job_done: queue.SimpleQueue[None] | None = None

    async def call(self, function: Callable[[], Any], *, is_async: bool, seconds: float | None) -> object:
        if self._stopped:
            raise StoppedError
        if is_async:
            # Ctrl-C of the user never arrives on the loop thread: a KeyboardInterrupt there is the tool's own.
            make = partial(await_tool, function, (SystemExit, KeyboardInterrupt))
            return self._result(self._loop.submit(make, unless=self._is_stopped), seconds, time.monotonic())
        if seconds is None:
            return function()
        began = time.monotonic()
        future = self._workers.submit(partial(_stamp, function))
        value, finished = self._result(future, seconds, began)
        if finished - began >= seconds:  # it noticed itself that its time was over
            raise TimedOutError
        return value

    def _result(self, future: Future[T], seconds: float | None, began: float) -> T:
        bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._bells.append(bell)
        try:
            self._listen()
            future.add_done_callback(lambda _: bell.put(None))
            left = None if seconds is None else max(0.0, began + seconds - time.monotonic())
            self._ring(bell, left)
            if not future.done():
                raise StoppedError if self._stopped else TimedOutError
            return future.result()
        finally:
            self._bells.remove(bell)
            if not future.done() and not future.cancel():  # a thread cannot be stopped
                self._workers.abandon(future)

    async def sleep(self, seconds: float) -> None:
        bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._bells.append(bell)
        try:
            self._listen()
            self._ring(bell, seconds)
        finally:
            self._bells.remove(bell)
        if self._stopped:
            raise StoppedError

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._job_done is None:
            self._job_done = queue.SimpleQueue()
            self._bells.append(self._job_done)
            self._listen()
        done = self._job_done
        try:
            future = self._workers.submit(partial(step, work))
        except BaseException:
            work.close()
            raise
        future.add_done_callback(lambda _: done.put(None))
        return future

    async def wait(self) -> None:
        if self._job_done is not None:
            self._ring(self._job_done, None)

    def give_up(self, job: Job) -> None:
        self._workers.abandon(job)  # pyright: ignore[reportArgumentType] - `start` gave it

    def _is_stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        self._stopped = True
        for bell in list(self._bells):
            bell.put(None)

    async def close(self) -> None:
        if self._forget is not None:
            self._forget()
            self._forget = None

    def _listen(self) -> None:
        """Hear of a cancelled run. Not before there is something to wait for: most calls are done without."""
        if self._forget is None:
            self._forget = self._run.on_cancel(self.stop)

    def _ring(self, bell: queue.SimpleQueue[None], seconds: float | None) -> None:
        """Wait until the bell rings or the time is over."""
        if self._stopped:
            return
        with suppress(queue.Empty):
            # To wait too long is an error in Python; to come back once in some centuries is not.
            bell.get(timeout=None if seconds is None else min(seconds, threading.TIMEOUT_MAX))


def _stamp(function: Callable[[], T]) -> tuple[T, float]:
    """What the function returns, and when it did."""
    return function(), time.monotonic()
