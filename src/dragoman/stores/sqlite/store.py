"""A store in one SQLite file.

Owns: SqliteStore. Each method checks what it was given and is one transaction.
Must not know: SQL (see reading.py, lists.py, writing.py, resealing.py), and how connections are kept (see database.py).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dragoman.errors import StoreError
from dragoman.stores.entries import JournalEntry
from dragoman.stores.ids import validate_snapshot_id
from dragoman.stores.journal import Journal
from dragoman.stores.protocol import Resealed
from dragoman.stores.records import Listing, Records
from dragoman.stores.sealing.protocol import Sealing
from dragoman.stores.snapshot import Snapshot
from dragoman.stores.summary import Page, checked_limit, microseconds

from . import reading, resealing, schema, writing
from .checks import mode_of
from .database import Database
from .lists import Filters, history_page, list_page

__all__ = ["SqliteStore"]


class SqliteStore:
    """Conversations in one SQLite file, for one machine: many threads and programs may use it at once.

    The file and its directory are made when first needed, for the owner's eyes only. `timeout` is how long to wait, in
    seconds, for another program that writes. With `sealing`, all that is kept is sealed, also what lists show, unless
    `listing="plain"`; a sealed store cannot be searched.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sealing: Sealing | None = None,
        listing: Listing = "sealed",
        timeout: float = 30.0,
    ) -> None:
        self.path: Final = Path(path).absolute()  # a program may change its directory
        self.can_search: bool = sealing is None
        self._records: Final = Records("sqlite", sealing, listing)
        settings = {"mode": self._records.mode}
        self._database: Final = Database(
            self.path, timeout=timeout, prepare=lambda connection, path: schema.prepared(connection, path, settings)
        )

    def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        """Keep this snapshot, and put away the journal entries 1 to `after`, which it covers."""
        new = writing.prepared(snapshot)
        self._database.write(lambda connection: writing.save(connection, self._records, new, after))

    def load(self, id: str) -> Snapshot:
        """Exactly this snapshot."""
        validate_snapshot_id(id)

        def work(connection: sqlite3.Connection) -> Snapshot:
            return reading.snapshot_of(connection, self._records, reading.found(connection, id))

        return self._database.read(work)

    def latest(self, id: str) -> Snapshot:
        """The newest snapshot of the conversation."""
        validate_snapshot_id(id)

        def work(connection: sqlite3.Connection) -> Snapshot:
            place = reading.found(connection, id)
            if place.newest != id:
                place = reading.newest(connection, place)
            return reading.snapshot_of(connection, self._records, place)

        return self._database.read(work)

    def list(
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
        filters = Filters(
            provider=provider,
            text=text,
            since=None if since is None else microseconds(since),
            until=None if until is None else microseconds(until),
        )
        return self._database.read(lambda connection: list_page(connection, self._records, filters, limit, cursor))

    def history(self, id: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        """The snapshots of one conversation, newest first."""
        validate_snapshot_id(id)

        def work(connection: sqlite3.Connection) -> Page:
            return history_page(connection, self._records, reading.found(connection, id), limit, cursor)

        return self._database.read(work)

    def search(self, text: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        """The newest snapshot of each conversation with a message in which every word of the text occurs."""
        if not self.can_search:
            message = "A sealed store cannot be searched: an index would hold the words of every message in the open."
            raise StoreError(message, hint="Use list(text=...), which looks into titles.")

        def work(connection: sqlite3.Connection) -> Page:
            self._records.ensure_mode(mode_of(connection))
            return list_page(connection, self._records, Filters(search=text), limit, cursor)

        return self._database.read(work)

    def delete(self, id: str) -> None:
        """Remove the whole conversation: all of its snapshots and its journal."""
        validate_snapshot_id(id)
        self._database.write(lambda connection: writing.delete(connection, reading.found(connection, id)))

    def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        """Append to the journal of the conversation whose newest snapshot this is; the new number of entries."""
        validate_snapshot_id(id)
        new = tuple(entries)
        return self._database.write(lambda connection: writing.record(connection, self._records, id, new, after))

    def journal(self, id: str) -> Journal:
        """The journal of the conversation."""
        validate_snapshot_id(id)

        def work(connection: sqlite3.Connection) -> Journal:
            return reading.journal_of(connection, self._records, reading.found(connection, id))

        return self._database.read(work)

    def reseal(self, *, limit: int = 100, cursor: str | None = None) -> Resealed:
        """Seal a part of the store again with the key that is written now; the function `reseal` does it all."""
        checked_limit(limit)
        return resealing.reseal(self._database, self._records, limit, cursor)

    def compact(self) -> None:
        """Write the file anew: smaller, and without a trace of what was deleted. Others wait meanwhile."""
        self._database.write(writing.forget_deleted_words)
        self._database.compact()

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SqliteStore({str(self.path)!r})"
