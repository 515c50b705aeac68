"""Hand-written replies and recorded ones, and the calls that they answer."""

from __future__ import annotations

import json
from typing import Any

from dragoman.conversation import Message
from dragoman.errors import ProviderError
from dragoman.providers import Call, Decoder
from tests.providers.calls import call_of, decoder_of
from tests.providers.feeding import attempt, message_of, one_by_one

DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **members: Any) -> dict[str, Any]:
    """A chunk as OpenAI sends it; `members` are put beside `choices`, or replace them."""
    choice = {"index": 0, "delta": delta or {}, "logprobs": None, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m-1", "choices": [choice], **members}


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def stream(*chunks: dict[str, Any], done: bool = True) -> bytes:
    return b"".join([event(one) for one in chunks]) + (DONE if done else b"")


def whole(message: dict[str, Any], finish: str | None = "stop", **members: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return json.dumps({"id": "chatcmpl-1", "model": "m-1", "choices": [choice], **members}).encode()


def call_piece(arguments: Any = "", index: int | None = 0, call_id: str | None = None, name: str | None = None) -> Any:
    """An element of `tool_calls`; what is None is left out."""
    function = {"name": name, "arguments": arguments}
    piece = {"index": index, "id": call_id, "function": {k: v for k, v in function.items() if v is not None}}
    return {k: v for k, v in piece.items() if v is not None}


def call_to(provider: str = "openai-compatible", *, stream: bool = True, **how: Any) -> Call:
    return call_of(f"{provider}:m-1", stream=stream, **how)


def decoder(provider: str = "openai-compatible", *, names: dict[str, str] | None = None, **how: Any) -> Decoder:
    return decoder_of(call_to(provider, **how), names)


def read(body: bytes, provider: str = "openai-compatible", **how: Any) -> Message:
    """The reply, checked to be the same whether it comes at once or byte by byte."""
    message = message_of(decoder(provider, **how), [body])
    assert message_of(decoder(provider, **how), one_by_one(body)) == message
    return message


def fails(body: bytes, provider: str = "openai-compatible", **how: Any) -> tuple[Message, ProviderError]:
    """The message so far, and the error."""
    message, error = attempt(decoder(provider, **how), body)
    assert error is not None, "the reply was read without an error"
    return message, error
