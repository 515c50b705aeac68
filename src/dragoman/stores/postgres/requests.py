"""What each method of the store means as work for the server.

Owns: checking what the caller gave, before anything is sent.
Must not know: connections and colours.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Final

from dragoman.errors import StoreError
from dragoman.stores.entries import JournalEntry
from dragoman.stores.ids import validate_snapshot_id
from dragoman.stores.journal import Journal
from dragoman.stores.records import Records
from dragoman.stores.snapshot import Snapshot
from dragoman.stores.summary import Page, checked_limit, microseconds

from . import reading, resealing, saving, schema
from .work import Work

__all__ = ["Requests"]


class Requests:
    """Makes work of calls."""

    def __init__(self, records: Records, schema_name: str, *, create: bool) -> None:
        self.records: Final = records
        self._schema: Final = schema_name
        self._create: Final = create

    def migrate(self) -> Work[None]:
        return Work(partial(schema.migrate, self._schema, self.records.mode, create=self._create), "write")

    def save(self, snapshot: Snapshot, after: int) -> Work[None]:
        return Work(partial(saving.save, self.records, saving.drafted(snapshot, after)), "write")

    def load(self, id: str) -> Work[Snapshot]:
        validate_snapshot_id(id)
        return Work(partial(reading.load, self.records, id), "look")

    def latest(self, id: str) -> Work[Snapshot]:
        validate_snapshot_id(id)
        return Work(partial(reading.latest, self.records, id), "look")

    def list(
        self,
        *,
        provider: str | None,
        text: str | None,
        since: datetime | None,
        until: datetime | None,
        limit: int,
        cursor: str | None,
    ) -> Work[Page]:
        filters = reading.Filters(
            provider=provider,
            text=text,
            since=None if since is None else microseconds(since),
            until=None if until is None else microseconds(until),
        )
        return Work(partial(reading.list_page, self.records, filters, checked_limit(limit), cursor), "look")

    def history(self, id: str, limit: int, cursor: str | None) -> Work[Page]:
        validate_snapshot_id(id)
        return Work(partial(reading.history_page, self.records, id, checked_limit(limit), cursor), "look")

    def search(self, text: str, limit: int, cursor: str | None) -> Work[Page]:
        if self.records.mode != "open":
            message = "A sealed store cannot be searched: an index would hold the words of every message in the open."
            raise StoreError(message, hint="Use list(text=...), which looks into titles.")
        filters = reading.Filters(search=text)
        return Work(partial(reading.list_page, self.records, filters, checked_limit(limit), cursor), "look")

    def delete(self, id: str) -> Work[None]:
        validate_snapshot_id(id)
        return Work(partial(saving.delete, id), "write", repeatable=False)

    def record(self, id: str, entries: Iterable[JournalEntry], after: int) -> Work[int]:
        validate_snapshot_id(id)
        return Work(partial(saving.record, self.records, id, tuple(entries), after), "write", repeatable=False)

    def journal(self, id: str) -> Work[Journal]:
        validate_snapshot_id(id)
        return Work(partial(reading.journal_of, self.records, id), "look")

    def reseal_begin(self, limit: int, cursor: str | None) -> Work[resealing.Batch]:
        return Work(partial(resealing.begin, self.records, checked_limit(limit), cursor), "write")

    def reseal_chain(self, root: str) -> Work[bool]:
        return Work(partial(resealing.reseal_chain, self.records, root), "write")
