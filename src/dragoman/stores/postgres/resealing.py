"""Sealing a store again, a few conversations at a time.

Owns: which rows are written anew, and the change of a store from one mode to another.
Must not know: keys, connections, colours.

The first step changes the mode of the store, so that from then on everything is written in the new way; then each step
goes through some conversations, in the order of their ids, one transaction each. A conversation with a row that no key
opens is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, NamedTuple

from msgspec import Meta

from dragoman.errors import DragomanError
from dragoman.stores.protocol import Resealed
from dragoman.stores.records import Records
from dragoman.stores.summary import cursor_parts, cursor_text, microseconds

from .work import Ask, Rows, Steps

__all__ = ["Batch", "begin", "reseal_chain"]

_KIND: Final = "postgres.reseal"
_Id = Annotated[str, Meta(pattern=r"\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")]

_FORGET: Final = (
    "UPDATE {s}.chain c SET rank = n.rank, at = NULL, provider = NULL, title = NULL FROM "
    "(SELECT root, row_number() OVER (ORDER BY rank, root) AS rank FROM {s}.chain) AS n WHERE n.root = c.root"
)
_CHAINS: Final = (
    "SELECT root::text, (SELECT count(*) FROM {s}.chain) FROM {s}.chain WHERE root > %s::uuid ORDER BY root LIMIT %s"
)
_FIRST: Final = "00000000-0000-0000-0000-000000000000"
_LOCK: Final = "SELECT newest::text FROM {s}.chain WHERE root = %s::uuid FOR UPDATE"
_SHOW: Final = "UPDATE {s}.chain SET rank = %s, at = %s, provider = %s, title = %s WHERE root = %s::uuid AND at IS NULL"


class Batch(NamedTuple):
    """The conversations of one step."""

    roots: tuple[str, ...]
    total: int
    cursor: str | None

    def result(self, opened: Sequence[bool]) -> Resealed:
        """What came of it; `opened` says of each conversation whether it could be read."""
        unreadable = [root for root, good in zip(self.roots, opened, strict=True) if not good]
        return Resealed(done=len(self.roots), total=self.total, cursor=self.cursor, unreadable=tuple(unreadable))


def begin(records: Records, limit: int, cursor: str | None) -> Steps[Batch]:
    """Change the mode where that is to be done, and choose the next `limit` conversations."""
    [behind] = (_FIRST,) if cursor is None else cursor_parts(_KIND, cursor, tuple[_Id])
    [[mode]] = (yield Ask("SELECT value FROM {s}.setting WHERE name = 'mode' FOR UPDATE")) or [[None]]
    if mode != records.mode:
        yield from _change_mode(records, mode)
    rows = yield Ask(_CHAINS, (behind, limit + 1))
    roots = tuple([root for root, _ in rows[:limit]])
    more = cursor_text(_KIND, (roots[-1],)) if len(rows) > limit else None
    return Batch(roots, rows[0][1] if rows else 0, more)


def _change_mode(records: Records, mode: object) -> Steps[None]:
    if records.mode == "open" or mode not in {"open", "plain", "sealed"}:
        records.ensure_mode(mode)
    # Nobody is to save in the old way behind our back.
    yield Ask("LOCK TABLE {s}.chain IN EXCLUSIVE MODE")
    yield Ask("UPDATE {s}.setting SET value = %s WHERE name = 'mode'", (records.mode,))
    yield Ask("DELETE FROM {s}.words")
    if records.mode == "sealed":
        yield Ask(_FORGET)  # what lists could read before must not stay; their order may


def reseal_chain(records: Records, root: str) -> Steps[bool]:
    """All rows of one conversation; False if one cannot be opened, and then none is changed."""
    locked = yield Ask(_LOCK, (root,))
    if not locked:
        return True  # deleted meanwhile
    newest = str(locked[0][0])
    snapshots = yield Ask("SELECT id::text, body, summary FROM {s}.snapshot WHERE root = %s::uuid", (root,))
    messages = yield Ask("SELECT line, position, body FROM {s}.message WHERE root = %s::uuid", (root,))
    entries = yield Ask("SELECT position, body FROM {s}.journal WHERE root = %s::uuid", (root,))
    try:
        changes = [
            *_bodies(records, snapshots),
            *_summaries(records, snapshots),
            *_messages(records, root, messages),
            *_entries(records, root, newest, entries),
        ]
        shown = [records.summary(data, id) for id, _, data in snapshots if id == newest]
    except DragomanError:
        return False
    for sql, values in changes:
        yield Ask(sql, values)
    if records.mode == "plain" and shown:
        at = microseconds(shown[0].created_at)
        yield Ask(_SHOW, (at, at, shown[0].provider.encode(), shown[0].title.casefold().encode(), root))
    return True


_Change = tuple[str, tuple[object, ...]]


def _bodies(records: Records, rows: Rows) -> Iterator[_Change]:
    for id, data, _ in rows:
        if (new := records.resealed(data, "body", id)) is not None:
            yield "UPDATE {s}.snapshot SET body = %s WHERE id = %s::uuid", (new, id)


def _summaries(records: Records, rows: Rows) -> Iterator[_Change]:
    for id, _, data in rows:
        if (new := records.resealed_summary(data, id)) is not None:
            yield "UPDATE {s}.snapshot SET summary = %s WHERE id = %s::uuid", (new, id)


def _messages(records: Records, root: str, rows: Rows) -> Iterator[_Change]:
    for line, position, data in rows:
        if (new := records.resealed(data, "message", root, line, position)) is not None:
            yield (
                "UPDATE {s}.message SET body = %s WHERE root = %s::uuid AND line = %s AND position = %s",
                (new, root, line, position),
            )


def _entries(records: Records, root: str, newest: str, rows: Rows) -> Iterator[_Change]:
    for position, data in rows:
        if (new := records.resealed_entry(data, root, newest, position)) is not None:
            yield "UPDATE {s}.journal SET body = %s WHERE root = %s::uuid AND position = %s", (new, root, position)
