"""A store in PostgreSQL, for asyncio.

Owns: AsyncPostgresStore. Each method is one piece of work.
Must not know: SQL (see requests.py), and how connections are kept (see on_loop.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from types import TracebackType
from typing import Final, Self

from dragoman.stores.entries import JournalEntry
from dragoman.stores.journal import Journal
from dragoman.stores.protocol import Resealed
from dragoman.stores.records import Listing, Records
from dragoman.stores.sealing.protocol import Sealing
from dragoman.stores.snapshot import Snapshot
from dragoman.stores.summary import Page

from .opening import Options, driver_needed
from .requests import Requests

__all__ = ["AsyncPostgresStore"]


class AsyncPostgresStore:
    """PostgresStore for asyncio, with the same options."""

    def __init__(
        self,
        conninfo: str = "",
        *,
        schema: str = "dragoman",
        create: bool = True,
        sealing: Sealing | None = None,
        listing: Listing = "sealed",
        timeout: float = 30.0,
        connections: int = 8,
        prepared_statements: bool = True,
    ) -> None:
        with driver_needed():
            from .on_loop import AsyncRunner
        options = Options(
            schema=schema, timeout=timeout, connections=connections, prepared_statements=prepared_statements
        )
        self.can_search: bool = sealing is None
        self._requests: Final = Requests(Records("postgres", sealing, listing), schema, create=create)
        self._runner: Final = AsyncRunner(conninfo, options, self._requests.migrate())
        self._shown: Final = f"AsyncPostgresStore({self._runner.address.shown!r}, schema={schema!r})"

    async def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        """Keep this snapshot, and put away the journal entries 1 to `after`, which it covers."""
        await self._runner.run(self._requests.save(snapshot, after))

    async def load(self, id: str) -> Snapshot:
        """Exactly this snapshot."""
        return await self._runner.run(self._requests.load(id))

    async def latest(self, id: str) -> Snapshot:
        """The newest snapshot of the conversation."""
        return await self._runner.run(self._requests.latest(id))

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
        """The newest snapshot of each conversation, newest first."""
        return await self._runner.run(
            self._requests.list(provider=provider, text=text, since=since, until=until, limit=limit, cursor=cursor)
        )

    async def history(self, id: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        """The snapshots of one conversation, newest first."""
        return await self._runner.run(self._requests.history(id, limit, cursor))

    async def search(self, text: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        """The newest snapshot of each conversation with a message in which every word of the text occurs."""
        return await self._runner.run(self._requests.search(text, limit, cursor))

    async def delete(self, id: str) -> None:
        """Remove the whole conversation: all of its snapshots and its journal."""
        await self._runner.run(self._requests.delete(id))

    async def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        """Append to the journal of the conversation whose newest snapshot this is; the new number of entries."""
        return await self._runner.run(self._requests.record(id, entries, after))

    async def journal(self, id: str) -> Journal:
        """The journal of the conversation."""
        return await self._runner.run(self._requests.journal(id))

    async def reseal(self, *, limit: int = 100, cursor: str | None = None) -> Resealed:
        """Seal a part of the store again with the key that is written now; the function `reseal` does it all."""
        batch = await self._runner.run(self._requests.reseal_begin(limit, cursor))
        return batch.result([await self._runner.run(self._requests.reseal_chain(root)) for root in batch.roots])

    async def aclose(self) -> None:
        """Close the connections."""
        self._runner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return self._shown
