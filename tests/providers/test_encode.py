"""Requests of each dialect: options as members of the body, and unsupported options."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.conversation import (
    Conversation,
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
from dragoman.errors import ConfigurationError
from dragoman.providers import PROVIDERS, Reasoning, ResponseFormat
from tests.providers.calls import HI, body_of, call_of, encode, encoded

A, C = "anthropic:claude-sonnet-4-5", "openai:gpt-4o"
G, R = "gemini:gemini-3-flash-preview", "openai-responses:gpt-5.6"
SCHEMA = Raw(b'{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}')
FREE = Raw(b'{"type":"object","additionalProperties":{"type":"string"}}')
ADD, NOW = ToolSpec("add", "Adds.", SCHEMA), ToolSpec("now")
STRICT = msgspec.structs.replace(ADD, strict=True)
EMPTY = {"type": "object", "properties": {}}
PLAIN = json.loads(bytes(SCHEMA))
ANSWER = ResponseFormat(schema=SCHEMA, name="sum", description="A sum.")
LOOSE = ResponseFormat(schema=SCHEMA, name="my sum!", strict=False)


def effort(word: Any, **more: Any) -> dict[str, Any]:
    return {"reasoning": Reasoning(effort=word, **more)}


def budget(tokens: int, **more: Any) -> dict[str, Any]:
    return {"reasoning": Reasoning(budget=tokens, **more)}


def at(body: Any, path: str) -> Any:
    """The member at a path of names and indices; None if there is none."""
    for name in path.split("."):
        if isinstance(body, list):
            body = body[int(name)] if int(name) < len(body) else None
        else:
            body = body.get(name) if isinstance(body, dict) else None
    return body


# --- the smallest requests --------------------------------------------------------------------------------------------

SMALLEST: list[tuple[str, str, dict[str, str], dict[str, Any]]] = [
    (
        A,
        "/v1/messages",
        {"anthropic-version": "2023-06-01"},
        {"max_tokens": 8192, "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
    ),
    (C, "/chat/completions", {}, {"messages": [{"role": "user", "content": "Hi"}]}),
    (
        R,
        "/responses",
        {},
        {
            "input": [{"role": "user", "content": "Hi"}],
            "store": False,
            "include": ["reasoning.encrypted_content"],
        },
    ),
    ("openai-responses:gpt-4o", "/responses", {}, {"input": [{"role": "user", "content": "Hi"}], "store": False}),
    (
        G,
        "/v1beta/models/gemini-3-flash-preview:generateContent",
        {},
        {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    ),
]


@pytest.mark.parametrize(("target", "path", "headers", "body"), SMALLEST)
def test_the_smallest_request(target: str, path: str, headers: dict[str, str], body: dict[str, Any]) -> None:
    done = encoded(target)
    assert (done.request.path, done.request.headers) == (path, headers)
    named = {} if target == G else {"model": target.partition(":")[2]}
    assert json.loads(done.request.body) == {**named, **body}
    assert (done.adaptations, done.losses, done.tool_names) == ((), (), {})


@pytest.mark.parametrize(
    "provider", [name for name, one in PROVIDERS.items() if one.dialect in ("openai_chat", "anthropic")]
)
def test_an_empty_conversation_is_refused(provider: str) -> None:
    call = msgspec.structs.replace(call_of(f"{provider}:m"), conversation=Conversation())
    with pytest.raises(ConfigurationError, match="nothing to send"):
        encode(call)


@pytest.mark.parametrize(
    ("model", "quirks", "path"),
    [
        ("gemini-2.5-flash", "", "/v1beta/models/gemini-2.5-flash"),
        ("models/gemini-2.5-flash", "", "/v1beta/models/gemini-2.5-flash"),
        ("tunedModels/mine-1", "", "/v1beta/tunedModels/mine-1"),
        ("publishers/google/models/gemini-3-flash", "", "/v1beta1/publishers/google/models/gemini-3-flash"),
        ("projects/p/locations/eu/endpoints/123", "", "/v1beta1/projects/p/locations/eu/endpoints/123"),
        ("gemini-3-flash@001", "vertex", "/publishers/google/models/gemini-3-flash@001"),
        ("acme/model-1", "vertex", "/publishers/acme/models/model-1"),
        ("publishers/acme/models/model-1", "vertex", "/publishers/acme/models/model-1"),
        ("projects/p/locations/eu/endpoints/123", "vertex", "/v1beta1/projects/p/locations/eu/endpoints/123"),
    ],
)
def test_paths_of_gemini(model: str, quirks: str, path: str) -> None:
    profile = {"quirks": frozenset(quirks.split())}
    assert encoded(f"gemini:{model}", profile=profile).request.path == f"{path}:generateContent"
    streaming = encoded(f"gemini:{model}", profile=profile, stream=True).request.path
    assert streaming == f"{path}:streamGenerateContent?alt=sse"


@pytest.mark.parametrize("model", ["a b", "a?key=1", "a#b", "../x", "a/../../b", "é", "a\n"])
def test_illegal_model_names_in_a_path_are_refused(model: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name of a model"):
        encoded(f"gemini:{model}")


# --- members ----------------------------------------------------------------------------------------------------------

NAMED = {"max_tokens": 9, "seed": 1, "user": "u"}
SAMPLED: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "stop": ("a", "b")}
ASKED = {"stream": True, "stream_options": {"include_usage": True}}
ONE = OneTool("add")
ALONE = {"disable_parallel_tool_use": True}
SEARCH, GOOGLE = Raw(b'{"type":"web_search_20250305","name":"web_search"}'), Raw(b'{"googleSearch":{}}')
OTHERS = Raw(b'{"type":"web_search"}')
ON, OFF, PARSED = {"type": "enabled"}, {"type": "disabled"}, "parsed"
CONFIG, CALLING = "generationConfig", "toolConfig.functionCallingConfig"
SYSTEM = {"system": "Be brief."}

HELD = {"strict": False}
SINGLE, UNSAID = {"parallel_tool_calls": False}, {"parallel_tool_calls": None}
CHOSEN_ALONE = [("none", {"type": "none"}), ("required", {"type": "any", **ALONE})]
FORMAT = {"type": "json_schema", "name": "sum", "description": "A sum.", "schema": PLAIN, "strict": True}

# A model, the options, and members of the body by their paths; None for those that must be absent.
MEMBERS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    # --- system prompts ---
    (A, SYSTEM, {"system": [{"type": "text", "text": "Be brief."}]}),
    *[(A, {"system": empty}, {"system": None}) for empty in ("", " \n")],
    (R, SYSTEM, {"instructions": "Be brief."}),
    (G, SYSTEM, {"systemInstruction": {"parts": [{"text": "Be brief."}]}}),
    *[
        (f"openai:{model}", SYSTEM, {"messages.0": {"role": role, "content": "Be brief."}})
        for model, role in (("gpt-4o", "system"), ("gpt-5", "developer"), ("o3", "developer"))
    ],
    # --- streams; usage of chat streams is asked for where that is allowed ---
    *[(target, {"stream": True}, {"stream": True}) for target in (A, R)],
    *[(target, {"stream": True}, ASKED) for target in (C, "groq:llama-3.3-70b-versatile")],
    ("mistral:mistral-large-latest", {"stream": True}, {"stream": True, "stream_options": None}),
    # --- parameters under each server's names ---
    (
        A,
        {"temperature": 0.5, "top_k": 3, "stop": ("END",)},
        {"temperature": 0.5, "top_k": 3, "stop_sequences": ["END"]},
    ),
    (A, {"max_tokens": 9, "user": "u"}, {"max_tokens": 9, "metadata": {"user_id": "u"}}),
    (A, {"max_tokens": 0, "choices": 1}, {"max_tokens": 0}),  # which is for filling the cache
    *[
        (f"anthropic:{model}", {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9})
        for model in ("claude-sonnet-4-0", "anything-else")  # a server of another name speaks the plain dialect
    ],
    *[
        (f"openai:{m}", NAMED, {"max_completion_tokens": 9, "seed": 1, "safety_identifier": "u"})
        for m in ("gpt-4o", "o3")
    ],
    *[(target, NAMED, NAMED) for target in ("openai-compatible:m", "vllm:m")],
    ("cerebras:gpt-oss-120b", NAMED, {"max_completion_tokens": 9, "seed": 1, "user": "u", "max_tokens": None}),
    ("mistral:m", {"seed": 1, "max_tokens": 9}, {"random_seed": 1, "max_tokens": 9}),
    ("zai:glm-5.3", {"user": "u"}, {"user_id": "u"}),
    (C, SAMPLED, {**SAMPLED, "stop": ["a", "b"]}),
    ("vllm:m", {"top_k": 5}, {"top_k": 5}),
    (
        "openai-responses:gpt-4.1",
        {"max_tokens": 100, "temperature": 0.5, "top_p": 0.9, "user": "u"},
        {"max_output_tokens": 100, "temperature": 0.5, "top_p": 0.9, "safety_identifier": "u"},
    ),
    (
        G,
        {"max_tokens": 5, "temperature": 0.0, "top_p": 0.5, "top_k": 3, "stop": ("a",), "seed": 0},
        {CONFIG: {"maxOutputTokens": 5, "temperature": 0.0, "topP": 0.5, "topK": 3, "stopSequences": ["a"], "seed": 0}},
    ),
    (G, {"profile": {"renamed": {"max_tokens": "maxTokens"}}, "max_tokens": 5}, {CONFIG: {"maxTokens": 5}}),
    # --- sampling while a model does not reason ---
    *[(f"{p}:gpt-5.2", {"temperature": 0.5}, {"temperature": 0.5}) for p in ("openai", "openai-responses")],
    *[
        (f"{p}:gpt-5.6", {"temperature": 0.5, **effort("none")}, {"temperature": 0.5})
        for p in ("openai", "openai-responses")
    ],
    (
        "openai:gpt-5.1",
        {"temperature": 0.5, **effort("low"), "adapt": True},
        {"temperature": None, "reasoning_effort": "low"},
    ),
    # --- neutral values are accepted by models that do not take the option ---
    ("openai:gpt-5.5", {"temperature": 1, "top_p": 1}, {"temperature": 1, "top_p": 1}),
    (R, {"temperature": 1}, {"temperature": 1}),
    ("openai-responses:my-own-model", {"temperature": 0.2}, {"temperature": 0.2}),
    ("deepseek:deepseek-chat", {"seed": 7}, {"seed": 7}),
    *[("deepseek:deepseek-reasoner", effort(word), {"reasoning_effort": word}) for word in ("low", "medium", "xhigh")],
    # --- reasoning in the words of each server ---
    ("openai:o3", effort("low"), {"reasoning_effort": "low"}),
    ("openai:gpt-5", effort("minimal"), {"reasoning_effort": "minimal"}),
    ("openai:gpt-5", {**effort("max"), "adapt": True}, {"reasoning_effort": "high"}),  # the nearest
    ("openai:gpt-5", budget(100), {"reasoning_effort": "low"}),
    ("openai:gpt-5.6-terra", effort("max"), {"reasoning_effort": "max"}),
    ("openai-compatible:m", effort("high"), {"reasoning_effort": "high"}),
    ("openrouter:anthropic/x", effort("high"), {"reasoning": {"effort": "high"}}),
    ("openrouter:anthropic/x", budget(500), {"reasoning": {"max_tokens": 500}}),
    ("openrouter:x", effort("low", summary=False), {"reasoning": {"effort": "low", "exclude": True}}),
    ("deepseek:deepseek-v4-pro", effort("none"), {"thinking": OFF, "reasoning_effort": None}),
    ("deepseek:deepseek-v4-pro", effort("max"), {"thinking": ON, "reasoning_effort": "max"}),
    ("zai:glm-4.7", effort("high"), {"thinking": ON, "reasoning_effort": None}),
    ("zai:glm-5.3", effort("max"), {"thinking": ON, "reasoning_effort": "max"}),
    ("groq:openai/gpt-oss-120b", effort("low"), {"reasoning_effort": "low", "reasoning_format": PARSED}),
    ("groq:qwen/qwen3-32b", effort("none"), {"reasoning_effort": "none", "reasoning_format": None}),
    ("groq:qwen/qwen3-32b", effort("high"), {"reasoning_effort": "default", "reasoning_format": PARSED}),
    ("mistral:mistral-small-latest", effort("high"), {"reasoning_effort": "high"}),
    ("ollama:gpt-oss:20b", effort("medium"), {"reasoning_effort": "medium"}),
    ("openai:o3", {"reasoning": Reasoning()}, {"reasoning_effort": None}),
    (R, effort("high"), {"reasoning": {"effort": "high", "summary": "auto"}}),
    (R, effort("high", summary=False), {"reasoning": {"effort": "high"}}),
    (R, {"reasoning": Reasoning()}, {"reasoning": {"summary": "auto"}}),
    (R, {"reasoning": Reasoning(summary=False)}, {"reasoning": None}),
    (R, effort("none"), {"reasoning": {"effort": "none"}}),
    ("openai-responses:o1", effort("high"), {"reasoning": {"effort": "high"}}),
    *[
        (f"openai-responses:{model}", {**asked, "adapt": True}, {"reasoning.effort": sent})
        for model, asked, sent in (
            ("gpt-5.2", effort("minimal"), "none"),
            ("gpt-5", effort("max"), "high"),
            ("gpt-5-pro", effort("low"), "high"),
            ("gpt-5", budget(1000), "low"),
            ("gpt-5", budget(100_000), "high"),
        )
    ],
    *[
        (
            f"gemini:{model}",
            asked,
            {f"{CONFIG}.thinkingConfig": {**sent, **({} if quiet else {"includeThoughts": True})}},
        )
        for model, asked, sent, quiet in (
            ("gemini-3-flash", effort("minimal"), {"thinkingLevel": "MINIMAL"}, False),
            ("gemini-3-pro-preview", effort("high", summary=False), {"thinkingLevel": "HIGH"}, True),
            ("gemini-3.8-flash", effort("medium"), {"thinkingLevel": "MEDIUM"}, False),
            ("gemini-3-flash-preview", budget(5000), {"thinkingLevel": "MEDIUM"}, False),
            ("gemini-3-flash-preview", {"reasoning": Reasoning()}, {}, False),
            ("gemini-2.5-flash", budget(512), {"thinkingBudget": 512}, False),
            ("gemini-2.5-flash", effort("low"), {"thinkingBudget": 1024}, False),
            ("gemini-2.5-flash", effort("none"), {"thinkingBudget": 0}, True),
            ("gemini-2.5-pro", effort("high", budget=99), {"thinkingBudget": 99}, False),
            ("gemini-3-flash", effort("low", budget=9), {"thinkingLevel": "LOW"}, False),
            ("gemini-3-flash", effort("low", budget=0), {"thinkingLevel": "LOW"}, False),
            ("gemini-3-pro-preview", {**effort("none", summary=False), "adapt": True}, {"thinkingLevel": "LOW"}, True),
            ("gemini-3-flash", {**effort("max", summary=False), "adapt": True}, {"thinkingLevel": "HIGH"}, True),
            ("gemini-2.5-pro", {**effort("none", summary=False), "adapt": True}, {"thinkingBudget": 1024}, True),
        )
    ],
    # --- newer models take tools over chat only without reasoning ---
    ("openai:gpt-5.4", {"tools": (ADD,), **effort("low"), "adapt": True}, {"reasoning_effort": "none"}),
    ("openai:gpt-5.4", {"tools": (ADD,)}, {"reasoning_effort": None}),
    ("openai:gpt-5.6-sol", {"tools": (ADD,)}, {"reasoning_effort": "none"}),
    ("openai:gpt-5", {"tools": (ADD,), **effort("low")}, {"reasoning_effort": "low"}),
    # --- tools, in the given order, then those of the provider ---
    (
        A,
        {"tools": (NOW, ADD), "server_tools": (SEARCH,)},
        {
            "tools.0": {"name": "now", "input_schema": EMPTY},
            "tools.1": {"name": "add", "description": "Adds.", "input_schema": PLAIN},
            "tools.2.name": "web_search",
            "tool_choice": None,
        },
    ),
    (
        C,
        {"tools": (ADD, NOW), "server_tools": (OTHERS,)},
        {
            "tools.0": {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": PLAIN}},
            "tools.1.function.name": "now",
            "tools.2": {"type": "web_search"},
        },
    ),
    (
        R,
        {"tools": (ADD, NOW), "server_tools": (OTHERS,)},
        {
            "tools.0": {"type": "function", "name": "add", "description": "Adds.", **HELD, "parameters": PLAIN},
            "tools.1": {"type": "function", "name": "now", "parameters": EMPTY, **HELD},
            "tools.2": {"type": "web_search"},
        },
    ),
    (
        G,
        {"tools": (ADD, NOW), "server_tools": (GOOGLE,)},
        {
            "tools.0.functionDeclarations.0": {"name": "add", "description": "Adds.", "parametersJsonSchema": PLAIN},
            "tools.0.functionDeclarations.1.name": "now",
            "tools.1": {"googleSearch": {}},
            "toolConfig": {"includeServerSideToolInvocations": True},
        },
    ),
    (G, {"server_tools": (GOOGLE,)}, {"tools": [{"googleSearch": {}}], "toolConfig": None}),
    (
        "gemini:publishers/google/models/gemini-3-flash",
        {"tools": (NOW,), "server_tools": (GOOGLE,)},
        {"toolConfig": None},
    ),
    (C, {"server_tools": (OTHERS,)}, {"tools": [{"type": "web_search"}]}),
    # --- which tool, and how many at once ---
    (A, {"server_tools": (SEARCH,), "parallel_tool_calls": False}, {"tool_choice": {"type": "auto", **ALONE}}),
    (A, {"tools": (ADD,), "parallel_tool_calls": True}, {"tool_choice": None}),
    *[(A, {"tools": (ADD,), "tool_choice": c, **SINGLE}, {"tool_choice": sent}) for c, sent in CHOSEN_ALONE],
    (G, {"tools": (NOW, STRICT)}, {CALLING: {"mode": "VALIDATED"}}),
    ("gemini:gemini-2.0-flash", {"tools": (STRICT,)}, {"toolConfig": None}),
    ("lmstudio:m", {"tools": (ADD,), "tool_choice": ONE, "adapt": True}, {"tool_choice": None}),
    *[(target, {"tools": (ADD,), **SINGLE}, SINGLE) for target in (C, R)],
    ("llamacpp:m", {"tools": (ADD,), "parallel_tool_calls": True}, {"parallel_tool_calls": True}),
    *[(f"{p}:o3", {"tools": (ADD,), "parallel_tool_calls": True}, UNSAID) for p in ("openai", "openai-responses")],
    # --- strict tools ---
    (A, {"tools": (STRICT,)}, {"tools.0.strict": True, "tools.0.input_schema.additionalProperties": False}),
    (A, {"tools": (msgspec.structs.replace(ADD, strict=False),)}, {"tools.0.strict": None}),
    (C, {"tools": (STRICT,)}, {"tools.0.function.strict": True}),
    (R, {"tools": (STRICT,)}, {"tools.0.strict": True}),
    # --- replies of a schema ---
    (A, {"response_format": ANSWER}, {"output_config.format": {"type": "json_schema", "schema": PLAIN}}),
    (
        C,
        {"response_format": ANSWER},
        {
            "response_format.type": "json_schema",
            "response_format.json_schema": {"name": "sum", "description": "A sum.", "schema": PLAIN, "strict": True},
        },
    ),
    (C, {"response_format": LOOSE}, {"response_format.json_schema": {"name": "my_sum_", "schema": PLAIN}}),
    (R, {"response_format": ANSWER}, {"text": {"format": FORMAT}}),
    (R, {"response_format": LOOSE}, {"text.format.name": "my_sum_", "text.format.strict": False}),
    (
        G,
        {"response_format": ANSWER},
        {CONFIG: {"responseMimeType": "application/json", "responseJsonSchema": {**PLAIN, "description": "A sum."}}},
    ),
    # --- what the caller adds wins; some objects are laid over ours ---
    (
        A,
        {"max_tokens": 5, "extra_body": {"max_tokens": 6, "service_tier": "auto"}},
        {"max_tokens": 6, "service_tier": "auto"},
    ),
    (C, {"max_tokens": 5, "extra_body": {"max_completion_tokens": 7, "logprobs": True}}, {"max_completion_tokens": 7}),
    (C, {"extra_body": {"model": "other", "messages": [1]}}, {"model": "other", "messages": [1]}),
    (
        R,
        {"system": "Ours.", "extra_body": {"input": "Hi", "instructions": "Mine."}},
        {"input": "Hi", "instructions": "Mine."},
    ),
    (R, {"extra_body": {"include": []}}, {"include": []}),
    (R, {"extra_body": {"background": True}}, {"store": None}),
    (
        R,
        {
            "response_format": ANSWER,
            **effort("low"),
            "extra_body": {
                "text": {"verbosity": "low"},
                "reasoning": {"context": "all_turns"},
                "include": ["message.output_text.logprobs"],
                "store": True,
            },
        },
        {
            "text.format.name": "sum",
            "text.verbosity": "low",
            "reasoning": {"effort": "low", "summary": "auto", "context": "all_turns"},
            "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
            "store": True,
        },
    ),
    (
        G,
        {
            "temperature": 0.5,
            "top_p": 0.5,
            "tools": (NOW,),
            "tool_choice": "required",
            "extra_body": {
                "generationConfig": {"temperature": 1.5, "thinkingConfig": {}},
                "toolConfig": {"functionCallingConfig": {"streamFunctionCallArguments": True}},
            },
        },
        {
            CONFIG: {"temperature": 1.5, "topP": 0.5, "thinkingConfig": {}},
            CALLING: {"mode": "ANY", "streamFunctionCallArguments": True},
        },
    ),
    (
        G,
        {"tools": (NOW,), "system": "s", "extra_body": {"tools": [], "contents": [], "systemInstruction": {}}},
        {"tools": [], "contents": [], "systemInstruction": {}},
    ),
    (
        G,
        {"system": "s", "tools": (NOW,), "tool_choice": "required", "extra_body": {"cachedContent": "c/1"}},
        {"systemInstruction": None, "tools": None, "toolConfig": None, "cachedContent": "c/1"},
    ),
]


CHOSEN: dict[str, list[Any]] = {
    A: [None, {"type": "none"}, {"type": "any"}, {"type": "tool", "name": "add"}],
    C: [None, "none", "required", {"type": "function", "function": {"name": "add"}}],
    R: [None, "none", "required", {"type": "function", "name": "add"}],
    G: [None, {"mode": "NONE"}, {"mode": "ANY"}, {"mode": "ANY", "allowedFunctionNames": ["add"]}],
}


@pytest.mark.parametrize("target", CHOSEN)
def test_tool_choices(target: str) -> None:
    path = CALLING if target == G else "tool_choice"
    choices = ("auto", "none", "required", ONE)
    assert [at(body_of(target, tools=(ADD,), tool_choice=choice), path) for choice in choices] == CHOSEN[target]
    adapted = [body_of(target, tool_choice=choice, adapt=True, **SINGLE) for choice in choices[:3]]
    assert [(at(body, path), at(body, "parallel_tool_calls")) for body in adapted] == [(None, None)] * 3


@pytest.mark.parametrize(("target", "how", "members"), MEMBERS)
def test_members_of_the_body(target: str, how: dict[str, Any], members: dict[str, Any]) -> None:
    done = encoded(target, **how)
    body = json.loads(done.request.body)
    assert {path: at(body, path) for path in members} == members
    for name in how.get("extra_body", ()):
        assert done.request.body.count(f'"{name}":'.encode()) == 1, "no member is sent twice"


# --- headers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [A, C, G, R])
def test_headers_of_the_caller(target: str) -> None:
    given = {"x-one": "1", "anthropic-version": "2026-10-21"}
    assert encoded(target, extra_headers=given).request.headers == given


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"extra_headers": {"anthropic-beta": "one, two"}}, "one,two"),
        ({"server_tools": (SEARCH,)}, None),
        ({"server_tools": (Raw(b"[]"),)}, None),
        ({"server_tools": (Raw(b'{"type":"advisor_20260301"}'),)}, "advisor-tool-2026-03-01"),
        ({"extra_body": {"mcp_servers": [], "compaction": {}}}, "mcp-client-2025-11-20,compact-2026-09-04"),
        (
            {"extra_headers": {"Anthropic-Beta": "one"}, "extra_body": {"fallbacks": "default"}},
            "server-side-fallback-2026-07-01,one",
        ),
    ],
)
def test_beta_features_set_their_header(how: dict[str, Any], expected: str | None) -> None:
    assert encoded(A, **how).request.headers.get("anthropic-beta") == expected


# --- refusals and adaptations -----------------------------------------------------------------------------------------

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("openai:gpt-5.1", {"top_p": 0.5, **effort("low")}, "only without reasoning"),
    ("openai:gpt-5.1", {"logprobs": 1, **effort("low")}, "only without reasoning"),
    ("openai:gpt-5.6-sol", {"temperature": 0.5}, "only without reasoning"),
    ("openai:gpt-5", effort("max"), "minimal, low, medium, high"),
    ("openai:gpt-4o", effort("low"), "does not reason"),
    ("openai:gpt-5.4", {"tools": (ADD,), **effort("low")}, "openai-responses"),
    ("openai:gpt-6-astra", {"tools": (ADD,)}, "calls no tools over this API"),
    ("zai:glm-5.3", {"tools": (ADD,), "tool_choice": "required"}, "tool_choice='required'"),
    ("zai:glm-5.3", {"server_tools": (OTHERS,), "tool_choice": "required"}, "tool_choice='required'"),
    ("openai:o3", {"tools": (ADD,), "parallel_tool_calls": False}, "one call at a time"),
    (R, {"tools": (ADD,), "tool_choice": OneTool("sub")}, "'sub'"),
    (R, {"extra_body": {"previous_response_id": "resp_1"}}, "Leave previous_response_id out"),
    (R, {"extra_body": {"conversation": {"id": "conv_1"}}}, "Leave conversation out"),
    (A, {"response_format": ResponseFormat(schema=FREE)}, "response_format"),
    ("gemini:gemini-2.5-pro", {"tools": (NOW,), "server_tools": (GOOGLE,)}, "server_tools with tools"),
    ("gemini:gemini-3-pro-preview", effort("none"), "effort"),
    ("anthropic:claude-opus-5-5", effort("none"), "always thinks"),
    ("anthropic:claude-opus-4-1", budget(40_000), "max_tokens"),
    (A, {**effort("low"), "max_tokens": 100}, "max_tokens"),
    *[
        (A, {"tools": (ADD,), "tool_choice": choice, "reasoning": Reasoning()}, "forced")
        for choice in ("required", ONE)
    ],
]


@pytest.mark.parametrize(("target", "how", "why"), REFUSED)
def test_unsupported_options_are_refused(target: str, how: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        encoded(target, **how)


SAID = "this model does not support it"
REPORTED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("ollama:m", {"tools": (STRICT,)}, [f"strict of tool 'add': {SAID}"]),
    ("anthropic:claude-sonnet-4-0", {"tools": (STRICT,)}, [f"strict of tool 'add': {SAID}"]),
    ("openai:gpt-4-turbo", {"tools": (STRICT,)}, [f"strict of tool 'add': {SAID}"]),
    (R, {"tools": (STRICT,), "profile": {"strict_tools": False}}, [f"strict of tool 'add': {SAID}"]),
    (C, {"response_format": LOOSE}, ["name 'my sum!' of the reply's schema: sent as 'my_sum_'"]),
    (
        "gemini:gemini-2.5-flash",
        effort("medium"),
        ["reasoning.effort: this model takes a number of tokens: 'medium' became 8192"],
    ),
    (
        G,
        budget(100_000),
        ["a reasoning budget of 100000: sent as effort 'high'"],
    ),
    ("openai:gpt-5.6-sol", budget(0), ["a reasoning budget of 0: sent as effort 'none'"]),
    ("mistral:mistral-small-latest", budget(1), ["a reasoning budget of 1: sent as effort 'high'"]),
    (G, budget(1), ["a reasoning budget of 1: sent as effort 'minimal'"]),
    *[
        (target, effort("low", budget=9), ["reasoning.budget: not sent: only one of the two can be"])
        for target in ("openai:gpt-5", R, G, "openrouter:openai/gpt-5", "bedrock:amazon.nova-2-lite-v1:0")
    ],
    ("cerebras:zai-glm-4.6", budget(1), ["a reasoning budget of 1: not sent: the model decides"]),
    ("openai:gpt-5.6-sol", {"tools": (ADD,)}, ["reasoning effort: set to 'none': this API takes tools only so"]),
    (A, effort("high"), ['reasoning effort "high": sent as a budget of 16384 tokens']),
    ("anthropic:claude-opus-4-8", budget(5000), ['a reasoning budget of 5000: sent as effort "medium"']),
    (
        "anthropic:claude-opus-4-6",
        effort("xhigh"),
        ['reasoning effort "xhigh": this model does not know it: sent as "high"'],
    ),
    ("anthropic:claude-opus-4-5", effort("high"), []),
    (
        G,
        {"system": "s", "tools": (NOW,), "extra_body": {"cachedContent": "c/1"}},
        [f"{name}: left out: it must be part of the cached content" for name in ("systemInstruction", "tools")],
    ),
]


@pytest.mark.parametrize(("target", "how", "lines"), REPORTED)
def test_adaptations_are_reported(target: str, how: dict[str, Any], lines: list[str]) -> None:
    assert [str(one) for one in encoded(target, **how).adaptations] == lines


def test_a_schema_that_cannot_be_strict_is_left_out_with_adapt() -> None:
    done = encoded(A, response_format=ResponseFormat(schema=FREE), adapt=True)
    assert "output_config" not in json.loads(done.request.body)
    assert [one.what for one in done.adaptations] == ["response_format"]
    optional = Raw(b'{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"]}')
    strict = encoded(R, tools=(ToolSpec("add", parameters=optional, strict=True),))
    assert at(json.loads(strict.request.body), "tools.0.parameters.required") == ["a", "b"]
    assert {one.what for one in strict.adaptations} == {"schema of tool 'add'"}


# --- how Claude is asked to think -------------------------------------------------------------------------------------

EARLIER = (HI, Message.assistant(Thinking("Hm", "anthropic", signature="s"), "a"), Message.user("And?"))
ADAPTIVE = {"type": "adaptive"}
SUMMARIZED = {**ADAPTIVE, "display": "summarized"}
BOUND = {"prefix_mismatch_behavior": "drop_block"}


def enabled(tokens: int) -> dict[str, Any]:
    return {"type": "enabled", "budget_tokens": tokens}


def thought_of(model: str, *messages: Message, **how: Any) -> tuple[Any, Any, int]:
    """Thinking, effort and max_tokens in the request."""
    body = body_of(f"anthropic:{model}", *messages, adapt=True, **how)
    return body.get("thinking"), at(body, "output_config.effort"), body["max_tokens"]


@pytest.mark.parametrize(
    ("model", "how", "thinking", "sent"),
    [
        # by budget
        ("claude-3-7-sonnet-latest", budget(2000), enabled(2000), None),
        ("claude-sonnet-4-5", effort("low"), enabled(2048), None),
        ("claude-haiku-4-5-20251001", {"reasoning": Reasoning()}, enabled(8192), None),
        ("claude-sonnet-4-5", effort("none"), OFF, None),
        ("claude-sonnet-4-5", budget(2000, summary=False), {**enabled(2000), "display": "omitted"}, None),
        # by budget and effort
        ("claude-opus-4-5", effort("high"), enabled(16384), "high"),
        # adaptive, or by budget
        ("claude-opus-4-6", effort("max"), ADAPTIVE, "max"),
        ("claude-opus-4-6", effort("xhigh"), ADAPTIVE, "high"),
        ("claude-sonnet-4-6", budget(4000), enabled(4000), None),
        ("claude-sonnet-4-6", effort("minimal"), ADAPTIVE, "low"),
        # adaptive only, and silent unless asked
        ("claude-opus-4-8", effort("xhigh"), SUMMARIZED, "xhigh"),
        ("claude-opus-4-7", effort("low", summary=False), ADAPTIVE, "low"),
        ("claude-opus-4-7", effort("none"), OFF, None),
        ("claude-sonnet-5", {"reasoning": Reasoning()}, SUMMARIZED, None),
        ("claude-sonnet-5", budget(10_000), SUMMARIZED, "high"),
        ("claude-sonnet-5", budget(900_000), SUMMARIZED, "max"),
        # the newest
        ("claude-sonnet-5-5", effort("none"), {"type": "between_tools"}, None),
        ("claude-haiku-5-5", effort("none"), OFF, None),
        ("claude-opus-5-5", effort("none"), None, "low"),
        ("claude-fable-5", effort("none"), None, "low"),
        ("claude-something-9", effort("medium"), SUMMARIZED, "medium"),
        # A budget goes on top of the default room, but not beyond what the model writes.
        ("claude-sonnet-4-5", budget(2000), enabled(2000), 8192 + 2000),
        ("claude-opus-4-8", effort("high"), SUMMARIZED, 8192),
        ("claude-opus-4-1", effort("max"), enabled(32_000 - 1024), 32_000),
        # One of our choice leaves room for the answer.
        ("claude-sonnet-4-5", {**effort("max"), "max_tokens": 5000}, enabled(5000 - 1024), 5000),
        ("claude-sonnet-4-5", {**effort("max"), "max_tokens": 1500}, enabled(1024), 1500),
        # Out of range.
        ("claude-sonnet-4-5", budget(500), enabled(1024), 8192 + 500),
        ("claude-sonnet-4-5", {**budget(5000), "max_tokens": 4000}, enabled(3999), 4000),
        ("claude-sonnet-4-5", {**budget(2000), "max_tokens": 900}, None, 900),
        ("claude-sonnet-4-5", {**effort("low"), "max_tokens": 100}, None, 100),
    ],
)
def test_thinking_of_each_generation_of_claude(model: str, how: dict[str, Any], thinking: Any, sent: Any) -> None:
    """With an effort, or with this limit on all tokens."""
    found, effort, max_tokens = thought_of(model, **how)
    assert (found, max_tokens if isinstance(sent, int) else effort) == (thinking, sent)


@pytest.mark.parametrize(("tokens", "max_tokens"), [(500, None), (5000, 4000), (4000, 4000), (2000, 900)])
def test_budgets_out_of_range_are_refused(tokens: int, max_tokens: int | None) -> None:
    with pytest.raises(ConfigurationError, match="budget"):
        encoded(A, max_tokens=max_tokens, **budget(tokens))


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({"temperature": 1.0}, True),
        ({"temperature": 0.5}, False),
        ({"top_p": 0.97}, True),
        ({"top_p": 0.5}, False),
        ({"top_k": 5}, False),
    ],
)
@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-4-6"])
def test_sampling_beside_thinking(model: str, options: dict[str, Any], taken: bool) -> None:
    how = {"reasoning": Reasoning(), **options}
    if not taken:
        with pytest.raises(ConfigurationError, match="combined with thinking"):
            encoded(f"anthropic:{model}", **how)
    body = body_of(f"anthropic:{model}", adapt=True, **how)
    assert {name: body[name] for name in ("temperature", "top_p", "top_k") if name in body} == (
        options if taken else {}
    )
    assert options.items() <= body_of(f"anthropic:{model}", **effort("none"), **options).items()


def test_a_call_can_be_forced_beside_adaptive_thinking_only() -> None:
    how: dict[str, Any] = {"tools": (ADD,), "tool_choice": "required", "reasoning": Reasoning()}
    assert "tool_choice" not in body_of(A, adapt=True, **how)
    assert body_of("anthropic:claude-opus-4-6", **how)["tool_choice"]["type"] == "any"


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-1"])
def test_bound_thinking_may_be_dropped_if_the_prefix_changed(model: str) -> None:
    done = encoded(f"anthropic:{model}", *EARLIER)
    assert json.loads(done.request.body)["thinking"] == {**ADAPTIVE, "block_binding": BOUND}
    assert done.request.headers["anthropic-beta"] == "thinking-binding-controls-2026-08-01"
    fresh = encoded(f"anthropic:{model}")
    assert "thinking" not in json.loads(fresh.request.body)
    assert "anthropic-beta" not in fresh.request.headers
    assert thought_of(model, *EARLIER, **effort("high"))[:2] == ({**SUMMARIZED, "block_binding": BOUND}, "high")


def test_disabled_thinking_and_earlier_models_have_no_binding() -> None:
    assert thought_of("claude-sonnet-5-5", *EARLIER, **effort("none"))[0] == {"type": "between_tools"}
    for model in ("claude-opus-5", "claude-fable-5", "claude-opus-4-8", "claude-sonnet-4-5"):
        assert "anthropic-beta" not in encoded(f"anthropic:{model}", *EARLIER).request.headers


# --- marks for the cache, and what a service remembers ----------------------------------------------------------------

MARK = {"type": "ephemeral"}
MARKED = Raw(b'{"type":"web_search_20250305","name":"web_search","cache_control":{"type":"ephemeral"}}')
TURNS = (HI, Message.assistant("a"), Message.user("b"))
LONG = (
    *TURNS[:2],
    Message.user("b", "c"),
    Message.assistant(ToolCall("t", "add")),
    Message.tool([ToolResult("t", "add")]),
    Message.user("d"),
)


@pytest.mark.parametrize(
    ("messages", "how", "marks"),
    [
        (LONG, {"system": "S", "tools": (NOW, ADD), "server_tools": (SEARCH,)}, "add system 2.1 4.1"),
        ((HI,), {}, "0.0"),
        ((HI, Message.assistant("so far")), {}, "0.0"),
        # Never more than four, with those of the caller.
        (TURNS, {"system": "S", "tools": (ADD,), "server_tools": (MARKED,)}, "add web_search system 2.0"),
        (TURNS, {"system": "S", "tools": (ADD,), "server_tools": (MARKED,) * 4}, "web_search " * 4),
        (TURNS, {"system": "S", "tools": (ADD,), "extra_body": {"cache_control": MARK}}, "add system 2.0"),
        # Not on what only the provider understands.
        ((Message.user("a", Opaque("anthropic", Raw(b'{"type":"container_upload","file_id":"f"}'))),), {}, ""),
    ],
)
def test_cache_marks_of_claude(messages: tuple[Message, ...], how: dict[str, Any], marks: str) -> None:
    body = body_of(A, *messages, cache=True, **how)
    found = [tool["name"] for tool in body.get("tools", []) if "cache_control" in tool]
    found += ["system" for part in body.get("system", []) if "cache_control" in part]
    for place, message in enumerate(body["messages"]):
        found += [f"{place}.{i}" for i, block in enumerate(message["content"]) if block.get("cache_control") == MARK]
    assert found == marks.split()
    assert b"cache_control" not in encoded(A, HI, cache=False).request.body


def test_a_cache_mark_of_the_caller_is_kept() -> None:
    own = Text("a", native=Native("anthropic", {"cache_control": Raw(b'{"type":"ephemeral","ttl":"1h"}')}))
    assert at(body_of(A, Message.user(own), cache=True), "messages.0.content.0.cache_control.ttl") == "1h"


def test_cache_marks_of_other_servers() -> None:
    target = "openrouter:anthropic/claude-sonnet-4.6"
    body = body_of(target, *TURNS, system="Be brief.", tools=(ADD,), cache=True)
    system, first, _, last = body["messages"]
    assert system["content"] == [{"type": "text", "text": "Be brief.", "cache_control": MARK}]
    assert first["content"] == "Hi"
    assert last["content"] == [{"type": "text", "text": "b", "cache_control": MARK}]
    assert body["tools"][0]["cache_control"] == MARK
    for other in (encoded(C, *TURNS, tools=(ADD,), cache=True), encoded(target, *TURNS, tools=(ADD,))):
        assert b"cache_control" not in other.request.body


@pytest.mark.parametrize("target", [A, "openrouter:anthropic/claude-sonnet-4.6"])
def test_cache_marks_for_an_hour(target: str) -> None:
    usual, hour = (body_of(target, *TURNS, system="S", tools=(ADD,), cache=cache) for cache in (True, "1h"))
    assert json.dumps(hour).count('"cache_control"') == json.dumps(usual).count('"cache_control"') > 2
    assert json.loads(json.dumps(usual).replace(json.dumps(MARK), json.dumps({**MARK, "ttl": "1h"}))) == hour


@pytest.mark.parametrize("target", [C, R, G])
def test_an_hour_is_reported_where_there_are_no_marks(target: str) -> None:
    plain, asked = encoded(target, *TURNS, cache=True), encoded(target, *TURNS, cache="1h")
    assert asked.request == plain.request
    assert [adaptation.what for adaptation in asked.adaptations] == ['cache="1h"']
    assert not plain.adaptations


def test_the_container_of_the_last_reply_is_reused() -> None:
    fields = {"container": Raw(b'{"id":"container_1","expires_at":"2026-01-01T00:00:00Z"}')}
    reply = Message(role="assistant", blocks=(Text("a"),), native=Native("anthropic", fields))
    code = Raw(b'{"type":"code_execution_20250825","name":"code_execution"}')
    assert body_of(A, HI, reply, Message.assistant("b"), HI, server_tools=(code,))["container"] == "container_1"
    assert "container" not in body_of(A, HI, reply, HI)
    assert "container" not in body_of(A, server_tools=(code,))
