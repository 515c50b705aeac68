"""Combinations of all features in every dialect: each request matches the types of the official SDKs, without unknown
keys."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import anthropic.types.beta.message_create_params as beta_params
import anthropic.types.message_create_params as plain_params
import pytest
from hypothesis import given, strategies as st
from msgspec import Raw
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.responses import ResponseCreateParams

from dragoman.conversation import (
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
from dragoman.providers import (
    PROVIDERS,
    CodeExecution,
    ComputerUse,
    Encoded,
    FileSearch,
    HostedMcp,
    ImageGeneration,
    Location,
    Reasoning,
    ResponseFormat,
    WebFetch,
    WebSearch,
)
from tests.providers.bedrock import wire as bedrock
from tests.providers.calls import encoded
from tests.providers.gemini.case import accept
from tests.providers.openai_chat import wire as chat
from tests.providers.openai_responses import calls as responses
from tests.providers.strict_types import problems

# --- what is asked for ------------------------------------------------------------------------------------------------

OBJECT = Raw(
    b'{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":1},'
    b'"places":{"type":"array","items":{"$ref":"#/$defs/place"}}},"required":["city"],'
    b'"$defs":{"place":{"type":"object","properties":{"lat":{"type":"number"}}}}}'
)
PLAIN = ToolSpec("f", "Does f.", OBJECT)
TOOLS: dict[str, tuple[ToolSpec, ...]] = {
    "no tools": (),
    "tools": (PLAIN, ToolSpec("g", parameters=OBJECT, strict=True), ToolSpec("now"), ToolSpec("odd name!", "Renamed.")),
}
FORMAT = ResponseFormat(schema=OBJECT, name="my answer", description="An answer.")
OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "sampling": {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "seed": 1, "stop": ("x",), "max_tokens": 9, "user": "u"},
    "temperature": {"temperature": 1.0},
    "no tools please": {"tool_choice": "none", "parallel_tool_calls": False},
    "any tool": {"tool_choice": "required", "parallel_tool_calls": True},
    "this tool": {"tool_choice": OneTool("odd name!"), "parallel_tool_calls": False},
    "schema": {"response_format": FORMAT},
    "loose schema": {"response_format": ResponseFormat(schema=OBJECT, strict=False)},
    "thinking": {"reasoning": Reasoning()},
    **{f"effort {e}": {"reasoning": Reasoning(effort=e), "temperature": 1.0} for e in ("none", "low", "high", "max")},
    "no summary": {"reasoning": Reasoning(effort="low", summary=False)},
    "budget": {"reasoning": Reasoning(budget=3000), "max_tokens": 5000},
    "budget and effort": {"reasoning": Reasoning(effort="low", budget=100_000)},
    "cache": {"cache": True},
    "headers": {"extra_headers": {"x": "y"}},
}

PNG = Media.from_bytes(b"\x89PNG", "image/png")
MEDIA = (
    PNG,
    Media.from_bytes(b"%PDF", "application/pdf", name="a.pdf"),
    Media.from_bytes(b"RIFF", "audio/wav"),
    Media.from_bytes(b"notes", "text/plain"),
    Media.from_url("https://host/a.png"),
    Media.from_url("https://host/a.pdf"),
    Media.from_url("https://host/a.mp4"),
)
LONG_ID = "toolu_" + "x" * 70
CALLS = (ToolCall("c1", "f", '{"a":1}'), ToolCall("c|2", "odd name!"))
RESULTS = (
    ToolResult("c1", "f", (Text("one"), Json(Raw(b'{"a":1}')), *MEDIA[:3])),
    ToolResult("c|2", "odd name!", (Text("It failed."),), is_error=True),
)
FOREIGN = Message(
    role="assistant",
    provider="elsewhere",
    blocks=(
        Thinking("hm", "elsewhere", signature="s"),
        Text("Well."),
        Opaque("elsewhere", Raw(b'{"type":"search"}')),
        Text("So.", native=Native("elsewhere", {"citations": Raw(b"[1]")})),
        PNG,
        ToolCall(LONG_ID, "f", '{"broken'),
    ),
)
HISTORIES: dict[str, tuple[Message, ...]] = {
    "text": (Message.user("hi"),),
    "turns": (Message.user("a", "b"), Message.assistant("c", ""), Message.user("d"), Message.user("e")),
    "media": (Message.user("look", *MEDIA, "and?"),),
    "calls": (Message.user("hi"), Message.assistant("Well.", *CALLS), Message.tool(RESULTS)),
    "calls in two messages": (
        Message.user("hi"),
        Message.assistant(*CALLS),
        Message.tool(RESULTS[:1]),
        Message.tool(RESULTS[1:]),
        Message.user("and?"),
    ),
    "from elsewhere": (
        Message.user("hi"),
        FOREIGN,
        Message.tool([ToolResult(LONG_ID, "f", (Text("a"), Text("b")))]),
        Message.user("And?"),
    ),
}

# --- what each dialect has of its own ---------------------------------------------------------------------------------

SEARCH = (
    Opaque("anthropic", Raw(b'{"type":"server_tool_use","id":"s","name":"web_search","input":{}}')),
    Opaque("anthropic", Raw(b'{"type":"web_search_tool_result","tool_use_id":"s","content":[]}')),
)
SIGNED = Native("gemini", {"thoughtSignature": Raw(b'"c2lnbmVk"')})
CODE = Raw(b'{"executableCode":{"language":"PYTHON","code":"1"},"thoughtSignature":"c2ln"}')
SEARCHED = Raw(b'{"toolCall":{"toolType":"GOOGLE_SEARCH_WEB","args":{"queries":["a"]},"id":"1"}}')
PAUSED = Message(
    role="assistant",
    blocks=(Text("first half"),),
    stop_reason=StopReason.PAUSED,
    native=Native("gemini", {"continuationToken": Raw(b'"dG9rZW4="')}),
)
BREAKPOINT = Native("openai_chat:openai", {"prompt_cache_breakpoint": Raw(b'{"mode":"explicit"}')})
OWN: dict[str, list[Message]] = {
    "bedrock": [
        Message.assistant(
            Thinking("Hm", "anthropic", signature="s"),
            Thinking("", "anthropic", encrypted="e"),
            Thinking("", "bedrock"),
        ),
        Message.assistant(
            Text("a", native=Native("bedrock", {"citations": Raw(b'[{"title":"t"}]')})),
            Opaque("bedrock", Raw(b'{"toolUse":{"toolUseId":"s","name":"n","input":{},"type":"server_tool_use"}}')),
            Opaque("bedrock", Raw(b'{"toolResult":{"toolUseId":"s","content":[{"json":{}}],"type":"n_result"}}')),
        ),
        Message.user(Media.from_url("s3://bucket/a.png"), Media.from_url("s3://bucket/a.pdf")),
    ],
    "anthropic": [
        Message.assistant(Thinking("Hm", "anthropic", signature="s"), Thinking("", "anthropic", encrypted="e"), "a"),
        Message.assistant("a", *SEARCH, "b"),
    ],
    "gemini": [
        Message.assistant(Thinking("hm", "gemini", signature="c2ln"), Text("a", native=SIGNED), Opaque("gemini", CODE)),
        Message.assistant(Opaque("gemini", SEARCHED), ToolCall("call_gem_r_0", "now", "{}", native=SIGNED)),
        Message.tool([ToolResult("call_gem_r_0", "now", (Json(Raw(b"[1]")), *MEDIA[:3]))]),
        PAUSED,
    ],
    "openai_chat": [
        chat.read(chat.whole({"content": None, "refusal": "No."}), "openai"),
        chat.read(chat.whole({"content": "a", "annotations": [{"type": "url_citation"}], "new": 1}), "openai"),
        chat.read(chat.whole({"content": None, "audio": {"id": "a", "data": "AAEC", "transcript": "Hi"}}), "openai"),
        chat.read(chat.stream(chat.chunk({"content": "a", "reasoning_content": "hm"}), chat.chunk({}, "stop")), "groq"),
        Message.user(
            Text("a", native=BREAKPOINT),
            Opaque("openai_chat:openai", Raw(b'{"type":"file","file":{"file_id":"f"}}')),
        ),
    ],
    "openai_responses": [
        responses.whole(
            responses.response(
                responses.reasoning_item("Hm."),
                {
                    "id": "ws",
                    "type": "web_search_call",
                    "status": "completed",
                    "action": {"type": "search", "query": "q"},
                },
                responses.reasoning_item(id="rs_2"),
                responses.message_item("I add.", phase="commentary"),
            )
        ),
        responses.whole(responses.response(responses.message_item(content=[{"type": "refusal", "refusal": "No."}]))),
        responses.whole(
            responses.response({"id": "ig", "type": "image_generation_call", "status": "completed", "result": "iVBO"})
        ),
    ],
}
PLACE = Location(city="Utrecht", country="NL")
SERVER_TOOLS = (
    WebSearch(max_uses=3, allowed_domains=("a.example",), location=PLACE),
    WebFetch(max_uses=1, blocked_domains=("b.example",)),
    CodeExecution(),
    FileSearch(stores=("vs_1",), max_results=5),
    ComputerUse(width=1024, height=768),
    HostedMcp(name="wiki", url="https://mcp.example", token="t", allowed_tools=("ask",), approval="never"),
    ImageGeneration(size="1024x1536", quality="low", format="webp"),
)
OWN_OPTIONS: dict[str, list[dict[str, Any]]] = {
    "bedrock": [
        {"server_tools": (Raw(b'{"systemTool":{"name":"nova_grounding"}}'),)},
        {"server_tools": SERVER_TOOLS},
        {
            "extra_body": {
                "guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"},
                "serviceTier": {"type": "flex"},
            }
        },
        {"extra_body": {"inferenceConfig": {"topP": 0.1}}, "top_k": 3, "cache": True},
    ],
    "anthropic": [
        {"server_tools": (Raw(b'{"type":"web_search_20250305","name":"web_search"}'),)},
        {"server_tools": SERVER_TOOLS},
        {"extra_body": {"service_tier": "auto"}},
    ],
    "gemini": [
        {"server_tools": (Raw(b'{"googleSearch":{}}'), Raw(b'{"codeExecution":{}}')), "response_format": FORMAT},
        {"server_tools": SERVER_TOOLS},
        {"extra_body": {"cachedContent": "cachedContents/1", "labels": {"team": "a"}}},
        {"extra_body": {"generationConfig": {"responseModalities": ["TEXT"], "topP": 0.1}, "serviceTier": "flex"}},
    ],
    "openai_chat": [
        {"server_tools": (Raw(b'{"type":"custom","custom":{"name":"shell"}}'),)},
        {"extra_body": {"logprobs": True, "store": False}},
    ],
    "openai_responses": [
        {"server_tools": (Raw(b'{"type":"web_search"}'), Raw(b'{"type":"image_generation"}'))},
        {"server_tools": SERVER_TOOLS},
        {"extra_body": {"text": {"verbosity": "low"}, "include": ["message.output_text.logprobs"], "store": True}},
    ],
}


NOT_IN_THE_TYPES = {
    # The SDK speaks a later version of the API, in which no model takes them; see `_VERSION` in encode.py.
    "temperature": float,
    "top_p": float,
    "top_k": int,
}


def problems_of(body: Mapping[str, Any], *, beta: bool) -> list[str]:
    """What the SDK's parameter types do not allow, unknown keys included."""
    params = beta_params if beta else plain_params
    kind = params.MessageCreateParamsStreaming if body.get("stream") else params.MessageCreateParamsNonStreaming
    rest = dict(body)
    found: list[str] = []
    for name, expected in NOT_IN_THE_TYPES.items():
        if name in rest:
            found += problems(rest.pop(name), expected, name)
    return found + problems(rest, kind)


