"""Anthropic's messages dialect, from the server's side."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from dragoman.conversation import Opaque, StopReason, Text, Thinking, ToolCall, ToolResult

from .dialect import Answer, Block, Dialect, Frame, FrameKind, Refusal, has_bad_signature, sign
from .exchange import Entry, JsonObject, Part, items, members, objects, result_parts, string, text_of

_ERROR_TYPES: Final[dict[int, str]] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class _Anthropic(Dialect):
    name = "anthropic"
    id_header = "request-id"
    unknown_event = Frame({"type": "simulated_event", "payload": {"new": True}}, "simulated_event")

    def history(self, body: JsonObject) -> Iterator[Entry]:
        yield "system", text_of(body.get("system"))
        for message in objects(body.get("messages")):
            if message.get("role") == "assistant":
                yield "model", ""
            for block in objects(message.get("content")):
                if block.get("type") == "tool_use":
                    yield ToolCall(string(block.get("id")), string(block.get("name")))
                elif block.get("type") == "tool_result":
                    content, failed = result_parts(block.get("content")), block.get("is_error") is True
                    yield ToolResult(string(block.get("tool_use_id")), "", content, is_error=failed)
            if message.get("role") == "user":
                yield "user", text_of(message.get("content"))

    def problems(self, body: JsonObject, headers: Mapping[str, str]) -> Iterator[str]:
        if "anthropic-version" not in headers:
            yield "anthropic-version: header is required"
        for name in ("model", "max_tokens", "messages"):
            if body.get(name) is None:
                yield f"{name}: Field required"
        messages = objects(body.get("messages"))
        if not messages:
            yield "messages: at least one message is required"
        if messages and messages[0].get("role") == "assistant":
            yield 'messages: first message must use the "user" role'
        budget, limit = members(body.get("thinking")).get("budget_tokens"), body.get("max_tokens")
        if isinstance(budget, int) and isinstance(limit, int) and limit <= budget:
            yield "`max_tokens` must be greater than `thinking.budget_tokens`."
        tools = self.tools(body)
        names = [string(tool.get("name")) for tool in tools]
        for index, name in enumerate(names):
            if not _TOOL_NAME.fullmatch(name):
                yield f"tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        if len(set(names)) != len(names):
            yield "tools: Tool names must be unique."
        if tools and all(tool.get("defer_loading") for tool in tools):
            yield "All tools have defer_loading set. At least one tool must be non-deferred."
        if any(tool.get("defer_loading") and tool.get("cache_control") for tool in tools):
            yield "tools: a tool with defer_loading cannot have cache_control"
        yield from _content_problems(messages)
        for name in _found_tools(messages):
            if name not in names:
                yield f"Tool reference '{name}' has no corresponding tool definition"

    def whole(self, answer: Answer) -> JsonObject:
        content = [_block(part, answer).whole for part in answer.blocks]
        return _message(answer) | {"content": content} | _stop(answer) | _usage(answer, final=True)

    def frames(self, answer: Answer) -> list[Frame]:
        """The reply as events: the message starts empty and grows block by block."""
        empty: JsonObject = {"content": [], "stop_reason": None, "stop_sequence": None}
        start = _message(answer) | empty | _usage(answer, final=False)
        result = [_event("message_start", {"message": start}, kind="start")]
        for index, part in enumerate(answer.blocks):
            block = _block(part, answer)
            result.append(_event("content_block_start", {"index": index, "content_block": block.start}, kind="part"))
            if index == 0:
                result.append(_event("ping", {}))
            result += [
                _event("content_block_delta", {"index": index, "delta": delta}, kind="delta") for delta in block.deltas
            ]
            result.append(_event("content_block_stop", {"index": index}))
        finish = {"delta": _stop(answer), **_usage(answer, final=True)}
        return [*result, _event("message_delta", finish, kind="finish"), _event("message_stop", {}, kind="end")]

    def failure(self, refusal: Refusal, request_id: str) -> JsonObject:
        usual = _ERROR_TYPES.get(refusal.status, "invalid_request_error" if refusal.status < 500 else "api_error")
        error = {"type": refusal.code or usual, "message": refusal.message}
        return {"type": "error", "error": error, "request_id": request_id}

    def failure_in_stream(self, refusal: Refusal, answer: Answer, number: int) -> Frame:
        return Frame(self.failure(refusal, answer.id("req_")), "error", "end")

    def bad_key(self, given: str | None) -> Refusal:
        return Refusal(401, "invalid x-api-key" if given else "x-api-key header is required")


# --- requests --------------------------------------------------------------------------------------------------------

_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")


def _content_problems(messages: list[JsonObject]) -> Iterator[str]:
    for index, message in enumerate(messages):
        last_reply = index == len(messages) - 1 and message.get("role") == "assistant"
        if not message.get("content") and not last_reply:
            yield "messages: all messages must have non-empty content except for the optional final assistant message"
        for position, block in enumerate(objects(message.get("content"))):
            place = f"messages.{index}.content.{position}"
            kind = block.get("type")
            if kind == "text" and not string(block.get("text")):
                yield "messages: text content blocks must be non-empty"
            if kind == "tool_use" and not _CALL_ID.fullmatch(string(block.get("id"))):
                yield f"{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
            if kind == "tool_use" and not isinstance(block.get("input"), dict):
                yield f"{place}.tool_use.input: Input should be a valid dictionary"
            if kind == "thinking" and has_bad_signature(string(block.get("signature")), string(block.get("thinking"))):
                yield f"{place}: Invalid `signature` in `thinking` block"


def _found_tools(messages: list[JsonObject]) -> Iterator[str]:
    """The tools that the provider's tool search has found."""
    for block in [block for message in messages for block in objects(message.get("content"))]:
        if block.get("type") == "tool_search_tool_result":
            for reference in objects(members(block.get("content")).get("tool_references")):
                yield string(reference.get("tool_name"))


