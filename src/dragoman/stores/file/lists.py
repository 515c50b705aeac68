"""Pages of lists, newest first.

Owns: filters, the order, and cursors.
Must not know: files and locks.
"""

from __future__ import annotations

import heapq

from msgspec import Struct

from dragoman.errors import SnapshotError
from dragoman.stores.summary import Page, Unreadable, cursor_parts, cursor_text

from .catalogue import Holdings, Listed
from .chain import Chain
from .frames import Head

__all__ = ["Filters", "history_page", "list_page"]


class Filters(Struct, frozen=True, kw_only=True):
    """Which conversations a list shows. Times are in microseconds."""

    provider: str | None = None
    text: str | None = None
    since: int | None = None
    until: int | None = None

    @property
    def kind(self) -> str:
        """The kind of cursors of this list: they are good for the same filters only."""
        return f"file.list {(self.provider, self.text, self.since, self.until)!a}"

    def place(self, cursor: str | None) -> tuple[int, str] | None:
        """The place in the order behind which a page begins; None: at the beginning."""
        return None if cursor is None else cursor_parts(self.kind, cursor, tuple[int, str])

    def let_through(self, listed: Listed) -> bool:
        """Whether a conversation passes."""
        return (
            (self.since is None or listed.at >= self.since)
            and (self.until is None or listed.at < self.until)
            and (self.provider is None or listed.summary.provider == self.provider)
            and (self.text is None or self.text.casefold() in listed.summary.title.casefold())
        )


def list_page(holdings: Holdings, filters: Filters, limit: int, last: tuple[int, str] | None) -> Page:
    """The conversations that pass, behind this place. What cannot be read has no place: the first page names it."""
    passing = [each for each in holdings.listed if (last is None or each[:2] < last) and filters.let_through(each)]
    found = heapq.nlargest(limit + 1, passing)
    return Page(
        items=tuple([each.summary for each in found[:limit]]),
        cursor=cursor_text(filters.kind, found[limit - 1][:2]) if len(found) > limit else None,
        unreadable=tuple(sorted(holdings.unreadable, key=lambda each: each.id)) if last is None else (),
    )


def history_page(chain: Chain, head: Head, id: str, limit: int, cursor: str | None) -> Page | None:
    """The snapshots of the conversation that contains this one; None if it does not."""
    kind = f"file.history {head.root}"
    [last] = (head.count,) if cursor is None else cursor_parts(kind, cursor, tuple[int])
    records = chain.records(head)
    if all(each.record.id != id for each in records):
        return None
    earlier = records[: max(0, last)]
    located = earlier[-limit:][::-1]
    shown = list(zip(located, chain.summaries(head, located), strict=True))
    unreadable = [
        Unreadable(id=each.record.id, problem=str(found)) for each, found in shown if isinstance(found, SnapshotError)
    ]
    return Page(
        items=tuple([found for _, found in shown if not isinstance(found, SnapshotError)]),
        cursor=cursor_text(kind, (len(earlier) - limit,)) if len(earlier) > limit else None,
        unreadable=tuple(unreadable),
    )