def judge_anthropic(body: Any, done: Encoded) -> list[str]:
    marks = json.dumps(body).count('"cache_control"')
    return problems_of(body, beta="anthropic-beta" in done.request.headers) + (["too many marks"] if marks > 4 else [])


def judge_gemini(body: Any, _done: Encoded) -> list[str]:
    accept(body)
    assert body["contents"][0]["role"] == "user"
    assert all(content["parts"] for content in body["contents"])
    return []


def judge_chat(body: Any, _done: Encoded) -> list[str]:
    streamed = body.get("stream") is True
    return problems(body, CompletionCreateParamsStreaming if streamed else CompletionCreateParamsNonStreaming)


def judge_responses(body: Any, _done: Encoded) -> list[str]:
    return problems(body, ResponseCreateParams)


def judge_bedrock(body: Any, _done: Encoded) -> list[str]:
    roles = [message["role"] for message in body["messages"]]
    assert roles[0] == "user"
    assert all(one != other for one, other in itertools.pairwise(roles))
    marks = json.dumps(body).count('"cachePoint"')
    return [*filter(None, [bedrock.problems(body)]), *(["too many marks"] if marks > 4 else [])]


# What servers understand beyond OpenAI, where it stands in a request.
OF_BODY = {"top_k", "random_seed", "user_id", "thinking", "reasoning", "reasoning_format"}
OF_PART = {"document_url", "video_url", "audio_url"}


