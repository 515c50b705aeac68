"""A whole reply on two roads, the short one and that of a decoder and `fold`: both lead to the same message."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec

from dragoman.conversation import Message, ReplyEvent, fold
from dragoman.providers.codec import Call, Codec, Encoded


def is_plain(codec: Codec, call: Call, sent: Encoded, body: bytes) -> bool:
    """Whether the reply takes the short road; if so, it is checked that the other one leads to the same place."""
    message = codec.plain_message(body, call, sent)
    if message is None:
        return False
    careful = _folded(codec, call, sent, body)
    assert message == careful
    assert _written(message) == _written(careful)  # to the byte, in what is kept as it came
    return True


def _written(message: Message) -> bytes:
    return msgspec.json.encode(message, order="deterministic")


def _folded(codec: Codec, call: Call, sent: Encoded, body: bytes) -> Message:
    events: list[ReplyEvent] = []
    decoder = codec.decoder(call, sent)
    decoder.feed(body, events)
    decoder.finish(events)
    return fold(events)


def twisted(reply: Any, twists: list[tuple[int, str, Any]]) -> Any:
    """A reply with members put in, or replaced, in some of its objects: each twist counts to one of them."""
    reply = deepcopy(reply)  # some of its values are those of other examples
    for place, name, value in twists:
        found = _objects(reply)
        found[place % len(found)][name] = deepcopy(value)
    return reply


def _objects(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [inner for each in value for inner in _objects(each)]
    if not isinstance(value, dict):
        return []
    return [value, *[inner for each in value.values() for inner in _objects(each)]]
