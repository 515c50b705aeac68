"""Programs that wait for the next turn of their conversations.

Owns: which program knows which conversation, and how many are kept.
Must not know: how a program is started, spoken to or ended. The handles are those of a driver.

A program is taken out while it is spoken to, so that no two callers ever share one.
"""

from __future__ import annotations

import threading
from typing import Generic, NamedTuple, Protocol, TypeVar

from dragoman.conversation import Message, ToolResult

from .dialogue import Dialogue
from .history import same_start

__all__ = ["Continuation", "Handle", "Live", "Pool", "continuation"]


class Handle(Protocol):
    """A program that was started."""

    @property
    def usable(self) -> bool:
        """Whether it still runs, and can be spoken to from here."""
        ...


H = TypeVar("H", bound=Handle)


class Live(Generic[H]):
    """A program, and what it knows."""

    def __init__(self, handle: H, dialogue: Dialogue, key: str) -> None:
        self.handle: H = handle
        self.dialogue: Dialogue = dialogue
        self.key: str = key
        """How it was started."""
        self.seen: tuple[Message, ...] = ()
        self.draining: bool = False
        """Whether it was interrupted, and the rest of that turn is still to be read."""

    @property
    def at_rest(self) -> bool:
        """Whether its last turn is over. In the middle of one it would take the end of its input for the failure of a
        tool, and ask its model what to do."""
        return not self.draining and not (self.seen and self.seen[-1].tool_calls)


class Continuation(NamedTuple):
    """What of a conversation is new to a program."""

    first: int
    """The index of the first new message."""
    answering: int
    """How many messages from there on answer the calls that it waits for."""


def continuation(seen: tuple[Message, ...], messages: tuple[Message, ...]) -> Continuation | None:
    """How a conversation goes on from what a program knows of it; None if that is not possible."""
    if not same_start(seen, messages):
        return None
    first = len(seen)
    calls = seen[-1].tool_calls if seen and seen[-1].role == "assistant" else ()
    if not calls:
        return Continuation(first, 0) if len(messages) > first else None
    last = first
    answered: set[str] = set()
    while last < len(messages) and messages[last].role == "tool":
        answered.update([result.call_id for result in messages[last].tool_results])
        last += 1
    if not all(call.id in answered for call in calls):
        return None
    # In the middle of a turn the program hears the user only.
    return Continuation(first, last - first) if all(each.role == "user" for each in messages[last:]) else None


def results_in(messages: tuple[Message, ...]) -> list[ToolResult]:
    """All results in these messages."""
    return [result for message in messages for result in message.tool_results]


class Pool(Generic[H]):
    """The programs that nobody speaks to at the moment. Safe to use from any thread."""

    def __init__(self, most: int) -> None:
        self._most: int = most
        self._idle: list[Live[H]] = []
        """The one that was used last stands last."""
        self._closed: bool = False
        self._lock: threading.Lock = threading.Lock()

    def find(self, key: str | None, messages: tuple[Message, ...]) -> Live[H] | None:
        """The program that knows most of this conversation, however it was started if `key` is None."""
        with self._lock:
            return self._best(key, messages)

    def take(self, key: str, messages: tuple[Message, ...]) -> Live[H] | None:
        """`find`, and nobody else gets it until it is put back."""
        with self._lock:
            best = self._best(key, messages)
            if best is not None:
                self._idle.remove(best)
            return best

    def _best(self, key: str | None, messages: tuple[Message, ...]) -> Live[H] | None:
        fitting = [
            live
            for live in self._idle
            if key in (None, live.key) and live.handle.usable and continuation(live.seen, messages) is not None
        ]
        return max(fitting, key=lambda live: len(live.seen), default=None)

    def sweep(self) -> list[Live[H]]:
        """Those that have ended meanwhile, to be buried."""
        with self._lock:
            gone = [live for live in self._idle if not live.handle.usable]
            self._idle = [live for live in self._idle if live not in gone]
            return gone

    def put(self, live: Live[H]) -> list[Live[H]]:
        """Keep a program; those that are to be ended instead."""
        with self._lock:
            if self._closed:
                return [live]
            self._idle.append(live)
            surplus = max(0, len(self._idle) - self._most)
            gone = self._idle[:surplus]
            del self._idle[:surplus]
            return gone

    def close(self) -> list[Live[H]]:
        """Keep none from now on; those that were kept."""
        with self._lock:
            self._closed = True
            left, self._idle = self._idle, []
            return left
