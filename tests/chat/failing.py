"""Stores that fail at a given write, before it or after it was carried out; and tools that count how often they ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from dragoman.errors import StoreUnavailableError
from dragoman.stores import ConversationStore, JournalEntry, Snapshot
from dragoman.tools import Tool, tool


class Died(BaseException):
    """The program came to its end here: nothing that it does afterwards has an effect."""


class FailingStore:
    """A store whose n-th write fails, or with `last` each from that one on; `after`: it has been carried out."""

    def __init__(
        self, store: ConversationStore, at: int, *, after: bool = False, dies: bool = False, last: bool = False
    ) -> None:
        self.store = store
        self.at = at
        self.after = after
        self.dies = dies
        self.last = last
        self.writes = 0
        self.dead = False

    def _failure(self) -> BaseException:
        if self.dies:
            self.dead = True
            return Died()
        return StoreUnavailableError(f"The disk is full at write {self.writes}.", hint="")

    def _write(self, work: Any) -> Any:
        if self.dead:
            raise Died
        number, self.writes = self.writes, self.writes + 1
        fails = number == self.at or (self.last and number > self.at)
        if fails and not self.after:
            raise self._failure()
        done = work()
        if fails:
            raise self._failure()
        return done

    def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        self._write(lambda: self.store.save(snapshot, after=after))

    def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        return self._write(lambda: self.store.record(id, entries, after=after))

    def __getattr__(self, name: str) -> Any:
        if self.dead:
            raise Died
        return getattr(self.store, name)


class Tools:
    """Tools that count how often each call was carried out. A thread that was given up may still be running one."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()

    def run(self, what: str) -> str:
        self.ran[what] += 1
        return f"done {what}"

    def all(self) -> list[Tool[..., Any]]:
        @tool
        def note(what: str) -> str:
            """Note it."""
            return self.run(what)

        @tool
        async def anote(what: str) -> str:
            """Note it."""
            return self.run(what)

        @tool(requires_approval=True)
        def delete(what: str) -> str:
            """Delete it, if somebody says yes."""
            return self.run(what)

        @tool
        def fail(what: str) -> str:
            """Fails."""
            raise ValueError(self.run(what))

        return [note, anote, delete, fail]
