"""Every recorded exchange says what its provider's SDK reads from it, and goes back as the recorded client sent it.

That pieces make no difference to them is in test_faults.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest

from dragoman.conversation import (
    Conversation,
    Message,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from dragoman.errors import (
    ContentFilteredError,
    InvalidRequestError,
    ModelNotFoundError,
    ProtocolError,
    ProviderError,
    RateLimitError,
)
from dragoman.providers import Call, profile_of, read_refusal
from tests.providers.calls import HI, decoder_of, encode
from tests.providers.differences import (
    ANTHROPIC_HISTORY,
    CHAT_HISTORY,
    CHAT_REPLIES,
    GEMINI_HISTORY,
    RESPONSES_HISTORY,
)
from tests.providers.feeding import attempt
from tests.providers.oracles import Read, claude_message, normal, read_chat, read_gemini, read_response
from tests.providers.recorded import Exchange, conversations, exchanges, parametrized

_HOSTS = {
    "chat": {
        "api.openai.com": "openai",
        "api.groq.com": "groq",
        "openrouter.ai": "openrouter",
        "api.mistral.ai": "mistral",
        "api.cerebras.ai": "cerebras",
        "router.huggingface.co": "huggingface",
        "api.z.ai": "zai",
        "api.deepseek.com": "deepseek",
        "ollama.com": "ollama",
    },
    "responses": {
        "api.deepseek.com": "deepseek-responses",
        "bedrock-mantle.us-east-1.api.aws": "bedrock-mantle",
        "openrouter.ai": "openrouter-responses",
    },
}
_OTHERS = {"chat": "openai-compatible", "responses": "openai-responses", "anthropic": "anthropic", "gemini": "gemini"}
ROWS = {row.id: row for file in _OTHERS for row in exchanges(file)}
recorded = pytest.mark.recorded
there = pytest.mark.skipif(not ROWS, reason="the recorded exchanges are not here")


def call_of(file: str, exchange: Exchange, *messages: Message) -> Call:
    host = urlsplit(exchange.url).hostname or ""
    other = "azure-responses" if file == "responses" and "azure" in host else _OTHERS[file]
    provider = _HOSTS.get(file, {}).get(host, other)
    named = re.search(r"models/([^:?]+):", exchange.url) if file == "gemini" else None
    model = named[1] if named else exchange.model or "unknown"
    profile = profile_of(provider, model)
    if "aiplatform" in exchange.url:
        profile = profile.with_changes(quirks=profile.quirks | {"vertex"})
    conversation = Conversation(messages=messages or (HI,))
    return Call(model=model, conversation=conversation, profile=profile, stream=exchange.streamed)


def outcome(file: str, exchange: Exchange) -> ProviderError | Message:
    call, body = call_of(file, exchange), exchange.body.encode()
    if exchange.status >= 300:
        error = read_refusal(exchange.status, exchange.headers, body, call)
        assert (error.status, error.model) == (exchange.status, call.model)
        return error
    message, failure = attempt(decoder_of(call), body)
    return failure or message


def decoded(file: str, exchange: Exchange) -> Message:
    message = outcome(file, exchange)
    assert isinstance(message, Message)
    return message


def sent(call: Call, *, lossless: bool = True) -> Any:
    done = encode(call)
    assert not lossless or not done.losses
    return json.loads(done.request.body)


def following(file: str) -> Iterator[tuple[Exchange, Exchange]]:
    """Good replies, each with the next exchange of its conversation."""
    for rows in conversations(file):
        yield from [pair for pair in pairwise(rows) if pair[0].status == 200]


def each(pairs: list[tuple[Exchange, Exchange]], name: int = 0) -> Any:
    return pytest.mark.parametrize(
        ("before", "after"), [pytest.param(*pair, id=pair[name].id, marks=recorded) for pair in pairs]
    )


def read_by_us(message: Message) -> Read:
    usage = message.usage
    counts = usage and (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning, usage.total)
    calls = [(call.name, call.parsed) for call in message.tool_calls]
    assert all(call.id and not call.partial for call in message.tool_calls)
    return Read(message.text, calls, message.raw_stop_reason or "", counts)


# --- Anthropic --------------------------------------------------------------------------------------------------------

ANTHROPIC_ERRORS = {
    "test_model_name_suggestion[anthropic]-0": ModelNotFoundError,
    "test_anthropic_explicit_effort_xhigh_unsupported_model_errors-0": InvalidRequestError,
}


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
def test_anthropic(exchange: Exchange) -> None:
    message = outcome("anthropic", exchange)
    if isinstance(message, ProviderError):
        assert type(message) is ANTHROPIC_ERRORS[exchange.id]
        assert message.request_id == json.loads(exchange.body)["request_id"]
        return
    expected = claude_message(exchange)
    blocks = _without_nulls(expected["content"])
    for one in blocks:  # the SDK has an empty list where a stream announced citations and none came
        if one.get("citations") == []:
            del one["citations"]
    assert _as_sdk(message) == blocks
    assert message.text == "".join([one["text"] for one in expected["content"] if one["type"] == "text"])
    named = (message.id, message.model, message.raw_stop_reason)
    assert named == (expected["id"], expected["model"], expected["stop_reason"])
    assert (message.provider, message.stop_reason is not None) == ("anthropic", True)
    counts, usage = expected["usage"], message.usage
    assert usage is not None
    cached = (counts.get("cache_read_input_tokens") or 0, counts.get("cache_creation_input_tokens") or 0)
    assert usage.input == counts["input_tokens"] + sum(cached)
    assert (usage.output, usage.cache_read, usage.cache_write) == (counts["output_tokens"], *cached)
    assert usage.reasoning == (counts.get("output_tokens_details") or {}).get("thinking_tokens")


def _bare(block: dict[str, Any]) -> dict[str, Any]:
    """Without what this client never sends back, whatever the reply held; the API takes it, and so do we send it."""
    return {name: one for name, one in block.items() if name not in ("caller", "citations", "cache_control")}


def _contents(exchange: Exchange) -> list[list[dict[str, Any]]]:
    """What each of the model's turns held in a request."""
    turns = [one["content"] for one in exchange.request["messages"] if one["role"] == "assistant"]
    return [[_bare(one) for one in turn] for turn in turns if isinstance(turn, list)]


