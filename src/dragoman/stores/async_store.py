"""Any plain store for asyncio.

Owns: AsyncStore, which runs a plain store's methods in worker threads of its own.
Must not know: any particular store.

A call that is cancelled before a thread took it up is never carried out. One that is under way cannot be stopped: the
cancelled task waits until it is through, so that nothing goes on behind the program's back and no lock stays held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from .journal import Journal, JournalEntry
from .protocol import AsyncConversationStore, ConversationStore, Resealed, closed_store
from .snapshot import Snapshot
from .summary import Page

_THREADS: Final = 4
"""Few: writers wait for each other anyway."""

_T = TypeVar("_T")


class AsyncStore(AsyncConversationStore):
    """A plain store as an AsyncConversationStore. Closing it closes the store."""

    def __init__(self, store: ConversationStore) -> None:
        self.store: Final = store
        self.can_search: bool = store.can_search
        self._threads: Final = ThreadPoolExecutor(_THREADS, thread_name_prefix="dragoman-store")

    async def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        await self._run(partial(self.store.save, snapshot, after=after))

    async def load(self, id: str) -> Snapshot:
        return await self._run(partial(self.store.load, id))

    async def latest(self, id: str) -> Snapshot:
        return await self._run(partial(self.store.latest, id))

    async def list(
        self,
        *,
        provider: str | None = None,
        text: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        work = partial(
            self.store.list, provider=provider, text=text, since=since, until=until, limit=limit, cursor=cursor
        )
        return await self._run(work)

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
        """Wait for what is under way, then close the store."""
        closing = asyncio.get_running_loop().run_in_executor(None, self._close)
        await _to_the_end(closing, lambda: False)

    def _close(self) -> None:
        self._threads.shutdown(wait=True)
        self.store.close()

    async def _run(self, work: Callable[[], _T]) -> _T:
        try:
            begun = self._threads.submit(work)
        except RuntimeError:  # it takes no more work
            raise closed_store() from None
        return await _to_the_end(asyncio.wrap_future(begun), begun.cancel)


async def _to_the_end(future: asyncio.Future[_T], withdraw: Callable[[], bool]) -> _T:
    """The result of work in a thread; when cancelled, only after the work is done or could be withdrawn."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        withdraw()
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:  # being asked twice does not make it faster
                continue
        if not future.cancelled():
            future.exception()  # looked at, so that nobody warns about it
        raise
