"""A reply in the chat-completions dialect, whole and in chunks.

Owns: the one choice, its finish reason and usage as this API writes them; errors inside a stream.
Must not know: requests, how chunks become bytes.

A message here has one text, one refusal and one list of calls: several text blocks are joined. Thinking is not part of
OpenAI's own API; compatible servers put it into `reasoning_content` or `reasoning`.
"""

from __future__ import annotations

from typing import Final

from dragoman.conversation import Media, Opaque, StopReason, Text, Thinking, ToolCall, Usage
from dragoman.simulator.dialects.dialect import (
    Answer,
    ErrorForm,
    Frame,
    FrameKind,
    Refusal,
    UnwritableReplyError,
    native_fields,
)
from dragoman.simulator.dialects.openai_shared import CREATED, error_object, failure
from dragoman.simulator.json_access import JsonObject, members

__all__ = ["failure_in_stream", "failure_in_whole", "frames", "whole", "with_unknown"]

_READER: Final = "openai_chat"

_FINISH_REASONS: Final[dict[StopReason, str]] = {
    StopReason.END: "stop",
    StopReason.TOOL_CALLS: "tool_calls",
    StopReason.MAX_TOKENS: "length",
    StopReason.STOP_SEQUENCE: "stop",
    StopReason.REFUSAL: "stop",
    StopReason.CONTENT_FILTER: "content_filter",
    StopReason.CONTEXT_FULL: "length",
    StopReason.PAUSED: "stop",
    StopReason.OTHER: "stop",
}


def whole(answer: Answer) -> JsonObject:
    """The reply as one completion."""
    text, thinking = _joined(answer, Text), _joined(answer, Thinking)
    refused = answer.stop_reason is StopReason.REFUSAL
    message: JsonObject = {
        "role": "assistant",
        "content": None if refused or not text else text,
        "refusal": text if refused else None,
        "annotations": [],
    }
    if thinking:
        message[answer.reasoning_field] = thinking
    calls = _calls(answer)
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            | native_fields(call.native, _READER)
            for call in calls
        ]
    message |= _further_fields(answer)
    choice: JsonObject = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(answer)}
    completion = _base(answer, "chat.completion") | {"choices": [choice]}
    if answer.usage is not None:
        completion["usage"] = _usage(answer.usage)
    return completion


def frames(answer: Answer) -> list[Frame]:
    """The reply in chunks. Usage comes in a chunk of its own, and only if the request asked for it."""
    calls = _calls(answer)
    first: JsonObject = {"role": "assistant", "content": None if calls else "", "refusal": None}
    result = [_chunk(answer, first | _further_fields(answer), kind="start")]
    field = "refusal" if answer.stop_reason is StopReason.REFUSAL else "content"
    index = 0
    for block in answer.blocks:
        match block:
            case Text():
                result += [_chunk(answer, {field: piece}) for piece in answer.pieces(block.text)]
            case Thinking():
                result += [_chunk(answer, {answer.reasoning_field: piece}) for piece in answer.pieces(block.text)]
            case ToolCall():
                result += _call_chunks(answer, block, index)
                index += 1
            case _:
                pass
    result.append(_chunk(answer, {}, kind="finish", finish_reason=_finish_reason(answer)))
    if answer.usage is not None and _wants_usage(answer):
        data = _base(answer, "chat.completion.chunk")
        data.update({"choices": [], "usage": _usage(answer.usage)})
        result.append(Frame(data, "", "finish"))
    return [*result, Frame(b"[DONE]", "", "end")]


def failure_in_stream(refusal: Refusal, _answer: Answer, _number: int, _form: ErrorForm) -> list[Frame]:
    """A chunk that is an error; nothing comes after it."""
    return [Frame({"error": error_object(refusal)}, "", "end")]


def failure_in_whole(refusal: Refusal, answer: Answer, _form: ErrorForm) -> JsonObject:
    """Routers answer an error of the server behind them with status 200."""
    return failure(refusal, answer.id("req_"))


def with_unknown(answer: Answer, events: list[Frame], index: int) -> list[Frame]:
    """A chunk of another kind, without a choice."""
    data = _base(answer, "chat.completion.simulated")
    data.update({"choices": [], "payload": {"new": True}})
    return [*events[:index], Frame(data), *events[index:]]


def _base(answer: Answer, kind: str) -> JsonObject:
    return {
        "id": answer.id("chatcmpl-"),
        "object": kind,
        "created": CREATED,
        "model": answer.model,
        "service_tier": "default",
        "system_fingerprint": "fp_simulator",
    }


def _chunk(answer: Answer, delta: JsonObject, *, kind: FrameKind = "delta", finish_reason: str | None = None) -> Frame:
    choice: JsonObject = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    data = _base(answer, "chat.completion.chunk") | {"choices": [choice]}
    if _wants_usage(answer):
        data["usage"] = None
    return Frame(data, "", kind)


def _call_chunks(answer: Answer, call: ToolCall, index: int) -> list[Frame]:
    """Id and name come once, with empty arguments; then the arguments in pieces."""
    head: JsonObject = {"index": index, "id": call.id, "type": "function"}
    head |= {"function": {"name": call.name, "arguments": ""}} | native_fields(call.native, _READER)
    pieces = [{"index": index, "function": {"arguments": piece}} for piece in answer.pieces(call.arguments)]
    return [
        _chunk(answer, {"tool_calls": [head]}, kind="part"),
        *(_chunk(answer, {"tool_calls": [piece]}) for piece in pieces),
    ]


def _wants_usage(answer: Answer) -> bool:
    return members(answer.request.body.get("stream_options")).get("include_usage") is True


def _calls(answer: Answer) -> list[ToolCall]:
    return [block for block in answer.blocks if isinstance(block, ToolCall)]


def _joined(answer: Answer, kind: type[Text] | type[Thinking]) -> str:
    return "".join(block.text for block in answer.blocks if isinstance(block, kind))


def _further_fields(answer: Answer) -> JsonObject:
    """Members of the message that only this dialect knows. They have no place among blocks, so they come first."""
    fields: JsonObject = {}
    for block in answer.blocks:
        if isinstance(block, Media):
            message = "a reply of the openai_chat dialect has no Media blocks"
            raise UnwritableReplyError(message)
        if isinstance(block, Opaque) and block.provider.partition(":")[0] == _READER:
            fields |= members(block.value)
        elif isinstance(block, Text | Thinking):
            fields |= native_fields(block.native, _READER)
    return fields


def _finish_reason(answer: Answer) -> str:
    return answer.raw_stop_reason or _FINISH_REASONS[answer.stop_reason]


def _usage(usage: Usage) -> JsonObject:
    counts: JsonObject = {
        "prompt_tokens": usage.input or 0,
        "completion_tokens": usage.output or 0,
        "total_tokens": usage.tokens or 0,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read or 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning or 0, "audio_tokens": 0},
    }
    if usage.cache_write is not None:
        members(counts["prompt_tokens_details"])["cache_write_tokens"] = usage.cache_write
    return counts
