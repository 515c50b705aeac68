"""The circuit breaker and the latency of each model in a chain, shared by all chains of the process.

After some failures in a row a model's breaker opens: the model is skipped. When its time is up, one call probes the
model, while the breaker stays open for all others. If the probe fails, it opens for twice as long; any answer closes
it. Must not know: which failures count.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Struct

from .base import BaseEngine

if TYPE_CHECKING:
    from .fallback import Fallback

T = TypeVar("T")

_WEIGHT: Final = 0.3
"""Of a new measurement in the moving average."""
_STALE: Final = 600.0
"""Seconds after which a latency is forgotten, so that a model that was slow once is tried again."""


class ModelHealth(Struct, frozen=True, kw_only=True):
    """The state of a model of a chain, as far as this process knows."""

    model: str
    state: Literal["closed", "open", "half-open"]
    """Of its circuit breaker. Closed: it is used. Open: it is skipped. Half-open: the next call probes it."""
    open_for: float = 0.0
    """Seconds until the breaker is half-open."""
    failures: int = 0
    """In a row."""
    latency: float | None = None
    """Seconds until the first event of a stream, as a moving average; None: not known."""


class Health:
    """The state of one model. Safe to share between threads; it locks only by `with`, so Ctrl-C leaves no lock held."""

    def __init__(self) -> None:
        self.failures: int = 0
        self._until: float | None = None
        """When the breaker is half-open; None: it is closed."""
        self._period: float = 0.0
        """For how long it opened last."""
        self._latencies: dict[bool, tuple[float, float]] = {}
        """For streams and for whole replies: the average, and when it was measured last."""

    def open_for(self, now: float) -> float:
        """Seconds for which the breaker is still open."""
        return 0.0 if self._until is None else max(0.0, self._until - now)

    def begin(self, now: float) -> Literal["normal", "probe"] | None:
        """What kind of call may be made now; None: skip the model. The caller reports how the call ended."""
        if self._until is None:  # nearly always
            return "normal"
        with _lock:
            if self.open_for(now) > 0:
                return None
            # It stays open for others. If this call never reports back, another one may probe after that time.
            self._until = now + max(self._period, 1.0)
        return "probe"

    def failed(self, now: float, policy: Fallback, *, probe: bool, advice: float | None = None) -> None:
        """A call failed. `advice` is how long the provider asks to wait, which opens the breaker at once."""
        with _lock:
            if self._until is not None and not probe:
                return  # the call began before the breaker opened, or no other model was left
            self.failures += 1
            if probe or advice is not None or self.failures >= policy.failures:
                self._period = min(policy.longest_open, self._period * 2 if self._period else policy.open_for)
                self._until = now + (self._period if advice is None else min(policy.longest_open, advice))

    def answered(self) -> None:
        """A call was answered."""
        if self.failures or self._until is not None:
            with _lock:
                self.failures, self._until, self._period = 0, None, 0.0

    def dropped(self, now: float, *, probe: bool) -> None:
        """A call ended without an answer or a failure of the model."""
        if probe:
            with _lock:
                if self._until is not None:
                    self._until = min(self._until, now)

    def measure(self, seconds: float, now: float, *, stream: bool) -> None:
        """Record how long a first event, or a whole reply, took."""
        before = self.latency(now, stream=stream)
        mean = seconds if before is None else before + _WEIGHT * (seconds - before)
        self._latencies[stream] = (mean, now)

    def latency(self, now: float, *, stream: bool) -> float | None:
        """The moving average; None if nothing was measured lately."""
        mean, when = self._latencies.get(stream, (0.0, -_STALE))
        return mean if now - when < _STALE else None

    def view(self, model: str, now: float) -> ModelHealth:
        """The state, for users."""
        left = self.open_for(now)
        state = "closed" if self._until is None else "open" if left else "half-open"
        latency = self.latency(now, stream=True)
        return ModelHealth(model=model, state=state, open_for=left, failures=self.failures, latency=latency)


_lock: threading.RLock = threading.RLock()
"""One for all, held briefly. Reentrant: meanwhile the garbage collector may close a call in the same thread."""


def _renew_lock() -> None:
    global _lock  # noqa: PLW0603 -- in the child of a fork its owner may be gone
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class Shared(dict[object, T]):
    """One value for each address and key in a process; the oldest is forgotten once there are a thousand."""

    def get_or_make(self, key: object, make: Callable[[], T]) -> T:
        value = self.get(key)
        if value is None:
            value = self.setdefault(key, make())
            if len(self) > 1000:
                self.pop(next(iter(self)), None)
        return value


_remote: Final[Shared[Health]] = Shared()
_others: Final[WeakKeyDictionary[BaseEngine, Health]] = WeakKeyDictionary()


def health_of(engine: BaseEngine) -> Health:
    """The state of a model: shared by all engines with its name, address and key, if it has an address."""
    place = engine.place
    if place is None:
        return _others.setdefault(engine, Health())
    return _remote.get_or_make((engine.name, *place), Health)
