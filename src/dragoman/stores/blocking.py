"""Plain stores in code that awaits, and what is done with any store in several calls: resuming, sealing it again.

Must not know: any particular store, event loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeAlias, TypeVar, Unpack

from dragoman._stepping import step
from dragoman.errors import StoreConflictError

from .journal import Journal, JournalEntry, Recovered, recovered
from .listing import ListOptions, Page
from .protocol import AsyncConversationStore, ConversationStore, Resealed
from .snapshot import Snapshot

_T = TypeVar("_T")


class BlockingStore(AsyncConversationStore):
    """A plain store as an AsyncConversationStore whose methods block and never suspend, for code that is stepped."""

    def __init__(self, store: ConversationStore) -> None:
        self.store: Final = store
        self.can_search: bool = store.can_search

    async def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        await self._run(partial(self.store.save, snapshot, after=after))

    async def load(self, id: str) -> Snapshot:
        return await self._run(partial(self.store.load, id))

    async def latest(self, id: str) -> Snapshot:
        return await self._run(partial(self.store.latest, id))

    async def list(self, **which: Unpack[ListOptions]) -> Page:
        return await self._run(partial(self.store.list, **which))

    async def history(self, id: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        return await self._run(partial(self.store.history, id, limit=limit, cursor=cursor))

    async def search(self, text: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        return await self._run(partial(self.store.search, text, limit=limit, cursor=cursor))

    async def delete(self, id: str) -> None:
        await self._run(partial(self.store.delete, id))

    async def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        return await self._run(partial(self.store.record, id, tuple(entries), after=after))

    async def journal(self, id: str) -> Journal:
        return await self._run(partial(self.store.journal, id))

    async def reseal(self, *, limit: int = 100, cursor: str | None = None) -> Resealed:
        return await self._run(partial(self.store.reseal, limit=limit, cursor=cursor))

    async def aclose(self) -> None:
        """Close the store."""
        self.store.close()

    async def _run(self, work: Callable[[], _T]) -> _T:
        return work()


# --- resuming --------------------------------------------------------------------------------------------------------

_TRIES: Final = 20
"""Snapshot and journal are read one after the other; somebody may save in between, but not for ever."""


def resume(store: ConversationStore, id: str) -> Recovered:
    """The conversation that contains this snapshot, as far as it came."""
    return step(aresume(BlockingStore(store), id))


async def aresume(store: AsyncConversationStore, id: str) -> Recovered:
    """`resume` for an async store."""
    for _ in range(_TRIES):
        snapshot = await store.latest(id)
        journal = await store.journal(id)
        if journal.snapshot == snapshot.id:
            return recovered(snapshot, journal.entries)
    message = f"The conversation of {id} is being saved faster than it can be read."
    raise StoreConflictError(message, hint="Try again when the other program pauses.")


# --- another key -----------------------------------------------------------------------------------------------------

Progress: TypeAlias = Callable[[Resealed], None]

_STEP: Final = 20
"""Conversations between two looks at the progress."""


def reseal(store: ConversationStore, *, progress: Progress | None = None, cursor: str | None = None) -> Resealed:
    """Seal the whole store with the key that is written now, telling `progress` after every few conversations.

    This can be broken off anywhere, and `cursor` takes it up where it stood; others may save meanwhile. Raises what the
    store raises.
    """
    return step(areseal(BlockingStore(store), progress=progress, cursor=cursor))


async def areseal(
    store: AsyncConversationStore, *, progress: Progress | None = None, cursor: str | None = None
) -> Resealed:
    """`reseal` for an async store."""
    done, unreadable = 0, tuple[str, ...]()
    while True:
        part = await store.reseal(limit=_STEP, cursor=cursor)
        done, unreadable, cursor = done + part.done, unreadable + part.unreadable, part.cursor
        so_far = Resealed(done=done, total=max(part.total, done), unreadable=unreadable, cursor=cursor)
        if progress is not None:
            progress(so_far)
        if cursor is None:
            return so_far
