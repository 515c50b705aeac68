"""The whole reply that most of them are: messages, calls and reasoning, all complete, and the account of it.

Owns: the short road from its bytes to a message, without events and the state that other replies need.
Must not know: any rule of its own. Whatever is not exactly this takes the long road (decode.py), and both give the same
message for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Block, Message, StopReason, Text, Thinking, ToolCall, Usage
from dragoman.providers.codec import Call, Encoded

from .ending import EMPTY
from .parts import BETWEEN_THOUGHTS, texts_of
from .wire import NOTHING, READER, encode, native

__all__ = ["plain_message"]

# Unknown members make these decoders fail on purpose: such a reply is read again member by member, so that nothing is
# lost.


class _InputDetails(Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class _Counts(Struct, forbid_unknown_fields=True, gc=False):
    input_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None
    total_tokens: int | None = None


class _Whole(Struct, forbid_unknown_fields=True, gc=False):
    output: list[dict[str, Raw]]
    """Each item member by member: what is kept of it is written in the order in which it came."""
    status: Literal["completed"]
    id: str | None = None
    model: str | None = None
    usage: _Counts | None = None
    # What is kept as it came.
    billing: Raw = NOTHING
    content_filters: Raw = NOTHING
    conversation: Raw = NOTHING
    incomplete_details: Raw = NOTHING
    moderation: Raw = NOTHING
    service_tier: Raw = NOTHING
    tool_usage: Raw = NOTHING
    # What the request said, and is not looked at (see ending.py).
    object: Raw = NOTHING
    created_at: Raw = NOTHING
    completed_at: Raw = NOTHING
    error: Raw = NOTHING
    background: Raw = NOTHING
    frequency_penalty: Raw = NOTHING
    instructions: Raw = NOTHING
    max_output_tokens: Raw = NOTHING
    max_tool_calls: Raw = NOTHING
    metadata: Raw = NOTHING
    parallel_tool_calls: Raw = NOTHING
    presence_penalty: Raw = NOTHING
    previous_response_id: Raw = NOTHING
    prompt_cache_key: Raw = NOTHING
    prompt_cache_options: Raw = NOTHING
    prompt_cache_retention: Raw = NOTHING
    reasoning: Raw = NOTHING
    safety_identifier: Raw = NOTHING
    store: Raw = NOTHING
    temperature: Raw = NOTHING
    text: Raw = NOTHING
    tool_choice: Raw = NOTHING
    tools: Raw = NOTHING
    top_logprobs: Raw = NOTHING
    top_p: Raw = NOTHING
    truncation: Raw = NOTHING
    user: Raw = NOTHING


_decode: Final = msgspec.json.Decoder(_Whole).decode
_parts: Final = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_text: Final = msgspec.json.Decoder(str).decode

_OUTPUT_TEXT: Final = Raw(b'"output_text"')
_COMPLETED: Final = b'"completed"'
_CALLED: Final = b'"function_call"'
_MALFORMED: Final = (msgspec.DecodeError, UnicodeError, RecursionError, KeyError)


def plain_message(body: bytes, call: Call, encoded: Encoded) -> Message | None:
    """The message of a reply that is plain; None if it is something else."""
    profile, names = call.profile, encoded.tool_names
    if "reply_scoped_call_ids" in profile.quirks:
        return None
    blocks: list[Block] = []
    called = False
    try:
        body.decode()  # members that are kept unread must be fit to be stored
        whole = _decode(body)
        for item in whole.output:
            kind = bytes(item["type"])
            if kind == _CALLED:
                called = True
            if not _TAKE[kind](item, names, blocks):
                return None
    except _MALFORMED:
        return None
    kept = _kept(whole)
    return Message(
        "assistant",
        tuple(blocks),
        profile.provider,
        whole.model,
        whole.id or None,
        None if whole.usage is None else _usage(whole.usage),
        StopReason.TOOL_CALLS if called else StopReason.END,
        whole.status,
        None,
        native(kept) if kept else None,
    )


# --- one function for each kind of item: whether it is plain ---


def _message(item: dict[str, Raw], _names: Mapping[str, str], blocks: list[Block]) -> bool:
    parts = _parts(item.pop("content"))
    shell = Raw(encode(item))
    for part in parts:
        if part.pop("type") != _OUTPUT_TEXT:
            return False
        blocks.append(Text(_text(part.pop("text")), native({"item": shell, **part})))
    return bool(parts)


def _call(item: dict[str, Raw], names: Mapping[str, str], blocks: list[Block]) -> bool:
    call_id, name, arguments = _text(item.pop("call_id")), _text(item.pop("name")), _text(item.pop("arguments"))
    if not call_id or not name or bytes(item.get("status", _COMPLETED)) != _COMPLETED:
        return False
    del item["type"]
    blocks.append(ToolCall(call_id, names.get(name, name), arguments, native=native(item)))
    return True


def _reasoning(item: dict[str, Raw], _names: Mapping[str, str], blocks: list[Block]) -> bool:
    encrypted = _text(item.pop("encrypted_content")) if "encrypted_content" in item else ""
    if not encrypted:
        return False
    del item["type"]
    thoughts = texts_of(item.get("content")) or texts_of(item.get("summary"))
    blocks.append(Thinking(BETWEEN_THOUGHTS.join(thoughts), READER, None, encrypted, native(item)))
    return True


_TAKE: Final[dict[bytes, Callable[[dict[str, Raw], Mapping[str, str], list[Block]], bool]]] = {
    b'"message"': _message,
    _CALLED: _call,
    b'"reasoning"': _reasoning,
}


# --- the account ---


def _usage(counts: _Counts) -> Usage:
    read, written = counts.input_tokens_details, counts.output_tokens_details
    return Usage(
        input=counts.input_tokens,
        output=counts.output_tokens,
        cache_read=None if read is None else read.cached_tokens,
        cache_write=None if read is None else read.cache_write_tokens,
        reasoning=None if written is None else written.reasoning_tokens,
        total=counts.total_tokens,
    )


def _kept(whole: _Whole) -> dict[str, Raw]:
    """The members that are kept raw, as far as they say something."""
    kept: dict[str, Raw] = {}
    if whole.billing and bytes(whole.billing) not in EMPTY:
        kept["billing"] = whole.billing
    if whole.content_filters and bytes(whole.content_filters) not in EMPTY:
        kept["content_filters"] = whole.content_filters
    if whole.conversation and bytes(whole.conversation) not in EMPTY:
        kept["conversation"] = whole.conversation
    if whole.incomplete_details and bytes(whole.incomplete_details) not in EMPTY:
        kept["incomplete_details"] = whole.incomplete_details
    if whole.moderation and bytes(whole.moderation) not in EMPTY:
        kept["moderation"] = whole.moderation
    if whole.service_tier and bytes(whole.service_tier) not in EMPTY:
        kept["service_tier"] = whole.service_tier
    if whole.tool_usage and bytes(whole.tool_usage) not in EMPTY:
        kept["tool_usage"] = whole.tool_usage
    return kept
