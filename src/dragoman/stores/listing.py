"""Lists and searches of every store: summaries, filters, cursors and pages.

A cursor is opaque to callers: it holds the position after the last entry of a page, and a mark of the list that it
belongs to, so that a cursor of another list is refused.

A search finds a word anywhere in a text, in any case, and also inside a longer word: many languages put no spaces
between words.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from dragoman._decoding import convert_to, decode_as
from dragoman.conversation import Message
from dragoman.errors import InvalidCursorError, SnapshotError
from dragoman.providers import conversation_cost

from .snapshot import Snapshot

_T = TypeVar("_T")

# --- summaries -------------------------------------------------------------------------------------------------------


class SnapshotSummary(Struct, frozen=True, kw_only=True):
    """A snapshot without its messages."""

    id: str
    root: str
    """The id of the conversation."""
    parent: str | None = None
    forked_from: str | None = None
    provider: str
    model: str
    title: str = ""
    created_at: Annotated[datetime, Meta(tz=True)]
    message_count: int = 0
    cost: float | None = None
    """The cost of all replies in US dollars; None if a part of it is unknown."""


class Unreadable(Struct, frozen=True, kw_only=True):
    """A damaged entry of the store. It was left unchanged."""

    id: str
    """The id of the snapshot or conversation, or its name in the store."""
    problem: str


class Page(Struct, frozen=True, kw_only=True):
    """One page of a list, newest first."""

    items: tuple[SnapshotSummary, ...] = ()
    cursor: str | None = None
    """Pass it to the same call for the next page; None on the last page. Other pages may be short, too."""
    unreadable: tuple[Unreadable, ...] = ()
    """The damaged entries of this page."""


def summary_of(snapshot: Snapshot) -> SnapshotSummary:
    shared = {name: getattr(snapshot, name) for name in _SHARED}
    return SnapshotSummary(**shared, message_count=len(snapshot.messages), cost=conversation_cost(snapshot.messages))


_SHARED: Final = tuple([name for name in SnapshotSummary.__struct_fields__ if name in Snapshot.__struct_fields__])


# --- cursors ---------------------------------------------------------------------------------------------------------

_MAX_CURSOR: Final = 1000


def make_cursor(kind: str, parts: Sequence[object]) -> str:
    """A cursor for lists of this kind, which names the method and its filters."""
    return base64.urlsafe_b64encode(msgspec.json.encode((_mark(kind), *parts))).decode()


def _mark(kind: str) -> str:
    return sha256(kind.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_cursor(kind: str, cursor: str, type: type[_T]) -> _T:
    """The parts of a cursor of this kind, as a tuple type such as `tuple[int, str]`.

    Raises InvalidCursorError for a cursor that `make_cursor` did not make for this kind.
    """
    try:
        if not isinstance(cursor, str) or len(cursor) > _MAX_CURSOR:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError
        mark, *parts = decode_as(base64.b64decode(cursor, altchars=b"-_", validate=True), list[object])
        if mark != _mark(kind):
            raise ValueError
        return convert_to(tuple(parts), type)
    except (msgspec.MsgspecError, ValueError):
        message = "This cursor does not belong to this list."
        raise InvalidCursorError(message) from None


# --- queries ---------------------------------------------------------------------------------------------------------


class Query(Struct, frozen=True, kw_only=True):
    """The options of a list or a search."""

    provider: str | None = None
    text: str | None = None
    search: str | None = None
    limit: int = 50
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_limit(self.limit)

    @property
    def kind(self) -> str:
        """The kind of cursors of this list: they are valid for the same filters only."""
        return f"list {(self.provider, self.text, self.search)!a}"

    def accepts(self, summary: SnapshotSummary | Unreadable) -> bool:
        """Whether a conversation passes the filters; one that cannot be read does."""
        return isinstance(summary, Unreadable) or (
            (self.provider is None or summary.provider == self.provider)
            and (self.text is None or self.text.casefold() in summary.title.casefold())
        )


# --- searching -------------------------------------------------------------------------------------------------------

_MAX_TEXT: Final = 64 * 1024
"""Searchable characters per message: the output of a tool can be huge."""
_MAX_WORDS: Final = 32


def searchable_text(message: Message) -> str:
    """The texts and tool results of a message, case-folded."""
    parts = [message.text, *[result.text for result in message.tool_results]]
    return "\n".join([part for part in parts if part])[:_MAX_TEXT].casefold()


def search_words(text: str) -> tuple[str, ...]:
    """The words of a query, case-folded, each once; none if there are too many."""
    words = dict.fromkeys(text.replace("\0", " ").casefold().split())
    return tuple(words) if len(words) <= _MAX_WORDS else ()


def has_words(messages: Iterable[Message], words: Sequence[str]) -> bool:
    """Whether one of the messages contains all of the words."""
    return any(all(word in text for word in words) for text in map(searchable_text, messages)) if words else False


# --- pages -----------------------------------------------------------------------------------------------------------

_MAX_LIMIT: Final = 1000


def check_limit(limit: int) -> None:
    """Raise InvalidCursorError unless this is a valid size of a page."""
    if isinstance(limit, bool) or not 1 <= limit <= _MAX_LIMIT:
        message = f"A page has from 1 to {_MAX_LIMIT} entries, not {limit!r}."
        raise InvalidCursorError(message, hint="Use a smaller limit, and the page's cursor for the rest.")


def read_or_note(id: str, read: Callable[[], SnapshotSummary]) -> SnapshotSummary | Unreadable:
    """Read a summary, or note that it cannot be read."""
    try:
        return read()
    except SnapshotError as error:
        return Unreadable(id=id, problem=str(error))


def page_of(entries: Iterable[SnapshotSummary | Unreadable], cursor: str | None) -> Page:
    items, unreadable = list[SnapshotSummary](), list[Unreadable]()
    for each in entries:
        items.append(each) if isinstance(each, SnapshotSummary) else unreadable.append(each)
    return Page(items=tuple(items), cursor=cursor, unreadable=tuple(unreadable))