# --- replies ---------------------------------------------------------------------------------------------------------

# A reply that ends for another reason than these ended its turn.
_STOP_REASONS: Final[dict[StopReason, str]] = {
    StopReason.TOOL_CALLS: "tool_use",
    StopReason.MAX_TOKENS: "max_tokens",
    StopReason.STOP_SEQUENCE: "stop_sequence",
    StopReason.REFUSAL: "refusal",
    StopReason.CONTENT_FILTER: "refusal",
    StopReason.CONTEXT_FULL: "model_context_window_exceeded",
    StopReason.PAUSED: "pause_turn",
}


def _event(name: str, fields: JsonObject, *, kind: FrameKind = "other") -> Frame:
    return Frame({"type": name, **fields}, name, kind)


def _message(answer: Answer) -> JsonObject:
    return {"model": answer.model, "id": answer.id("msg_"), "type": "message", "role": "assistant"}


def _stop(answer: Answer) -> JsonObject:
    reason = _STOP_REASONS.get(answer.stop_reason, "end_turn")
    sequences = items(answer.request.body.get("stop_sequences")) if reason == "stop_sequence" else []
    return {"stop_reason": reason, "stop_sequence": next(iter(sequences), None)}


def _usage(answer: Answer, *, final: bool) -> JsonObject:
    """Unlike in our Usage, `input_tokens` does not include what was read from or written to the cache."""
    usage = answer.usage
    if usage is None:
        return {}
    read, written = usage.cache_read or 0, usage.cache_write or 0
    counts: JsonObject = {
        "input_tokens": max((usage.input or 0) - read - written, 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": (usage.output or 0) if final else min(usage.output or 0, 1),
    }
    if final and usage.reasoning is not None:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return {"usage": counts}


def _block(part: Part, answer: Answer) -> Block:
    match part:
        case Text():
            page: JsonObject = {"type": "web_search_result_location", "encrypted_index": "sim"}
            cited = [
                page | {"url": each.url, "title": each.title, "cited_text": each.quote or ""}
                for each, *_ in answer.pages(part)
            ]
            deltas: list[JsonObject] = [{"type": "text_delta", "text": piece} for piece in answer.pieces(part.text)]
            deltas.extend({"type": "citations_delta", "citation": each} for each in cited)
            whole: JsonObject = {"type": "text", "text": part.text, **({"citations": cited} if cited else {})}
            return Block({"type": "text", "text": ""}, deltas, whole)
        case Thinking() if part.redacted:
            hidden: JsonObject = {"type": "redacted_thinking", "data": part.encrypted}
            return Block(hidden, [], hidden)
        case Thinking():
            signature = part.signature or sign(part.text)
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in answer.pieces(part.text)]
            # The signature comes once, right before the block ends.
            deltas.append({"type": "signature_delta", "signature": signature})
            empty: JsonObject = {"type": "thinking", "thinking": "", "signature": ""}
            return Block(empty, deltas, empty | {"thinking": part.text, "signature": signature})
        case ToolCall():
            # The first delta is always empty; a call without arguments has no other.
            pieces = ["", *answer.pieces(part.arguments)]
            call: JsonObject = {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
            whole = call if answer.request.stream else call | {"input": answer.arguments(part)}
            return Block(call, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces], whole)
        case Opaque():
            value = answer.opaque_value(part, "anthropic")
            return Block(value, [], value)


ANTHROPIC: Final = _Anthropic()
