"""What a list shows of a snapshot, and the pages it comes in.

Owns: SnapshotSummary with its JSON form, Page, and cursors.
Must not know: any particular store.

A cursor is opaque to callers: what the store needs to go on behind the last entry of a page, written down so that a
cursor of another list, or one that was tampered with, is refused rather than misread.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from dragoman.errors import ConfigurationError, InvalidCursorError, SnapshotCorruptError

from .snapshot import Snapshot

__all__ = [
    "MAX_LIMIT",
    "Page",
    "SnapshotSummary",
    "Unreadable",
    "checked_limit",
    "cursor_parts",
    "cursor_text",
    "microseconds",
    "summary_from_json",
    "summary_of",
    "summary_to_json",
]

MAX_LIMIT: Final = 1000
"""How many entries a page may have."""


class SnapshotSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A snapshot without its messages."""

    id: str
    root: str
    """The id of the conversation."""
    parent: str | None = None
    forked_from: str | None = None
    provider: str
    model: str
    title: str = ""
    message_count: int
    created_at: datetime


class Unreadable(Struct, frozen=True, kw_only=True):
    """An entry of the store that a list came across and could not read. It was left where it is."""

    id: str
    """The id of the snapshot or conversation, or the name under which the store found it."""
    problem: str


class Page(Struct, frozen=True, kw_only=True):
    """One page of a list, newest first."""

    items: tuple[SnapshotSummary, ...] = ()
    cursor: str | None = None
    """Give it to the same call for the next page; None: this was the last. A page may be short and not the last."""
    unreadable: tuple[Unreadable, ...] = ()
    """Corrupt entries among those of this page."""


def summary_of(snapshot: Snapshot) -> SnapshotSummary:
    """What lists show of this snapshot."""
    return SnapshotSummary(
        id=snapshot.id,
        root=snapshot.root,
        parent=snapshot.parent,
        forked_from=snapshot.forked_from,
        provider=snapshot.provider,
        model=snapshot.model,
        title=snapshot.title,
        message_count=len(snapshot.messages),
        created_at=snapshot.created_at,
    )


def summary_to_json(summary: SnapshotSummary) -> bytes:
    """The summary as JSON, for stores that keep it beside the snapshot."""
    return msgspec.json.encode(summary)


def summary_from_json(data: bytes) -> SnapshotSummary:
    """Read what `summary_to_json` wrote. Raises SnapshotCorruptError."""
    try:
        summary = msgspec.json.decode(data, type=SnapshotSummary)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        message = f"The stored summary of a snapshot cannot be read: {str(error).rstrip('.')}."
        raise SnapshotCorruptError(message) from None
    if summary.created_at.tzinfo is None:
        message = "The stored summary of a snapshot has a time without a time zone."
        raise SnapshotCorruptError(message)
    return summary


# --- pages -----------------------------------------------------------------------------------------------------------

_T = TypeVar("_T")

_MAX_CURSOR: Final = 1000


def checked_limit(limit: int) -> int:
    """The limit of a page, from 1 to MAX_LIMIT. Raises InvalidCursorError otherwise."""
    if isinstance(limit, bool) or not 1 <= limit <= MAX_LIMIT:
        message = f"A page has from 1 to {MAX_LIMIT} entries, not {limit!r}."
        raise InvalidCursorError(message, hint="Ask for fewer and use the page's cursor for the rest.")
    return limit


def cursor_text(kind: str, parts: tuple[object, ...]) -> str:
    """A cursor for lists of this kind. The kind names the store, the method and its filters."""
    import base64

    return base64.urlsafe_b64encode(msgspec.json.encode((_mark(kind), *parts))).decode()


def _mark(kind: str) -> str:
    from hashlib import sha256

    return sha256(kind.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def cursor_parts(kind: str, cursor: str, type: type[_T]) -> _T:
    """The parts of a cursor that `cursor_text` made for this kind, as a tuple type such as `tuple[int, str]`.

    Raises InvalidCursorError for any other text.
    """
    from base64 import b64decode

    try:
        if not isinstance(cursor, str) or len(cursor) > _MAX_CURSOR:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError
        found, *parts = msgspec.json.decode(b64decode(cursor, altchars=b"-_", validate=True), type=list[object])
        if found != _mark(kind):
            raise ValueError
        return msgspec.convert(tuple(parts), type)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        message = "This cursor does not belong to this list."
        raise InvalidCursorError(message) from None


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(time: datetime) -> int:
    """A time as a whole number, exactly. Raises ConfigurationError for a time without a time zone."""
    if time.tzinfo is None:
        message = f"The time {time.isoformat()} has no time zone."
        raise ConfigurationError(message, hint="Use a time such as datetime.now(UTC) - timedelta(days=7).")
    return (time - _EPOCH) // timedelta(microseconds=1)
