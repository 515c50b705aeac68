"""What a list shows of a snapshot: SnapshotSummary with its JSON form, and the pages that it comes in."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from dragoman.errors import SnapshotCorruptError

from .snapshot import Snapshot


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
