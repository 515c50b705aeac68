"""Requests: paths, settings and tools."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from dragoman.conversation import Message, OneTool, ToolSpec
from dragoman.errors import ConfigurationError
from dragoman.providers import Reasoning, ResponseFormat, codec_of, profile_of
from dragoman.providers.gemini import CODEC
from tests.providers.gemini.case import a_call, sent

HELLO = Message.user("hello")
WEATHER = ToolSpec(
    name="weather",
    description="The weather.",
    parameters=Raw(b'{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}'),
)
NOW = ToolSpec(name="now")
STRICT = ToolSpec(name="s", strict=True)
GOOGLE = Raw(b'{"googleSearch":{}}')
FORMAT = ResponseFormat(schema=WEATHER.parameters, description="Say where.")


@pytest.mark.parametrize(
    ("model", "quirks", "path"),
    [
        ("gemini-2.5-flash", [], "/v1beta/models/gemini-2.5-flash"),
        ("models/gemini-2.5-flash", [], "/v1beta/models/gemini-2.5-flash"),
        ("tunedModels/mine-1", [], "/v1beta/tunedModels/mine-1"),
        ("publishers/google/models/gemini-3-flash", [], "/v1beta1/publishers/google/models/gemini-3-flash"),
        ("projects/p/locations/eu/endpoints/123", [], "/v1beta1/projects/p/locations/eu/endpoints/123"),
        ("gemini-3-flash@001", ["vertex"], "/v1beta1/publishers/google/models/gemini-3-flash@001"),
        ("acme/model-1", ["vertex"], "/v1beta1/publishers/acme/models/model-1"),
    ],
)
def test_paths(model: str, quirks: list[str], path: str) -> None:
    profile = profile_of("gemini", model).with_changes(quirks=frozenset(quirks))
    assert CODEC.encode(a_call(HELLO, model=model, profile=profile)).request.path == f"{path}:generateContent"
    streaming = CODEC.encode(a_call(HELLO, model=model, profile=profile, stream=True)).request.path
    assert streaming == f"{path}:streamGenerateContent?alt=sse"


@pytest.mark.parametrize("model", ["", "a b", "a?key=1", "a#b", "../x", "a/../../b", "é", "a\n"])
def test_what_is_no_name(model: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name of a model"):
        CODEC.encode(a_call(HELLO, model=model))


# --- settings ---------------------------------------------------------------------------------------------------------


def test_the_smallest_request() -> None:
    assert codec_of("gemini") is CODEC
    assert sent(a_call(HELLO)) == {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
    assert CODEC.encode(a_call(HELLO, extra_headers={"x-a": "b"})).request.headers == {"x-a": "b"}


def test_parameters() -> None:
    options = {"max_tokens": 5, "temperature": 0.0, "top_p": 0.5, "top_k": 3, "stop": ("a",), "seed": 0}
    body = sent(a_call(HELLO, system="Be kind.", **options))
    assert body["systemInstruction"] == {"parts": [{"text": "Be kind."}]}
    assert body["generationConfig"] == {
        "maxOutputTokens": 5,
        "temperature": 0.0,
        "topP": 0.5,
        "topK": 3,
        "stopSequences": ["a"],
        "seed": 0,
    }
    profile = profile_of("gemini", "x").with_changes(renamed={"max_tokens": "maxTokens"})
    body = json.loads(CODEC.encode(a_call(HELLO, profile=profile, max_tokens=5)).request.body)
    assert body["generationConfig"] == {"maxTokens": 5}


def test_a_schema_for_the_reply() -> None:
    config = sent(a_call(HELLO, response_format=FORMAT))["generationConfig"]
    assert config["responseMimeType"] == "application/json"
    assert config["responseJsonSchema"]["properties"].keys() == {"city"}
    assert config["responseJsonSchema"]["description"] == "Say where."


@pytest.mark.parametrize(
    ("model", "reasoning", "config"),
    [
        ("gemini-3-flash", Reasoning(effort="minimal"), {"thinkingLevel": "MINIMAL", "includeThoughts": True}),
        ("gemini-3-pro-preview", Reasoning(effort="high", summary=False), {"thinkingLevel": "HIGH"}),
        ("gemini-3.8-flash", Reasoning(effort="medium"), {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
        ("gemini-3-flash-preview", Reasoning(budget=5000), {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
        ("gemini-3-flash-preview", Reasoning(), {"includeThoughts": True}),
        ("gemini-2.5-flash", Reasoning(budget=512), {"thinkingBudget": 512, "includeThoughts": True}),
        ("gemini-2.5-flash", Reasoning(effort="low"), {"thinkingBudget": 1024, "includeThoughts": True}),
        ("gemini-2.5-flash", Reasoning(effort="none"), {"thinkingBudget": 0}),
        ("gemini-2.5-pro", Reasoning(effort="high", budget=99), {"thinkingBudget": 99, "includeThoughts": True}),
        ("gemini-3-flash", Reasoning(effort="low", budget=9), {"thinkingLevel": "LOW", "includeThoughts": True}),
    ],
)  # fmt: skip
def test_thinking_is_asked_for_as_the_model_takes_it(model: str, reasoning: Reasoning, config: dict[str, Any]) -> None:
    assert sent(a_call(HELLO, model=model, reasoning=reasoning))["generationConfig"]["thinkingConfig"] == config


@pytest.mark.parametrize(
    ("model", "effort", "config"),
    [
        ("gemini-3-pro-preview", "none", {"thinkingLevel": "LOW"}),
        ("gemini-3-flash-preview", "none", {"thinkingLevel": "MINIMAL"}),
        ("gemini-3-flash-preview", "max", {"thinkingLevel": "HIGH"}),
        ("gemini-3.8-flash", "minimal", {"thinkingLevel": "LOW"}),
        ("gemini-2.5-pro", "none", {"thinkingBudget": 1024}),
    ],
)
def test_an_effort_that_the_model_does_not_know(model: str, effort: Any, config: dict[str, Any]) -> None:
    reasoning = Reasoning(effort=effort, summary=False)
    with pytest.raises(ConfigurationError, match="effort"):
        CODEC.encode(a_call(HELLO, model=model, reasoning=reasoning))
    body = sent(a_call(HELLO, model=model, reasoning=reasoning, adapt=True))
    assert body["generationConfig"]["thinkingConfig"] == config


def test_conversions_of_thinking_are_reported() -> None:
    budget = CODEC.encode(a_call(HELLO, model="gemini-2.5-flash", reasoning=Reasoning(effort="medium")))
    assert [str(one) for one in budget.adaptations] == [
        "reasoning.effort: this model is told a number of tokens: 'medium' became 8192"
    ]
    level = CODEC.encode(a_call(HELLO, reasoning=Reasoning(budget=100_000)))
    assert "100000 became 'high'" in str(level.adaptations[0])


# --- tools ------------------------------------------------------------------------------------------------------------


def test_tools() -> None:
    (tool,) = sent(a_call(HELLO, tools=(WEATHER, NOW)))["tools"]
    weather, now = tool["functionDeclarations"]
    assert (weather["name"], weather["description"], now["name"]) == ("weather", "The weather.", "now")
    assert weather["parametersJsonSchema"]["properties"] == {"city": {"type": "string"}}


@pytest.mark.parametrize(
    ("tools", "choice", "config"),
    [
        ((NOW,), "auto", None),
        ((NOW,), "none", {"mode": "NONE"}),
        ((NOW,), "required", {"mode": "ANY"}),
        ((WEATHER, NOW), OneTool("now"), {"mode": "ANY", "allowedFunctionNames": ["now"]}),
        ((WEATHER, STRICT), "auto", {"mode": "VALIDATED"}),
        ((), "none", None),
        ((), "required", None),
    ],
)
def test_choices(tools: tuple[ToolSpec, ...], choice: Any, config: Any) -> None:
    body = sent(a_call(HELLO, tools=tools, tool_choice=choice))
    assert body.get("toolConfig") == (config and {"functionCallingConfig": config})


def test_older_models_do_not_validate() -> None:
    assert "toolConfig" not in sent(a_call(HELLO, model="gemini-2.0-flash", tools=(STRICT,)))


def test_the_providers_own_tools_alone_and_with_functions() -> None:
    assert sent(a_call(HELLO, server_tools=(GOOGLE,))).keys() == {"contents", "tools"}
    body = sent(a_call(HELLO, tools=(NOW,), server_tools=(GOOGLE,)))
    assert [list(tool) for tool in body["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert body["toolConfig"] == {"includeServerSideToolInvocations": True}
    model = "publishers/google/models/gemini-3-flash"
    assert "toolConfig" not in sent(a_call(HELLO, model=model, tools=(NOW,), server_tools=(GOOGLE,)))
    with pytest.raises(ConfigurationError, match="server_tools with tools"):
        CODEC.encode(a_call(HELLO, model="gemini-2.5-pro", tools=(NOW,), server_tools=(GOOGLE,)))


# --- the caller's own members -----------------------------------------------------------------------------------------


def test_objects_of_the_caller_are_laid_over_ours() -> None:
    extra: dict[str, Any] = {
        "generationConfig": {"temperature": 1.5, "responseModalities": ["TEXT"], "thinkingConfig": {}},
        "toolConfig": {"functionCallingConfig": {"streamFunctionCallArguments": True}},
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
    }
    options = {"temperature": 0.5, "top_p": 0.5, "tools": (NOW,), "tool_choice": "required"}
    body = sent(a_call(HELLO, extra_body=extra, **options))
    assert body["generationConfig"] == {**extra["generationConfig"], "topP": 0.5}
    assert body["toolConfig"]["functionCallingConfig"] == {"mode": "ANY", "streamFunctionCallArguments": True}
    assert body["safetySettings"] == extra["safetySettings"]


def test_anything_else_of_the_caller_wins_as_a_whole() -> None:
    own = {"tools": [{"urlContext": {}}], "contents": [], "systemInstruction": {"parts": []}}
    assert sent(a_call(HELLO, tools=(NOW,), system="s", extra_body=own)) == own


def test_a_cached_content_brings_its_own() -> None:
    own = {"cachedContent": "cachedContents/1"}
    call = a_call(HELLO, system="s", tools=(NOW,), tool_choice="required", extra_body=own)
    assert sent(call).keys() == {"contents", "cachedContent"}
    assert [one.what for one in CODEC.encode(call).adaptations] == ["systemInstruction", "tools", "toolConfig"]
