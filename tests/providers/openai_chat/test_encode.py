"""Requests: options, tools, reasoning and schemas in the words of each server, and what a model cannot take."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.conversation import Conversation, Message, OneTool, ToolSpec
from dragoman.errors import ConfigurationError
from dragoman.providers import (
    CODEC,
    PROVIDERS,
    Adaptation,
    Call,
    Encoded,
    ModelOptions,
    Reasoning,
    ResponseFormat,
    profile_of,
)

SCHEMA = b'{"type":"object","properties":{"%s":{"type":"string"}},"required":["%s"],"additionalProperties":false}'
WEATHER = ToolSpec("get_weather", "The weather in a city.", Raw(SCHEMA % (b"city", b"city")))
CITY = ResponseFormat(schema=Raw(SCHEMA % (b"name", b"name")), name="city", description="A city.")
HELLO = Conversation(messages=(Message.user("hi"),))


def encoded(
    target: str, tools: tuple[ToolSpec, ...] = (), conversation: Conversation = HELLO, **options: Any
) -> Encoded:
    """The request to `provider:model`; `stream` is not an option but part of the call."""
    provider, _, model = target.partition(":")
    streamed = options.pop("stream", False)
    profile, chosen = profile_of(provider, model), ModelOptions(**options)
    call = Call(model=model, conversation=conversation, profile=profile, tools=tools, options=chosen, stream=streamed)
    return CODEC.encode(call)


def body(target: str, tools: tuple[ToolSpec, ...] = (), **options: Any) -> dict[str, Any]:
    """The members of the request besides the model and the messages."""
    found = json.loads(encoded(target, tools, **options).request.body)
    assert found.pop("model") == target.partition(":")[2]
    found.pop("messages")
    return found


def refusal(target: str, tools: tuple[ToolSpec, ...] = (), **options: Any) -> str:
    with pytest.raises(ConfigurationError) as raised:
        encoded(target, tools, **options)
    return str(raised.value)


def test_the_plainest_request() -> None:
    found = encoded("openai:gpt-4o")
    assert found.request.path == "/chat/completions"
    assert found.request.body == b'{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}]}'
    assert (found.adaptations, found.losses, dict(found.tool_names)) == ((), (), {})


@pytest.mark.parametrize("provider", [name for name, one in PROVIDERS.items() if one.dialect == "openai_chat"])
def test_nothing_at_all_is_not_sent(provider: str) -> None:
    with pytest.raises(ConfigurationError, match="nothing to send"):
        encoded(f"{provider}:m", (), Conversation())


ASKED = {"stream": True, "stream_options": {"include_usage": True}}
NAMED = {"max_tokens": 9, "seed": 1, "user": "u"}
SAMPLED = {"temperature": 0.5, "top_p": 0.9, "stop": ("a", "b")}


@pytest.mark.parametrize(
    ("target", "options", "expected"),
    [
        # usage of streams is asked for where that is allowed
        ("openai:gpt-4o", {"stream": True}, ASKED),
        ("groq:llama-3.3-70b-versatile", {"stream": True}, ASKED),
        ("mistral:mistral-large-latest", {"stream": True}, {"stream": True}),
        # the server's own names
        ("openai:gpt-4o", NAMED, {"max_completion_tokens": 9, "seed": 1, "safety_identifier": "u"}),
        ("openai:o3", NAMED, {"max_completion_tokens": 9, "seed": 1, "safety_identifier": "u"}),
        ("openai-compatible:m", NAMED, NAMED),
        ("vllm:m", NAMED, NAMED),
        ("cerebras:gpt-oss-120b", NAMED, {"max_completion_tokens": 9, "seed": 1, "user": "u"}),
        ("mistral:mistral-large-latest", {"seed": 1, "max_tokens": 9}, {"random_seed": 1, "max_tokens": 9}),
        ("zai:glm-5.3", {"user": "u"}, {"user_id": "u"}),
        ("openai:gpt-4o", SAMPLED, {**SAMPLED, "stop": ["a", "b"]}),
        ("vllm:m", {**SAMPLED, "top_k": 5}, {**SAMPLED, "stop": ["a", "b"], "top_k": 5}),
    ],
)
def test_parameters(target: str, options: dict[str, Any], expected: dict[str, Any]) -> None:
    assert body(target, **options) == expected


def test_models_that_may_reason_take_them_when_they_do_not() -> None:
    none, low = Reasoning(effort="none"), Reasoning(effort="low")
    assert body("openai:gpt-5.2", temperature=0.5) == {"temperature": 0.5}
    assert body("openai:gpt-5.4", temperature=0.5, reasoning=none) == {"temperature": 0.5, "reasoning_effort": "none"}
    assert "only without reasoning" in refusal("openai:gpt-5.1", top_p=0.5, reasoning=low)
    assert "only without reasoning" in refusal("openai:gpt-5.6-sol", temperature=0.5)
    assert body("openai:gpt-5.6-sol", temperature=0.5, reasoning=none)["temperature"] == 0.5
    found = encoded("openai:gpt-5.1", temperature=0.5, reasoning=low, adapt=True)
    assert json.loads(found.request.body)["reasoning_effort"] == "low"
    assert [adaptation.what for adaptation in found.adaptations] == ["temperature"]


# --- reasoning ---

PARSED = {"reasoning_format": "parsed"}
ON, OFF = {"thinking": {"type": "enabled"}}, {"thinking": {"type": "disabled"}}


@pytest.mark.parametrize(
    ("target", "reasoning", "expected"),
    [
        ("openai:o3", Reasoning(effort="low"), {"reasoning_effort": "low"}),
        ("openai:gpt-5", Reasoning(effort="minimal"), {"reasoning_effort": "minimal"}),
        ("openai:gpt-5.6-terra", Reasoning(effort="max"), {"reasoning_effort": "max"}),
        ("openai-compatible:m", Reasoning(effort="high"), {"reasoning_effort": "high"}),
        ("openrouter:anthropic/x", Reasoning(effort="high"), {"reasoning": {"effort": "high"}}),
        ("openrouter:anthropic/x", Reasoning(budget=500), {"reasoning": {"max_tokens": 500}}),
        ("openrouter:x", Reasoning(effort="low", summary=False), {"reasoning": {"effort": "low", "exclude": True}}),
        ("deepseek:deepseek-v4-pro", Reasoning(effort="none"), OFF),
        ("deepseek:deepseek-v4-pro", Reasoning(effort="max"), {**ON, "reasoning_effort": "max"}),
        ("zai:glm-4.7", Reasoning(effort="high"), ON),
        ("zai:glm-5.3", Reasoning(effort="max"), {**ON, "reasoning_effort": "max"}),
        ("groq:openai/gpt-oss-120b", Reasoning(effort="low"), {"reasoning_effort": "low", **PARSED}),
        ("groq:qwen/qwen3-32b", Reasoning(effort="none"), {"reasoning_effort": "none"}),
        ("groq:qwen/qwen3-32b", Reasoning(effort="high"), {"reasoning_effort": "default", **PARSED}),
        ("mistral:mistral-small-latest", Reasoning(effort="high"), {"reasoning_effort": "high"}),
        ("ollama:gpt-oss:20b", Reasoning(effort="medium"), {"reasoning_effort": "medium"}),
        ("openai:o3", Reasoning(), {}),
    ],
)
def test_reasoning_in_the_words_of_each_server(target: str, reasoning: Reasoning, expected: dict[str, Any]) -> None:
    assert body(target, reasoning=reasoning) == expected


def test_reasoning_that_a_model_cannot_take() -> None:
    assert "minimal, low, medium, high" in refusal("openai:gpt-5", reasoning=Reasoning(effort="max"))
    found = encoded("openai:gpt-5", reasoning=Reasoning(effort="max"), adapt=True)
    assert json.loads(found.request.body)["reasoning_effort"] == "high"  # the nearest
    assert len(found.adaptations) == 1
    assert "not a number of tokens" in refusal("openai:gpt-5", reasoning=Reasoning(budget=100))
    assert "does not reason" in refusal("openai:gpt-4o", reasoning=Reasoning(effort="low"))
    assert "reasoning_effort" not in body("openai:gpt-5", reasoning=Reasoning(budget=100), adapt=True)


def test_newer_models_take_tools_only_without_reasoning() -> None:
    low = Reasoning(effort="low")
    assert "openai-responses" in refusal("openai:gpt-5.4", (WEATHER,), reasoning=low)
    assert body("openai:gpt-5.4", (WEATHER,), reasoning=low, adapt=True)["reasoning_effort"] == "none"
    assert "reasoning_effort" not in body("openai:gpt-5.4", (WEATHER,))
    found = encoded("openai:gpt-5.6-sol", (WEATHER,))
    assert json.loads(found.request.body)["reasoning_effort"] == "none"
    assert [adaptation.what for adaptation in found.adaptations] == ["reasoning effort"]
    assert body("openai:gpt-5", (WEATHER,), reasoning=low)["reasoning_effort"] == "low"
    assert "calls no tools over this API" in refusal("openai:gpt-6-astra", (WEATHER,))


# --- tools ---


def test_tools_keep_their_order_and_their_bytes() -> None:
    other = msgspec.structs.replace(WEATHER, name="another")
    first, second = (encoded("openai:gpt-4o", tools).request.body for tools in ((WEATHER, other), (WEATHER, other)))
    assert first == second
    written = json.loads(first)["tools"]
    described = {"name": "get_weather", "description": WEATHER.description, "parameters": WEATHER.schema}
    assert written[0] == {"type": "function", "function": described}
    assert written[1]["function"]["name"] == "another"


def test_strict_tools_where_the_server_knows_them() -> None:
    strict = msgspec.structs.replace(WEATHER, strict=True)
    assert body("openai:gpt-4o", (strict,))["tools"][0]["function"]["strict"] is True
    found = encoded("ollama:m", (strict,))
    assert "strict" not in json.loads(found.request.body)["tools"][0]["function"]
    assert found.adaptations == (Adaptation("strict of tool 'get_weather'", "this model does not support it"),)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", None),
        ("none", "none"),
        ("required", "required"),
        (OneTool("get_weather"), {"type": "function", "function": {"name": "get_weather"}}),
    ],
)
def test_tool_choice(choice: Any, expected: Any) -> None:
    assert body("openai:gpt-4o", (WEATHER,), tool_choice=choice).get("tool_choice") == expected
    assert "tool_choice" not in body("openai:gpt-4o", tool_choice=choice)


def test_choices_that_a_server_does_not_take() -> None:
    assert "tool_choice='required'" in refusal("zai:glm-5.3", (WEATHER,), tool_choice="required")
    one = OneTool("get_weather")
    assert "tool_choice" not in body("lmstudio:m", (WEATHER,), tool_choice=one, adapt=True)
    found = encoded("openai:o1-mini", (WEATHER,), adapt=True)
    assert "tools" not in json.loads(found.request.body)
    assert [adaptation.what for adaptation in found.adaptations] == ["tools"]


def test_parallel_calls() -> None:
    assert body("openai:gpt-4o", (WEATHER,), parallel_tool_calls=False)["parallel_tool_calls"] is False
    assert body("llamacpp:m", (WEATHER,), parallel_tool_calls=True)["parallel_tool_calls"] is True
    assert "parallel_tool_calls" not in body("openai:gpt-4o", parallel_tool_calls=False)
    assert "one call at a time" in refusal("openai:o3", (WEATHER,), parallel_tool_calls=False)
    assert "parallel_tool_calls" not in body("openai:o3", (WEATHER,), parallel_tool_calls=True)


def test_tools_of_the_provider_stand_behind_the_callers() -> None:
    search = Raw(b'{"type":"openrouter:web_search"}')
    tools = body("openrouter:openai/gpt-4.1-mini", (WEATHER,), server_tools=(search,))["tools"]
    assert tools[1] == {"type": "openrouter:web_search"}
    assert body("openrouter:openai/gpt-4.1-mini", server_tools=(search,))["tools"] == [tools[1]]


# --- structured replies, and what the caller adds ---


def test_a_reply_of_a_given_schema() -> None:
    found = body("openai:gpt-4o", response_format=CITY)["response_format"]
    described = found["json_schema"]
    assert (found["type"], described["name"], described["strict"]) == ("json_schema", "city", True)
    assert described["description"] == "A city."
    assert described["schema"]["properties"] == {"name": {"type": "string"}}
    loose = msgspec.structs.replace(CITY, name="my city!", strict=False, description="")
    changed = encoded("openai:gpt-4o", response_format=loose)
    described = json.loads(changed.request.body)["response_format"]["json_schema"]
    assert described["name"] == "my_city_"
    assert not described.keys() & {"strict", "description"}
    assert any("my city!" in adaptation.what for adaptation in changed.adaptations)


def test_what_the_caller_adds_wins() -> None:
    added = {"max_completion_tokens": 7, "logprobs": True, "metadata": {"a": "b"}}
    found = encoded("openai:gpt-4o", max_tokens=5, extra_body=added, extra_headers={"x-mine": "1"})
    assert json.loads(found.request.body).items() >= added.items()
    assert found.request.headers == {"x-mine": "1"}
    assert found.request.body.count(b"max_completion_tokens") == 1
    own = {"model": "other", "messages": [{"role": "user", "content": "mine"}], "seed": 1}
    assert json.loads(encoded("openai:gpt-4o", extra_body=own).request.body) == own


def test_marks_for_the_cache_where_they_are_needed() -> None:
    turns = (Message.user("one"), Message.assistant("two"), Message.user("three"))
    conversation, mark = Conversation(system="Be brief.", messages=turns), {"type": "ephemeral"}
    target = "openrouter:anthropic/claude-sonnet-4.6"
    found = json.loads(encoded(target, (WEATHER,), conversation, cache=True).request.body)
    system, first, _, last = found["messages"]
    assert system["content"] == [{"type": "text", "text": "Be brief.", "cache_control": mark}]
    assert first["content"] == "one"
    assert last["content"] == [{"type": "text", "text": "three", "cache_control": mark}]
    assert found["tools"][0]["cache_control"] == mark
    assert b"cache_control" not in encoded("openai:gpt-4o", (WEATHER,), conversation, cache=True).request.body
    assert b"cache_control" not in encoded("openrouter:anthropic/x", (WEATHER,), conversation).request.body
