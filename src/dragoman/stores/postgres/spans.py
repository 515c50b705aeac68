"""Which rows make up a history: spans of lines, one behind the other.

Owns: spans and how they are cut and extended.
Must not know: what is in the rows, SQL.

A history that only ever grew is one span. Where a save replaced the end of it, the part that stayed is a span of the
old line and the rest one of a new line, so that nothing is written twice and every earlier save still finds its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from dragoman.errors import SnapshotCorruptError

__all__ = ["MAX_SPANS", "Span", "cut", "extended", "flat", "joined", "spans_of"]

MAX_SPANS: Final = 32


class Span(NamedTuple):
    """The rows of a line from position `first` up to, but not including, `stop`."""

    line: int
    first: int
    stop: int


def spans_of(stored: object) -> tuple[Span, ...]:
    """The spans as the database keeps them: a list of lists."""
    try:
        return tuple([Span(*each) for each in msgspec.convert(stored, list[tuple[int, int, int]])])
    except msgspec.ValidationError:
        message = "The stored history of a snapshot is damaged."
        raise SnapshotCorruptError(message) from None


def flat(spans: Sequence[Span]) -> list[list[int]]:
    """The spans as the database takes them."""
    return [list(span) for span in spans]


def joined(spans: Sequence[Span]) -> int:
    """How many messages they hold, if each begins where the one before ends; else -1."""
    count = 0
    for span in spans:
        if span.first != count or span.stop <= span.first:
            return -1
        count = span.stop
    return count


def cut(spans: Sequence[Span], count: int) -> tuple[Span, ...]:
    """The spans of the first `count` messages."""
    return tuple([span._replace(stop=min(span.stop, count)) for span in spans if span.first < count])


def extended(spans: Sequence[Span], span: Span) -> tuple[Span, ...]:
    """The spans with one more at the end, which may just go on where the last one stops."""
    if spans and (spans[-1].line, spans[-1].stop) == (span.line, span.first):
        return (*spans[:-1], spans[-1]._replace(stop=span.stop))
    return (*spans, span)
