"""A whole reply on two roads, the short one and that of a decoder and `fold`: both lead to the same message."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec

from dragoman.conversation import Message, ReplyEvent, fold
from dragoman.providers.codec import Call, Codec, Encoded


def compared(codec: Codec, call: Call, sent: Encoded, body: bytes, *, in_order: bool = False) -> bool:
    """Whether the reply takes the short road; if so, asserts that the other one leads to the same message.

    `in_order`: with what is kept as it came in the same order, too.
    """
    message = codec.plain_message(body, call, sent)
    if message is None:
        return False
    careful = _folded(codec, call, sent, body)
    assert message == careful
    order = None if in_order else "deterministic"
    assert msgspec.json.encode(message, order=order) == msgspec.json.encode(careful, order=order)
    return True


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
