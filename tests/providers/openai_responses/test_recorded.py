"""The recorded exchanges: decoded in any pieces, compared with the official SDK, and encoded again as history."""

from __future__ import annotations

import itertools
import json
from typing import Any

import openai
import pytest

from dragoman.conversation import Conversation, Message, StopReason
from dragoman.errors import InvalidRequestError, ModelNotFoundError, ProtocolError, ProviderError
from dragoman.providers import Call
from dragoman.providers.openai_responses import CODEC
from tests.providers.differences import RESPONSES_HISTORY, RESPONSES_REPLIES
from tests.providers.feeding import message_of
from tests.providers.openai_responses.calls import profile_of
from tests.providers.openai_responses.sdk import read
from tests.providers.recorded import Exchange, conversations, exchanges, parametrized

PROVIDER_OF_HOST = {
    "api.deepseek.com": "deepseek-responses",
    "bedrock-mantle.us-east-1.api.aws": "bedrock-mantle",
    "openrouter.ai": "openrouter-responses",
}

NOT_REPLIES = {
    "test_responses_count_tokens-0": "a count of tokens, from another endpoint",
    "test_responses_count_tokens_with_tools-0": "a count of tokens, from another endpoint",
    "test_responses_usage_limit_exceeded-0": "a count of tokens, from another endpoint",
    "test_responses_usage_limit_not_exceeded-0": "a count of tokens, from another endpoint",
}
"""Bodies that are no replies: {exchange: why}."""

REFUSALS: dict[str, type[ProviderError]] = {
    "model_not_found": ModelNotFoundError,
    "invalid_request_error": InvalidRequestError,
    "unsupported_file": InvalidRequestError,
    "decimal_below_min_value": InvalidRequestError,
}

STOPS = {"queued": StopReason.OTHER, "in_progress": StopReason.OTHER}


def call_of(exchange: Exchange, *messages: Message) -> Call:
    host = exchange.url.split("/")[2]
    provider = PROVIDER_OF_HOST.get(host, "azure-responses" if "azure" in host else "openai-responses")
    model = exchange.model or "gpt-5"
    return Call(
        model=model,
        conversation=Conversation(messages=messages or (Message.user("-"),)),
        profile=profile_of(model, provider),
        stream=exchange.streamed,
    )


def decoded(exchange: Exchange) -> Message:
    call = call_of(exchange)
    return message_of(CODEC.decoder(call, CODEC.encode(call)), [exchange.body.encode()])


@parametrized("responses")
def test_what_the_sdk_reads(exchange: Exchange) -> None:
    if exchange.status != 200:
        with pytest.raises(openai.BadRequestError) as refused:
            read(exchange)
        error = CODEC.error(exchange.status, exchange.headers, exchange.body.encode(), call_of(exchange))
        assert type(error) is REFUSALS[refused.value.code or "invalid_request_error"]
        assert error.status == exchange.status
        return
    if exchange.id in NOT_REPLIES:
        with pytest.raises(ProtocolError):
            decoded(exchange)
        return
    expected, message = read(exchange), decoded(exchange)
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    usage = message.usage
    counts = usage and (
        usage.input,
        usage.output,
        usage.cache_read,
        usage.cache_write,
        usage.reasoning,
        usage.total,
    )
    if exchange.status == 200 and expected.status in STOPS:
        stop = STOPS[expected.status]
    else:
        stop = StopReason.TOOL_CALLS if calls else StopReason.END
    same = (
        message.text == expected.text
        and calls == expected.calls
        and [json.loads(arguments) for _, arguments in calls] == [call.parsed for call in message.tool_calls]
        and message.stop_reason is stop
        and message.raw_stop_reason == (expected.reason or expected.status)
        and counts == expected.usage
    )
    assert same == (exchange.id not in RESPONSES_REPLIES), RESPONSES_REPLIES.get(exchange.id, (expected, message))


# --- history ---------------------------------------------------------------------------------------------------------

LEFT_OUT = {
    ("function_call", "status"),
    ("function_call", "id"),  # in tests that turn ids off, and of services that give ids of another form
    ("message", "logprobs"),
    ("reasoning", "content"),  # an empty list
    ("reasoning", "status"),
    ("mcp_call", "status"),
    ("mcp_call", "approval_request_id"),
    ("tool_search_call", "id"),
    ("tool_search_output", "id"),
}
"""Members that the recording client does not send back, of items that it otherwise sends back."""

