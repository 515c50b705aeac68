"""Every recorded exchange: it decodes, in any pieces, to what the provider's SDK reads; and it goes back as it came."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from dragoman.conversation import Message, Opaque, Text, Thinking, ToolCall
from dragoman.errors import InvalidRequestError, ModelNotFoundError
from dragoman.providers.anthropic import CODEC
from tests.providers.anthropic.calls import call_of, sent
from tests.providers.anthropic.sdk import message_of as sdk_message_of
from tests.providers.differences import ANTHROPIC_HISTORY
from tests.providers.feeding import message_of
from tests.providers.recorded import Exchange, conversations, parametrized

ERRORS = {
    "test_model_name_suggestion[anthropic]-0": ModelNotFoundError,
    "test_anthropic_explicit_effort_xhigh_unsupported_model_errors-0": InvalidRequestError,
}


def decoded(exchange: Exchange) -> Message:
    call = call_of(model=exchange.model or "claude", stream=exchange.streamed)
    return message_of(CODEC.decoder(call, CODEC.encode(call)), [exchange.body.encode()])


# --- as the SDK reads it ---


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _as_sdk(message: Message) -> list[dict[str, Any]]:
    """The blocks in the provider's words, straight from our values."""
    found: list[dict[str, Any]] = []
    for part in message.blocks:
        match part:
            case Text():
                member: dict[str, Any] = {"type": "text", "text": part.text}
            case Thinking() if part.redacted:
                member = {"type": "redacted_thinking", "data": part.encrypted}
            case Thinking():
                member = {"type": "thinking", "thinking": part.text, "signature": part.signature}
            case ToolCall():
                member = {"type": "tool_use", "id": part.id, "name": part.name, "input": part.parsed}
            case Opaque():
                found.append(_without_nulls(part.value))
                continue
            case _:
                raise AssertionError(part)
        assert part.native is None or part.native.provider == "anthropic"
        extra = {name: json.loads(bytes(raw)) for name, raw in (part.native.fields if part.native else {}).items()}
        found.append(_without_nulls({**member, **extra}))
    return found


@parametrized("anthropic")
def test_the_reply_is_what_the_sdk_reads(exchange: Exchange) -> None:
    if exchange.status != 200:
        body = exchange.body.encode()
        error = CODEC.error(exchange.status, exchange.headers, body, call_of(model=exchange.model or "claude"))
        assert type(error) is ERRORS[exchange.id]
        assert (error.request_id, error.status) == (json.loads(body)["request_id"], exchange.status)
        return
    message = decoded(exchange)
    assert message.provider == "anthropic"
    assert message.stop_reason is not None
    expected = sdk_message_of(exchange.body.encode(), streamed=exchange.streamed)
    blocks = _without_nulls(expected["content"])
    for one in blocks:  # the SDK has an empty list where a stream announced citations and none came
        if one.get("citations") == []:
            del one["citations"]
    assert _as_sdk(message) == blocks
    assert message.text == "".join([one["text"] for one in expected["content"] if one["type"] == "text"])
    assert (message.id, message.model, message.raw_stop_reason) == (
        expected["id"],
        expected["model"],
        expected["stop_reason"],
    )
    counts, usage = expected["usage"], message.usage
    assert usage is not None
    cached = (counts.get("cache_read_input_tokens") or 0, counts.get("cache_creation_input_tokens") or 0)
    assert usage.input == counts["input_tokens"] + sum(cached)
    assert (usage.output, usage.cache_read, usage.cache_write) == (counts["output_tokens"], *cached)
    assert usage.reasoning == (counts.get("output_tokens_details") or {}).get("thinking_tokens")


# --- back as history ---

# What this client never sends back, whatever the reply held. The API takes both, and so do we send them.
NOT_SENT_BY_THE_CLIENT = ("caller", "citations")


def _bare(block: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in block.items() if name not in (*NOT_SENT_BY_THE_CLIENT, "cache_control")}


def _assistant_contents(exchange: Exchange) -> list[list[dict[str, Any]]]:
    """What each of the model's turns held in a request."""
    turns = [one["content"] for one in exchange.request["messages"] if one["role"] == "assistant"]
    return [[_bare(one) for one in turn] for turn in turns if isinstance(turn, list)]


PAIRS = [
    pytest.param(before, after, id=before.id, marks=pytest.mark.recorded)
    for rows in conversations("anthropic")
    for before, after in pairwise(rows)
    if before.status == 200 and _assistant_contents(after)
]


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_reply_goes_back_as_the_client_sent_it(before: Exchange, after: Exchange) -> None:
    model = after.model or "claude"
    again = sent(Message.user("Hello"), decoded(before), Message.user("Go on"), model=model)
    ours = [_bare(one) for one in again[1]["content"]]
    same = ours in _assistant_contents(after)
    assert same != (before.id in ANTHROPIC_HISTORY), (ours, _assistant_contents(after))


def test_no_difference_is_listed_for_nothing() -> None:
    if PAIRS:
        assert ANTHROPIC_HISTORY.keys() <= {str(pair.id) for pair in PAIRS}
