"""What a process remembers of the models in its chains: a circuit breaker, and how soon each model answers.

After some failures in a row a model's breaker is open: the model is passed over. When that time is up one call may try
it, and meanwhile the breaker stays open for everybody else. If that call fails, it opens for twice as long; any answer
closes it. So a provider that is down costs one try a while.

Owns: Health, which is told the time, and where the memory of each model is kept.
Must not know: which failures count, and who asks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final, Literal, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Struct

from .base import BaseEngine

T = TypeVar("T")

Leave: TypeAlias = Literal["free", "probe"]
"""How a call may be made: like any other, or as the one that tries whether the model answers again."""

_SHARE: Final = 0.3
"""How much of a new measurement goes into the mean."""
_STALE: Final = 600.0
"""Seconds after which a measurement says nothing any more, so that a model that was slow once is tried again."""


class ModelHealth(Struct, frozen=True, kw_only=True):
    """How a model of a chain is doing, as far as this process knows."""

    model: str
    state: Literal["closed", "open", "half-open"]
    """Of its circuit breaker. Closed: it is asked. Open: it is passed over. Half-open: the next call tries it."""
    open_for: float = 0.0
    """Seconds until it may be tried again."""
    failures: int = 0
    """In a row."""
    latency: float | None = None
    """Seconds until the first event of a stream, a mean that forgets; None: not known."""


class Health:
    """The memory of one model. Safe to share between threads; takes its lock with `with` only, for Ctrl-C's sake."""

    def __init__(self) -> None:
        self.failures: int = 0
        self._until: float | None = None
        """When the breaker may be tried; None: it is closed."""
        self._period: float = 0.0
        """For how long it opened last."""
        self._latencies: dict[bool, tuple[float, float]] = {}
        """For streams and for whole replies: the mean, and when it was last measured."""

    # --- the breaker ---

    def left(self, now: float) -> float:
        """Seconds for which the breaker is still open."""
        return 0.0 if self._until is None else max(0.0, self._until - now)

    def begin(self, now: float) -> Leave | None:
        """Ask for leave to call the model; whoever gets it says how the call ended. None: pass it over."""
        if self._until is None:  # nearly always
            return "free"
        with _lock:
            if self.left(now) > 0:
                return None
            # Open for the others; and if nothing is ever heard of this call, somebody else tries after that time.
            self._until = now + max(self._period, 1.0)
        return "probe"

    def failed(
        self, now: float, leave: Leave, *, most: int, first: float, longest: float, advice: float | None = None
    ) -> None:
        """A call failed. The `most` failures in a row open the breaker, and so does a provider that says for how long.

        It is open for `first` seconds, and each time that it opens again for twice as long, up to `longest`.
        """
        with _lock:
            if self._until is not None and leave == "free":
                return  # begun before it opened, or for want of any other model: it says nothing new
            self.failures += 1
            if leave == "probe" or advice is not None or self.failures >= most:
                self._period = min(longest, self._period * 2 if self._period else first)
                self._until = now + (self._period if advice is None else min(longest, advice))

    def answered(self) -> None:
        """A call was answered."""
        if self.failures or self._until is not None:
            with _lock:
                self.failures, self._until, self._period = 0, None, 0.0

    def dropped(self, now: float, leave: Leave) -> None:
        """A call ended before anybody could tell."""
        if leave == "probe":
            with _lock:
                if self._until is not None:
                    self._until = min(self._until, now)

    # --- latency ---

    def measure(self, seconds: float, now: float, *, stream: bool) -> None:
        """Take in how long a first event, or a whole reply, took."""
        before = self.latency(now, stream=stream)
        mean = seconds if before is None else before + _SHARE * (seconds - before)
        self._latencies[stream] = (mean, now)

    def latency(self, now: float, *, stream: bool) -> float | None:
        """The mean that forgets; None if nothing was measured of late."""
        mean, when = self._latencies.get(stream, (0.0, -_STALE))
        return mean if now - when < _STALE else None

    def view(self, model: str, now: float) -> ModelHealth:
        """How the model is doing."""
        left = self.left(now)
        state = "closed" if self._until is None else "open" if left else "half-open"
        latency = self.latency(now, stream=True)
        return ModelHealth(model=model, state=state, open_for=left, failures=self.failures, latency=latency)


_lock: threading.RLock = threading.RLock()
"""One for all: held for a few instructions, in which the garbage collector may close a call of the same thread."""


def _begin_anew() -> None:
    global _lock  # noqa: PLW0603 -- in the child of a fork nobody may be left to release it
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


# --- where memories are kept ------------------------------------------------------------------------------------------

_MANY: Final = 1000


class Shared(dict[object, T]):
    """What a process keeps for each address and key: one of each, the oldest forgotten once there are many."""

    def get_or_make(self, key: object, make: Callable[[], T]) -> T:
        """The one for this key."""
        found = self.get(key)
        if found is None:
            found = self.setdefault(key, make())
            if len(self) > _MANY:
                self.pop(next(iter(self)), None)
        return found


_remote: Final[Shared[Health]] = Shared()
_others: Final[WeakKeyDictionary[BaseEngine, Health]] = WeakKeyDictionary()


def health_of(engine: BaseEngine) -> Health:
    """The memory of a model: of its name, address and key, whichever engine asks; else of the engine itself."""
    place = engine.place
    if place is None:
        return _others.setdefault(engine, Health())
    return _remote.get_or_make((engine.name, *place), Health)
