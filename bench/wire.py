"""What a provider says, as bytes made beforehand, in each dialect: a whole reply, a call of a tool, a stream.

Owns: the replies of the loopback server. Texts are those that a model would say; ids have the form that each service
gives them, because some clients check it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

CHUNKS = 2_000
"""Pieces of text in a stream."""
ANSWER = "Hello there, how can I help you today?"
PIECES = tuple(f"word{number} " for number in range(10))
"""The text of a stream, over and over; not one word alone, because a client may take that for a model gone mad."""
STREAMED = "".join(PIECES[number % len(PIECES)] for number in range(CHUNKS))
CITY = "Lyon"
TOOL_ANSWER = "It rains in Lyon. Take an umbrella."
CALL_ID = "call_abcdefgh0123"
"""Whoever sends it back has run the tool."""


@dataclass(frozen=True)
class Wire:
    """The replies of one dialect."""

    whole: bytes
    call: bytes
    """Asks for the tool `weather`."""
    after_call: bytes
    head: bytes
    opening: tuple[bytes, ...]
    """Chunks of HTTP before the first piece of text, the head of the reply included."""
    pieces: tuple[bytes, ...]
    """The pieces of text."""
    closing: tuple[bytes, ...]

    @property
    def stream(self) -> bytes:
        return b"".join([self.head, *self.opening, *self.pieces * (CHUNKS // len(PIECES)), *self.closing])


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _reply(value: Any) -> bytes:
    body = _json(value)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _data(value: Any) -> bytes:
    return _chunk(b"data: %s\n\n" % _json(value))


def _event(value: Any) -> bytes:
    return _chunk(b"event: %s\ndata: %s\n\n" % (value["type"].encode(), _json(value)))


_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"

# --- openai, chat completions ----------------------------------------------------------------------------------------


def _chat() -> Wire:
    common = {"id": "chatcmpl-1", "created": 1_700_000_000, "model": "gpt-4o"}
    usage = {"prompt_tokens": 12, "completion_tokens": 10, "total_tokens": 22}

    def whole(message: dict[str, Any], reason: str, id: str = "chatcmpl-1") -> bytes:
        choice = {"index": 0, "message": {"role": "assistant"} | message, "logprobs": None, "finish_reason": reason}
        return _reply({**common, "id": id, "object": "chat.completion", "choices": [choice], "usage": usage})

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return _data({**common, "object": "chat.completion.chunk", "choices": [choice]})

    call = {
        "id": CALL_ID,
        "type": "function",
        "function": {"name": "weather", "arguments": _json({"city": CITY}).decode()},
    }
    return Wire(
        whole=whole({"content": ANSWER}, "stop"),
        call=whole({"content": None, "tool_calls": [call]}, "tool_calls"),
        after_call=whole({"content": TOOL_ANSWER}, "stop", "chatcmpl-2"),
        head=_HEAD,
        opening=(chunk({"role": "assistant", "content": ""}),),
        pieces=tuple(chunk({"content": piece}) for piece in PIECES),
        closing=(chunk({}, "stop"), _chunk(b"data: [DONE]\n\n"), _END),
    )


# --- openai, responses -----------------------------------------------------------------------------------------------


def _responses() -> Wire:
    message_id, response_id = "msg_1", "resp_1"

    def response(status: str, output: list[Any], usage: Any = None) -> dict[str, Any]:
        return {
            "id": response_id,
            "object": "response",
            "created_at": 1_700_000_000,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": "gpt-4o",
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": usage,
        }

    def message(text: str) -> dict[str, Any]:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return {"type": "message", "id": message_id, "status": "completed", "role": "assistant", "content": content}

    usage = {
        "input_tokens": 12,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 22,
    }
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": CALL_ID,
        "name": "weather",
        "arguments": _json({"city": CITY}).decode(),
        "status": "completed",
    }
    begun = {"type": "message", "id": message_id, "status": "in_progress", "role": "assistant", "content": []}
    text = STREAMED
    where = {"item_id": message_id, "output_index": 0, "content_index": 0}
    last = CHUNKS + 4

    def numbered(number: int, kind: str, **fields: Any) -> bytes:
        return _event({"type": kind, "sequence_number": number, **fields})

    empty = {"type": "output_text", "text": "", "annotations": []}
    return Wire(
        whole=_reply(response("completed", [message(ANSWER)], usage)),
        call=_reply(response("completed", [call], usage)),
        after_call=_reply(response("completed", [message(TOOL_ANSWER) | {"id": "msg_2"}], usage) | {"id": "resp_2"}),
        head=_HEAD,
        opening=(
            numbered(0, "response.created", response=response("in_progress", [])),
            numbered(1, "response.in_progress", response=response("in_progress", [])),
            numbered(2, "response.output_item.added", output_index=0, item=begun),
            numbered(3, "response.content_part.added", **where, part=empty),
        ),
        pieces=tuple(numbered(4, "response.output_text.delta", **where, delta=piece, logprobs=[]) for piece in PIECES),
        closing=(
            numbered(last, "response.output_text.done", **where, text=text, logprobs=[]),
            numbered(last + 1, "response.content_part.done", **where, part=empty | {"text": text}),
            numbered(last + 2, "response.output_item.done", output_index=0, item=message(text)),
            numbered(last + 3, "response.completed", response=response("completed", [message(text)], usage)),
            _END,
        ),
    )


# --- anthropic -------------------------------------------------------------------------------------------------------


def _anthropic() -> Wire:
    usage = {"input_tokens": 12, "output_tokens": 10}

    def message(content: list[Any], reason: str | None) -> dict[str, Any]:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": usage,
        }

    def text(said: str) -> dict[str, Any]:
        return {"type": "text", "text": said}

    call = {"type": "tool_use", "id": CALL_ID, "name": "weather", "input": {"city": CITY}}
    return Wire(
        whole=_reply(message([text(ANSWER)], "end_turn")),
        call=_reply(message([call], "tool_use")),
        after_call=_reply(message([text(TOOL_ANSWER)], "end_turn") | {"id": "msg_2"}),
        head=_HEAD,
        opening=(
            _event({"type": "message_start", "message": message([], None)}),
            _event({"type": "content_block_start", "index": 0, "content_block": text("")}),
            _event({"type": "ping"}),
        ),
        pieces=tuple(
            _event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})
            for piece in PIECES
        ),
        closing=(
            _event({"type": "content_block_stop", "index": 0}),
            _event(
                {
                    "type": "message_delta",
                    "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                    "usage": {"output_tokens": CHUNKS},
                }
            ),
            _event({"type": "message_stop"}),
            _END,
        ),
    )


# --- gemini ----------------------------------------------------------------------------------------------------------


def _gemini() -> Wire:
    usage = {"promptTokenCount": 12, "candidatesTokenCount": 10, "totalTokenCount": 22}

    def reply(parts: list[Any], reason: str | None) -> dict[str, Any]:
        candidate = {"content": {"parts": parts, "role": "model"}, "index": 0}
        if reason:
            candidate["finishReason"] = reason
        return {
            "candidates": [candidate],
            "usageMetadata": usage,
            "modelVersion": "gemini-2.5-flash",
            "responseId": "r1",
        }

    def data(value: Any) -> bytes:
        return _chunk(b"data: %s\r\n\r\n" % _json(value))

    return Wire(
        whole=_reply(reply([{"text": ANSWER}], "STOP")),
        call=_reply(reply([{"functionCall": {"id": CALL_ID, "name": "weather", "args": {"city": CITY}}}], "STOP")),
        after_call=_reply(reply([{"text": TOOL_ANSWER}], "STOP") | {"responseId": "r2"}),
        head=_HEAD,
        opening=(),
        pieces=tuple(data(reply([{"text": piece}], None)) for piece in PIECES),
        closing=(data(reply([{"text": ""}], "STOP")), _END),
    )


WIRES = {"openai_chat": _chat(), "openai_responses": _responses(), "anthropic": _anthropic(), "gemini": _gemini()}
