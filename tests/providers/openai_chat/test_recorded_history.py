"""Replies sent back: what we make of a reply as history is what the next recorded request carried."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from dragoman.conversation import Conversation, Message, Text, ToolResult
from dragoman.providers.openai_chat import CODEC
from tests.providers.differences import CHAT_HISTORY
from tests.providers.feeding import message_of
from tests.providers.openai_chat.recorded_calls import call_of, decoder_of
from tests.providers.openai_chat.test_recorded import ERRORS
from tests.providers.recorded import Exchange, conversations


def _pairs() -> list[tuple[Exchange, Exchange]]:
    """Each reply that the next request of its conversation carries at its end, with that request."""
    found: list[tuple[Exchange, Exchange]] = []
    for rows in conversations("chat"):
        for reply, following in pairwise(rows):
            before, after = reply.request["messages"], following.request["messages"]
            goes_on = after[: len(before)] == before and len(after) > len(before)
            if reply.id not in ERRORS and goes_on and after[len(before)]["role"] == "assistant":
                found.append((reply, following))
    return found


PAIRS = _pairs()
pytestmark = [
    pytest.mark.recorded,
    pytest.mark.skipif(not PAIRS, reason="the recorded exchanges are not here"),
]


def simplified(message: dict[str, Any]) -> dict[str, Any]:
    """Without what says nothing: nulls, empty texts, Mistral's `prefix` and `index`, a list that is one text."""
    found = {name: value for name, value in message.items() if value is not None and name not in ("prefix", "name")}
    content = found.get("content")
    if isinstance(content, list) and all(part["type"] == "text" for part in content):
        found["content"] = content = "".join(part["text"] for part in content)
    if content == "":
        del found["content"]
    calls = [{k: v for k, v in call.items() if k != "index"} for call in found.pop("tool_calls", None) or []]
    return {**found, "tool_calls": calls} if calls else found


@pytest.mark.parametrize(("reply", "following"), [pytest.param(*pair, id=pair[0].id) for pair in PAIRS])
def test_the_reply_goes_back_as_it_was_sent_back(reply: Exchange, following: Exchange) -> None:
    message = message_of(decoder_of(reply), [reply.body.encode()])
    place = len(reply.request["messages"])
    sent = following.request["messages"][place:]
    answered = [one for one in sent[1:] if one["role"] == "tool" and isinstance(one["content"], str)]
    results = [
        ToolResult(call.id, call.name, (Text(one["content"]),))
        for call, one in zip(message.tool_calls, answered, strict=False)
    ]
    turns = (Message.user("hi"), message, *([Message.tool(results)] if results else []))
    encoded = CODEC.encode(call_of(reply, Conversation(messages=turns)))
    ours = [simplified(one) for one in json.loads(encoded.request.body)["messages"][1:]]
    assert not encoded.losses
    theirs = [simplified(one) for one in [sent[0], *answered[: len(results)]]]
    assert (ours == theirs) is (reply.id not in CHAT_HISTORY), (ours, theirs)


def test_every_listed_exchange_exists() -> None:
    assert set(CHAT_HISTORY) <= {reply.id for reply, _ in PAIRS}
