"""Lists and searches: what they show of which conversations, and how a page is filled. The same for every store.

A cursor is opaque to callers: what the store needs to go on behind the last entry of a page, written down so that a
cursor of another list, or one that was tampered with, is refused rather than misread.

A word of a search is found wherever its letters stand in the text, in any case: in the middle of a longer word, too,
since many languages put no spaces between words.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Final, TypedDict, TypeVar

import msgspec
from msgspec import Meta, Struct

from dragoman.conversation import Message
from dragoman.errors import ConfigurationError, InvalidCursorError, SnapshotError
from dragoman.providers import conversation_cost

from .snapshot import Snapshot

_T = TypeVar("_T")

# --- what a list shows ----------------------------------------------------------------------------------------------


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
    """What all replies cost, in US dollars; None if a part of it is not known."""


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
    same = {name: getattr(snapshot, name) for name in _OF_SNAPSHOTS}
    return SnapshotSummary(**same, message_count=len(snapshot.messages), cost=conversation_cost(snapshot.messages))


_OF_SNAPSHOTS: Final = tuple([name for name in SnapshotSummary.__struct_fields__ if name in Snapshot.__struct_fields__])


# --- cursors ---------------------------------------------------------------------------------------------------------

_MAX_CURSOR: Final = 1000


def make_cursor(kind: str, parts: Sequence[object]) -> str:
    """A cursor for lists of this kind. The kind names the method and its filters."""
    return base64.urlsafe_b64encode(msgspec.json.encode((_mark(kind), *parts))).decode()


def _mark(kind: str) -> str:
    return sha256(kind.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_cursor(kind: str, cursor: str, type: type[_T]) -> _T:
    """The parts of a cursor that `make_cursor` made for this kind, as a tuple type such as `tuple[int, str]`.

    Raises InvalidCursorError for any other text.
    """
    try:
        if not isinstance(cursor, str) or len(cursor) > _MAX_CURSOR:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError
        found, *parts = msgspec.json.decode(base64.b64decode(cursor, altchars=b"-_", validate=True), type=list[object])
        if found != _mark(kind):
            raise ValueError
        return msgspec.convert(tuple(parts), type)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        message = "This cursor does not belong to this list."
        raise InvalidCursorError(message) from None


# --- what is asked for -----------------------------------------------------------------------------------------------


class ListOptions(TypedDict, total=False):
    """Which conversations `list` shows, and how many of them."""

    provider: str | None
    """Compared exactly."""
    text: str | None
    """Must occur in the title, in any case."""
    since: datetime | None
    """The time of the newest snapshot is not before this, and before `until`."""
    until: datetime | None
    limit: int
    """How many a page has, from 1 to 1000; 50 where nothing is said."""
    cursor: str | None
    """That of the page before."""


class Query(Struct, frozen=True, kw_only=True):
    """What a list or a search is asked for: the ListOptions, or words to search for."""

    provider: str | None = None
    text: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    search: str | None = None
    limit: int = 50
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_limit(self.limit)
        for time in (self.since, self.until):
            if time is not None and time.tzinfo is None:
                message = f"The time {time.isoformat()} has no time zone."
                raise ConfigurationError(message, hint="Use a time such as datetime.now(UTC) - timedelta(days=7).")

    @property
    def kind(self) -> str:
        """The kind of cursors of this list: they are good for the same filters only."""
        times = [time and time.timestamp() for time in (self.since, self.until)]
        return f"list {(self.provider, self.text, *times, self.search)!a}"

    def accepts(self, summary: SnapshotSummary | Unreadable) -> bool:
        """Whether a conversation passes the filters, as far as its summary tells."""
        return isinstance(summary, Unreadable) or (
            (self.provider is None or summary.provider == self.provider)
            and (self.text is None or self.text.casefold() in summary.title.casefold())
            and (self.since is None or summary.created_at >= self.since)
            and (self.until is None or summary.created_at < self.until)
        )


# --- searching -------------------------------------------------------------------------------------------------------

_LONGEST_TEXT: Final = 64 * 1024
"""Characters of one message that can be found: the output of a tool may be a whole disk."""
_MOST_WORDS: Final = 32


def searchable_text(message: Message) -> str:
    """What was said, and what tools answered, folded to one case."""
    parts = [message.text, *[result.text for result in message.tool_results]]
    return "\n".join([part for part in parts if part])[:_LONGEST_TEXT].casefold()


def search_words(text: str) -> tuple[str, ...]:
    """The words of a question, folded to one case, each once. None at all, and far too many, find nothing."""
    words = dict.fromkeys(text.replace("\0", " ").casefold().split())
    return tuple(words) if len(words) <= _MOST_WORDS else ()


def has_words(messages: Iterable[Message], words: Sequence[str]) -> bool:
    """Whether all of the words stand in one of the messages."""
    return any(all(word in text for word in words) for text in map(searchable_text, messages)) if words else False


# --- pages -----------------------------------------------------------------------------------------------------------

_MAX_LIMIT: Final = 1000


def check_limit(limit: int) -> None:
    """Raise InvalidCursorError for a limit that no page may have."""
    if isinstance(limit, bool) or not 1 <= limit <= _MAX_LIMIT:
        message = f"A page has from 1 to {_MAX_LIMIT} entries, not {limit!r}."
        raise InvalidCursorError(message, hint="Ask for fewer and use the page's cursor for the rest.")


def read_or_note(id: str, read: Callable[[], SnapshotSummary]) -> SnapshotSummary | Unreadable:
    """The summary that this reads, or a note that it cannot be read."""
    try:
        return read()
    except SnapshotError as error:
        return Unreadable(id=id, problem=str(error))


def page_of(found: Iterable[SnapshotSummary | Unreadable], cursor: str | None) -> Page:
    items, unreadable = list[SnapshotSummary](), list[Unreadable]()
    for each in found:
        items.append(each) if isinstance(each, SnapshotSummary) else unreadable.append(each)
    return Page(items=tuple(items), cursor=cursor, unreadable=tuple(unreadable))
