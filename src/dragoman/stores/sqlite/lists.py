"""Lists: pages of summaries, newest first, without a look at messages.

Owns: the conditions, the order and the cursors.
Must not know: how snapshots are loaded.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from msgspec import Struct

from dragoman.errors import DragomanError, SnapshotCorruptError, SnapshotSealError
from dragoman.stores.records import Mode, Records
from dragoman.stores.summary import (
    Page,
    SnapshotSummary,
    Unreadable,
    checked_limit,
    cursor_parts,
    cursor_text,
    microseconds,
)

from .checks import checked, mode_of
from .reading import Place
from .search import found_by

__all__ = ["Filters", "history_page", "list_page"]

_SCANNED: Final = 2000
"""How many conversations one page looks at where each has to be looked into; then it is a short page."""


class Filters(Struct, frozen=True, kw_only=True):
    """Which conversations a list shows. Times are in microseconds."""

    provider: str | None = None
    text: str | None = None
    since: int | None = None
    until: int | None = None
    search: str | None = None

    @property
    def kind(self) -> str:
        """The kind of cursors of this list: they are good for the same filters only."""
        return f"sqlite.list {(self.provider, self.text, self.since, self.until, self.search)!a}"

    def let_through(self, summary: SnapshotSummary) -> bool:
        """Whether a conversation passes, by its summary."""
        at = microseconds(summary.created_at)
        return (
            (self.provider is None or summary.provider == self.provider)
            and (self.text is None or self.text.casefold() in summary.title.casefold())
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
        )


def list_page(
    connection: sqlite3.Connection, records: Records, filters: Filters, limit: int, cursor: str | None
) -> Page:
    """The newest snapshots of the conversations that pass, newest first."""
    last = None if cursor is None else cursor_parts(filters.kind, cursor, tuple[int, int])
    checked_limit(limit)
    mode = _listable(connection, records)
    sql, values = _list_query(connection, filters, mode, last)
    page = _Page(limit, filters.kind)
    for row in connection.execute(sql, values):
        if page.is_full():
            break
        key, rank, root, id, data = checked(row, tuple[int, int, str, str | None, object])
        page.pass_by((rank, key))
        if id is None:
            page.unreadable.append(Unreadable(id=root, problem="The newest snapshot of this conversation is missing."))
        else:
            page.take(records, id, data, filters)
    else:
        page.at_end = True
    return page.finished()


def _listable(connection: sqlite3.Connection, records: Records) -> Mode:
    """The mode of the file, if its summaries can be read."""
    mode = mode_of(connection)
    if mode == "sealed" and records.mode == "open":
        message = "The store is sealed, its summaries too, and it was opened without a key."
        raise SnapshotSealError(message, hint="Open it with the key that it is sealed with: sealing=….")
    return mode


def _list_query(
    connection: sqlite3.Connection, filters: Filters, mode: Mode, last: tuple[int, int] | None
) -> tuple[str, list[object]]:
    conditions: list[str] = []
    values: list[object] = []
    if last is not None:
        conditions.append("(c.rank, c.key) < (?, ?)")
        values += last
    if mode != "sealed":  # in a sealed list neither providers nor times can be seen here
        for condition, value in (
            ("c.provider = ?", filters.provider),
            ("c.rank >= ?", filters.since),
            ("c.rank < ?", filters.until),
        ):
            if value is not None:
                conditions.append(condition)
                values.append(value)
    if filters.search is not None:
        condition, words = found_by(connection, filters.search)
        conditions.append(
            f"c.key IN (SELECT m.chain FROM message_text t JOIN message m ON m.key = t.rowid WHERE {condition})"  # noqa: S608
        )
        values += words
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    return f"{_LIST} {where}ORDER BY c.rank DESC, c.key DESC", values


_LIST: Final = "SELECT c.key, c.rank, c.root, s.id, s.summary FROM chain c LEFT JOIN snapshot s ON s.id = c.newest"


def history_page(
    connection: sqlite3.Connection, records: Records, place: Place, limit: int, cursor: str | None
) -> Page:
    """The snapshots of the chain that contains this place, newest first."""
    kind = f"sqlite.history {place.root}"
    [last] = (None,) if cursor is None else cursor_parts(kind, cursor, tuple[int])
    checked_limit(limit)
    _listable(connection, records)
    condition = "" if last is None else "AND place < ? "
    values = [place.chain] if last is None else [place.chain, last]
    page = _Page(limit, kind)
    for row in connection.execute(f"{_HISTORY} {condition}ORDER BY place DESC", values):
        if page.is_full():
            break
        number, id, data = checked(row, tuple[int, str, object])
        page.pass_by((number,))
        page.take(records, id, data, Filters())
    else:
        page.at_end = True
    return page.finished()


_HISTORY: Final = "SELECT place, id, summary FROM snapshot WHERE chain = ?"


class _Page:
    """A page that is being filled."""

    def __init__(self, limit: int, kind: str) -> None:
        self.items: list[SnapshotSummary] = []
        self.unreadable: list[Unreadable] = []
        self.at_end: bool = False
        self._limit: int = limit
        self._kind: str = kind
        self._scanned: int = 0
        self._last: tuple[int, ...] = ()

    def is_full(self) -> bool:
        return len(self.items) + len(self.unreadable) >= self._limit or self._scanned >= _SCANNED

    def pass_by(self, last: tuple[int, ...]) -> None:
        self._scanned += 1
        self._last = last

    def take(self, records: Records, id: str, data: object, filters: Filters) -> None:
        try:
            if not isinstance(data, bytes):
                message = "Its summary is not what was written."
                raise SnapshotCorruptError(message)
            summary = records.summary(data, id)
        except DragomanError as error:
            self.unreadable.append(Unreadable(id=id, problem=str(error)))
        else:
            if filters.let_through(summary):
                self.items.append(summary)

    def finished(self) -> Page:
        cursor = None if self.at_end else cursor_text(self._kind, self._last)
        return Page(items=tuple(self.items), unreadable=tuple(self.unreadable), cursor=cursor)
