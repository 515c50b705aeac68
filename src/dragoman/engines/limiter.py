"""Client-side rate limits: requests wait here for their turn, in order, instead of being refused.

A RateLimiter says how much is allowed. All engines of a process with the same limiter, provider and key wait in one
Line, sync and async, in any thread. A Line never admits more in any 60 seconds than its limiter allows, and less if the
provider's headers say so; after a refusal with Retry-After nobody is admitted before that time.

The decisions (join, ask, leave, learn) are pure functions of the time; `enter` waits for them.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from queue import Empty, SimpleQueue
from typing import Final
from weakref import WeakSet

from msgspec import Struct

from dragoman._checks import CheckedMeta, Positive
from dragoman._stop import current_stop, shorter
from dragoman.errors import RateLimitError
from dragoman.transport import rate_limits_of

from .health import Shared

MINUTE: Final = 60.0
_POLL_SECONDS: Final = 1.0
"""How often the first in line asks again: a dropped call frees its place without a word."""
_LONG: Final = 3600.0
_LEAST: Final = 0.001


class RateLimiter(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much all engines of the process with the same limiter, provider and key may do.

    None means no limit; without any limit it is off. When it is on, the limits in the provider's headers and its
    Retry-After apply as well.
    """

    requests: Positive | None = None
    """Per minute."""
    tokens: Positive | None = None
    """Per minute, of prompts and replies: estimated before a call and corrected after it."""
    concurrency: Positive | None = None
    """Concurrent calls, each until the last event of its reply."""


class _Entry(Struct, eq=False):
    at: float
    tokens: int


class Place(Struct, eq=False, weakref=True):
    """A call that waits, or was admitted."""

    tokens: int
    wake: Callable[[], object]
    """Called, from any thread, when it is time to ask again."""
    leads: bool = False
    """Whether it knows that it is the first in line, and watches the time."""
    entry: _Entry | None = None
    """What was counted for it when it was admitted."""


class _Allowance:
    """What the provider's headers say is left of a limit; it refills like a token bucket."""

    def __init__(self, remaining: int, limit: int | None, reset: float, now: float) -> None:
        self._remaining: float = remaining
        self._rate: float = 0.0 if limit is None or reset <= 0 else max(0.0, limit - remaining) / reset
        self._at: float = now
        self._until: float = now + reset

    def wait(self, needed: float, now: float) -> float:
        """Seconds until this much may be used."""
        lacking = needed - self._remaining - self._rate * (now - self._at)
        if now >= self._until or lacking <= 0:
            return 0.0
        return min(self._until - now, lacking / self._rate if self._rate else math.inf)

    def use(self, amount: float) -> None:
        self._remaining -= amount