def judge_compatible(body: Any, done: Encoded) -> list[str]:
    """OpenAI's types, without what other servers understand beyond it."""
    found = {name: value for name, value in body.items() if name not in OF_BODY}
    if found.get("reasoning_effort") == "default":
        del found["reasoning_effort"]
    for message in found["messages"]:
        for name in {"reasoning_content", "reasoning"} & message.keys():
            del message[name]
        if isinstance(message.get("content"), list):
            message["content"] = [
                {name: value for name, value in part.items() if name != "cache_control"}
                for part in message["content"]
                if part["type"] not in OF_PART and not isinstance(part.get("input_audio"), str)
            ]
    for tool in found.get("tools", []):
        tool.pop("cache_control", None)
    return judge_chat(found, done)


class Target(NamedTuple):
    provider: str
    model: str
    judge: Callable[[Any, Encoded], list[str]]


_ANTHROPIC = (
    "claude-3-7-sonnet-latest claude-sonnet-4-0 claude-sonnet-4-5 claude-opus-4-5 claude-opus-4-6 "
    "claude-opus-4-8 claude-sonnet-5 claude-sonnet-5-5 claude-haiku-5-5 claude-opus-5-5"
)
_GEMINI = (
    "gemini-2.0-flash gemini-2.5-flash gemini-2.5-pro gemini-2.5-flash-image gemini-3-pro-preview "
    "gemini-3-flash-preview gemini-3.8-flash gemma-3-27b-it publishers/google/models/gemini-3-flash-preview"
)
_OPENAI = (
    "gpt-3.5-turbo gpt-4-turbo gpt-4o gpt-4o-audio-preview gpt-4o-search-preview gpt-4.1-mini gpt-4.5-preview "
    "chatgpt-4o-latest o1 o3-mini o3 o4-mini gpt-5 gpt-5-mini gpt-5-chat-latest gpt-5.1 gpt-5.2 "
    "gpt-5.2-chat-latest gpt-5.4-mini gpt-5.5 gpt-5.6-sol gpt-6-astra gpt-6.1-sol"
)
_SERVERS = {
    "cerebras": "gpt-oss-120b zai-glm-4.7",
    "deepseek": "deepseek-v4-pro deepseek-chat",
    "groq": "openai/gpt-oss-120b qwen/qwen3-32b llama-3.3-70b-versatile",
    "mistral": "mistral-small-latest voxtral-small-latest",
    "openrouter": "anthropic/claude-sonnet-4.6 openai/gpt-5-mini",
    "xai": "grok-4 grok-4.3",
    "zai": "glm-4.7 glm-5.3 glm-4.6v",
}
_BEDROCK = (
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0 anthropic.claude-3-haiku-20240307-v1:0 "
    "global.anthropic.claude-opus-4-8 "
    "us.amazon.nova-2-lite-v1:0 amazon.nova-micro-v1:0 openai.gpt-oss-120b-1:0 qwen.qwen3-32b-v1:0 us.deepseek.r1-v1:0 "
    "us.meta.llama4-maverick-17b-instruct-v1:0 arn:aws:bedrock:us-east-1:1:application-inference-profile/x"
)
_COMPATIBLE = [name for name, one in PROVIDERS.items() if one.dialect == "openai_chat" and name != "openai"]
TARGETS = [
    *[Target("anthropic", model, judge_anthropic) for model in _ANTHROPIC.split()],
    *[Target("bedrock", model, judge_bedrock) for model in _BEDROCK.split()],
    *[Target("gemini", model, judge_gemini) for model in _GEMINI.split()],
    *[Target("openai", model, judge_chat) for model in _OPENAI.split()],
    *[Target(p, model, judge_compatible) for p in _COMPATIBLE for model in _SERVERS.get(p, "some-model").split()],
    *[Target("openai-responses", m, judge_responses) for m in ["gpt-5.6", "gpt-5.2", "gpt-5", "o3", "gpt-4o"]],
    Target("openai-responses", "computer-use-preview", judge_responses),
    Target("bedrock-mantle", "openai.gpt-5.6-luna", judge_responses),
]


