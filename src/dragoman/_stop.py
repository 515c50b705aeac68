"""Stopping work that is under way: at once, from any thread or signal handler, or when its time is up.

A run has a Stop, and makes it the current one while it waits for a model or a tool. Whoever waits on its behalf (for a
socket, a pause between attempts, a child process) waits no longer than `left` says, and registers with `waking` what
ends the wait. On an event loop nobody has to: `stoppable` cancels the await itself, wherever it stands.

Must not know: who waits, and what for.
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
    """Tells work to stop. Takes no lock: a signal handler may come in at any moment."""

    deadline: float | None = None
    """When the work must be done, on the clock of `time.monotonic`."""
    cancelled: bool = False
    wakers: dict[object, Callable[[], object]] = {}
    """What ends the waits that are under way; see `waking`."""

    def cancel(self) -> None:
        """Stop: whoever waits is woken at once. Twice does no harm."""
        if not self.cancelled:
            self.cancelled = True
            for wake in list(self.wakers.values()):
                wake()

    def check(self) -> None:
        """Raise StoppedError if the work was told to stop, or its time is up."""
        if self.cancelled:
            raise StoppedError("The run was cancelled.")
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise StoppedError("The run's time is up.", reason="deadline")

    def left(self, limit: float | None = None) -> float | None:
        """The seconds that may still be waited, at most `limit`; None for without end. Raises like `check`."""
        self.check()
        if self.deadline is None:
            return limit
        left = max(0.0, self.deadline - time.monotonic())
        return left if limit is None else min(left, limit)

    @contextmanager
    def waking(self, wake: Callable[[], object]) -> Generator[None]:
        """Inside the block, cancelling calls `wake`, from the thread that cancels; it may be called twice."""
        key = object()
        try:
            self.wakers[key] = wake
            if self.cancelled:
                wake()
            yield
        finally:
            self.wakers.pop(key, None)


CURRENT: Final[ContextVar[Stop | None]] = ContextVar("dragoman stop", default=None)
"""What may stop the work that is done here, if anything may."""


def shorter(one: float | None, other: float | None) -> float | None:
    """The shorter of two times, or the earlier of two moments; None is without end."""
    return other if one is None else one if other is None else min(one, other)


def current_stop() -> Stop | None:
    """What may stop the work that is done here, if anything may."""
    return CURRENT.get()


@contextmanager
def stopping(stop: Stop | None) -> Generator[None]:
    """Inside the block, this is the current Stop."""
    token = CURRENT.set(stop)
    try:
        yield
    finally:
        CURRENT.reset(token)


def sleep(seconds: float) -> None:
    """Block for so long; StoppedError as soon as the current Stop says so."""
    stop = CURRENT.get()
    if stop is None:
        time.sleep(seconds)
        return
    woken: SimpleQueue[None] = SimpleQueue()  # not an Event, whose lock a signal handler could find taken
    with stop.waking(partial(woken.put, None)), suppress(Empty):
        woken.get(timeout=stop.left(seconds))
    stop.check()


def chance() -> float:
    """A number from 0 up to 1, any as likely as another, for pauses: many clients must not come back all at once.

    Not from the module `random`, which takes longer to import than most programs will ever need chance for.
    """
    return (int.from_bytes(os.urandom(7), "big") >> 3) / (1 << 53)  # as many bits as a float can tell apart below 1


async def pause(seconds: float, *, blocking: bool) -> None:
    """`sleep` for code of both colours: it blocks, or on an event loop awaits."""
    if blocking:
        sleep(seconds)
        return
    import asyncio  # which plain programs do not load

    await asyncio.sleep(seconds)


def no_event_loop() -> ConfigurationError:
    """The error for something async that is run by something else than asyncio."""
    hint = (
        "Use it in a program of asyncio (asyncio.run). Under trio, call the plain client in a thread: "
        "`await trio.to_thread.run_sync(client.chat, text)`."
    )
    return ConfigurationError("There is no event loop of asyncio here.", hint=hint)


async def stoppable(work: Coroutine[Any, Any, T], stop: Stop) -> T:
    """Await this on an event loop; StoppedError as soon as `stop` says so, wherever the work then stands."""
    import asyncio  # which plain programs do not load

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
            stop.check()  # nobody else has cancelled the task
        raise
    finally:
        waiting = False
        stop.wakers.pop(key, None)
        if timer is not None:
            timer.cancel()
