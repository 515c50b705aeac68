"""What the tests of this dialect share: calls, replies written by hand, and the official SDK's reading of requests."""

from __future__ import annotations

import json
from typing import Any

from google.genai import types

from dragoman.conversation import Message
from dragoman.errors import ProviderError
from dragoman.providers import Call
from tests.providers import feeding
from tests.providers.calls import call_of, decoder_of
from tests.providers.feeding import message_of


def a_call(*messages: Message, stream: bool = False) -> Call:
    return call_of("gemini:gemini-3-flash-preview", *messages, stream=stream)


# --- replies ----------------------------------------------------------------------------------------------------------


def chunk(*reply_parts: Any, finish: str | None = None, usage: Any = None, **candidate: Any) -> dict[str, Any]:
    """A chunk with these parts (texts may be given bare)."""
    listed = [{"text": part} if isinstance(part, str) else part for part in reply_parts]
    inner: dict[str, Any] = {"content": {"parts": listed, "role": "model"}, "index": 0, **candidate}
    if finish is not None:
        inner["finishReason"] = finish
    whole: dict[str, Any] = {"candidates": [inner], "modelVersion": "gemini-test-001", "responseId": "reply-1"}
    return whole if usage is None else {**whole, "usageMetadata": usage}


def as_events(*chunks: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\r\n\r\n" for each in chunks)


def as_array(*chunks: Any) -> bytes:
    return json.dumps(list(chunks), indent=2).encode()


def as_whole(one: Any) -> bytes:
    return json.dumps(one, indent=2).encode()


def streamed(*chunks: Any, call: Call | None = None) -> Message:
    """The message of a reply that comes in these chunks, whichever way they are framed."""
    call = call or a_call(stream=True)
    message = message_of(decoder_of(call), [as_events(*chunks)])
    assert message_of(decoder_of(call), [as_array(*chunks)]) == message
    return message


def whole(one: Any, call: Call | None = None) -> Message:
    return message_of(decoder_of(call or a_call()), [as_whole(one)])


def attempt(data: bytes, call: Call) -> tuple[Message, ProviderError | None]:
    """What there is of a reply when these bytes have come, and the error that reading them raised."""
    return feeding.attempt(decoder_of(call), data)


# --- what the official SDK says of a request --------------------------------------------------------------------------

_MEMBERS: dict[str, Any] = {
    "contents": types.Content,
    "systemInstruction": types.Content,
    "tools": types.Tool,
    "toolConfig": types.ToolConfig,
    "generationConfig": types.GenerationConfig,
    "safetySettings": types.SafetySetting,
}
_PLAIN_MEMBERS = {"cachedContent", "labels", "continuationToken", "serviceTier", "store"}


_FREE_FORM = {"args", "response", "parametersJsonSchema", "responseJsonSchema", "properties", "labels"}


def accept(body: dict[str, Any]) -> None:
    """Fail unless every member of the request is what the SDK's own types allow: no unknown key at any depth, and
    all of them as the wire spells them."""
    _assert_spelling(body)
    for name, value in body.items():
        if name in _PLAIN_MEMBERS:
            continue
        for each in value if isinstance(value, list) else [value]:
            _MEMBERS[name].model_validate(each, by_alias=True, by_name=False)


def _assert_spelling(value: Any) -> None:
    """Some of the SDK's types take `snake_case` too, whatever they are told."""
    if isinstance(value, list):
        for each in value:
            _assert_spelling(each)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if "_" in name:
                message = f"{name} is not spelled as on the wire"
                raise ValueError(message)
            if name not in _FREE_FORM:
                _assert_spelling(inner)
