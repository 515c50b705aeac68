"""A reply in the generateContent dialect, whole and as a stream of responses.

Owns: the one candidate, its parts, finish reason and usage as this API writes them.
Must not know: errors, requests, how responses become bytes.

Every event of a stream is a complete response with the next parts. Calls come whole, whatever the chunking. The
signature of a thought stands on the part after it: on the first of several calls.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final

from dragoman.conversation import Block, Media, Opaque, StopReason, Text, Thinking, ToolCall, ToolResult, Usage
from dragoman.errors import ToolValidationError
from dragoman.simulator.dialects.dialect import Answer, Frame, FrameKind, UnwritableReplyError, native_fields
from dragoman.simulator.json_access import JsonObject, members
from dragoman.simulator.signatures import sign

__all__ = ["frames", "whole", "with_unknown"]

_READER: Final = "gemini"

_FINISH_REASONS: Final[dict[StopReason, str]] = {
    StopReason.END: "STOP",
    StopReason.TOOL_CALLS: "STOP",
    StopReason.MAX_TOKENS: "MAX_TOKENS",
    StopReason.STOP_SEQUENCE: "STOP",
    StopReason.REFUSAL: "PROHIBITED_CONTENT",
    StopReason.CONTENT_FILTER: "SAFETY",
    StopReason.CONTEXT_FULL: "MAX_TOKENS",
    StopReason.PAUSED: "OTHER",
    StopReason.OTHER: "OTHER",
}


def whole(answer: Answer) -> JsonObject:
    """The reply as one response."""
    if _blocked(answer):
        return _response(answer, final=True) | {"promptFeedback": {"blockReason": "SAFETY"}}
    parts = _parts(answer)
    candidate: JsonObject = {"content": {"parts": parts, "role": "model"}} if parts else {"content": {"role": "model"}}
    candidate |= {"finishReason": _finish_reason(answer), "index": 0}
    return {"candidates": [candidate], **_response(answer, final=True)}


def frames(answer: Answer) -> list[Frame]:
    """The reply as responses, the last of which brings the finish reason and an empty text."""
    if _blocked(answer):
        return [Frame(whole(answer), "", "end")]
    result: list[Frame] = []
    for part in _parts(answer):
        kind: FrameKind = "delta" if "text" in part else "part"
        result += [_frame(answer, [piece], kind) for piece in _pieces(part, answer)]
    last: JsonObject = {"content": {"parts": [{"text": ""}], "role": "model"}}
    last |= {"finishReason": _finish_reason(answer), "index": 0}
    return [*result, Frame({"candidates": [last], **_response(answer, final=True)}, "", "end")]


def with_unknown(answer: Answer, events: list[Frame], index: int) -> list[Frame]:
    """A response without a candidate, with something new in it."""
    event = Frame({"simulatedEvent": {"new": True}, **_response(answer, final=False)})
    return [*events[:index], event, *events[index:]]


def _blocked(answer: Answer) -> bool:
    """A prompt that was not let through has no candidate at all."""
    return answer.stop_reason is StopReason.CONTENT_FILTER and not answer.blocks


def _frame(answer: Answer, parts: list[JsonObject], kind: FrameKind) -> Frame:
    candidate: JsonObject = {"content": {"parts": parts, "role": "model"}, "index": 0}
    return Frame({"candidates": [candidate], **_response(answer, final=False)}, "", kind)


def _response(answer: Answer, *, final: bool) -> JsonObject:
    response: JsonObject = {}
    if answer.usage is not None:
        response["usageMetadata"] = _usage(answer.usage, final=final)
    return response | {"modelVersion": answer.model, "responseId": answer.id("")}


def _finish_reason(answer: Answer) -> str:
    return answer.raw_stop_reason or _FINISH_REASONS[answer.stop_reason]


def _usage(usage: Usage, *, final: bool) -> JsonObject:
    """Here, unlike in our Usage, the output does not include the thoughts."""
    prompt = usage.input or 0
    counts: JsonObject = {"promptTokenCount": prompt, "totalTokenCount": prompt}
    if usage.cache_read is not None:
        counts["cachedContentTokenCount"] = usage.cache_read
    if final:
        counts["candidatesTokenCount"] = max((usage.output or 0) - (usage.reasoning or 0), 0)
        counts["totalTokenCount"] = usage.tokens or 0
        if usage.reasoning is not None:
            counts["thoughtsTokenCount"] = usage.reasoning
    return counts


def _parts(answer: Answer) -> list[JsonObject]:
    parts: list[JsonObject] = []
    signature: str | None = None
    """Of a thought whose next part has not come yet; empty: to be made up."""
    for block in answer.blocks:
        part = _part(block)
        if part is None:
            continue
        if isinstance(block, Thinking):
            signature = block.signature or ""
        elif signature is not None:
            part = {"thoughtSignature": signature or sign(_signed(part)), **part}
            signature = None
        parts.append(part)
    if signature is not None:  # nothing follows: the signature comes with an empty text
        parts.append({"text": "", "thoughtSignature": signature or sign("")})
    return parts


def _signed(part: JsonObject) -> str:
    return str(members(part.get("functionCall")).get("name", ""))


def _part(block: Block) -> JsonObject | None:
    match block:
        case Text():
            return {"text": block.text, **native_fields(block.native, _READER)}
        case Thinking():
            return {"text": block.text, "thought": True, **native_fields(block.native, _READER)}
        case ToolCall():
            call: JsonObject = {"name": block.name, "args": _arguments(block)}
            return {"functionCall": {"id": block.id} | call, **native_fields(block.native, _READER)}
        case Opaque():
            return members(block.value) if block.provider == _READER else None
        case Media(data=bytes() as data):
            return {"inlineData": {"mimeType": block.mime_type, "data": b64encode(data).decode()}}
        case Media(url=str() as url):
            return {"fileData": {"mimeType": block.mime_type, "fileUri": url}}
        case Media() | ToolResult():
            message = "a reply of the gemini dialect has no media but those given as bytes or by their URL"
            raise UnwritableReplyError(message)


def _pieces(part: JsonObject, answer: Answer) -> list[JsonObject]:
    """The part in pieces of one event each; only texts can be cut. A signature comes with the last piece."""
    text = part.get("text")
    if not isinstance(text, str):
        return [part]
    texts = answer.pieces(text) or [""]
    plain = {name: value for name, value in part.items() if name != "thoughtSignature"}
    return [*({**plain, "text": piece} for piece in texts[:-1]), {**part, "text": texts[-1]}]


def _arguments(call: ToolCall) -> JsonObject:
    try:
        return call.parsed
    except ToolValidationError as error:
        message = f"{error.message} The gemini dialect cannot carry broken arguments."
        raise UnwritableReplyError(message) from None
