"""Rate limits before they happen: requests wait here for their turn, in order, instead of being refused.

A RateLimiter says how much may be done. All engines of a process that have the same one, for the same provider and key,
stand in one Line, whichever colour or thread they are of. A Line never lets more through in any 60 seconds than its
limiter says, and less if the provider's headers say so; after a refusal with Retry-After nobody goes before that time.

Owns: who goes next and when, as a pure function of the time (join, ask, leave, learn); waiting for it in both colours.
Must not know: requests and replies.
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
_LOOK: Final = 1.0
"""Seconds after which the first in line looks again: a call that was dropped has told nobody that its place is free."""
_LONG: Final = 3600.0
_LEAST: Final = 0.001


class RateLimiter(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much a provider is asked for with one key, by all engines of the process that have the same limiter.

    What is None has no limit; with nothing said it is off. When it is on, the limits in the provider's headers and its
    Retry-After hold as well.
    """

    requests: Positive | None = None
    """A minute."""
    tokens: Positive | None = None
    """A minute, of prompts and replies: estimated before a call and put right after it."""
    concurrency: Positive | None = None
    """Calls under way at once, until the last event of their replies."""


class Place:
    """One who waits, or has been let through."""

    __slots__ = ("__weakref__", "entry", "leads", "tokens", "wake")

    def __init__(self, tokens: int, wake: Callable[[], object]) -> None:
        self.tokens: int = tokens
        self.wake: Callable[[], object] = wake
        """Called, from any thread, when it is time to ask again."""
        self.leads: bool = False
        """Whether it knows that it is the first in line, and minds the time."""
        self.entry: _Entry | None = None
        """What was counted for it, once it was let through."""


class _Entry:
    __slots__ = ("at", "tokens")

    def __init__(self, at: float, tokens: int) -> None:
        self.at: float = at
        self.tokens: int = tokens


class _Allowance:
    """What the provider said is left of a limit, which grows until it is whole again (a token bucket, as most have)."""

    def __init__(self, remaining: int, limit: int | None, reset: float, now: float) -> None:
        self._remaining: float = remaining
        self._rate: float = 0.0 if limit is None or reset <= 0 else max(0.0, limit - remaining) / reset
        self._at: float = now
        self._until: float = now + reset

    def wait(self, needed: float, now: float) -> float:
        """Seconds until so much may be used."""
        lacking = needed - self._remaining - self._rate * (now - self._at)
        if now >= self._until or lacking <= 0:
            return 0.0
        return min(self._until - now, lacking / self._rate if self._rate else math.inf)

    def use(self, amount: float) -> None:
        self._remaining -= amount


class Line:
    """The line before one provider, for one key. Takes its lock with `with` only: Ctrl-C must not leave it locked."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter: RateLimiter = limiter
        self.begin()
        _lines.add(self)

    def begin(self) -> None:
        """Begin anew, also in the child of a fork, where nobody is left of those who waited."""
        self._lock: threading.RLock = threading.RLock()
        """Of a thread that has it already, too: the garbage collector may close a stream at any moment."""
        self._leaving: deque[tuple[Place, float, int | None]] = deque()
        """Who leaves, when and with how many tokens; taken in between two rounds, never inside one."""
        self._admitting: bool = False
        self._waiting: deque[Place] = deque()
        self._busy: WeakSet[Place] = WeakSet()
        """Who was let through and has not left; one that is simply dropped is not in the way for ever."""
        self._sent: deque[_Entry] = deque()
        """What was let through in the last minute, the oldest first …"""
        self._tokens: int = 0
        """… and the tokens of all of it."""
        self._closed_until: float = -math.inf
        self._allowances: dict[str, _Allowance] = {}

    # --- who goes when ---

    def join(self, place: Place) -> None:
        """Stand at the end of the line."""
        with self._lock:
            self._waiting.append(place)

    def ask(self, place: Place, now: float) -> float | None:
        """0 if the place has been let through, else the least that it has to wait; None: until somebody leaves.

        Who does not lead is woken in time, and who leads when somebody leaves.
        """
        with self._lock:
            wait = self._admit(now)
            return wait if place.entry is None else 0.0

    def leave(self, place: Place, now: float, *, tokens: int | None = None) -> None:
        """Give the place up, in the line or after the call; `tokens` is what the call has really taken."""
        with self._lock:
            self._leaving.append((place, now, tokens))
            if not self._admitting:
                self._admit(now)

    def close(self, seconds: float, now: float) -> None:
        """Let nobody through for so long."""
        with self._lock:
            self._closed_until = max(self._closed_until, now + seconds)

    def learn(self, headers: Mapping[str, str], now: float, wall: float) -> None:
        """Take in what a reply's headers say about limits; `wall` is the Unix time."""
        told = rate_limits_of(headers, wall)
        if told is None:
            return
        with self._lock:
            for name, limit in (("requests", told.requests), ("tokens", told.tokens or told.input_tokens)):
                if limit is not None and limit.remaining is not None and limit.reset is not None:
                    self._allowances[name] = _Allowance(limit.remaining, limit.limit, limit.reset, now)
            self._admit(now)

    def _admit(self, now: float) -> float | None:
        """Let all through who may go, and wake them; what the first of the others has to wait, as `ask` says it."""
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
            for entry in self._sent:  # if it is more than a minute may have, it goes alone
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

    # --- waiting ---

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
        """Wait for one's turn, but not longer than `limit` and the run's deadline: if that is not enough, fail at once.

        So it does if a provider asks for a wait of more than `longest`; a minute is waited, as RateLimiter's own limits
        may need it.
        Whoever gets a place leaves it. Cancelled or interrupted, nobody is left in the line.
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
                    patience = _LONG if not place.leads else _LOOK if wait is None else wait
                    await bell.wait(patience if left is None else min(patience, left))
        except BaseException:
            self.leave(place, clock())
            raise
        return place


def _too_long(name: str, wait: float | None, left: float) -> RateLimitError:
    when = "not before others are done" if wait is None else f"in {wait:.1f} s"
    message = f"The limiter lets this request of {name} through {when}, and it may wait {max(0.0, left):.1f} s."
    more = "Timeouts(total=…), or RetryPolicy(longest_advice=…) if it is the provider's wait"
    hint = f"Raise the limits of RateLimiter, or allow the call more time: {more}. Or name models to fall back on."
    provider, _, model = name.partition(":")
    return RateLimitError(message, hint=hint, code="limiter", retry_after=wait, provider=provider, model=model)


class _ThreadBell:
    """Wakes a thread. Not an Event, whose lock a signal handler could find taken."""

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
        import asyncio  # which plain programs do not load

        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._rung: asyncio.Event = asyncio.Event()

    def ring(self) -> None:
        with suppress(RuntimeError):  # the loop was closed, and with it whoever waited
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, seconds: float) -> None:
        import asyncio

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()  # whoever rang has changed the line before, and it is asked again now


# --- one line for each provider and key -------------------------------------------------------------------------------

_lines: Final[WeakSet[Line]] = WeakSet()
_shared: Final[Shared[Line]] = Shared()


def line_of(limiter: RateLimiter, provider: str, place: tuple[object, ...]) -> Line | None:
    """The line in which everybody stands who has this limiter at this place; None for a limiter that is off."""
    if limiter == RateLimiter():
        return None
    return _shared.get_or_make((limiter, provider, *place), lambda: Line(limiter))


def _begin_anew() -> None:
    for line in list(_lines):
        line.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
