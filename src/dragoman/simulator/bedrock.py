"""Bedrock's Converse, from the server's side; its streams are binary frames."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from itertools import pairwise
from struct import pack
from typing import Final
from zlib import crc32

import msgspec
from msgspec import Raw

from dragoman.conversation import Json, Opaque, ResultPart, StopReason, Text, Thinking, ToolCall, Usage

from .dialect import Answer, Dialect, Frame, FrameKind, Growing, Refusal, is_spoilt, own_words, pages, sign
from .exchange import JsonObject, Part, Transcript, members, objects, string

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

    def read(self, body: JsonObject) -> Transcript:
        specs = [members(tool.get("toolSpec")) for tool in objects(members(body.get("toolConfig")).get("tools"))]
        found = Transcript([spec for spec in specs if spec])
        found.add_system("\n".join(string(part.get("text")) for part in objects(body.get("system"))))
        for message in objects(body.get("messages")):
            if message.get("role") == "assistant":
                found.add_reply()
            texts: list[str] = []
            for block in objects(message.get("content")):
                if call := members(block.get("toolUse")):
                    found.add_call(call.get("toolUseId"), call.get("name"))
                elif result := members(block.get("toolResult")):
                    failed = result.get("status") == "error"
                    found.add_result(result.get("toolUseId"), _result_parts(result.get("content")), failed=failed)
                texts.append(string(block.get("text")))
            if message.get("role") == "user":
                found.add_user("".join(texts))
        return found

    def problems(self, body: JsonObject, headers: Mapping[str, str]) -> Iterator[str]:
        messages = objects(body.get("messages"))
        if not messages:
            yield "1 validation error detected: Value null at 'messages' failed to satisfy constraint"
        if messages and messages[0].get("role") != "user":
            yield "A conversation must start with a user message. Try again with a conversation that starts so."
        roles = [message.get("role") for message in messages]
        if any(one == other for one, other in pairwise(roles)):
            yield "A conversation must alternate between user and assistant roles."
        names = [string(members(tool.get("toolSpec")).get("name")) for tool in _tools(body) if "toolSpec" in tool]
        for name in names:
            if not _TOOL_NAME.fullmatch(name):
                yield f"Value {name!r} at 'toolConfig.tools' failed to satisfy constraint: [a-zA-Z0-9_-]{{1,64}}"
        if len(set(names)) != len(names):
            yield "The toolConfig field contains tools of the same name."
        yield from _problems_of_content(messages, has_tools=bool(_tools(body)))

    def whole(self, answer: Answer) -> JsonObject:
        content = [_block(part, answer).whole for part in answer.blocks]
        message: JsonObject = {"role": "assistant", "content": content}
        return {"output": {"message": message}, "stopReason": _stop(answer), **_about(answer)}

    def count(self, tokens: int) -> JsonObject:
        return {"inputTokens": tokens}

    def frames(self, answer: Answer) -> list[Frame]:
        """Only calls announce themselves; a text or a thought begins with its first piece."""
        result = [_event("messageStart", {"role": "assistant"}, kind="start")]
        for index, part in enumerate(answer.blocks):
            place: JsonObject = {"contentBlockIndex": index}
            block = _block(part, answer)
            if block.start:
                result.append(_event("contentBlockStart", place | {"start": block.start}, kind="part"))
            result += [_event("contentBlockDelta", place | {"delta": delta}, kind="delta") for delta in block.deltas]
            result.append(_event("contentBlockStop", place))
        finish = _event("messageStop", {"stopReason": _stop(answer)}, kind="finish")
        return [*result, finish, _event("metadata", _about(answer), kind="end")]

    def failure(self, refusal: Refusal, request_id: str) -> JsonObject:
        return {"message": refusal.message}

    def failure_headers(self, refusal: Refusal) -> dict[str, str]:
        return {"x-amzn-errortype": f"{_code(refusal)}:http://internal.amazon.com/coral/"}

    def failure_in_stream(self, refusal: Refusal, answer: Answer, number: int) -> Frame:
        code = _code(refusal)
        return Frame(self.failure(refusal, ""), f"{_EXCEPTION}{code[:1].lower()}{code[1:]}", "end")

    def unknown_event(self, answer: Answer) -> Frame:
        return _event("simulatedEvent", {"payload": {"new": True}})

    def bad_key(self, given: str | None) -> Refusal:
        return Refusal(403, "The security token included in the request is invalid.", "UnrecognizedClientException")

    def headers(self, request_id: str) -> dict[str, str]:
        return {"x-amzn-requestid": request_id}

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


def _tools(body: JsonObject) -> list[JsonObject]:
    return objects(members(body.get("toolConfig")).get("tools"))


def _result_parts(content: object) -> tuple[ResultPart, ...]:
    return tuple(
        Text(string(part["text"])) if "text" in part else Json(Raw(msgspec.json.encode(part.get("json", part))))
        for part in objects(content)
    )


def _problems_of_content(messages: list[JsonObject], *, has_tools: bool) -> Iterator[str]:
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
            if thought and is_spoilt(string(thought.get("signature")), string(thought.get("text"))):
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
    return Frame({**fields, "p": "abcdefgh"}, name, kind)  # with the padding that hides the length of the rest


def _stop(answer: Answer) -> str:
    return answer.raw_stop_reason or _STOP_REASONS.get(answer.stop_reason, "end_turn")


def _about(answer: Answer) -> JsonObject:
    found: JsonObject = {"metrics": {"latencyMs": 12}}
    return found if answer.usage is None else found | {"usage": _usage(answer.usage)}


def _usage(usage: Usage) -> JsonObject:
    """Here, unlike in our Usage, `inputTokens` does not include what was read from or written to the cache."""
    read, written = usage.cache_read or 0, usage.cache_write or 0
    counts: JsonObject = {
        "inputTokens": max((usage.input or 0) - read - written, 0),
        "outputTokens": usage.output or 0,
        "totalTokens": usage.total or (usage.input or 0) + (usage.output or 0),
    }
    if usage.cache_read is not None or usage.cache_write is not None:
        counts |= {"cacheReadInputTokens": read, "cacheWriteInputTokens": written}
    return counts


def _block(part: Part, answer: Answer) -> Growing:
    match part:
        case Text():
            cited = [
                {
                    "title": page.title or "",
                    "sourceContent": [{"text": page.quote or ""}],
                    "location": {"web": {"url": page.url}},
                }
                for page, *_ in pages(part)
            ]
            whole: JsonObject = {"text": part.text}
            if cited:
                whole = {"citationsContent": {"content": [whole], "citations": cited}}
            deltas: list[JsonObject] = [{"text": piece} for piece in answer.pieces(part.text) or [""]]
            return Growing({}, [*deltas, *({"citation": page} for page in cited)], whole)
        case Thinking() if part.redacted:
            data = b64encode((part.encrypted or "").encode()).decode()
            hidden: JsonObject = {"reasoningContent": {"redactedContent": data}}
            return Growing({}, [hidden], hidden)
        case Thinking():
            signature = {"signature": part.signature or sign(part.text)}
            # The signature comes once, right before the block ends.
            pieces = [*({"text": piece} for piece in answer.pieces(part.text)), signature]
            whole = {"reasoningContent": {"reasoningText": {"text": part.text, **signature}}}
            return Growing({}, [{"reasoningContent": piece} for piece in pieces], whole)
        case ToolCall():
            call: JsonObject = {"toolUseId": part.id, "name": part.name}
            arguments = {} if answer.request.stream else answer.arguments(part)
            deltas = [{"toolUse": {"input": piece}} for piece in answer.pieces(part.arguments)]
            return Growing({"toolUse": call}, deltas, {"toolUse": call | {"input": arguments}})
        case Opaque():
            words = own_words(part, "bedrock")
            return Growing({}, [words], words)


BEDROCK: Final = _Bedrock()