class Line:
    """The queue for one provider and key. It locks only by `with`, so that Ctrl-C leaves no lock held."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter: RateLimiter = limiter
        self.begin()
        _lines.add(self)

    def begin(self) -> None:
        """Start empty; also in the child of a fork, where those who waited do not exist."""
        self._lock: threading.RLock = threading.RLock()
        """Reentrant: the garbage collector may close a stream at any moment."""
        self._leaving: deque[tuple[Place, float, int | None]] = deque()
        """Who leaves, when and with how many tokens; handled between two rounds, never inside one."""
        self._admitting: bool = False
        self._waiting: deque[Place] = deque()
        self._busy: WeakSet[Place] = WeakSet()
        """Who was admitted and has not left; a dropped call vanishes from it."""
        self._sent: deque[_Entry] = deque()
        """What was admitted in the last minute, the oldest first."""
        self._tokens: int = 0
        """The tokens of all of it."""
        self._closed_until: float = -math.inf
        self._allowances: dict[str, _Allowance] = {}

    def join(self, place: Place) -> None:
        """Go to the end of the line."""
        with self._lock:
            self._waiting.append(place)

    def ask(self, place: Place, now: float) -> float | None:
        """0 if the place was admitted, else how long it must wait at least; None: until another call leaves.

        A place that becomes the first in line is woken, and so is the first one when another call leaves.
        """
        with self._lock:
            wait = self._admit(now)
            return wait if place.entry is None else 0.0

    def leave(self, place: Place, now: float, *, tokens: int | None = None) -> None:
        """Give up the place, in the line or after the call; `tokens` is what the call has really used."""
        with self._lock:
            self._leaving.append((place, now, tokens))
            if not self._admitting:
                self._admit(now)

    def close(self, seconds: float, now: float) -> None:
        """Admit nobody for this long."""
        with self._lock:
            self._closed_until = max(self._closed_until, now + seconds)

    def learn(self, headers: Mapping[str, str], now: float, wall: float) -> None:
        """Read the limits in a reply's headers; `wall` is the Unix time."""
        limits = rate_limits_of(headers, wall)
        if limits is None:
            return
        with self._lock:
            for name, limit in (("requests", limits.requests), ("tokens", limits.tokens or limits.input_tokens)):
                if limit is not None and limit.remaining is not None and limit.reset is not None:
                    self._allowances[name] = _Allowance(limit.remaining, limit.limit, limit.reset, now)
            self._admit(now)

    def _admit(self, now: float) -> float | None:
        """Admit and wake everybody who may go. Returns the wait of the next one, like `ask`."""
        self._admitting = True
        try:
            while True:
                while self._leaving:
                    self._remove(*self._leaving.popleft())
                wait = self._admit_waiting(now)
                if not self._leaving:
                    return wait
        finally:
            self._admitting = False

    def _remove(self, place: Place, now: float, tokens: int | None) -> None:
        entry = place.entry
        if entry is None:
            with suppress(ValueError):
                self._waiting.remove(place)
            return
        self._busy.discard(place)
        if tokens is not None:
            self._forget(now)
            if entry.at + MINUTE > now:
                self._tokens += tokens - entry.tokens
                entry.tokens = tokens

    def _admit_waiting(self, now: float) -> float | None:
        limit = self._limiter.concurrency
        while self._waiting:
            head = self._waiting[0]
            wait = self._wait(head, now)
            is_full = limit is not None and len(self._busy) >= limit
            if wait > 0 or is_full:
                if not head.leads:
                    head.leads = True
                    head.wake()
                return max(wait, _LEAST) if wait > 0 else None
            entry = _Entry(now, head.tokens)
            self._sent.append(entry)
            self._tokens += entry.tokens
            self._busy.add(head)
            for name, allowance in self._allowances.items():
                allowance.use(1 if name == "requests" else head.tokens)
            head.entry = entry
            self._waiting.popleft()
            head.wake()
        return 0.0

    def _wait(self, head: Place, now: float) -> float:
        limiter = self._limiter
        self._forget(now)
        waits = [self._closed_until - now]
        if limiter.requests is not None and len(self._sent) >= limiter.requests:
            waits.append(self._sent[0].at + MINUTE - now)
        if limiter.tokens is not None:
            surplus = self._tokens + head.tokens - limiter.tokens
            for entry in self._sent:  # one that exceeds the limit by itself goes alone
                if surplus <= 0:
                    break
                surplus -= entry.tokens
                waits.append(entry.at + MINUTE - now)
        for name, allowance in self._allowances.items():
            waits.append(allowance.wait(1 if name == "requests" else head.tokens, now))
        return max(waits)

    def _forget(self, now: float) -> None:
        while self._sent and self._sent[0].at + MINUTE <= now:
            self._tokens -= self._sent.popleft().tokens

    async def enter(
        self,
        tokens: int,
        clock: Callable[[], float],
        *,
        blocking: bool,
        limit: float | None,
        longest: float = math.inf,
        name: str,
    ) -> Place:
        """Wait for a place, which the caller must leave. Cancelled or interrupted, nothing is left in the line.

        Raises RateLimitError at once if the wait would exceed `limit` or the run's deadline, or if a provider asks for
        more than a minute and than `longest`.
        """
        bell = _ThreadBell() if blocking else _LoopBell()
        place, stop = Place(tokens, bell.ring), current_stop()
        end = None if limit is None else clock() + limit
        try:
            self.join(place)
            with nullcontext() if stop is None or not blocking else stop.waking(bell.ring):
                while (wait := self.ask(place, clock())) != 0.0:
                    left = None if end is None else end - clock()
                    if stop is not None:
                        left = shorter(left, stop.left())
                    if wait is not None and wait > max(longest, MINUTE):
                        raise _too_long(name, wait, max(longest, MINUTE))
                    if left is not None and (wait or 0.0) >= left:
                        raise _too_long(name, wait, left)
                    seconds = _LONG if not place.leads else _POLL_SECONDS if wait is None else wait
                    await bell.wait(seconds if left is None else min(seconds, left))
        except BaseException:
            self.leave(place, clock())
            raise
        return place


def _too_long(name: str, wait: float | None, left: float) -> RateLimitError:
    when = "when another call ends" if wait is None else f"in {wait:.1f} s"
    message = f"The limiter admits this request of {name} {when}, but it may wait {max(0.0, left):.1f} s."
    more = "Timeouts(total=…), or RetryPolicy(longest_advice=…) if the provider asks for the wait"
    hint = f"Raise the limits of RateLimiter, or allow the call more time: {more}. Or name models to fall back on."
    provider, _, model = name.partition(":")
    return RateLimitError(message, hint=hint, code="limiter", retry_after=wait, provider=provider, model=model)


class _ThreadBell:
    """Wakes a thread. Not an Event: a signal handler could find its lock taken."""

    def __init__(self) -> None:
        self._rung: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        self._rung.put(None)

    async def wait(self, seconds: float) -> None:
        with suppress(Empty):
            self._rung.get(timeout=seconds)


class _LoopBell:
    """Wakes a task, from any thread."""

    def __init__(self) -> None:
        import asyncio  # sync programs do not load it

        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._rung: asyncio.Event = asyncio.Event()

    def ring(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, seconds: float) -> None:
        import asyncio

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()  # the change that it was rung for came before, and is seen by the next `ask`


_lines: Final[WeakSet[Line]] = WeakSet()
_shared: Final[Shared[Line]] = Shared()


def line_of(limiter: RateLimiter, provider: str, place: tuple[object, ...]) -> Line | None:
    """The line for this limiter, provider, address and key; None for a limiter that is off."""
    if limiter == RateLimiter():
        return None
    return _shared.get_or_make((limiter, provider, *place), lambda: Line(limiter))


def _reset_lines() -> None:
    for line in list(_lines):
        line.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_lines)
