"""Bedrock's Converse, from the server's side; its streams are binary frames."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from itertools import pairwise
from struct import pack
from typing import Final
from zlib import crc32

from dragoman.conversation import Opaque, StopReason, Text, Thinking, ToolCall, ToolResult, Usage

from .dialect import Answer, Block, Dialect, Frame, FrameKind, Refusal, has_bad_signature, sign
from .exchange import Entry, JsonObject, Part, members, objects, result_parts, string, text_of

_ERRORS: Final[dict[int, str]] = {
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
    529: "ServiceUnavailableException",
}
_EXCEPTION: Final = "exception:"


class _Bedrock(Dialect):
    name = "bedrock"
    stream_type = "application/vnd.amazon.eventstream"
    has_comments = False
    id_header = "x-amzn-requestid"
    unknown_event = Frame({"payload": {"new": True}}, "simulatedEvent")

    def tools(self, body: JsonObject) -> list[JsonObject]:
        tools = objects(members(body.get("toolConfig")).get("tools"))
        return [members(tool["toolSpec"]) for tool in tools if "toolSpec" in tool]

    def history(self, body: JsonObject) -> Iterator[Entry]:
        for part in objects(body.get("system")):
            yield "system", string(part.get("text"))
        for message in objects(body.get("messages")):
            if message.get("role") == "assistant":
                yield "model", ""
            for block in objects(message.get("content")):
                if call := members(block.get("toolUse")):
                    yield ToolCall(string(call.get("toolUseId")), string(call.get("name")))
                elif result := members(block.get("toolResult")):
                    content, failed = result_parts(result.get("content")), result.get("status") == "error"
                    yield ToolResult(string(result.get("toolUseId")), "", content, is_error=failed)
            if message.get("role") == "user":
                yield "user", text_of(message.get("content"))

    def problems(self, body: JsonObject, headers: Mapping[str, str]) -> Iterator[str]:
        messages = objects(body.get("messages"))
        if not messages:
            yield "1 validation error detected: Value null at 'messages' failed to satisfy constraint"
        if messages and messages[0].get("role") != "user":
            yield "A conversation must start with a user message. Try again with a conversation that starts so."
        roles = [message.get("role") for message in messages]
        if any(one == other for one, other in pairwise(roles)):
            yield "A conversation must alternate between user and assistant roles."
        names = [string(tool.get("name")) for tool in self.tools(body)]
        for name in names:
            if not _TOOL_NAME.fullmatch(name):
                yield f"Value {name!r} at 'toolConfig.tools' failed to satisfy constraint: [a-zA-Z0-9_-]{{1,64}}"
        if len(set(names)) != len(names):
            yield "The toolConfig field contains tools of the same name."
        yield from _content_problems(messages, has_tools=bool(members(body.get("toolConfig")).get("tools")))

    def whole(self, answer: Answer) -> JsonObject:
        content = [_block(part, answer).whole for part in answer.blocks]
        message: JsonObject = {"role": "assistant", "content": content}
        reason = _STOP_REASONS.get(answer.stop_reason, "end_turn")
        return {"output": {"message": message}, "stopReason": reason, **_metadata(answer)}

    def count(self, tokens: int) -> JsonObject:
        return {"inputTokens": tokens}

    def frames(self, answer: Answer) -> list[Frame]:
        """Only calls have a start event; a text or a thought begins with its first delta."""
        result = [_event("messageStart", {"role": "assistant"}, kind="start")]
        for index, part in enumerate(answer.blocks):
            place: JsonObject = {"contentBlockIndex": index}
            block = _block(part, answer)
            if block.start:
                result.append(_event("contentBlockStart", place | {"start": block.start}, kind="part"))
            result += [_event("contentBlockDelta", place | {"delta": delta}, kind="delta") for delta in block.deltas]
            result.append(_event("contentBlockStop", place))
        reason = _STOP_REASONS.get(answer.stop_reason, "end_turn")
        finish = _event("messageStop", {"stopReason": reason}, kind="finish")
        return [*result, finish, _event("metadata", _metadata(answer), kind="end")]

    def failure(self, refusal: Refusal, request_id: str) -> JsonObject:
        return {"message": refusal.message}

    def failure_headers(self, refusal: Refusal) -> dict[str, str]:
        return {"x-amzn-errortype": f"{_code(refusal)}:http://internal.amazon.com/coral/"}

    def failure_in_stream(self, refusal: Refusal, answer: Answer, number: int) -> Frame:
        code = _code(refusal)
        return Frame(self.failure(refusal, ""), f"{_EXCEPTION}{code[:1].lower()}{code[1:]}", "end")

    def bad_key(self, given: str | None) -> Refusal:
        return Refusal(403, "The security token included in the request is invalid.", "UnrecognizedClientException")

    def event(self, name: str, data: bytes, line_end: bytes) -> bytes:
        """One binary frame, with the checksums of its first eight bytes and of all before the last four."""
        kind = "exception" if name.startswith(_EXCEPTION) else "event"
        texts = {
            f":{kind}-type": name.removeprefix(_EXCEPTION),
            ":content-type": "application/json",
            ":message-type": kind,
        }
        headers = b"".join([_header(key, value) for key, value in texts.items()])
        sizes = pack(">II", len(headers) + len(data) + 16, len(headers))
        frame = sizes + pack(">I", crc32(sizes)) + headers + data
        return frame + pack(">I", crc32(frame))


def _header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return pack(">B", len(key)) + key + pack(">BH", 7, len(text)) + text


def _code(refusal: Refusal) -> str:
    usual = "ValidationException" if refusal.status < 500 else "InternalServerException"
    return refusal.code or _ERRORS.get(refusal.status, usual)


# --- requests --------------------------------------------------------------------------------------------------------

_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")


def _content_problems(messages: list[JsonObject], *, has_tools: bool) -> Iterator[str]:
    for index, message in enumerate(messages):
        content = objects(message.get("content"))
        if not content:
            yield f"The content field in the Message object at messages.{index} is empty."
        if not has_tools and any("toolUse" in block or "toolResult" in block for block in content):
            yield "The toolConfig field must be defined when using toolUse and toolResult content blocks."
        if any("document" in block for block in content) and not any("text" in block for block in content):
            yield "A text block must be included when using documents."
        for position, block in enumerate(content):
            place = f"messages.{index}.content.{position}"
            call = members(block.get("toolUse"))
            if "text" in block and not string(block["text"]).strip():
                yield f"The text field in the ContentBlock object at {place} is blank."
            if call and not _CALL_ID.fullmatch(string(call.get("toolUseId"))):
                yield f"{place}.toolUse.toolUseId failed to satisfy constraint: [a-zA-Z0-9_.:-]+"
            if call and not isinstance(call.get("input"), dict):
                yield f"The format of the value at {place}.toolUse.input is invalid. Provide a json object."
            thought = members(members(block.get("reasoningContent")).get("reasoningText"))
            if thought and has_bad_signature(string(thought.get("signature")), string(thought.get("text"))):
                yield f"{place}: Invalid `signature` in `thinking` block"


# --- replies ---------------------------------------------------------------------------------------------------------

_STOP_REASONS: Final[dict[StopReason, str]] = {
    StopReason.TOOL_CALLS: "tool_use",
    StopReason.MAX_TOKENS: "max_tokens",
    StopReason.STOP_SEQUENCE: "stop_sequence",
    StopReason.CONTENT_FILTER: "guardrail_intervened",
    StopReason.CONTEXT_FULL: "model_context_window_exceeded",
}


def _event(name: str, fields: JsonObject, *, kind: FrameKind = "other") -> Frame:
    return Frame({**fields, "p": "abcdefgh"}, name, kind)  # padding, which hides the length of the rest


def _metadata(answer: Answer) -> JsonObject:
    usage = {} if answer.usage is None else {"usage": _usage(answer.usage)}
    return {"metrics": {"latencyMs": 12}, **usage}


def _usage(usage: Usage) -> JsonObject:
    """Unlike in our Usage, `inputTokens` does not include what was read from or written to the cache."""
    read, written = usage.cache_read or 0, usage.cache_write or 0
    counts: JsonObject = {
        "inputTokens": max((usage.input or 0) - read - written, 0),
        "outputTokens": usage.output or 0,
        "totalTokens": usage.total or (usage.input or 0) + (usage.output or 0),
    }
    if usage.cache_read is not None or usage.cache_write is not None:
        counts |= {"cacheReadInputTokens": read, "cacheWriteInputTokens": written}
    return counts


def _block(part: Part, answer: Answer) -> Block:
    match part:
        case Text():
            cited = [
                {
                    "title": page.title or "",
                    "sourceContent": [{"text": page.quote or ""}],
                    "location": {"web": {"url": page.url}},
                }
                for page, *_ in answer.pages(part)
            ]
            whole: JsonObject = {"text": part.text}
            if cited:
                whole = {"citationsContent": {"content": [whole], "citations": cited}}
            deltas: list[JsonObject] = [{"text": piece} for piece in answer.pieces(part.text) or [""]]
            return Block({}, [*deltas, *({"citation": page} for page in cited)], whole)
        case Thinking() if part.redacted:
            data = b64encode((part.encrypted or "").encode()).decode()
            hidden: JsonObject = {"reasoningContent": {"redactedContent": data}}
            return Block({}, [hidden], hidden)
        case Thinking():
            signature = {"signature": part.signature or sign(part.text)}
            # The signature comes once, right before the block ends.
            pieces = [*({"text": piece} for piece in answer.pieces(part.text)), signature]
            whole = {"reasoningContent": {"reasoningText": {"text": part.text, **signature}}}
            return Block({}, [{"reasoningContent": piece} for piece in pieces], whole)
        case ToolCall():
            call: JsonObject = {"toolUseId": part.id, "name": part.name}
            arguments = {} if answer.request.stream else answer.arguments(part)
            deltas = [{"toolUse": {"input": piece}} for piece in answer.pieces(part.arguments)]
            return Block({"toolUse": call}, deltas, {"toolUse": call | {"input": arguments}})
        case Opaque():
            value = answer.opaque_value(part, "bedrock")
            return Block({}, [value], value)


BEDROCK: Final = _Bedrock()
