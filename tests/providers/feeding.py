"""Feeding a decoder with bytes in various pieces, which must never make a difference."""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.conversation import Message, ReplyEvent, fold
from dragoman.providers import Decoder


def events_of(decoder: Decoder, pieces: Iterable[bytes]) -> list[ReplyEvent]:
    """All events of a reply that arrives in these pieces."""
    events: list[ReplyEvent] = []
    for piece in pieces:
        decoder.feed(piece, events)
    decoder.finish(events)
    return events


def message_of(decoder: Decoder, pieces: Iterable[bytes]) -> Message:
    return fold(events_of(decoder, pieces))


def one_by_one(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def cut_at(data: bytes, places: Iterable[int]) -> list[bytes]:
    at = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]
