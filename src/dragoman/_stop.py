"""Stop work in progress at once, from any thread or signal handler, or at a deadline.

A run has a Stop, and makes it the current one while it waits for a model or a tool. Sync code that blocks (on a socket,
a pause, a child process) waits at most as long as `left` allows, and registers with `waking` what ends the wait. Async
code need not: `stoppable` cancels the await.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from msgspec import Struct

from dragoman.errors import ConfigurationError, StoppedError

T = TypeVar("T")


class Stop(Struct, eq=False):
    """Cancels work. Uses no lock: a signal handler may run at any moment."""

    deadline: float | None = None
    """When the work must be done (`time.monotonic`)."""
    cancelled: bool = False
    wakers: dict[object, Callable[[], object]] = {}
    """Callbacks that end the current waits; see `waking`."""

    def cancel(self) -> None:
        """Stop the work and end all waits. May be called twice."""
        if not self.cancelled:
            self.cancelled = True
            for wake in list(self.wakers.values()):
                wake()

    def check(self) -> None:
        """Raise StoppedError if the work was cancelled or its deadline has passed."""
        if self.cancelled:
            raise StoppedError("The run was cancelled.")
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise StoppedError("The run's time is up.", reason="deadline")

    def left(self, limit: float | None = None) -> float | None:
        """The seconds left to wait, at most `limit`; None: no limit. Raises like `check`."""
        self.check()
        if self.deadline is None:
            return limit
        left = max(0.0, self.deadline - time.monotonic())
        return left if limit is None else min(left, limit)

    @contextmanager
    def waking(self, wake: Callable[[], object]) -> Generator[None]:
        """Inside the block, `cancel` calls `wake` from its own thread, perhaps twice."""
        key = object()
        try:
            self.wakers[key] = wake
            if self.cancelled:
                wake()
            yield
        finally:
            self.wakers.pop(key, None)


CURRENT: Final[ContextVar[Stop | None]] = ContextVar("dragoman stop", default=None)
"""The Stop of the current work, if it has one."""


def shorter(one: float | None, other: float | None) -> float | None:
    """The shorter of two durations, or the earlier of two times; None means no limit."""
    return other if one is None else one if other is None else min(one, other)


def current_stop() -> Stop | None:
    """The Stop of the current work, if it has one."""
    return CURRENT.get()


@contextmanager
def stopping(stop: Stop | None) -> Generator[None]:
    """Make this the current Stop inside the block."""
    token = CURRENT.set(stop)
    try:
        yield
    finally:
        CURRENT.reset(token)


def sleep(seconds: float) -> None:
    """Block for this long; StoppedError as soon as the current Stop is cancelled or due."""
    stop = CURRENT.get()
    if stop is None:
        time.sleep(seconds)
        return
    woken: SimpleQueue[None] = SimpleQueue()  # not an Event: a signal handler could find its lock held
    with stop.waking(partial(woken.put, None)), suppress(Empty):
        woken.get(timeout=stop.left(seconds))
    stop.check()


def chance() -> float:
    """A random number in [0, 1), for jitter; without the slow import of `random`."""
    return (int.from_bytes(os.urandom(7), "big") >> 3) / (1 << 53)  # the precision of a float


async def pause(seconds: float, *, blocking: bool) -> None:
    """`sleep`, blocking or awaiting."""
    if blocking:
        sleep(seconds)
        return
    import asyncio  # sync programs do not load it

    await asyncio.sleep(seconds)


def no_event_loop() -> ConfigurationError:
    """The error for async code that runs without asyncio."""
    hint = (
        "Run it with asyncio (asyncio.run). Under trio, call the sync client in a thread: "
        "`await trio.to_thread.run_sync(client.chat, text)`."
    )
    return ConfigurationError("There is no running asyncio event loop.", hint=hint)


async def stoppable(work: Coroutine[Any, Any, T], stop: Stop) -> T:
    """Await this on an event loop; StoppedError as soon as `stop` is cancelled or due."""
    import asyncio  # sync programs do not load it

    try:
        stop.check()
        task = asyncio.current_task()
    except (StoppedError, RuntimeError) as error:
        work.close()
        raise error if isinstance(error, StoppedError) else no_event_loop() from None
    assert task is not None
    loop = task.get_loop()
    waiting, stopped = True, False

    def interrupt() -> None:
        nonlocal stopped
        if waiting and not stopped:
            stopped = True
            task.cancel()

    timer = None if stop.deadline is None else loop.call_later(stop.left() or 0.0, interrupt)
    key = object()
    try:
        stop.wakers[key] = partial(loop.call_soon_threadsafe, interrupt)
        if stop.cancelled:  # meanwhile, from another thread
            loop.call_soon(interrupt)
        return await work
    except BaseException as error:
        if stopped and task.uncancel() == 0 and isinstance(error, asyncio.CancelledError):
            stop.check()  # only we have cancelled the task
        raise
    finally:
        waiting = False
        stop.wakers.pop(key, None)
        if timer is not None:
            timer.cancel()
