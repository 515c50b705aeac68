"""Recorded exchanges are read as the SDKs of their providers read them, and sent back as they came or as a client did.

test_faults.py reads them in pieces.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any
from urllib.parse import unquote, urlsplit

import openai
import pytest

from dragoman.conversation import (
    Conversation,
    Message,
    Opaque,
    StopReason,
    Text,
    Thinking,
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
from tests.providers.bedrock.wire import problems, read_by_amazon
from tests.providers.calls import HI, decoder_of, encode
from tests.providers.feeding import attempt, one_by_one
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
        "bedrock-mantle.us-east-1.api.aws": "bedrock-mantle",
        "openrouter.ai": "openrouter-responses",
    },
}
_OTHERS = {
    "chat": "openai-compatible",
    "responses": "openai-responses",
    **{name: name for name in ("anthropic", "gemini", "bedrock")},
}
ROWS = {row.id: row for file in _OTHERS for row in exchanges(file)}
recorded = pytest.mark.recorded
there = pytest.mark.skipif(not ROWS, reason="the recorded exchanges are not here")


def call_of(file: str, exchange: Exchange, *messages: Message) -> Call:
    host = urlsplit(exchange.url).hostname or ""
    other = "azure-responses" if file == "responses" and "azure" in host else _OTHERS[file]
    provider = _HOSTS.get(file, {}).get(host, other)
    named = re.search(r"model/([^/]+)/|models/([^:?]+):", exchange.url) if file in ("gemini", "bedrock") else None
    model = unquote(named[1] or named[2]) if named else exchange.model or "unknown"
    profile = profile_of(provider, model)
    if "aiplatform" in exchange.url:
        profile = profile.with_changes(quirks=profile.quirks | {"vertex"})
    conversation = Conversation(messages=messages or (HI,))
    return Call(model=model, conversation=conversation, profile=profile, stream=exchange.streamed)


def outcome(file: str, exchange: Exchange) -> ProviderError | Message:
    call, body = call_of(file, exchange), exchange.data
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
    # Blocks without anything but white space are refused when they come back.
    call = call_of("anthropic", exchange, HI, message, Message.user("Go on"))
    said = [one for one in blocks if one["type"] != "text" or one["text"].strip()]
    assert _without_nulls(sent(call, lossless=False)["messages"][1]["content"] if said else []) == said
    assert message.text == "".join([one["text"] for one in blocks if one["type"] == "text"])
    assert message.thinking == "".join([one["thinking"] for one in blocks if one["type"] == "thinking"])
    calls = [(one["id"], one["name"], one["input"]) for one in blocks if one["type"] == "tool_use"]
    assert [(one.id, one.name, one.parsed) for one in message.tool_calls] == calls
    named = (message.id, message.model, message.raw_stop_reason)
    assert named == (expected["id"], expected["model"], expected["stop_reason"])
    assert (message.provider, message.stop_reason is not None) == ("anthropic", True)
    counts, usage = expected["usage"], message.usage
    assert usage is not None
    cached = (counts.get("cache_read_input_tokens") or 0, counts.get("cache_creation_input_tokens") or 0)
    assert usage.input == counts["input_tokens"] + sum(cached)
    assert (usage.output, usage.cache_read, usage.cache_write) == (counts["output_tokens"], *cached)
    assert usage.reasoning == (counts.get("output_tokens_details") or {}).get("thinking_tokens")


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
_THINK_TAGS = "that client wrote reasoning into the text; here it goes back in its own field, or not at all"

CHAT_REPLIES: dict[str, str] = {
    "test_groq_model_web_search_tool_stream-0": "usage stands in x_groq, where the SDK does not look",
    "test_openai_moderation_stream-0": "the SDK lets a chunk that comes after the usage and has none erase it",
    "test_openrouter_web_search_annotations_stream-0": "the SDK cannot put annotations of two chunks together",
}
"""Exchanges that we read otherwise than the SDK, and why."""

CHAT_HISTORY: dict[str, str] = {
    "test_cerebras_zai_reasoning_replayed_as_think_tags-0": _THINK_TAGS,
    "test_tool_use_failed_error-1": _THINK_TAGS,
    "test_tool_use_failed_error_streaming-1": _THINK_TAGS,
    "test_groq_model_thinking_part-0": "that client split reasoning off a text that had it; here text stays as it is",
    "test_hf_model_thinking_part-0": "the same, and put it together again with another line break",
    "test_compatible_api_with_tool_calls_without_id-0": (
        "the call had no id, and each side makes up its own; we also send back the signature that came with it"
    ),
}
"""Replies that we send back otherwise than that client did, and why."""
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
def test_reasoning_of_chat_is_kept_with_its_reader() -> None:
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
    start, grown = [_without_marks((one.request or {}).get("messages", [])) for one in (before, after)]
    longer = len(grown) > len(start) and grown[: len(start)] == start
    return before.status == 200 and before.id not in CHAT_ERRORS and longer and grown[len(start)]["role"] == "assistant"


def _without_marks(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without cache points, which move on."""
    return [
        {**one, "content": [part for part in one["content"] if "cachePoint" not in part]}
        if isinstance(one.get("content"), list)
        else one
        for one in messages
    ]


