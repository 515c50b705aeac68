"""The recorded exchanges: every reply decodes, however it arrives, to what the official SDK reads, and goes back so."""

from __future__ import annotations

import json
import warnings
from itertools import pairwise
from typing import Any

import pytest

from dragoman.conversation import (
    Conversation,
    Message,
    StopReason,
    Text,
    Thinking,
    ToolResult,
    Usage,
)
from dragoman.errors import InvalidRequestError, ModelNotFoundError, ProtocolError, ProviderError, RateLimitError
from dragoman.providers import CODEC
from tests.providers.differences import CHAT_HISTORY, CHAT_REPLIES
from tests.providers.feeding import attempt, message_of
from tests.providers.openai_chat.sdk import Read, read_stream, read_whole
from tests.providers.openai_chat.wire import call_of, decoder_of
from tests.providers.recorded import Exchange, conversations, exchanges, parametrized

ROWS = {row.id: row for row in exchanges("chat")}
there = pytest.mark.skipif(not ROWS, reason="the recorded exchanges are not here")

ERRORS: dict[str, type[ProviderError]] = {
    "test_invalid_response-0": ProtocolError,  # JSON, but no completion
    "test_text_response-0": ProtocolError,  # not JSON
    "test_model_name_suggestion[groq]-0": ModelNotFoundError,
    "test_model_name_suggestion[openai-chat]-0": ModelNotFoundError,
    "test_tool_regular_error-0": ModelNotFoundError,
    "test_tool_use_failed_error-0": InvalidRequestError,
    "test_tool_use_failed_error_with_text-0": InvalidRequestError,
    "test_tool_use_failed_error_streaming-0": InvalidRequestError,  # `event: error` in a stream
    "test_tool_use_failed_error_streaming_with_text-0": InvalidRequestError,
    "test_openai_o1_mini_system_role[developer]-0": InvalidRequestError,
    "test_openai_o1_mini_system_role[system]-0": InvalidRequestError,
    "test_openai_web_search_tool_model_not_supported-0": InvalidRequestError,
    "test_openrouter_errors_raised-0": RateLimitError,
    "test_openrouter_errors_raised-1": RateLimitError,
    "test_openrouter_errors_raised-2": RateLimitError,
    "test_openrouter_stream_error-0": InvalidRequestError,  # `error` beside `choices` in a stream
}
"""Exchanges that end in an error, and which one; all others end in a message."""


def error_or_message(exchange: Exchange) -> ProviderError | Message:
    if exchange.status >= 300:
        return CODEC.error(exchange.status, exchange.headers, exchange.body.encode(), call_of(exchange))
    message, error = attempt(decoder_of(exchange), exchange.body.encode())
    return error or message


def read_by_us(message: Message) -> Read:
    usage = message.usage or Usage()
    return Read(
        text=message.text,
        refusal="",
        calls=[(call.name, call.parsed) for call in message.tool_calls],
        finish_reason=message.raw_stop_reason or "",
        input=usage.input,
        output=usage.output,
        total=usage.total,
        cached=usage.cache_read,
        reasoning=usage.reasoning,
    )


def read_by_sdk(exchange: Exchange) -> Read | str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Mistral's lists of content are not what its types say
        try:
            return read_stream(exchange.body) if exchange.streamed else read_whole(exchange.body)
        except RuntimeError as error:
            return str(error)


_STOPS = {
    "": {StopReason.OTHER, StopReason.TOOL_CALLS},
    "stop": {StopReason.END, StopReason.TOOL_CALLS},
    "tool_calls": {StopReason.TOOL_CALLS},
    "length": {StopReason.MAX_TOKENS},
}


@parametrized("chat")
def test_every_exchange_is_the_right_error_or_what_the_sdk_reads(exchange: Exchange) -> None:
    message = error_or_message(exchange)
    assert type(message) is ERRORS.get(exchange.id, Message)
    if isinstance(message, ProviderError):
        assert message.provider
        assert message.model == exchange.model
        assert exchange.status in (200, message.status)
        return
    ours, theirs = read_by_us(message), read_by_sdk(exchange)
    assert (ours == theirs) is (exchange.id not in CHAT_REPLIES), (ours, theirs)
    assert message.stop_reason in _STOPS[message.raw_stop_reason or ""]
    assert (message.stop_reason is StopReason.TOOL_CALLS) is bool(message.tool_calls)
    assert all(call.id and not call.partial for call in message.tool_calls)


def reasoning_in(exchange: Exchange) -> tuple[str, list[str]]:
    """All readable reasoning of the reply, and all encrypted data, read from the JSON in the plainest way."""
    readable, sealed = "", []
    for message in messages_in(exchange):
        details = message.get("reasoning_details") or []
        told = "".join(detail.get("text") or detail.get("summary") or "" for detail in details)
        readable += told or message.get("reasoning_content") or message.get("reasoning") or ""
        sealed += [detail["data"] for detail in details if detail.get("data")]
        if isinstance(message.get("content"), list):
            chunks = [chunk for chunk in message["content"] if chunk["type"] == "thinking"]
            readable += "".join(part["text"] for chunk in chunks for part in chunk["thinking"])
    return readable, sealed


def messages_in(exchange: Exchange) -> list[dict[str, Any]]:
    if not exchange.streamed:
        return [json.loads(exchange.body)["choices"][0]["message"]]
    payloads = [line[6:] for line in exchange.body.splitlines() if line.startswith("data: {")]
    return [choice["delta"] for payload in payloads for choice in json.loads(payload)["choices"]]


@pytest.mark.recorded
@there
def test_reasoning_is_kept_and_says_who_can_read_it() -> None:
    found = 0
    for exchange in ROWS.values():
        if exchange.id in ERRORS:
            continue
        message = message_of(decoder_of(exchange), [exchange.body.encode()])
        thoughts = [block for block in message.blocks if isinstance(block, Thinking)]
        readable, sealed = reasoning_in(exchange)
        assert message.thinking == readable, exchange.id
        assert [thought.encrypted for thought in thoughts if thought.encrypted] == sealed, exchange.id
        assert {thought.provider for thought in thoughts} <= {f"openai_chat:{call_of(exchange).profile.provider}"}
        found += bool(thoughts)
    assert found > 50


# --- replies sent back: what we make of a reply as history is what the next recorded request carried ---


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


@pytest.mark.recorded
@there
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


@pytest.mark.recorded
@there
def test_every_listed_exchange_exists() -> None:
    assert {*ERRORS, *CHAT_REPLIES} <= set(ROWS)
    assert set(CHAT_HISTORY) <= {reply.id for reply, _ in PAIRS}
