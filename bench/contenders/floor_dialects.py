"""The least that a client must know of each dialect: msgspec from and into plain structs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from bench.contenders.common import MAX_TOKENS, MODELS, SCHEMA, SYSTEM, Said

_encode = msgspec.json.encode


class Call(NamedTuple):
    id: str
    name: str
    arguments: bytes | str


class Dialect(NamedTuple):
    path: str
    stream_path: str
    key_header: str
    body: Callable[[list[Any], bool, list[Any]], bytes]
    """From messages, whether to stream, and tools."""
    messages: Callable[[Sequence[Said]], list[Any]]
    tool: Callable[[dict[str, Any]], Any]
    text: Callable[[bytes], str | None]
    """Of a whole reply."""
    call: Callable[[bytes], Call]
    result: Callable[[Call, str], list[Any]]
    """The messages that carry a call and its result."""
    events: Callable[[bytes, list[str | None]], bytes]
    """Takes the texts out of what has come of a stream; the rest is returned."""


def _frame(data: bytes) -> bytes:
    return data[data.find(b"data: ") + 6 :]


# --- openai, chat completions ----------------------------------------------------------------------------------------


class Message(msgspec.Struct, omit_defaults=True):
    role: str
    content: str


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _ChatCall(msgspec.Struct):
    id: str
    function: _Function


class _Delta(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_ChatCall] = []


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None


class _ChatReply(msgspec.Struct):
    choices: list[_Choice]


_chat = msgspec.json.Decoder(_ChatReply)


def _chat_events(buffer: bytes, texts: list[str | None]) -> bytes:
    *frames, rest = buffer.split(b"\n\n")
    for frame in frames:
        data = frame[frame.find(b"data: ") + 6 :]
        if data.startswith(b"{"):
            delta = _chat.decode(data).choices[0].delta
            texts.append(delta.content if delta else None)
    return rest


def _chat_body(messages: list[Any], stream: bool, tools: list[Any]) -> bytes:
    body = {"model": MODELS["openai_chat"], "messages": messages, "stream": stream}
    return _encode(body | {"tools": tools} if tools else body)


def _chat_messages(said: Sequence[Said]) -> list[Any]:
    return [Message("system", SYSTEM), *[Message(each.role, each.text) for each in said]]


def _chat_text(body: bytes) -> str | None:
    message = _chat.decode(body).choices[0].message
    return message.content if message else None


def _chat_call(body: bytes) -> Call:
    message = _chat.decode(body).choices[0].message
    assert message is not None
    found = message.tool_calls[0]
    return Call(found.id, found.function.name, found.function.arguments)


def _chat_result(call: Call, result: str) -> list[Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return [
        {"role": "assistant", "tool_calls": [{"id": call.id, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": call.id, "content": result},
    ]


# --- openai, responses -----------------------------------------------------------------------------------------------


class _Text(msgspec.Struct):
    text: str


class _Item(msgspec.Struct):
    type: str
    content: list[_Text] = []
    call_id: str = ""
    name: str = ""
    arguments: str = ""


class _Response(msgspec.Struct):
    output: list[_Item]


class _ResponsesEvent(msgspec.Struct):
    type: str
    delta: str | None = None


_response = msgspec.json.Decoder(_Response)
_responses_event = msgspec.json.Decoder(_ResponsesEvent)


def _responses_events(buffer: bytes, texts: list[str | None]) -> bytes:
    *frames, rest = buffer.split(b"\n\n")
    for frame in frames:
        event = _responses_event.decode(frame[frame.find(b"data: ") + 6 :])
        if event.type == "response.output_text.delta":
            texts.append(event.delta)
    return rest


def _responses_body(messages: list[Any], stream: bool, tools: list[Any]) -> bytes:
    body = {"model": MODELS["openai_responses"], "instructions": SYSTEM, "input": messages, "stream": stream}
    return _encode(body | {"tools": tools} if tools else body)


def _responses_text(body: bytes) -> str | None:
    return _response.decode(body).output[0].content[0].text


def _responses_call(body: bytes) -> Call:
    item = _response.decode(body).output[0]
    return Call(item.call_id, item.name, item.arguments)


def _responses_result(call: Call, result: str) -> list[Any]:
    return [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments},
        {"type": "function_call_output", "call_id": call.id, "output": result},
    ]


# --- anthropic -------------------------------------------------------------------------------------------------------


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _AnthropicReply(msgspec.Struct):
    content: list[_Block]


class _AnthropicDelta(msgspec.Struct):
    text: str | None = None


class _AnthropicEvent(msgspec.Struct):
    type: str
    delta: _AnthropicDelta | None = None


_anthropic = msgspec.json.Decoder(_AnthropicReply)
_anthropic_event = msgspec.json.Decoder(_AnthropicEvent)


def _anthropic_events(buffer: bytes, texts: list[str | None]) -> bytes:
    *frames, rest = buffer.split(b"\n\n")
    for frame in frames:
        event = _anthropic_event.decode(frame[frame.find(b"data: ") + 6 :])
        if event.type == "content_block_delta" and event.delta:
            texts.append(event.delta.text)
    return rest


def _anthropic_body(messages: list[Any], stream: bool, tools: list[Any]) -> bytes:
    body = {
        "model": MODELS["anthropic"],
        "max_tokens": MAX_TOKENS,
        "system": SYSTEM,
        "messages": messages,
        "stream": stream,
    }
    return _encode(body | {"tools": tools} if tools else body)


def _anthropic_call(body: bytes) -> Call:
    block = _anthropic.decode(body).content[0]
    return Call(block.id, block.name, bytes(block.input))


def _anthropic_result(call: Call, result: str) -> list[Any]:
    use = {"type": "tool_use", "id": call.id, "name": call.name, "input": msgspec.Raw(bytes(call.arguments))}  # type: ignore[arg-type]
    back = {"type": "tool_result", "tool_use_id": call.id, "content": result}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [back]}]


# --- gemini ----------------------------------------------------------------------------------------------------------


class _FunctionCall(msgspec.Struct):
    name: str
    id: str = ""
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    function_call: _FunctionCall | None = None


class _Content(msgspec.Struct):
    parts: list[_Part]


class _Candidate(msgspec.Struct):
    content: _Content


class _GeminiReply(msgspec.Struct):
    candidates: list[_Candidate]


class _GeminiMessage(msgspec.Struct):
    role: str
    parts: list[_Text]


_gemini = msgspec.json.Decoder(_GeminiReply)


def _gemini_events(buffer: bytes, texts: list[str | None]) -> bytes:
    *frames, rest = buffer.split(b"\r\n\r\n")
    for frame in frames:
        at = frame.find(b"data: ")
        if at >= 0:
            texts.append(_gemini.decode(frame[at + 6 :]).candidates[0].content.parts[0].text)
    return rest


_GEMINI_SYSTEM = {"parts": [{"text": SYSTEM}]}


def _gemini_body(messages: list[Any], stream: bool, tools: list[Any]) -> bytes:  # noqa: ARG001 - the path says it
    body = {"systemInstruction": _GEMINI_SYSTEM, "contents": messages}
    return _encode(body | {"tools": [{"functionDeclarations": tools}]} if tools else body)


def _gemini_messages(said: Sequence[Said]) -> list[Any]:
    return [_GeminiMessage("model" if each.role == "assistant" else "user", [_Text(each.text)]) for each in said]


def _gemini_call(body: bytes) -> Call:
    found = _gemini.decode(body).candidates[0].content.parts[0].function_call
    assert found is not None
    return Call(found.id, found.name, bytes(found.args))


def _gemini_result(call: Call, result: str) -> list[Any]:
    use = {"functionCall": {"id": call.id, "name": call.name, "args": msgspec.Raw(bytes(call.arguments))}}  # type: ignore[arg-type]
    back = {"functionResponse": {"id": call.id, "name": call.name, "response": {"result": result}}}
    return [{"role": "model", "parts": [use]}, {"role": "user", "parts": [back]}]


def _plain_messages(said: Sequence[Said]) -> list[Any]:
    return [Message(each.role, each.text) for each in said]


_GEMINI = f"/v1beta/models/{MODELS['gemini']}"

DIALECTS = {
    "openai_chat": Dialect(
        path="/v1/chat/completions",
        stream_path="/v1/chat/completions",
        key_header="authorization: Bearer",
        body=_chat_body,
        messages=_chat_messages,
        tool=lambda schema: {"type": "function", "function": schema},
        text=_chat_text,
        call=_chat_call,
        result=_chat_result,
        events=_chat_events,
    ),
    "openai_responses": Dialect(
        path="/v1/responses",
        stream_path="/v1/responses",
        key_header="authorization: Bearer",
        body=_responses_body,
        messages=_plain_messages,
        tool=lambda schema: {"type": "function", **schema},
        text=_responses_text,
        call=_responses_call,
        result=_responses_result,
        events=_responses_events,
    ),
    "anthropic": Dialect(
        path="/v1/messages",
        stream_path="/v1/messages",
        key_header="x-api-key:",
        body=_anthropic_body,
        messages=_plain_messages,
        tool=lambda schema: {
            "name": schema["name"],
            "description": schema["description"],
            "input_schema": schema["parameters"],
        },
        text=lambda body: _anthropic.decode(body).content[0].text,
        call=_anthropic_call,
        result=_anthropic_result,
        events=_anthropic_events,
    ),
    "gemini": Dialect(
        path=f"{_GEMINI}:generateContent",
        stream_path=f"{_GEMINI}:streamGenerateContent?alt=sse",
        key_header="x-goog-api-key:",
        body=_gemini_body,
        messages=_gemini_messages,
        tool=lambda schema: {k: v for k, v in schema.items() if k != "additionalProperties"},
        text=lambda body: _gemini.decode(body).candidates[0].content.parts[0].text,
        call=_gemini_call,
        result=_gemini_result,
        events=_gemini_events,
    ),
}

WEATHER = {"name": "weather", "description": "What the weather is like.", "parameters": SCHEMA}