def check(
    target: Target, history: tuple[Message, ...], options: dict[str, Any], *, tools: str, stream: bool, system: bool
) -> None:
    asked = {} if tools == "no tools" and "tool_choice" in options else options
    how = {"system": "Be brief." if system else None, "tools": TOOLS[tools], "stream": stream, "adapt": True, **asked}
    done = encoded(f"{target.provider}:{target.model}", *history, **how)
    assert target.judge(json.loads(done.request.body), done) == []


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.provider}:{target.model}")
def test_each_option_and_each_history(target: Target) -> None:
    dialect = PROVIDERS[target.provider].dialect
    own = (Message.user("hi"), *OWN[dialect])
    for history, tools in itertools.product([*HISTORIES.values(), own, (*own, Message.user("more"))], TOOLS):
        check(target, history, {}, tools=tools, stream=False, system=True)
    for options, tools in itertools.product([*OPTIONS.values(), *OWN_OPTIONS[dialect]], TOOLS):
        check(target, HISTORIES["calls"], options, tools=tools, stream=tools == "tools", system=tools == "tools")


@given(
    st.sampled_from(TARGETS),
    st.sampled_from(sorted(HISTORIES)),
    st.sampled_from(sorted(TOOLS)),
    st.lists(st.sampled_from(sorted(OPTIONS)), max_size=4),
    st.booleans(),
)
def test_any_options_together(target: Target, history: str, tools: str, chosen: list[str], stream: bool) -> None:
    options = {name: value for one in chosen for name, value in OPTIONS[one].items()}
    check(target, HISTORIES[history], options, tools=tools, stream=stream, system=stream)