ANTHROPIC_PAIRS = [pair for pair in following("anthropic") if _contents(pair[1])]


@each(ANTHROPIC_PAIRS)
def test_history_of_anthropic(before: Exchange, after: Exchange) -> None:
    call = call_of("anthropic", after, HI, decoded("anthropic", before), Message.user("Go on"))
    ours = [_bare(one) for one in sent(call, lossless=False)["messages"][1]["content"]]
    assert (ours in _contents(after)) != (before.id in ANTHROPIC_HISTORY), (ours, _contents(after))


# --- chat completions -------------------------------------------------------------------------------------------------

CHAT_ERRORS: dict[str, type[ProviderError]] = {
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
CHAT_STOPS = {
    "": {StopReason.OTHER, StopReason.TOOL_CALLS},
    "stop": {StopReason.END, StopReason.TOOL_CALLS},
    "tool_calls": {StopReason.TOOL_CALLS},
    "length": {StopReason.MAX_TOKENS},
}


@parametrized("chat")
def test_chat(exchange: Exchange) -> None:
    message = outcome("chat", exchange)
    assert type(message) is CHAT_ERRORS.get(exchange.id, Message)
    if isinstance(message, ProviderError):
        assert message.provider
        assert exchange.status in (200, message.status)
        return
    theirs, ours = read_chat(exchange), read_by_us(message)
    counts = ours.usage or (None,) * 6
    ours = ours._replace(usage=(*counts[:3], None, *counts[4:]))  # of what is written to a cache the SDK knows nothing
    assert (ours == theirs) is (exchange.id not in CHAT_REPLIES), (ours, theirs)
    assert message.stop_reason in CHAT_STOPS[message.raw_stop_reason or ""]
    assert (message.stop_reason is StopReason.TOOL_CALLS) is bool(message.tool_calls)


def _messages_in(exchange: Exchange) -> list[dict[str, Any]]:
    if not exchange.streamed:
        return [json.loads(exchange.body)["choices"][0]["message"]]
    payloads = [line[6:] for line in exchange.body.splitlines() if line.startswith("data: {")]
    return [choice["delta"] for payload in payloads for choice in json.loads(payload)["choices"]]


@recorded
@there
def test_reasoning_of_chat_is_kept_and_says_who_can_read_it() -> None:
    found = 0
    for exchange in exchanges("chat"):
        if exchange.id in CHAT_ERRORS:
            continue
        readable, sealed = "", []
        for said in _messages_in(exchange):  # read in the plainest way
            details = said.get("reasoning_details") or []
            told = "".join(detail.get("text") or detail.get("summary") or "" for detail in details)
            readable += told or said.get("reasoning_content") or said.get("reasoning") or ""
            sealed += [detail["data"] for detail in details if detail.get("data")]
            if isinstance(said.get("content"), list):
                chunks = [chunk for chunk in said["content"] if chunk["type"] == "thinking"]
                readable += "".join(part["text"] for chunk in chunks for part in chunk["thinking"])
        message = decoded("chat", exchange)
        thoughts = [block for block in message.blocks if isinstance(block, Thinking)]
        assert message.thinking == readable, exchange.id
        assert [thought.encrypted for thought in thoughts if thought.encrypted] == sealed, exchange.id
        provider = call_of("chat", exchange).profile.provider
        assert {thought.provider for thought in thoughts} <= {f"openai_chat:{provider}"}
        found += bool(thoughts)
    assert found > 50


def _simplified(message: dict[str, Any]) -> dict[str, Any]:
    """Without what says nothing: nulls, empty texts, Mistral's `prefix` and `index`, a list that is one text."""
    found = {name: value for name, value in message.items() if value is not None and name not in ("prefix", "name")}
    content = found.get("content")
    if isinstance(content, list) and all(part["type"] == "text" for part in content):
        found["content"] = content = "".join(part["text"] for part in content)
    if content == "":
        del found["content"]
    calls = [{k: v for k, v in call.items() if k != "index"} for call in found.pop("tool_calls", None) or []]
    return {**found, "tool_calls": calls} if calls else found


def _goes_on(before: Exchange, after: Exchange) -> bool:
    """Whether the next request carries the reply right behind what was sent before."""
    start, grown = before.request["messages"], after.request["messages"]
    longer = len(grown) > len(start) and grown[: len(start)] == start
    return before.id not in CHAT_ERRORS and longer and grown[len(start)]["role"] == "assistant"


CHAT_PAIRS = [pair for pair in following("chat") if _goes_on(*pair)]


@each(CHAT_PAIRS)
def test_history_of_chat(before: Exchange, after: Exchange) -> None:
    message = decoded("chat", before)
    carried = after.request["messages"][len(before.request["messages"]) :]
    answered = [one for one in carried[1:] if one["role"] == "tool" and isinstance(one["content"], str)]
    results = [
        ToolResult(call.id, call.name, (Text(one["content"]),))
        for call, one in zip(message.tool_calls, answered, strict=False)
    ]
    turns = (HI, message, *([Message.tool(results)] if results else []))
    ours = [_simplified(one) for one in sent(call_of("chat", before, *turns))["messages"][1:]]
    theirs = [_simplified(one) for one in [carried[0], *answered[: len(results)]]]
    assert (ours == theirs) is (before.id not in CHAT_HISTORY), (ours, theirs)


# --- responses --------------------------------------------------------------------------------------------------------

_COUNT = "a count of tokens, from another endpoint"
NOT_REPLIES = {
    "test_responses_count_tokens-0": _COUNT,
    "test_responses_count_tokens_with_tools-0": _COUNT,
    "test_responses_usage_limit_exceeded-0": _COUNT,
    "test_responses_usage_limit_not_exceeded-0": _COUNT,
}
REFUSALS: dict[str, type[ProviderError]] = {"model_not_found": ModelNotFoundError}


@parametrized("responses")
def test_responses(exchange: Exchange) -> None:
    message = outcome("responses", exchange)
    if exchange.status != 200:
        with pytest.raises(openai.BadRequestError) as refused:
            read_response(exchange)
        assert type(message) is REFUSALS.get(refused.value.code or "", InvalidRequestError)
        return
    if exchange.id in NOT_REPLIES:
        assert type(message) is ProtocolError
        return
    assert isinstance(message, Message)
    assert read_by_us(message) == read_response(exchange)
    if message.raw_stop_reason in ("queued", "in_progress"):
        assert message.stop_reason is StopReason.OTHER
    else:
        assert message.stop_reason is (StopReason.TOOL_CALLS if message.tool_calls else StopReason.END)


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


def _has_history(before: Exchange, after: Exchange) -> bool:
    request = after.request if isinstance(after.request, dict) else {}
    stateful = request.get("previous_response_id") or request.get("conversation")
    follows = after.index == before.index + 1 and before.id not in NOT_REPLIES  # there are two tests of one name
    return follows and isinstance(request.get("input"), list) and not stateful


RESPONSES_PAIRS = [pair for pair in following("responses") if _has_history(*pair)]


@each(RESPONSES_PAIRS)
def test_history_of_responses(before: Exchange, after: Exchange) -> None:
    complete, _ = _compare_items(before, after)
    assert complete == (before.id not in RESPONSES_HISTORY), "an item was not sent back"


def _compare_items(before: Exchange, after: Exchange) -> tuple[bool, set[tuple[str, str]]]:
    """Whether the next request carries all items of this reply, and which of their members it carries otherwise."""
    ours: list[dict[str, Any]] = sent(call_of("responses", after, decoded("responses", before)))["input"]
    theirs = after.request["input"][len((before.request or {}).get("input", [])) :]
    complete, otherwise = True, set[tuple[str, str]]()
    for item in ours:
        match = next((one for one in theirs if _same_item(one, item)), None)
        complete = complete and match is not None
        otherwise |= _compare_members(match, item) if match is not None else set()
    return complete, otherwise


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
    name = "id" if "id" in theirs and "id" in ours else "call_id"
    return bool(theirs.get(name) == ours.get(name))


def _compare_members(theirs: dict[str, Any], ours: dict[str, Any]) -> set[tuple[str, str]]:
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


# --- Gemini -----------------------------------------------------------------------------------------------------------

GEMINI_REFUSALS: dict[int, type[ProviderError]] = {400: InvalidRequestError, 404: ModelNotFoundError}
GEMINI_STOPS = {
    "STOP": {StopReason.END, StopReason.TOOL_CALLS},
    "MAX_TOKENS": {StopReason.MAX_TOKENS},
    "SAFETY": {StopReason.CONTENT_FILTER},
    "MODEL_ARMOR": {StopReason.CONTENT_FILTER},
    "UNEXPECTED_TOOL_CALL": {StopReason.TOOL_CALLS},
}


@parametrized("gemini")
def test_gemini(exchange: Exchange) -> None:
    message = outcome("gemini", exchange)
    if exchange.status != 200:
        assert type(message) is GEMINI_REFUSALS[exchange.status]
        assert message.code == json.loads(exchange.body)["error"]["status"]
        return
    expected = read_gemini(exchange)
    if expected.block is not None:
        assert isinstance(message, ContentFilteredError)
        assert message.code == expected.block
        return
    assert isinstance(message, Message)
    assert (message.text, message.thinking) == (expected.text, expected.thoughts)
    assert (message.provider, message.model, message.id) == ("gemini", expected.model, expected.id)
    assert [(call.name, call.parsed) for call in message.tool_calls] == [call[1:] for call in expected.calls]
    ids = [call.id for call in message.tool_calls]
    assert len(set(ids)) == len(ids)
    for own, (given, _, _) in zip(ids, expected.calls, strict=True):
        assert own == given if given else own.startswith("call_gem_")
    assert _signatures(message) == expected.signatures
    assert message.raw_stop_reason == expected.finish
    assert message.stop_reason in GEMINI_STOPS[expected.finish or ""]
    assert (message.stop_reason is StopReason.TOOL_CALLS) == bool(expected.calls)
    theirs, ours = expected.usage, message.usage
    assert ours is not None
    assert ours.input == (theirs.prompt_token_count or 0) + (theirs.tool_use_prompt_token_count or 0)
    assert ours.output == (theirs.candidates_token_count or 0) + (theirs.thoughts_token_count or 0)
    counted = (theirs.thoughts_token_count, theirs.cached_content_token_count, theirs.total_token_count)
    assert (ours.reasoning, ours.cache_read, ours.total) == counted
    assert ours.input + ours.output == ours.total


def _signatures(message: Message) -> list[bytes]:
    """The signatures in the message, wherever they are kept, in their order."""
    found: list[bytes] = []
    for block in message.blocks:
        if isinstance(block, Opaque):
            signature = block.value.get("thoughtSignature")
        elif isinstance(block, Thinking):
            signature = block.signature
        else:
            assert not isinstance(block, ToolResult)
            raw = block.native.fields.get("thoughtSignature") if block.native else None
            signature = json.loads(bytes(raw)) if raw is not None else None
        if signature:
            found.append(normal({"thoughtSignature": signature})["thoughtSignature"])
    return found


def _continues(before: Exchange, after: Exchange) -> bool:
    start, grown = normal(before.request["contents"]), normal(after.request["contents"])
    return len(grown) > len(start) and grown[: len(start)] == start


GEMINI_PAIRS = [pair for pair in following("gemini") if _continues(*pair)]


@each(GEMINI_PAIRS, name=1)
def test_history_of_gemini(before: Exchange, after: Exchange) -> None:
    theirs = normal(after.request["contents"])[len(before.request["contents"])]
    ours = normal(sent(call_of("gemini", before, HI, decoded("gemini", before)))["contents"][1])
    assert (ours != theirs) == (after.id in GEMINI_HISTORY)


# --- nothing is listed for nothing ------------------------------------------------------------------------------------


@recorded
@there
def test_every_listed_difference_is_of_a_recorded_exchange() -> None:
    assert {*ANTHROPIC_ERRORS, *CHAT_ERRORS, *CHAT_REPLIES, *NOT_REPLIES} <= ROWS.keys()
    assert ANTHROPIC_HISTORY.keys() <= {before.id for before, _ in ANTHROPIC_PAIRS}
    assert CHAT_HISTORY.keys() <= {before.id for before, _ in CHAT_PAIRS}
    assert RESPONSES_HISTORY.keys() <= {before.id for before, _ in RESPONSES_PAIRS}
    assert GEMINI_HISTORY.keys() <= {after.id for _, after in GEMINI_PAIRS}
    assert len(GEMINI_PAIRS) > 150
    used = set[tuple[str, str]]().union(*[_compare_items(*pair)[1] for pair in RESPONSES_PAIRS])
    assert used == LEFT_OUT | REWRITTEN.keys()
