"""Lists and searches: what they show of which conversations, and how a page is filled. The same for every store.

A cursor is opaque to callers: what the store needs to go on behind the last entry of a page, written down so that a
cursor of another list, or one that was tampered with, is refused rather than misread.

A word of a search is found wherever its letters stand in the text, in any case: in the middle of a longer word, too,
since many languages put no spaces between words.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final, TypedDict, TypeVar

import msgspec
from msgspec import Struct

from dragoman.conversation import Message
from dragoman.errors import ConfigurationError, InvalidCursorError, SnapshotCorruptError, SnapshotError

from .snapshot import Snapshot

MAX_LIMIT: Final = 1000
"""How many entries a page may have."""

_T = TypeVar("_T")

# --- what a list shows ----------------------------------------------------------------------------------------------


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
    same = {name: getattr(snapshot, name) for name in SnapshotSummary.__struct_fields__ if name != "message_count"}
    return SnapshotSummary(**same, message_count=len(snapshot.messages))


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


# --- limits and cursors ----------------------------------------------------------------------------------------------

_MAX_CURSOR: Final = 1000


def check_limit(limit: int) -> int:
    """The limit of a page, from 1 to MAX_LIMIT. Raises InvalidCursorError otherwise."""
    if isinstance(limit, bool) or not 1 <= limit <= MAX_LIMIT:
        message = f"A page has from 1 to {MAX_LIMIT} entries, not {limit!r}."
        raise InvalidCursorError(message, hint="Ask for fewer and use the page's cursor for the rest.")
    return limit


def make_cursor(kind: str, parts: Sequence[object]) -> str:
    """A cursor for lists of this kind. The kind names the store, the method and its filters."""
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


# --- filters ---------------------------------------------------------------------------------------------------------

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(time: datetime) -> int:
    """A time as a whole number, exactly. Raises ConfigurationError for a time without a time zone."""
    if time.tzinfo is None:
        message = f"The time {time.isoformat()} has no time zone."
        raise ConfigurationError(message, hint="Use a time such as datetime.now(UTC) - timedelta(days=7).")
    return (time - _EPOCH) // timedelta(microseconds=1)


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
        return f"list {(self.provider, self.text, self.since, self.until, self.search)!a}"

    def accept(self, summary: SnapshotSummary) -> bool:
        """Whether a conversation passes, as far as its summary tells."""
        at = microseconds(summary.created_at)
        return (
            (self.provider is None or summary.provider == self.provider)
            and (self.text is None or self.text.casefold() in summary.title.casefold())
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
        )


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
    """How many a page has; 50 where nothing is said."""
    cursor: str | None
    """That of the page before."""


def read_list_options(
    *,
    provider: str | None = None,
    text: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> tuple[Filters, int, str | None]:
    """The filters, the limit and the cursor of a list, as its caller gives them."""
    times = [None if time is None else microseconds(time) for time in (since, until)]
    return Filters(provider=provider, text=text, since=times[0], until=times[1]), limit, cursor


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


class PageBuilder:
    """A page that is being filled."""

    def __init__(self, limit: int, filters: Filters | None = None) -> None:
        self._limit: Final = check_limit(limit)
        self._filters: Final = filters or Filters()
        self._items: list[SnapshotSummary] = []
        self._unreadable: list[Unreadable] = []

    @property
    def is_full(self) -> bool:
        return len(self._items) + len(self._unreadable) >= self._limit

    def add(self, id: str, read: Callable[[], SnapshotSummary]) -> None:
        """Add the summary that this reads, if it passes, or a note that it cannot be read."""
        try:
            summary = read()
        except SnapshotError as error:
            self._unreadable.append(Unreadable(id=id, problem=str(error)))
        else:
            if self._filters.accept(summary):
                self._items.append(summary)

    def page(self, cursor: str | None) -> Page:
        return Page(items=tuple(self._items), cursor=cursor, unreadable=tuple(self._unreadable))


def list_page(
    summaries: Iterable[SnapshotSummary],
    filters: Filters,
    limit: int,
    cursor: str | None,
    unreadable: Sequence[Unreadable] = (),
) -> Page:
    """A page of a store that looks at all of its conversations; the first one names what cannot be read."""
    check_limit(limit)
    last = None if cursor is None else read_cursor(filters.kind, cursor, tuple[int, str])
    places = {(microseconds(each.created_at), each.root): each for each in summaries if filters.accept(each)}
    left = sorted([place for place in places if last is None or place < last], reverse=True)
    return Page(
        items=tuple([places[place] for place in left[:limit]]),
        cursor=make_cursor(filters.kind, left[limit - 1]) if len(left) > limit else None,
        unreadable=tuple(unreadable) if cursor is None else (),
    )


def history_page(
    root: str, places: Sequence[int], read: Callable[[int], SnapshotSummary], limit: int, cursor: str | None
) -> Page:
    """A page of the snapshots at these places of a conversation, which come in ascending order."""
    kind = f"history {root}"
    [last] = (None,) if cursor is None else read_cursor(kind, cursor, tuple[int])
    left = [place for place in reversed(places) if last is None or place < last]
    builder = PageBuilder(limit)
    for place in left[:limit]:
        builder.add(f"{root} ({place})", lambda place=place: read(place))
    return builder.page(make_cursor(kind, (left[limit - 1],)) if len(left) > limit else None)
