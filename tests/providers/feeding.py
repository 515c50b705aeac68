"""Feed a decoder with bytes in various pieces, which must never make a difference."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from dragoman.conversation import Message, Native, ReplyEvent, fold
from dragoman.errors import ProviderError
from dragoman.providers import Decoder


def events_of(decoder: Decoder, pieces: Iterable[bytes]) -> list[ReplyEvent]:
    """All events of a reply that arrives in these pieces."""
    events: list[ReplyEvent] = []
    for piece in pieces:
        decoder.feed(piece, events)
    decoder.finish(events)
    return events


def attempt(decoder: Decoder, *pieces: bytes) -> tuple[Message, ProviderError | None]:
    """What came of these bytes, and the error if there was one. Another exception fails the test."""
    events: list[ReplyEvent] = []
    try:
        for piece in pieces:
            decoder.feed(piece, events)
        decoder.finish(events)
    except ProviderError as error:
        return fold(events), error
    return fold(events), None


def message_of(decoder: Decoder, pieces: Iterable[bytes]) -> Message:
    return fold(events_of(decoder, pieces))


def fields_in(native: Native | None) -> dict[str, Any]:
    """The native fields, parsed."""
    return {name: json.loads(bytes(raw)) for name, raw in native.fields.items()} if native is not None else {}


def one_by_one(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def cut_at(data: bytes, places: Iterable[int]) -> list[bytes]:
    at = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]
