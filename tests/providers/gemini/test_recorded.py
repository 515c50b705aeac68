"""Every recorded exchange: the reply decodes however it is cut, and says what the official SDK reads from its bytes."""

from __future__ import annotations

import json
from itertools import pairwise

import msgspec
import pytest

from dragoman.conversation import Message, Opaque, StopReason, Thinking, ToolResult
from dragoman.errors import ContentFilteredError, InvalidRequestError, ModelNotFoundError, ProviderError
from dragoman.providers.gemini import CODEC
from tests.providers.differences import GEMINI_HISTORY
from tests.providers.feeding import message_of
from tests.providers.gemini.case import NOTHING_SENT, a_call, attempt
from tests.providers.gemini.replies import Oracle, call_of, normal, oracle
from tests.providers.recorded import Exchange, conversations, parametrized

REFUSALS: dict[int, type[ProviderError]] = {400: InvalidRequestError, 404: ModelNotFoundError}


STOPS = {
    "STOP": {StopReason.END, StopReason.TOOL_CALLS},
    "MAX_TOKENS": {StopReason.MAX_TOKENS},
    "SAFETY": {StopReason.CONTENT_FILTER},
    "MODEL_ARMOR": {StopReason.CONTENT_FILTER},
    "UNEXPECTED_TOOL_CALL": {StopReason.TOOL_CALLS},
}


@parametrized("gemini")
def test_what_the_sdk_reads(exchange: Exchange) -> None:
    call, body = call_of(exchange), exchange.body.encode()
    if exchange.status != 200:
        error = CODEC.error(exchange.status, exchange.headers, body, call)
        assert type(error) is REFUSALS[exchange.status]
        assert error.code == json.loads(body)["error"]["status"]
        return
    expected = oracle(exchange)
    message, failure = attempt(body, call)
    if expected.block is not None:
        assert isinstance(failure, ContentFilteredError)
        assert failure.code == expected.block
        return
    assert failure is None
    assert message.text == expected.text
    assert message.thinking == expected.thoughts
    _assert_calls(message, expected)
    assert _signatures(message) == expected.signatures
    assert message.raw_stop_reason == expected.finish
    assert message.stop_reason in STOPS[expected.finish or ""]
    assert (message.stop_reason is StopReason.TOOL_CALLS) == bool(expected.calls)
    assert (message.provider, message.model, message.id) == ("gemini", expected.model, expected.id)
    _assert_usage(message, expected)


def _assert_calls(message: Message, expected: Oracle) -> None:
    assert [(call.name, call.parsed) for call in message.tool_calls] == [call[1:] for call in expected.calls]
    ids = [call.id for call in message.tool_calls]
    assert len(set(ids)) == len(ids)
    for own, (given, _, _) in zip(ids, expected.calls, strict=True):
        assert own == given if given else own.startswith("call_gem_")


def _signatures(message: Message) -> list[bytes]:
    """The signatures in the message, wherever they are kept, in their order."""
    found: list[bytes] = []
    for block in message.blocks:
        if isinstance(block, Opaque):
            signature = msgspec.json.decode(block.raw).get("thoughtSignature")
        elif isinstance(block, Thinking):
            signature = block.signature
        else:
            assert not isinstance(block, ToolResult)
            raw = block.native.fields.get("thoughtSignature") if block.native else None
            signature = msgspec.json.decode(raw) if raw is not None else None
        if signature:
            found.append(normal({"thoughtSignature": signature})["thoughtSignature"])
    return found


def _assert_usage(message: Message, expected: Oracle) -> None:
    theirs, ours = expected.usage, message.usage
    assert theirs is not None
    assert ours is not None
    assert ours.input == (theirs.prompt_token_count or 0) + (theirs.tool_use_prompt_token_count or 0)
    assert ours.output == (theirs.candidates_token_count or 0) + (theirs.thoughts_token_count or 0)
    assert ours.reasoning == theirs.thoughts_token_count
    assert ours.cache_read == theirs.cached_content_token_count
    assert ours.total == theirs.total_token_count
    assert ours.input + ours.output == ours.total


def _pairs() -> list[tuple[Exchange, Exchange]]:
    """Each reply and the request that carries it back: the one after it, if it continues the same conversation."""
    pairs: list[tuple[Exchange, Exchange]] = []
    for rows in conversations("gemini"):
        for before, after in pairwise(rows):
            start, grown = normal(before.request["contents"]), normal(after.request["contents"])
            if before.status == 200 and len(grown) > len(start) and grown[: len(start)] == start:
                pairs.append((before, after))
    return pairs


@pytest.mark.recorded
@pytest.mark.parametrize(("before", "after"), [pytest.param(*pair, id=pair[1].id) for pair in _pairs()])
def test_history_goes_back_as_it_came(before: Exchange, after: Exchange) -> None:
    call = call_of(before)
    message = message_of(CODEC.decoder(call, NOTHING_SENT), [before.body.encode()])
    vertex = frozenset(["vertex"] if "aiplatform" in before.url else [])
    profile = call.profile.with_changes(quirks=call.profile.quirks | vertex)
    encoded = CODEC.encode(a_call(Message.user("Hi"), message, model=call.model, profile=profile))
    theirs = normal(after.request["contents"])[len(before.request["contents"])]
    ours = normal(json.loads(encoded.request.body)["contents"][1])
    assert encoded.losses == ()
    assert (ours != theirs) == (after.id in GEMINI_HISTORY)


@pytest.mark.recorded
def test_all_differences_are_of_recorded_requests() -> None:
    pairs = _pairs()
    if not pairs:
        pytest.skip("the recorded exchanges are not here")
    assert {after.id for _, after in pairs} >= GEMINI_HISTORY.keys()
    assert len(pairs) > 150
