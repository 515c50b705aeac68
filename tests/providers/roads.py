"""A whole reply on two roads, the short one and the careful one: what each of them gives."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from dragoman.conversation import ReplyEvent
from dragoman.errors import ProviderError
from dragoman.providers.codec import Decoder


class Roads(NamedTuple):
    """What became of one reply."""

    short: tuple[list[ReplyEvent], str]
    """All events, and the error if one followed."""
    careful: tuple[list[ReplyEvent], str]
    is_plain: bool
    """Whether the short road took it."""


def roads(module: ModuleType, decoder: Callable[[], Decoder], body: bytes) -> Roads:
    """A reply as the decoder reads it, and as it does without `plain_reply`, which its module imports."""
    taken: list[bool] = []
    plain_reply = module.plain_reply

    def noting(*given: Any) -> bool:
        before = list(given[-1])
        taken.append(plain_reply(*given))
        assert taken[-1] or given[-1] == before  # what does not take a reply leaves no trace
        return taken[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "plain_reply", noting)
        short = _outcome(decoder(), body)
        patch.setattr(module, "plain_reply", lambda *_: False)
        return Roads(short, _outcome(decoder(), body), any(taken))


def _outcome(decoder: Decoder, body: bytes) -> tuple[list[ReplyEvent], str]:
    events: list[ReplyEvent] = []
    try:
        decoder.feed(body, events)
        decoder.finish(events)
    except ProviderError as error:
        return events, f"{type(error).__name__}: {error.message} {error.code}"
    return events, ""


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
