"""What a model says, as bytes of each dialect: for servers that decide on every byte that they send.

Owns: the smallest replies and errors that each dialect allows, whole and as a stream of events.
Must not know: HTTP, and the simulator, whose own tests would then judge themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

__all__ = ["DIALECTS", "Dialect", "Say"]


class Say(NamedTuple):
    """One reply: a text in pieces, and perhaps a call of the tool `note`."""

    pieces: tuple[str, ...]
    word: str | None = None
    """What the tool is to note; None: no call."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def arguments(self) -> str:
        return json.dumps({"word": self.word})

    @property
    def call_id(self) -> str:
        return f"call_{self.word}"


class Dialect(NamedTuple):
    """How one service writes."""

    model: str
    """A model that speaks it, by the name that an engine takes."""
    base: str
    """What the base URL has behind the host."""
    path: str
    """What the path of its requests contains."""
    whole: Callable[[Say], dict[str, Any]]
    events: Callable[[Say], Iterable[dict[str, Any] | str]]
    error: Callable[[int, str], dict[str, Any]]

    def body(self, say: Say) -> bytes:
        return _json(self.whole(say))

    def stream(self, say: Say) -> list[bytes]:
        """The events, one by one."""
        return [_event(event) for event in self.events(say)]

    def refusal(self, status: int, message: str) -> bytes:
        return _json(self.error(status, message))


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _event(value: dict[str, Any] | str) -> bytes:
    if isinstance(value, str):
        return b"data: %s\n\n" % value.encode()
    name = b"event: %s\n" % value["type"].encode() if "type" in value else b""
    return name + b"data: %s\n\n" % _json(value)


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


# --- anthropic -------------------------------------------------------------------------------------------------------


def _message(say: Say, content: list[Any], reason: str | None) -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    named = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content}
    return named | {"stop_reason": reason, "stop_sequence": None, "usage": usage}


def _message_whole(say: Say) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": say.text}]
    if say.word is not None:
        content.append({"type": "tool_use", "id": say.call_id, "name": "note", "input": {"word": say.word}})
    return _message(say, content, "end_turn" if say.word is None else "tool_use")


def _message_events(say: Say) -> Iterable[dict[str, Any]]:
    def grows(index: int, **delta: str) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": delta}

    yield {"type": "message_start", "message": _message(say, [], None)}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield from (grows(0, type="text_delta", text=piece) for piece in say.pieces)
    yield {"type": "content_block_stop", "index": 0}
    if say.word is not None:
        block = {"type": "tool_use", "id": say.call_id, "name": "note", "input": {}}
        yield {"type": "content_block_start", "index": 1, "content_block": block}
        yield from (grows(1, type="input_json_delta", partial_json=half) for half in _halves(say.arguments))
        yield {"type": "content_block_stop", "index": 1}
    stop = {"stop_reason": "end_turn" if say.word is None else "tool_use", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


def _message_error(status: int, message: str) -> dict[str, Any]:
    kind = {400: "invalid_request_error", 429: "rate_limit_error"}.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


# --- openai: chat ----------------------------------------------------------------------------------------------------


def _chat_call(say: Say, **fields: Any) -> dict[str, Any]:
    return {"id": say.call_id, "type": "function", "function": {"name": "note", **fields}}


def _chat_whole(say: Say) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": say.text}
    if say.word is not None:
        message["tool_calls"] = [_chat_call(say, arguments=say.arguments)]
    choice = {"index": 0, "message": message, "finish_reason": "stop" if say.word is None else "tool_calls"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def _chat_events(say: Say) -> Iterable[dict[str, Any] | str]:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    yield from (chunk({"content": piece}) for piece in say.pieces)
    if say.word is not None:
        yield chunk({"tool_calls": [{"index": 0, **_chat_call(say, arguments="")}]})
        for half in _halves(say.arguments):
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": half}}]})
    yield chunk({}, "stop" if say.word is None else "tool_calls")
    yield "[DONE]"


def _openai_error(status: int, message: str) -> dict[str, Any]:
    kind = {400: "invalid_request_error", 429: "rate_limit_exceeded"}.get(status, "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


# --- openai: responses -----------------------------------------------------------------------------------------------


def _items(say: Say) -> list[dict[str, Any]]:
    content = [{"type": "output_text", "text": say.text, "annotations": []}]
    items: list[dict[str, Any]] = [
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": content}
    ]
    if say.word is not None:
        call = {"type": "function_call", "id": "fc_1", "call_id": say.call_id, "name": "note", "status": "completed"}
        items.append(call | {"arguments": say.arguments})
    return items


def _response(status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    named = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "error": None}
    return named | {"status": status, "output": output, "usage": usage if output else None}


def _response_events(say: Say) -> Iterable[dict[str, Any]]:
    message, *calls = _items(say)
    yield {"type": "response.created", "response": _response("in_progress", [])}
    begun = message | {"status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": 0, "item": begun}
    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    yield {"type": "response.content_part.added", **where, "part": part}
    yield from ({"type": "response.output_text.delta", **where, "delta": piece} for piece in say.pieces)
    yield {"type": "response.output_text.done", **where, "text": say.text}
    yield {"type": "response.content_part.done", **where, "part": part | {"text": say.text}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": message}
    for call in calls:
        begun = call | {"status": "in_progress", "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": 1, "item": begun}
        where = {"item_id": "fc_1", "output_index": 1}
        for half in _halves(say.arguments):
            yield {"type": "response.function_call_arguments.delta", **where, "delta": half}
        yield {"type": "response.function_call_arguments.done", **where, "arguments": say.arguments}
        yield {"type": "response.output_item.done", "output_index": 1, "item": call}
    yield {"type": "response.completed", "response": _response("completed", [message, *calls])}


# --- gemini ----------------------------------------------------------------------------------------------------------


def _content(parts: list[Any], reason: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if reason is not None:
        candidate["finishReason"] = reason
    return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 2}}


def _content_call(say: Say) -> list[dict[str, Any]]:
    if say.word is None:
        return []
    return [{"functionCall": {"id": say.call_id, "name": "note", "args": {"word": say.word}}}]


def _content_events(say: Say) -> Iterable[dict[str, Any]]:
    yield from (_content([{"text": piece}], None) for piece in say.pieces)
    yield from (_content([call], None) for call in _content_call(say))
    yield _content([{"text": ""}], "STOP")


def _google_error(status: int, message: str) -> dict[str, Any]:
    name = {400: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED"}.get(status, "INTERNAL")
    return {"error": {"code": status, "message": message, "status": name}}


DIALECTS = {
    "anthropic": Dialect(
        "anthropic:claude-sonnet-4-5", "", "/messages", _message_whole, _message_events, _message_error
    ),
    "openai_chat": Dialect("openai:gpt-4o", "/v1", "/chat/completions", _chat_whole, _chat_events, _openai_error),
    "openai_responses": Dialect(
        "openai-responses:gpt-4o",
        "/v1",
        "/responses",
        lambda say: _response("completed", _items(say)),
        _response_events,
        _openai_error,
    ),
    "gemini": Dialect(
        "gemini:gemini-2.5-flash",
        "",
        "/models/",
        lambda say: _content([{"text": say.text}, *_content_call(say)], "STOP"),
        _content_events,
        _google_error,
    ),
}
