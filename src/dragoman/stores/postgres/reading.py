"""What readers ask, and what they make of the answers.

Owns: loading a snapshot from its rows; lists, histories and searches with their cursors; the journal.
Must not know: connections and colours.

Each question is one statement, which sees the database at one moment. What comes back may have been damaged or edited,
so nothing in it is believed before it is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta, Struct

from dragoman.errors import DragomanError, InvalidCursorError, SnapshotCorruptError
from dragoman.stores.journal import Journal
from dragoman.stores.records import Records
from dragoman.stores.rows import assembled
from dragoman.stores.searching import search_words
from dragoman.stores.snapshot import Snapshot
from dragoman.stores.summary import Page, SnapshotSummary, Unreadable, cursor_parts, cursor_text, microseconds

from .grams import grams_of_words
from .saving import not_found
from .work import Ask, Rows, Steps

__all__ = ["Filters", "history_page", "journal_of", "latest", "list_page", "load"]

_LOOKS: Final = 20
"""How many times one page asks for more where what it got did not pass the filters; then it is a short one."""
_MOST_ROWS: Final = 1000
"""How many rows it asks for at a time."""

# --- one snapshot ----------------------------------------------------------------------------------------------------

# The body comes first, at line 0; the messages of all its spans follow, by position.
_LOAD: Final = (
    "WITH s AS MATERIALIZED (SELECT id, root, spans, body FROM {s}.snapshot WHERE id = WHICH) "
    "SELECT s.id::text, s.root::text, 0, -1, s.body FROM s UNION ALL "
    "(SELECT NULL, NULL, m.line, m.position, m.body "
    "FROM s CROSS JOIN generate_subscripts(s.spans, 1) AS i JOIN {s}.message m "
    "ON m.root = s.root AND m.line = s.spans[i][1] AND m.position >= s.spans[i][2] AND m.position < s.spans[i][3] "
    "ORDER BY m.position)"
)
_LOAD_THIS: Final = _LOAD.replace("WHICH", "%s::uuid")
_LOAD_NEWEST: Final = _LOAD.replace(
    "WHICH",
    "(SELECT c.newest FROM {s}.snapshot o JOIN {s}.chain c ON c.root = o.root WHERE o.id = %s::uuid)",
)


def load(records: Records, id: str) -> Steps[Snapshot]:
    """Exactly this snapshot."""
    rows = yield Ask(_LOAD_THIS, (id,))
    if not rows:
        raise not_found(id)
    return _snapshot(records, rows)


def latest(records: Records, id: str) -> Steps[Snapshot]:
    """The newest snapshot of the conversation."""
    rows = yield Ask(_LOAD_NEWEST, (id,))
    if not rows:
        yield from load(records, id)  # not there; or it is, and its conversation names another that is not
        message = f"The newest snapshot of the conversation of {id} is missing."
        raise SnapshotCorruptError(message)
    return _snapshot(records, rows)


def _snapshot(records: Records, rows: Rows) -> Snapshot:
    (id, root, _, _, data), *messages = sorted(rows, key=_position)
    if not isinstance(id, str) or not isinstance(root, str):
        message = "The rows of a snapshot are not what was written."
        raise SnapshotCorruptError(message)
    body = records.body(data, id)
    opened = [records.opened(data, "message", root, line, position) for _, _, line, position, data in messages]
    snapshot = assembled(body, opened)
    if (snapshot.id, snapshot.root) != (id, root):
        message = f"What is stored as {id} is another snapshot."
        raise SnapshotCorruptError(message)
    return snapshot


def _position(row: Sequence[Any]) -> int:
    return row[3]


# --- the journal -----------------------------------------------------------------------------------------------------

_JOURNAL: Final = (
    "SELECT c.root::text, c.newest::text, j.position, j.body FROM {s}.snapshot s JOIN {s}.chain c ON c.root = s.root "
    "LEFT JOIN {s}.journal j ON j.root = c.root WHERE s.id = %s::uuid ORDER BY j.position"
)


def journal_of(records: Records, id: str) -> Steps[Journal]:
    """The journal of the conversation."""
    rows = yield Ask(_JOURNAL, (id,))
    if not rows:
        raise not_found(id)
    root, newest, first, _ = rows[0]
    if first is None:
        return Journal(snapshot=newest)
    for expected, (_, _, position, _) in enumerate(rows, 1):
        if position != expected:
            message = f"Entry {expected} of the journal of {root} is missing."
            raise SnapshotCorruptError(message)
    entries = [records.entry(data, root, newest, position) for _, _, position, data in rows]
    return Journal(snapshot=newest, entries=tuple(entries))


# --- lists -----------------------------------------------------------------------------------------------------------


class Filters(Struct, frozen=True, kw_only=True):
    """Which conversations a list shows. Times are microseconds."""

    provider: str | None = None
    text: str | None = None
    since: int | None = None
    until: int | None = None
    search: str | None = None

    def kind(self) -> str:
        """The kind of cursors of this list."""
        given = [self.provider, self.text, self.since, self.until, self.search]
        return "postgres.list " + sha256(repr(given).encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def conditions(self) -> list[tuple[str, Sequence[object]]]:
        """What the server can decide. Where a column is NULL, it is sealed, and only `let_through` knows."""
        found: list[tuple[str, Sequence[object]]] = []
        if self.provider is not None:
            found.append(("(c.provider IS NULL OR c.provider = %s)", [_bytes(self.provider)]))
        if self.text:
            found.append(("(c.title IS NULL OR position(%s IN c.title) > 0)", [_bytes(self.text.casefold())]))
        if self.since is not None:
            found.append(("(c.at IS NULL OR c.at >= %s)", [self.since]))
        if self.until is not None:
            found.append(("(c.at IS NULL OR c.at < %s)", [self.until]))
        if self.search is not None:
            found.append(_search(search_words(self.search)))
        return found

    def let_through(self, summary: SnapshotSummary) -> bool:
        """Whether a summary passes."""
        at = microseconds(summary.created_at)
        return (
            (self.provider is None or summary.provider == self.provider)
            and (self.text is None or self.text.casefold() in summary.title.casefold())
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
        )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # no text that was stored has surrogates, so they find nothing


def _search(words: Sequence[str]) -> tuple[str, Sequence[object]]:
    if not words:
        return "false", ()
    found = " AND ".join(["w.grams @> %s::int4[]", *["position(%s IN w.text) > 0"] * len(words)])
    values = [grams_of_words(words), *map(_bytes, words)]
    return f"c.root IN (SELECT w.root FROM {{s}}.words w WHERE {found})", values  # noqa: S608


_UUID: Final = r"\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z"
_Rank = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Place = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Id = Annotated[str, Meta(pattern=_UUID)]


class _Found(NamedTuple):
    """One row of a list: where it stands, which snapshot it is, and what it shows."""

    rank: int
    root: str
    id: str
    summary: bytes | None
    mode: str
    """The mode of the store."""


def list_page(records: Records, filters: Filters, limit: int, cursor: str | None) -> Steps[Page]:
    """The newest snapshots of conversations that pass, from the cursor on."""
    kind = filters.kind()
    behind = None if cursor is None else cursor_parts(kind, cursor, tuple[_Rank, _Id])
    conditions = filters.conditions()
    filling = _Filling(records, filters)
    if filters.search is not None:
        [[mode]] = (yield Ask("SELECT value FROM {s}.setting WHERE name = 'mode'")) or [[None]]
        records.ensure_mode(mode)
    for _ in range(_LOOKS):
        wanted = min(limit + 1, _MOST_ROWS)
        found = [_Found(*row) for row in (yield _list(conditions, behind, wanted))]
        if found and records.mode == "open" and found[0].mode == "sealed":
            records.ensure_mode("sealed")  # which it is not: rather one error than a page of unreadable entries
        for each in found:
            if filling.size == limit:
                return filling.page(cursor_text(kind, behind or ()))
            behind = (each.rank, each.root)
            filling.take(each.id, each.summary)
        if len(found) < wanted:
            return filling.page(None)
    return filling.page(cursor_text(kind, behind or ()))


def _list(conditions: Sequence[tuple[str, Sequence[object]]], behind: tuple[int, str] | None, limit: int) -> Ask:
    where = list(conditions)
    if behind is not None:
        where.append(("(c.rank, c.root) < (%s::int8, %s::uuid)", behind))
    tests = " AND ".join([test for test, _ in where]) or "true"
    values = [value for _, given in where for value in given]
    return Ask(_LIST.replace("TESTS", tests), (*values, limit))


_LIST: Final = (
    "SELECT c.rank, c.root::text, c.newest::text, s.summary, (SELECT value FROM {s}.setting WHERE name = 'mode') "
    "FROM {s}.chain c LEFT JOIN {s}.snapshot s ON s.id = c.newest WHERE TESTS "
    "ORDER BY c.rank DESC, c.root DESC LIMIT %s"
)


class _Filling:
    """A page that is being filled."""

    def __init__(self, records: Records, filters: Filters) -> None:
        self._records: Records = records
        self._filters: Filters = filters
        self._items: list[SnapshotSummary] = []
        self._unreadable: list[Unreadable] = []

    @property
    def size(self) -> int:
        return len(self._items) + len(self._unreadable)

    def take(self, id: str, data: bytes | None) -> None:
        """Add this entry, if it passes or cannot be read."""
        try:
            if data is None:
                message = "The snapshot is missing."
                raise SnapshotCorruptError(message)
            summary = self._records.summary(data, id)
        except DragomanError as error:
            self._unreadable.append(Unreadable(id=id, problem=str(error)))
        else:
            if self._filters.let_through(summary):
                self._items.append(summary)

    def page(self, cursor: str | None) -> Page:
        return Page(items=tuple(self._items), cursor=cursor, unreadable=tuple(self._unreadable))


# --- histories -------------------------------------------------------------------------------------------------------

_HISTORY: Final = (
    "SELECT o.root::text, s.place, s.id::text, s.summary FROM {s}.snapshot o LEFT JOIN LATERAL "
    "(SELECT n.place, n.id, n.summary FROM {s}.snapshot n WHERE n.root = o.root AND n.place < %s "
    "ORDER BY n.place DESC LIMIT %s) AS s ON true WHERE o.id = %s::uuid ORDER BY s.place DESC"
)
_HISTORY_KIND: Final = "postgres.history"


def history_page(records: Records, id: str, limit: int, cursor: str | None) -> Steps[Page]:
    """The snapshots of the conversation, from the cursor on."""
    root, behind = (None, 2**31 - 1) if cursor is None else cursor_parts(_HISTORY_KIND, cursor, tuple[_Id, _Place])
    rows = yield Ask(_HISTORY, (behind, limit + 1, id))
    if not rows:
        raise not_found(id)
    if root not in {None, rows[0][0]}:
        message = "This cursor belongs to the history of another conversation."
        raise InvalidCursorError(message)
    filling = _Filling(records, Filters())
    for _, place, each, data in rows[:limit]:
        if place is not None:  # else nothing stands behind the cursor
            filling.take(each, data)
    return filling.page(cursor_text(_HISTORY_KIND, (rows[0][0], rows[limit - 1][1])) if len(rows) > limit else None)
