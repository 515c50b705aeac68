"""A matrix of calls: every request is one that the official SDK's types accept, with unknown keys forbidden."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec import Raw

from dragoman.conversation import (
    Conversation,
    Json,
    Media,
    Message,
    Native,
    OneTool,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from dragoman.errors import ConfigurationError
from dragoman.providers.catalogue import profile_of
from dragoman.providers.codec import Call
from dragoman.providers.gemini import CODEC
from dragoman.providers.options import ModelOptions, Reasoning, ResponseFormat
from tests.providers.gemini.case import accept
from tests.strategies import conversations

MODELS = [
    "gemini-1.5-flash",
    "gemini-2.0-flash",
    "gemini-2.5-flash",
    "gemini-2.5-pro",
    "gemini-2.5-flash-image",
    "gemini-3-pro-preview",
    "gemini-3-flash-preview",
    "gemini-3.8-flash",
    "gemma-3-27b-it",
    "publishers/google/models/gemini-3-flash-preview",
]

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where."},
        "days": {"type": "integer", "minimum": 1},
        "units": {"enum": ["c", "f"]},
        "note": {"type": ["string", "null"]},
        "places": {"type": "array", "items": {"$ref": "#/$defs/place"}},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"place": {"type": "object", "properties": {"lat": {"type": "number"}}}},
}
WEATHER = ToolSpec(name="weather", description="The weather.", parameters=Raw(json.dumps(SCHEMA).encode()))
STRICT = ToolSpec(name="strict", parameters=Raw(json.dumps(SCHEMA).encode()), strict=True)
BARE = ToolSpec(name="now")
TOOLS: list[tuple[ToolSpec, ...]] = [(), (WEATHER, BARE), (STRICT,)]

FORMAT = ResponseFormat(schema=Raw(json.dumps(SCHEMA).encode()), description="The answer.")
SEARCH = Raw(b'{"googleSearch":{}}')
OPTIONS: list[dict[str, Any]] = [
    {},
    {"max_tokens": 100, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "stop": ("END", "STOP"), "seed": 7},
    {"temperature": 0.0, "max_tokens": 1},
    {"tool_choice": "none"},
    {"tool_choice": "required", "parallel_tool_calls": False},
    {"tool_choice": OneTool("weather"), "parallel_tool_calls": True},
    *[{"reasoning": Reasoning(effort=e)} for e in ("none", "minimal", "low", "medium", "high", "xhigh", "max")],
    {"reasoning": Reasoning(budget=0)},
    {"reasoning": Reasoning(budget=4096, summary=False)},
    {"reasoning": Reasoning(effort="low", budget=100_000)},
    {"reasoning": Reasoning()},
    {"response_format": FORMAT},
    {"response_format": FORMAT, "reasoning": Reasoning(effort="high"), "server_tools": (SEARCH,)},
    {"cache": True, "user": "u-1"},
    {"server_tools": (SEARCH, Raw(b'{"codeExecution":{}}'))},
    {"extra_body": {"safetySettings": [{"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "BLOCK_NONE"}]}},
    {"extra_body": {"cachedContent": "cachedContents/1", "labels": {"team": "a"}}},
    {"extra_body": {"generationConfig": {"responseModalities": ["TEXT"], "topP": 0.1}, "serviceTier": "flex"}},
]

PNG = Media.from_bytes(b"\x89PNG", "image/png")
PDF = Media.from_bytes(b"%PDF", "application/pdf", name="a.pdf")
WAV = Media.from_bytes(b"RIFF", "audio/wav")
FILM = Media.from_url("https://youtu.be/x", mime_type="video/mp4")
SIGNED = Native("gemini", {"thoughtSignature": Raw(b'"c2lnbmVk"')})
CODE = Raw(b'{"executableCode":{"language":"PYTHON","code":"1"},"thoughtSignature":"c2ln"}')
SEARCHED = Raw(b'{"toolCall":{"toolType":"GOOGLE_SEARCH_WEB","args":{"queries":["a"]},"id":"1"}}')


def _turn(calls: list[ToolCall], results: list[ToolResult]) -> tuple[Message, ...]:
    return Message.user("go"), Message.assistant(*calls), Message.tool(results)


HISTORIES: list[tuple[Message, ...]] = [
    (),
    (Message.user("hello"),),
    (Message.user(""),),
    (Message.assistant("I begin."), Message.user("Fine.")),
    (Message.user("Look:", PNG, PDF, WAV, FILM),),
    (Message.user("Listen:", Media.from_url("https://host/a.mp3", mime_type="audio/mpeg")), Message.assistant("Yes.")),
    (
        Message.user("q"),
        Message.assistant(
            Thinking("hm", "gemini", signature="c2ln"),
            Thinking("", "gemini", signature="c2ln"),
            Thinking("other", "anthropic", signature="x"),
            Text("a", native=SIGNED),
            Text("b", native=Native("anthropic", {"cache_control": Raw(b"{}")})),
            Opaque("gemini", CODE),
            Opaque("gemini", SEARCHED),
            Opaque("anthropic", Raw(b'{"type":"server_tool_use"}')),
            PNG,
        ),
        Message.user("more"),
    ),
    _turn(
        [ToolCall("a", "weather", '{"city":"Rome"}', native=SIGNED), ToolCall("b", "now")],
        [ToolResult("a", "weather", (Text("sunny"),)), ToolResult("b", "now", (Json(raw=Raw(b'{"h":1}')),))],
    ),
    _turn(
        [ToolCall("a", "weather", '{"city"'), ToolCall("call_gem_r_0", "now", "{}")],
        [
            ToolResult("a", "weather", (Text("not JSON"),), is_error=True),
            ToolResult("call_gem_r_0", "now", (Text("see"), PNG, PDF, WAV, FILM)),
        ],
    ),
    _turn([ToolCall("a", "now", "[1]")], [ToolResult("a", "now", (Json(raw=Raw(b"[1]")), Json(raw=Raw(b"2"))))]),
    (
        Message.user("q"),
        Message(
            role="assistant",
            blocks=(Text("first half"),),
            stop_reason=StopReason.PAUSED,
            native=Native("gemini", {"continuationToken": Raw(b'"dG9rZW4="')}),
        ),
    ),
]


@pytest.mark.parametrize("model", MODELS)
def test_every_combination_is_a_request(model: str) -> None:
    profile = profile_of("gemini", model)
    for options, tools, history, system in itertools.product(OPTIONS, TOOLS, HISTORIES, [None, "Be brief."]):
        call = Call(
            model=model,
            conversation=Conversation(system=system, messages=history),
            profile=profile,
            tools=tools,
            options=ModelOptions(**options, adapt=True),
            stream=bool(tools),
        )
        encoded = CODEC.encode(call)
        body = json.loads(encoded.request.body)
        accept(body)
        assert body["contents"][0]["role"] == "user"
        assert all(content["parts"] for content in body["contents"])
        assert encoded.request.body == CODEC.encode(call).request.body, "the same call gives the same bytes"


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(conversations)
def test_any_conversation_is_a_request_or_a_clear_refusal(conversation: Conversation) -> None:
    model = "gemini-3-flash-preview"
    call = Call(model=model, conversation=conversation, profile=profile_of("gemini", model))
    if any(isinstance(block, Media) and block.path for block in _all_blocks(conversation)):
        with pytest.raises(ConfigurationError, match="was not read"):
            CODEC.encode(call)
    else:
        accept(json.loads(CODEC.encode(call).request.body))


def _all_blocks(conversation: Conversation) -> list[Any]:
    blocks = [block for message in conversation.messages for block in message.blocks]
    return blocks + [part for block in blocks if isinstance(block, ToolResult) for part in block.content]


@pytest.mark.parametrize(
    "wrong",
    [
        {"contents": [{"role": "user", "parts": [{"text": "a", "txt": 1}]}]},
        {"contents": [{"role": "user", "parts": [{"inline_data": {}}]}]},
        {"generationConfig": {"top_p": 1}},
        {"tools": [{"functionDeclarations": [{"name": "a", "parameters": {"type": "OBJECT", "$defs": {}}}]}]},
        {"toolConfig": {"functionCallingConfig": {"mode": "SOMETIMES"}}},
    ],
)
def test_the_check_itself_refuses_what_is_wrong(wrong: Any) -> None:
    with pytest.raises((ValueError, UserWarning)):
        accept(wrong)