# --- the judges themselves --------------------------------------------------------------------------------------------

USER = {"role": "user", "content": "x"}
PART = {"text": "a"}
WRONG: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    (judge_anthropic, {"model": "m", "max_tokens": 1, "messages": [USER]}, {"messages": [{**USER, "unknown": 1}]}),
    (judge_anthropic, {"model": "m", "max_tokens": 1, "messages": [USER]}, {"tool_choice": {"type": "sometimes"}}),
    (judge_bedrock, {"messages": [{"role": "user", "content": [PART]}]}, {"toolConfig": {"toolChoice": {"none": {}}}}),
    (judge_bedrock, {"messages": [{"role": "user", "content": [PART]}]}, {"inferenceConfig": {"maxTokens": "x"}}),
    (judge_gemini, {"contents": [{"role": "user", "parts": [PART]}]}, {"generationConfig": {"top_p": 1}}),
    (judge_gemini, {"contents": [{"role": "user", "parts": [PART]}]}, {"contents": [{"parts": [{**PART, "txt": 1}]}]}),
    (judge_chat, {"model": "m", "messages": [USER]}, {"seed": "x"}),
    (judge_chat, {"model": "m", "messages": [USER]}, {"messages": [{**USER, "new": 1}]}),
    (judge_responses, {"model": "m", "input": [USER]}, {"tools": [{"type": "function", "name": "x"}]}),
    (judge_responses, {"model": "m", "input": [USER]}, {"include": ["everything"]}),
]


@pytest.mark.parametrize(("judge", "good", "wrong"), WRONG)
def test_the_judges_find_what_is_wrong(judge: Any, good: dict[str, Any], wrong: dict[str, Any]) -> None:
    done = encoded("anthropic:claude-sonnet-4-5")
    assert judge(good, done) == []
    try:
        found = judge({**good, **wrong}, done)
    except (ValueError, UserWarning):
        found = ["refused"]
    assert found
