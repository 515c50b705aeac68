"""A store in memory, for tests and short-lived programs."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final, Unpack

from msgspec import Struct, structs

from .journal import Journal, JournalEntry, entry_to_json
from .json_form import snapshot_to_json
from .listing import (
    Filters,
    ListOptions,
    Page,
    check_limit,
    has_words,
    history_page,
    list_page,
    read_list_options,
    search_words,
    summary_of,
)
from .protocol import (
    ConversationStore,
    Resealed,
    check_newest,
    check_parent,
    check_position,
    closed_store,
    id_taken,
    not_found,
)
from .snapshot import Snapshot, validate_snapshot_id


class _Chain(Struct, frozen=True):
    """One conversation."""

    points: tuple[Snapshot, ...]
    entries: tuple[JournalEntry, ...] = ()

    @property
    def newest(self) -> Snapshot:
        return self.points[-1]


class MemoryStore(ConversationStore):
    """Conversations in the memory of this process; they end with it, or when the store is closed.

    It keeps the same rules as the other stores, and refuses what they could not write down. Many threads may use it;
    for asyncio wrap it: `AsyncStore(MemoryStore())`.
    """

    def __init__(self) -> None:
        self.can_search: bool = True
        self._lock: Final = threading.RLock()
        self._chains: dict[str, _Chain] = {}
        self._roots: dict[str, str] = {}
        """The conversation of each snapshot. A change counts when it is in `_chains`, at one stroke."""
        self._closed: bool = False

    def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        snapshot_to_json(snapshot)  # raises for what no store could keep
        with self._lock:
            there = self._find(snapshot.id)
            if there is not None:
                if snapshot not in there.points:
                    raise id_taken(snapshot.id)
                return
            if snapshot.parent is None:
                check_position(snapshot.root, after, 0)
                chain = _Chain((snapshot,))
            else:
                before = self._find(snapshot.parent)
                check_parent(snapshot, before and before.newest.root, before and before.newest.id)
                assert before is not None
                check_position(snapshot.root, after, len(before.entries))
                chain = _Chain((*before.points, snapshot))
            self._roots[snapshot.id] = snapshot.root
            self._chains[snapshot.root] = chain

    def load(self, id: str) -> Snapshot:
        return next(point for point in self._chain(id).points if point.id == id)

    def latest(self, id: str) -> Snapshot:
        return self._chain(id).newest

    def list(self, **which: Unpack[ListOptions]) -> Page:
        return self._list(*read_list_options(**which))

    def history(self, id: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        points = self._chain(id).points
        places = range(len(points))
        return history_page(points[0].root, places, lambda place: summary_of(points[place]), limit, cursor)

    def search(self, text: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        """The newest snapshot of each conversation with a message in which every word of the text occurs."""
        return self._list(Filters(search=text), limit, cursor)

    def _list(self, filters: Filters, limit: int, cursor: str | None) -> Page:
        with self._lock:
            self._check_open()
            chains = [*self._chains.values()]
        if filters.search is not None:
            words = search_words(filters.search)
            chains = [chain for chain in chains if any(has_words(point.messages, words) for point in chain.points)]
        return list_page([summary_of(chain.newest) for chain in chains], filters, limit, cursor)

    def delete(self, id: str) -> None:
        with self._lock:
            chain = self._chain(id)
            del self._chains[chain.newest.root]
            for point in chain.points:
                self._roots.pop(point.id, None)

    def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        new = tuple(entries)
        for entry in new:
            entry_to_json(entry)
        with self._lock:
            chain = self._chain(id)
            check_newest(id, chain.newest.id)
            check_position(chain.newest.root, after, len(chain.entries))
            self._chains[chain.newest.root] = structs.replace(chain, entries=chain.entries + new)
            return after + len(new)

    def journal(self, id: str) -> Journal:
        chain = self._chain(id)
        return Journal(snapshot=chain.newest.id, entries=chain.entries)

    def reseal(self, *, limit: int = 100, cursor: str | None = None) -> Resealed:
        """Nothing to do: nothing is sealed here."""
        check_limit(limit)
        with self._lock:
            self._check_open()
            return Resealed(done=len(self._chains), total=len(self._chains))

    def close(self) -> None:
        """Forget everything."""
        self._closed = True
        self._chains = {}
        self._roots = {}

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._chains)} conversations)"

    def _chain(self, id: str) -> _Chain:
        """The conversation of this snapshot. Raises SnapshotNotFoundError."""
        validate_snapshot_id(id)
        found = self._find(id)
        if found is None:
            raise not_found(id)
        return found

    def _find(self, id: str) -> _Chain | None:
        with self._lock:
            self._check_open()
            chain = self._chains.get(self._roots.get(id, ""))
            return chain if chain is not None and any(point.id == id for point in chain.points) else None

    def _check_open(self) -> None:
        if self._closed:
            raise closed_store()
