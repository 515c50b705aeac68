"""Every kind of request, for OpenAI's models: the SDK's own types describe all of it and nothing else."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from msgspec import Raw
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)

from dragoman.conversation import (
    Conversation,
    Json,
    Media,
    Message,
    Native,
    OneTool,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from dragoman.providers.catalogue import PROVIDERS, profile_of
from dragoman.providers.codec import Call
from dragoman.providers.openai_chat import CODEC
from dragoman.providers.options import ModelOptions, Reasoning, ResponseFormat
from tests.providers.openai_chat.wire import chunk, read, stream, whole
from tests.providers.strict_types import problems

MODELS = (
    *("gpt-3.5-turbo", "gpt-4-turbo", "gpt-4o", "gpt-4o-audio-preview", "gpt-4o-search-preview", "gpt-4.1-mini"),
    *("gpt-4.5-preview", "chatgpt-4o-latest", "o1-mini", "o1", "o3-mini", "o3", "o4-mini"),
    *("gpt-5", "gpt-5-mini", "gpt-5-chat-latest", "gpt-5.1", "gpt-5.2", "gpt-5.2-chat-latest", "gpt-5.4-mini"),
    *("gpt-5.5", "gpt-5.6-sol", "gpt-6-astra", "gpt-6.1-sol"),
)

PNG = Media.from_bytes(b"\x89PNG", "image/png")
PDF = Media.from_bytes(b"%PDF", "application/pdf", name="a.pdf")
WAV = Media.from_bytes(b"RIFF", "audio/wav")
NOTES = Media.from_bytes(b"notes", "text/plain")
LINK = Media.from_url("https://host/a.png")
FILM = Media.from_url("https://host/a.mp4")
OWN = "openai_chat:openai"

CALLS = (ToolCall("c1", "f", '{"a":1}'), ToolCall("c2", "g"))
RESULTS = (
    ToolResult("c1", "f", (Text("one"), Json(Raw(b"[1]")), PNG)),
    ToolResult("c2", "g", (Text("It failed."),), is_error=True),
)
FOREIGN = Message(
    role="assistant",
    provider="anthropic",
    blocks=(
        Thinking("hm", "anthropic", signature="s"),
        Text("Well."),
        Opaque("anthropic", Raw(b'{"type":"server_tool_use"}')),
        Text("So.", native=Native("anthropic", {"citations": Raw(b"[1]")})),
        ToolCall("toolu_" + "x" * 60, "f", '{"broken'),
    ),
)
OWN_REPLIES = (
    read(whole({"content": None, "refusal": "No."}), "openai"),
    read(whole({"content": "a", "annotations": [{"type": "url_citation"}], "new": 1}), "openai"),
    read(whole({"content": None, "audio": {"id": "audio_1", "data": "AAEC", "transcript": "Hi"}}), "openai"),
    read(stream(chunk({"content": "a", "reasoning_content": "hm"}), chunk({}, "stop")), "groq"),
)

HISTORIES: dict[str, tuple[Message, ...]] = {
    "text": (Message.user("hi"),),
    "turns": (Message.user("a", "b"), Message.assistant("c"), Message.user("d")),
    "media": (Message.user("look", PNG, LINK, PDF, WAV, NOTES, FILM),),
    "own parts": (
        Message.user(
            Text("a", native=Native(OWN, {"prompt_cache_breakpoint": Raw(b'{"mode":"explicit"}')})),
            Opaque(OWN, Raw(b'{"type":"file","file":{"file_id":"f"}}')),
        ),
    ),
    "calls": (Message.user("hi"), Message.assistant("Well.", *CALLS), Message.tool(RESULTS)),
    "calls in two messages": (
        Message.user("hi"),
        Message.assistant(*CALLS),
        Message.tool(RESULTS[:1]),
        Message.tool(RESULTS[1:]),
        Message.user("and?"),
    ),
    "another provider's": (
        Message.user("hi"),
        FOREIGN,
        Message.tool([ToolResult("toolu_" + "x" * 60, "f", (Text("x"),))]),
    ),
    "its own": (Message.user("hi"), *OWN_REPLIES, Message.user("more")),
}

PLAIN = ToolSpec("f", "Does f.", Raw(b'{"type":"object","properties":{"a":{"type":"integer"}}}'))
STRICT = ToolSpec(
    "g", "", Raw(b'{"type":"object","properties":{"b":{"type":["string","null"]}},"required":["b"]}'), strict=True
)
CUSTOM = Raw(b'{"type":"custom","custom":{"name":"shell"}}')
FORMAT = ResponseFormat(schema=Raw(b'{"type":"object","properties":{"a":{"type":"string"}}}'), description="An answer.")

OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "sampling": {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "seed": 1, "stop": ("x",), "max_tokens": 9, "user": "u"},
    "no tools please": {"tool_choice": "none", "parallel_tool_calls": False},
    "any tool": {"tool_choice": "required", "parallel_tool_calls": True},
    "this tool": {"tool_choice": OneTool("f")},
    "schema": {"response_format": FORMAT},
    "loose schema": {"response_format": ResponseFormat(schema=FORMAT.schema, name="my answer", strict=False)},
    "effort": {"reasoning": Reasoning(effort="high"), "temperature": 1.0},
    "effort none": {"reasoning": Reasoning(effort="none"), "temperature": 1.0},
    "budget": {"reasoning": Reasoning(budget=100)},
    "cache": {"cache": True},
    "server tool": {"server_tools": (CUSTOM,)},
    "more": {"extra_body": {"logprobs": True, "store": False}, "extra_headers": {"x": "y"}},
}
TOOLS: dict[str, tuple[ToolSpec, ...]] = {"no tools": (), "tools": (PLAIN, STRICT)}


def request(provider: str, model: str, history: str, tools: str, options: str, *, streamed: bool) -> Any:
    call = Call(
        model=model,
        conversation=Conversation(system="Be brief.", messages=HISTORIES[history]),
        profile=profile_of(provider, model),
        tools=TOOLS[tools],
        options=ModelOptions(adapt=True, **OPTIONS[options]),
        stream=streamed,
    )
    return json.loads(CODEC.encode(call).request.body)


EVERYTHING = list(itertools.product(HISTORIES, TOOLS, OPTIONS))
EACH_ONCE = [row for row in EVERYTHING if row[0] == "calls" or row[1:] == ("tools", "nothing")]


@pytest.mark.parametrize("model", MODELS)
def test_requests_are_what_the_sdk_describes(model: str) -> None:
    for history, tools, options in EVERYTHING if model == "gpt-4o" else EACH_ONCE:
        for streamed, expected in (False, CompletionCreateParamsNonStreaming), (True, CompletionCreateParamsStreaming):
            body = request("openai", model, history, tools, options, streamed=streamed)
            assert problems(body, expected) == [], (history, tools, options)


def test_the_check_itself_finds_what_is_wrong() -> None:
    good = request("openai", "gpt-4o", "calls", "tools", "sampling", streamed=False)
    assert problems(good, CompletionCreateParamsNonStreaming) == []
    for broken in ({**good, "new": 1}, {**good, "seed": "x"}, {k: v for k, v in good.items() if k != "messages"}):
        assert problems(broken, CompletionCreateParamsNonStreaming) != []
    good["messages"][2]["new"] = 1
    assert problems(good, CompletionCreateParamsNonStreaming) != []


# What servers understand beyond OpenAI, where it stands in a request.
OF_BODY = {"top_k", "random_seed", "user_id", "thinking", "reasoning", "reasoning_format"}
OF_MESSAGE = {"reasoning_content", "reasoning"}
OF_PART = {"document_url", "video_url", "audio_url"}
EFFORTS = {"default"}


def without_extensions(body: dict[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in body.items() if name not in OF_BODY}
    if found.get("reasoning_effort") in EFFORTS:
        del found["reasoning_effort"]
    for message in found["messages"]:
        for name in OF_MESSAGE & message.keys():
            del message[name]
        if isinstance(message.get("content"), list):
            parts = [part for part in message["content"] if part["type"] not in OF_PART]
            message["content"] = [
                {name: value for name, value in part.items() if name != "cache_control"}
                for part in parts
                if not isinstance(part.get("input_audio"), str)
            ]
    for tool in found.get("tools", []):
        tool.pop("cache_control", None)
    return found


SERVERS = {
    "cerebras": ("gpt-oss-120b", "zai-glm-4.7"),
    "deepseek": ("deepseek-v4-pro", "deepseek-chat"),
    "groq": ("openai/gpt-oss-120b", "qwen/qwen3-32b", "llama-3.3-70b-versatile"),
    "mistral": ("mistral-small-latest", "voxtral-small-latest"),
    "openrouter": ("anthropic/claude-sonnet-4.6", "openai/gpt-5-mini"),
    "xai": ("grok-4", "grok-4.3"),
    "zai": ("glm-4.7", "glm-5.3", "glm-4.6v"),
}


@pytest.mark.parametrize("provider", [name for name, one in PROVIDERS.items() if one.dialect == "openai_chat"])
def test_other_servers_get_that_and_what_they_understand_beyond_it(provider: str) -> None:
    for model in SERVERS.get(provider, ("some-model",)):
        for history, tools, options in EACH_ONCE:
            body = request(provider, model, history, tools, options, streamed=False)
            found = problems(without_extensions(body), CompletionCreateParamsNonStreaming)
            assert found == [], (history, tools, options)