def _pairs(file: str) -> list[tuple[Exchange, Exchange]]:
    return [pair for rows in conversations(file) for pair in pairwise(rows) if _goes_on(*pair)]


def _continued(file: str) -> Any:
    """Runs a test for each reply that the next request carries as history."""
    parameters = [pytest.param(*pair, id=pair[0].id, marks=recorded) for pair in _pairs(file)]
    return pytest.mark.parametrize(("before", "after"), parameters)


@_continued("chat")
def test_history_of_chat(before: Exchange, after: Exchange) -> None:
    message = decoded("chat", before)
    carried = after.request["messages"][len(before.request["messages"]) :]
    answered = [one for one in carried[1:] if one["role"] == "tool" and isinstance(one["content"], str)]
    results = [
        ToolResult(call.id, call.name, (Text(one["content"]),))
        for call, one in zip(message.tool_calls, answered, strict=False)
    ]
    turns = (HI, message, *([Message.tool(results)] if results else []))
    call = call_of("chat", before, *turns)
    assert {loss.what for loss in encode(call).losses} <= (set() if call.profile.reasoning_replayed else {"thinking"})
    ours = [_simplified(one) for one in sent(call, lossless=False)["messages"][1:]]
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
_SEALED = "reasoning came without its encrypted content, and the service keeps no copy"
_SCOPED = "calls are counted anew in every reply, and so get longer ids"
NOT_SENT_BACK = {
    **{f"test_reused_tool_call_ids[{way}]-{n}": _SCOPED for way in ("request", "stream") for n in (0, 1)},
    **{f"test_reused_tool_call_ids_gpt_5_5-{n}": _SCOPED for n in (0, 1)},
    **dict.fromkeys(["test_openai_responses_reasoning_effort-0", "test_reasoning_model_with_temperature-0"], _SEALED),
}
"""Replies that do not go back exactly as they came."""
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
    done = encode(call_of("responses", exchange, message))
    unlike = json.loads(done.request.body)["input"] != _output_of(exchange)
    assert unlike == (exchange.id in NOT_SENT_BACK), done.losses


def _output_of(exchange: Exchange) -> list[dict[str, Any]]:
    if not exchange.streamed:
        return json.loads(exchange.body)["output"]
    events = [json.loads(line[6:]) for line in exchange.body.splitlines() if line.startswith("data: {")]
    items = {event["output_index"]: event["item"] for event in events if event["type"] == "response.output_item.done"}
    listed = events[-1]["response"]["output"] or []  # where an item is that was never done
    return listed if len(listed) > len(items) else [items[index] for index in sorted(items)]


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
    if not exchange.streamed:
        back = sent(call_of("gemini", exchange, HI, message))["contents"][1:]
        given = json.loads(exchange.body)["candidates"][0].get("content", {}).get("parts", [])
        assert [part for one in back for part in normal(one["parts"])] == normal(given)
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


# --- Bedrock ----------------------------------------------------------------------------------------------------------

