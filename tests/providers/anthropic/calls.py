"""Calls and replies made by hand, for the tests of this dialect."""

from __future__ import annotations

import json
from typing import Any

from dragoman.providers import Decoder
from tests.providers import calls

TARGET = "anthropic:claude-sonnet-4-5"


def decoder_of(*, stream: bool = True, names: dict[str, str] | None = None) -> Decoder:
    return calls.decoder_of(calls.call_of(TARGET, stream=stream), names)


# --- streams by hand ---


def event(kind: str, **members: Any) -> bytes:
    data = json.dumps({"type": kind, **members}, separators=(",", ":"))
    return f"event: {kind}\ndata: {data}\n\n".encode()


MESSAGE: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x"}


def started(**members: Any) -> bytes:
    begun = {"content": [], "stop_reason": None, "usage": {"input_tokens": 10, "output_tokens": 1}}
    return event("message_start", message={**MESSAGE, **begun, **members})


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    pieces = [event("content_block_start", index=index, content_block=start)]
    pieces += [event("content_block_delta", index=index, delta=delta) for delta in deltas]
    return b"".join([*pieces, event("content_block_stop", index=index)])


def text_block(index: int, *texts: str) -> bytes:
    return block(index, {"type": "text", "text": ""}, *[{"type": "text_delta", "text": text} for text in texts])


def stopped(reason: str | None = "end_turn", **members: Any) -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": None, **members}
    return event("message_delta", delta=delta, usage={"output_tokens": 7}) + event("message_stop")


def whole(*content: dict[str, Any], **members: Any) -> bytes:
    ended = {"content": content, "stop_reason": "end_turn", "usage": {"input_tokens": 10, "output_tokens": 7}}
    return json.dumps({**MESSAGE, **ended, **members}, separators=(",", ":")).encode()
