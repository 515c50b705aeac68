"""A reply in the messages dialect, whole and as events.

Owns: content blocks, stop reasons and usage as this API writes them.
Must not know: errors, requests, how events become bytes.
"""

from __future__ import annotations

from typing import Final

from dragoman.conversation import Block, Media, Opaque, StopReason, Text, Thinking, ToolCall, ToolResult, Usage
from dragoman.errors import ToolValidationError
from dragoman.simulator.dialects.dialect import Answer, Frame, FrameKind, UnwritableReplyError, native_fields
from dragoman.simulator.json_access import JsonObject, items, members
from dragoman.simulator.signatures import sign

__all__ = ["frames", "whole", "with_unknown"]

_READER: Final = "anthropic"

_STOP_REASONS: Final[dict[StopReason, str]] = {
    StopReason.END: "end_turn",
    StopReason.TOOL_CALLS: "tool_use",
    StopReason.MAX_TOKENS: "max_tokens",
    StopReason.STOP_SEQUENCE: "stop_sequence",
    StopReason.REFUSAL: "refusal",
    StopReason.CONTENT_FILTER: "refusal",
    StopReason.CONTEXT_FULL: "model_context_window_exceeded",
    StopReason.PAUSED: "pause_turn",
    StopReason.OTHER: "end_turn",
}


def whole(answer: Answer) -> JsonObject:
    """The reply as one message."""
    message = _message(answer)
    message["content"] = [block for part in answer.blocks if (block := _content(part)) is not None]
    message.update(_stop(answer))
    if answer.usage is not None:
        message["usage"] = _usage(answer.usage, final=True)
    return message


def frames(answer: Answer) -> list[Frame]:
    """The reply as events: the message starts empty and grows block by block."""
    start = _message(answer)
    start.update({"content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None})
    if answer.usage is not None:
        start["usage"] = _usage(answer.usage, final=False)
    result = [_event("message_start", {"message": start}, kind="start")]
    index = 0
    for part in answer.blocks:
        block = _content(part, streamed=True)
        if block is None:
            continue
        result.append(_event("content_block_start", {"index": index, "content_block": block}, kind="part"))
        if index == 0:
            result.append(_event("ping", {}))
        result += [
            _event("content_block_delta", {"index": index, "delta": d}, kind="delta") for d in _deltas(part, answer)
        ]
        result.append(_event("content_block_stop", {"index": index}))
        index += 1
    finish: JsonObject = {"delta": _stop(answer)}
    if answer.usage is not None:
        finish["usage"] = _usage(answer.usage, final=True)
    return [*result, _event("message_delta", finish, kind="finish"), _event("message_stop", {}, kind="end")]


def with_unknown(answer: Answer, events: list[Frame], index: int) -> list[Frame]:
    """The API's versioning rules announce new kinds of events at any time."""
    event = _event("simulated_event", {"message_id": answer.id("msg_"), "payload": {"new": True}})
    return [*events[:index], event, *events[index:]]


def _event(name: str, fields: JsonObject, *, kind: FrameKind = "other") -> Frame:
    return Frame({"type": name, **fields}, name, kind)


def _message(answer: Answer) -> JsonObject:
    return {"model": answer.model, "id": answer.id("msg_"), "type": "message", "role": "assistant"}


def _stop(answer: Answer) -> JsonObject:
    reason = answer.raw_stop_reason or _STOP_REASONS[answer.stop_reason]
    sequence: object = None
    if reason == "stop_sequence":
        sequence = next(iter(items(answer.request.body.get("stop_sequences"))), "")
    details: JsonObject | None = None
    if reason == "refusal":
        details = {"type": "refusal", "category": None, "explanation": None}
    return {"stop_reason": reason, "stop_sequence": sequence, "stop_details": details}


def _usage(usage: Usage, *, final: bool) -> JsonObject:
    """Here, unlike in our Usage, `input_tokens` does not include what was read from or written to the cache."""
    read, written = usage.cache_read or 0, usage.cache_write or 0
    counts: JsonObject = {
        "input_tokens": max((usage.input or 0) - read - written, 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": (usage.output or 0) if final else min(usage.output or 0, 1),
    }
    if final and usage.reasoning is not None:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    if not final:
        counts["cache_creation"] = {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0}
        counts["service_tier"] = "standard"
    return counts


def _content(block: Block, *, streamed: bool = False) -> JsonObject | None:
    """The content block; with `streamed`, as it starts, before its deltas. None: not for this dialect."""
    match block:
        case Text():
            return {"type": "text", "text": "" if streamed else block.text, **native_fields(block.native, _READER)}
        case Thinking() if block.redacted:
            return {"type": "redacted_thinking", "data": block.encrypted}
        case Thinking():
            text, signature = ("", "") if streamed else (block.text, block.signature or sign(block.text))
            return {"type": "thinking", "thinking": text, "signature": signature}
        case ToolCall():
            fields = native_fields(block.native, _READER)
            arguments = {} if streamed else _arguments(block)
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": arguments, **fields}
        case Opaque():
            return members(block.value) if block.provider == _READER else None
        case Media() | ToolResult():
            message = f"a reply of the anthropic dialect has no {type(block).__name__} blocks"
            raise UnwritableReplyError(message)


def _deltas(block: Block, answer: Answer) -> list[JsonObject]:
    match block:
        case Text():
            return [{"type": "text_delta", "text": piece} for piece in answer.pieces(block.text)]
        case Thinking() if not block.redacted:
            thoughts: list[JsonObject] = [
                {"type": "thinking_delta", "thinking": piece} for piece in answer.pieces(block.text)
            ]
            # The signature comes once, right before the block ends.
            return [*thoughts, {"type": "signature_delta", "signature": block.signature or sign(block.text)}]
        case ToolCall():
            # The first delta is always empty; a call without arguments has no other.
            pieces = ["", *answer.pieces(block.arguments)]
            return [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case _:
            return []


def _arguments(call: ToolCall) -> JsonObject:
    try:
        return call.parsed
    except ToolValidationError as error:
        message = f"{error.message} Only a stream can carry broken arguments in the anthropic dialect."
        raise UnwritableReplyError(message) from None