BEDROCK_STOPS = {"end_turn": StopReason.END, "tool_use": StopReason.TOOL_CALLS, "max_tokens": StopReason.MAX_TOKENS}


def _plain(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Blocks without what says nothing: white space, and that a call is one."""
    found: list[dict[str, Any]] = []
    for block in content:
        call = block.get("toolUse", {})
        if call.get("type") == "tool_use":
            found.append({"toolUse": {name: value for name, value in call.items() if name != "type"}})
        elif "text" not in block or block["text"].strip():
            found.append(block)
    return found


def _sent_to_bedrock(call: Call) -> list[dict[str, Any]]:
    """The content of the second message, in a request that Amazon's library must take."""
    body = sent(call, lossless=False)
    assert problems(body) == ""
    return _plain(body["messages"][1]["content"])


@parametrized("bedrock")
def test_bedrock(exchange: Exchange) -> None:
    message = outcome("bedrock", exchange)
    if exchange.status != 200:
        is_unknown = "identifier is invalid" in exchange.body
        assert type(message) is (ModelNotFoundError if is_unknown else InvalidRequestError)
        return
    assert isinstance(message, Message)
    assert (message, None) == attempt(decoder_of(call_of("bedrock", exchange)), *one_by_one(exchange.data))
    theirs = read_by_amazon(exchange.data, streamed=exchange.streamed)
    content = theirs["output"]["message"]["content"]
    assert message.text == "".join([block.get("text", "") for block in content])
    ours = [(one.id, one.name, one.parsed) for one in message.tool_calls]
    uses = [block["toolUse"] for block in content if "toolUse" in block]
    uses = [use for use in uses if use.get("type") != "server_tool_use"]
    assert ours == [(use["toolUseId"], use["name"], use["input"]) for use in uses]
    assert message.raw_stop_reason == theirs["stopReason"]
    ran_it_itself = theirs["stopReason"] == "tool_use" and not uses
    assert message.stop_reason is (StopReason.END if ran_it_itself else BEDROCK_STOPS[theirs["stopReason"]])
    counts, usage = theirs["usage"], message.usage
    assert usage is not None
    cached = counts.get("cacheReadInputTokens", 0), counts.get("cacheWriteInputTokens", 0)
    assert usage.input == counts["inputTokens"] + sum(cached)
    assert (usage.output, usage.total) == (counts["outputTokens"], counts["totalTokens"])
    assert (usage.cache_read or 0, usage.cache_write or 0) == cached
    if said := _plain(content):  # and all of it goes back as it came
        assert _sent_to_bedrock(call_of("bedrock", exchange, HI, message, Message.user("Go on"))) == said


_AS_TEXT = "that client wrote reasoning without a signature into the text; here it goes back as it came"
BEDROCK_HISTORY: dict[str, str] = {
    "test_bedrock/test_bedrock_model_thinking_part_deepseek.yaml-0": _AS_TEXT,
    "test_bedrock/test_bedrock_moonshotai_tool_call.yaml-0": _AS_TEXT,
    "test_bedrock/test_bedrock_thinking_high_qwen_variant.yaml-0": _AS_TEXT,
    "test_bedrock/test_bedrock_model_thinking_part_anthropic_legacy.yaml-0": "the recorder has changed letters of it",
}
"""Replies that we send back otherwise than that client did, and why."""


@_continued("bedrock")
def test_history_of_bedrock(before: Exchange, after: Exchange) -> None:
    message = decoded("bedrock", before)
    theirs = _plain(_without_marks(after.request["messages"])[len(before.request["messages"])]["content"])
    ours = _sent_to_bedrock(call_of("bedrock", after, HI, message, Message.user("Go on")))
    assert (ours == theirs) is (before.id not in BEDROCK_HISTORY), (ours, theirs)


# --- nothing is listed for nothing ------------------------------------------------------------------------------------


@recorded
@there
def test_every_listed_exception_is_a_recorded_exchange() -> None:
    assert {*ANTHROPIC_ERRORS, *CHAT_ERRORS, *CHAT_REPLIES, *NOT_REPLIES} <= ROWS.keys()
    assert CHAT_HISTORY.keys() <= {before.id for before, _ in _pairs("chat")}
