"""Whose turn it is: a model answers one call at a time, in the order in which they were made.

Owns: the queue, for threads and event loops alike.
Must not know: what a turn is used for.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from dragoman.errors import RequestTimeoutError

__all__ = ["Turn", "Turns", "stuck"]


def stuck(seconds: float | None) -> RequestTimeoutError:
    """Somebody has had the model for so long."""
    message = f"The local model was busy with another call for {seconds or 0:.0f} seconds."
    return RequestTimeoutError(message, hint="Close streams that are not read to their end.", provider="local")


class Turn:
    """A place in the queue, and later the right to go on. It must be given back, in any case."""

    __slots__ = ("_turns", "ready")

    def __init__(self, turns: Turns, ready: Callable[[], None]) -> None:
        self._turns: Turns = turns
        self.ready: Callable[[], None] = ready

    def give_back(self) -> None:
        """Let the next one go on, or leave the queue. Doing so twice does no harm."""
        self._turns.over(self)


class Turns:
    """A queue for one model."""

    def __init__(self) -> None:
        self._lock: threading.Lock = threading.Lock()
        self._queue: deque[Turn] = deque()
        self._holder: Turn | None = None
        self._given_back: int = 0

    def asked(self, ready: Callable[[], None]) -> Turn:
        """Queue up. `ready` is called once, from whatever thread, when the turn has come; perhaps at once."""
        turn = Turn(self, ready)
        self._join(turn)
        return turn

    def _join(self, turn: Turn) -> None:
        with self._lock:
            self._queue.append(turn)
        self._next()

    @property
    def given_back(self) -> int:
        """How many turns were given back: whether the queue moves."""
        return self._given_back

    def waited(self, seconds: float | None) -> Turn:
        """Wait for a turn. Raises RequestTimeoutError if for so long nobody gave one back."""
        come = threading.Event()
        turn = Turn(self, come.set)
        try:
            self._join(turn)  # here, so that it leaves the queue also if Ctrl-C comes at once
            seen = self._given_back
            while not come.wait(seconds):
                if self._given_back == seen:
                    raise stuck(seconds)
                seen = self._given_back
        except BaseException:
            turn.give_back()
            raise
        return turn

    def over(self, turn: Turn) -> None:
        """The turn is given back, or was given up while it waited."""
        with self._lock:
            if self._holder is turn:
                self._holder = None
                self._given_back += 1
            elif turn in self._queue:
                self._queue.remove(turn)
        self._next()

    def _next(self) -> None:
        while True:
            with self._lock:
                if self._holder is not None or not self._queue:
                    return
                turn = self._holder = self._queue.popleft()
            try:
                turn.ready()
            except RuntimeError:  # its event loop is gone
                with self._lock:
                    self._holder = None
                continue
            return
