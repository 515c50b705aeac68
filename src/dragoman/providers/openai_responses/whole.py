"""The whole reply that most of them are: messages, calls and reasoning, all complete, and the account of it.

Owns: the short road for it, without the state that other replies need while they are put together.
Must not know: any rule of its own. Whatever is not exactly this takes the long road (decode.py), and both give the same
events for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import (
    Completed,
    ReplyEvent,
    ReplyStarted,
    StopReason,
    TextDelta,
    TextEnded,
    TextStarted,
    ThinkingDelta,
    ThinkingEnded,
    ThinkingStarted,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
    Usage,
    UsageReported,
)
from dragoman.providers.codec import Call

from .ending import EMPTY
from .parts import BETWEEN_THOUGHTS, texts_of
from .wire import NOTHING, READER, encode, native

__all__ = ["plain_reply"]

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
_MALFORMED: Final = (msgspec.DecodeError, UnicodeError, RecursionError, KeyError)


def plain_reply(body: bytes, call: Call, own_names: Mapping[str, str], events: list[ReplyEvent]) -> bool:
    """Append the events of a reply that is plain; False if it is something else, and nothing is appended."""
    profile = call.profile
    if "reply_scoped_call_ids" in profile.quirks:
        return False
    found: list[ReplyEvent] = []
    called, index = False, 0
    try:
        body.decode()  # members that are kept unread must be fit to be stored
        whole = _decode(body)
        found.append(ReplyStarted(profile.provider, whole.model, whole.id or None))
        for item in whole.output:
            kind = bytes(item["type"])
            if kind == b'"function_call"':
                called = True
            more = _TAKE[kind](item, index, own_names, found)
            if not more:
                return False
            index += more
    except _MALFORMED:
        return False
    counts = whole.usage
    if counts is not None:
        found.append(UsageReported(_usage(counts)))
    kept = _kept(whole)
    stop = StopReason.TOOL_CALLS if called else StopReason.END
    found.append(Completed(stop, whole.status, native(kept) if kept else None))
    events += found
    return True


# --- one function for each kind of item: how many blocks it became; none if it is not plain after all ---


def _message(item: dict[str, Raw], index: int, _names: Mapping[str, str], events: list[ReplyEvent]) -> int:
    parts = _parts(item.pop("content"))
    item_id = _text(item["id"]) if "id" in item else ""
    shell = Raw(encode(item))
    for place, part in enumerate(parts, index):
        if part.pop("type") != _OUTPUT_TEXT:
            return 0
        said = _text(part.pop("text"))
        events.append(TextStarted(place, item_id))
        if said:
            events.append(TextDelta(place, item_id, said))
        events.append(TextEnded(place, item_id, native({"item": shell, **part})))
    return len(parts)


def _call(item: dict[str, Raw], index: int, names: Mapping[str, str], events: list[ReplyEvent]) -> int:
    call_id, name, arguments = _text(item.pop("call_id")), _text(item.pop("name")), _text(item.pop("arguments"))
    if not call_id or not name or bytes(item.get("status", _COMPLETED)) != _COMPLETED:
        return 0
    del item["type"]
    events.append(ToolCallStarted(index, call_id, names.get(name, name)))
    if arguments:
        events.append(ToolCallDelta(index, call_id, arguments))
    events.append(ToolCallEnded(index, call_id, native(item)))
    return 1


def _reasoning(item: dict[str, Raw], index: int, _names: Mapping[str, str], events: list[ReplyEvent]) -> int:
    item_id = _text(item["id"]) if "id" in item else ""
    encrypted = _text(item.pop("encrypted_content")) if "encrypted_content" in item else ""
    if not encrypted:
        return 0
    del item["type"]
    thoughts = texts_of(item.get("content")) or texts_of(item.get("summary"))
    events.append(ThinkingStarted(index, item_id, READER))
    if thoughts:
        events.append(ThinkingDelta(index, item_id, BETWEEN_THOUGHTS.join(thoughts)))
    events.append(ThinkingEnded(index, item_id, encrypted=encrypted, native=native(item)))
    return 1


_TAKE: Final[dict[bytes, Callable[[dict[str, Raw], int, Mapping[str, str], list[ReplyEvent]], int]]] = {
    b'"message"': _message,
    b'"function_call"': _call,
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
