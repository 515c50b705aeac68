"""Recorded exchanges with Bedrock say what Amazon's own library reads from them, and go back as a client sent them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import pytest

from dragoman.conversation import Conversation, Message, StopReason
from dragoman.errors import InvalidRequestError, ModelNotFoundError, ProviderError
from dragoman.providers import Call, profile_of, read_refusal
from dragoman.providers.bedrock.framing import BinaryEvents
from tests.providers.bedrock.wire import problems, read_by_amazon
from tests.providers.calls import HI, decoder_of, encode
from tests.providers.feeding import attempt, one_by_one
from tests.providers.recorded import Exchange, conversations, exchanges, parametrized
from tests.rounds import stride

STOPS = {"end_turn": StopReason.END, "tool_use": StopReason.TOOL_CALLS, "max_tokens": StopReason.MAX_TOKENS}


def call_of(exchange: Exchange, *messages: Message) -> Call:
    model = unquote(exchange.url.split("/")[-2])
    conversation = Conversation(messages=messages or (HI,))
    return Call(model=model, conversation=conversation, profile=profile_of("bedrock", model), stream=exchange.streamed)


def sent(call: Call) -> list[dict[str, Any]]:
    """The messages of the request, which Amazon's library must take."""
    body = json.loads(encode(call).request.body)
    assert problems(body) == ""
    return body["messages"]


def plain(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Blocks without what says nothing: white space, and that a call is one."""
    found: list[dict[str, Any]] = []
    for block in content:
        call = block.get("toolUse", {})
        if call.get("type") == "tool_use":
            found.append({"toolUse": {name: value for name, value in call.items() if name != "type"}})
        elif "text" not in block or block["text"].strip():
            found.append(block)
    return found


@parametrized("bedrock")
def test_bedrock(exchange: Exchange) -> None:
    call, data = call_of(exchange), exchange.data
    if exchange.status != 200:
        error = read_refusal(exchange.status, exchange.headers, data, call)
        is_unknown = "identifier is invalid" in exchange.body
        assert type(error) is (ModelNotFoundError if is_unknown else InvalidRequestError)
        return
    message, failure = attempt(decoder_of(call), data)
    assert failure is None
    assert (message, None) == attempt(decoder_of(call), *one_by_one(data))
    theirs = read_by_amazon(data, streamed=exchange.streamed)
    content = theirs["output"]["message"]["content"]
    assert message.text == "".join([block.get("text", "") for block in content])
    ours = [(one.id, one.name, one.parsed) for one in message.tool_calls]
    uses = [block["toolUse"] for block in content if "toolUse" in block]
    uses = [use for use in uses if use.get("type") != "server_tool_use"]
    assert ours == [(use["toolUseId"], use["name"], use["input"]) for use in uses]
    assert message.raw_stop_reason == theirs["stopReason"]
    ran_it_itself = theirs["stopReason"] == "tool_use" and not uses
    assert message.stop_reason is (StopReason.END if ran_it_itself else STOPS[theirs["stopReason"]])
    counts, usage = theirs["usage"], message.usage
    assert usage is not None
    cached = counts.get("cacheReadInputTokens", 0), counts.get("cacheWriteInputTokens", 0)
    assert (usage.input, usage.output, usage.total) == (
        counts["inputTokens"] + sum(cached),
        counts["outputTokens"],
        counts["totalTokens"],
    )
    assert (usage.cache_read or 0, usage.cache_write or 0) == cached
    # And all of it goes back as it came.
    if said := plain(content):
        again = call_of(exchange, HI, message, Message.user("Go on"))
        assert plain(sent(again)[1]["content"]) == said


@pytest.mark.recorded
@pytest.mark.parametrize("exchange", [row for row in exchanges("bedrock") if row.streamed], ids=lambda row: row.id)
def test_every_split_of_a_stream_gives_the_same_frames(exchange: Exchange) -> None:
    data = exchange.data
    complete = list(BinaryEvents().feed(data))
    assert len(complete) > 4
    splits = [[data[:at], data[at:]] for at in range(0, len(data), stride(23))]
    for pieces in [one_by_one(data), *splits]:
        frames = BinaryEvents()
        assert [event for piece in pieces for event in frames.feed(piece)] == complete
        assert list(frames.finish()) == []


def _pairs() -> list[tuple[Exchange, Exchange]]:
    """Exchanges of which the second carries the reply of the first right behind what was sent before."""
    found: list[tuple[Exchange, Exchange]] = []
    for rows in conversations("bedrock"):
        for before, after in pairwise(rows):
            start = (before.request or {}).get("messages", [])
            grown = (after.request or {}).get("messages", [])
            if before.status == 200 and len(grown) > len(start) and _bare(grown[: len(start)]) == _bare(start):
                found.append((before, after))
    return found


def _bare(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without cache points, which move on."""
    return [
        {**message, "content": [block for block in message["content"] if "cachePoint" not in block]}
        for message in messages
    ]


_AS_TEXT = "that client wrote reasoning without a signature into the text; here it goes back as it came"
CHANGED: dict[str, str] = {
    "test_bedrock/test_bedrock_model_thinking_part_deepseek.yaml-0": _AS_TEXT,
    "test_bedrock/test_bedrock_moonshotai_tool_call.yaml-0": _AS_TEXT,
    "test_bedrock/test_bedrock_thinking_high_qwen_variant.yaml-0": _AS_TEXT,
    "test_bedrock/test_bedrock_model_thinking_part_anthropic_legacy.yaml-0": "the recorder has changed letters of it",
}
"""Replies that we send back otherwise than that client did, and why."""


@pytest.mark.recorded
@pytest.mark.parametrize("pair", _pairs(), ids=lambda pair: pair[0].id)
def test_replies_go_back_as_a_client_sent_them(pair: tuple[Exchange, Exchange]) -> None:
    before, after = pair
    message, failure = attempt(decoder_of(call_of(before)), before.data)
    assert not isinstance(failure, ProviderError)
    place = len(before.request["messages"])
    theirs = plain(_bare(after.request["messages"])[place]["content"])
    ours = plain(sent(call_of(after, HI, message, Message.user("Go on")))[1]["content"])
    assert (ours == theirs) is (before.id not in CHANGED), (ours, theirs)