REWRITTEN = {
    ("message", "easy"): "an answer may be sent as a plain text without its id, which that client does for some models",
    ("function_call", "status"): "null in a test of servers that insist on it",
    ("reasoning", "encrypted_content"): "null where there is none; and that client does not keep DeepSeek's",
    ("tool_search_call", "arguments"): "that client has its own word for the argument",
    ("tool_search_call", "call_id"): "that client makes up an id where the service gives none",
    ("tool_search_output", "tools"): "that client writes the found tools anew from its own definitions",
    ("mcp_list_tools", "tools"): "that client leaves it to the service to look them up",
    ("mcp_call", "output"): "the same",
    ("code_interpreter_call", "outputs"): "the same",
    ("function_call", "namespace"): "made up by that client for a call that came without",
}
"""What the recording client changes in items that it sends back: {(type of item, member): why}."""


def followed() -> list[Any]:
    """Exchanges whose next request carries history."""
    pairs: list[Any] = []
    for rows in conversations("responses"):
        for before, after in itertools.pairwise(rows):
            request = after.request if isinstance(after.request, dict) else {}
            stateful = request.get("previous_response_id") or request.get("conversation")
            follows = (
                after.index == before.index + 1 and before.id not in NOT_REPLIES
            )  # there are two tests of one name
            if follows and before.status == 200 and isinstance(request.get("input"), list) and not stateful:
                pairs.append(pytest.param(before, after, id=before.id, marks=pytest.mark.recorded))
    return pairs


@pytest.mark.parametrize(("before", "after"), followed())
def test_replies_come_back_as_history(before: Exchange, after: Exchange) -> None:
    complete, _ = compared(before, after)
    assert complete == (before.id not in RESPONSES_HISTORY), RESPONSES_HISTORY.get(
        before.id, "an item was not sent back"
    )


def compared(before: Exchange, after: Exchange) -> tuple[bool, set[tuple[str, str]]]:
    """Whether the next request carries all items of this reply, and which of their members it carries otherwise."""
    encoded = CODEC.encode(call_of(after, decoded(before)))
    ours: list[dict[str, Any]] = json.loads(encoded.request.body)["input"]
    theirs = after.request["input"][len((before.request or {}).get("input", [])) :]
    complete = True
    otherwise: set[tuple[str, str]] = set()
    for item in ours:
        match = next((one for one in theirs if _same_item(one, item)), None)
        if match is None:
            complete = False
        else:
            otherwise |= _compare(match, item)
    assert not encoded.losses
    return complete, otherwise


@pytest.mark.recorded
def test_no_reason_is_left_over() -> None:
    if not exchanges("responses"):
        pytest.skip("the recorded exchanges are not here")
    known = {row.id for row in exchanges("responses")}
    assert {*NOT_REPLIES, *RESPONSES_REPLIES, *RESPONSES_HISTORY} <= known
    used = set[tuple[str, str]]().union(*[compared(*pair.values)[1] for pair in followed()])
    assert used == LEFT_OUT | REWRITTEN.keys()


def _kind(item: dict[str, Any]) -> str:
    return str(item.get("type", "message"))


def _text(item: dict[str, Any]) -> str:
    content = item["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content if "text" in part)


def _same_item(theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    if _kind(theirs) != _kind(ours):
        return False
    if _kind(ours) == "message":
        return bool(theirs["role"] == ours["role"] and _text(theirs) == _text(ours))
    if "id" in theirs and "id" in ours:
        return bool(theirs["id"] == ours["id"])
    return bool(theirs.get("call_id") == ours.get("call_id"))


def _compare(theirs: dict[str, Any], ours: dict[str, Any]) -> set[tuple[str, str]]:
    """The members that are not the same; each must have its reason above."""
    kind = _kind(ours)
    if kind == "message" and isinstance(theirs["content"], str):
        return {("message", "easy")}
    otherwise: set[tuple[str, str]] = set()
    for member in theirs.keys() | ours.keys():
        if member not in theirs:
            assert (kind, member) in LEFT_OUT, member
            otherwise.add((kind, member))
        elif kind == "message" and member == "content":
            kept = [{name: value for name, value in part.items() if name != "logprobs"} for part in ours[member]]
            if kept != ours[member]:
                otherwise.add(("message", "logprobs"))
            assert theirs[member] == kept
        elif theirs[member] != ours.get(member):
            assert (kind, member) in REWRITTEN, (member, theirs[member], ours.get(member))
            otherwise.add((kind, member))
    return otherwise
