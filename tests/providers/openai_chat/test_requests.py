"""Requests: which option becomes which member, per model and per server, and what is refused or adapted."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.conversation import Conversation, Message, OneTool, ToolSpec
from dragoman.errors import ConfigurationError
from dragoman.providers.catalogue import profile_of
from dragoman.providers.codec import Adaptation, Call, Encoded
from dragoman.providers.openai_chat import CODEC
from dragoman.providers.options import ModelOptions, Reasoning, ResponseFormat

WEATHER = ToolSpec(
    "get_weather",
    "The weather in a city.",
    Raw(b'{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}'),
)
CITY = ResponseFormat(
    schema=Raw(
        b'{"type":"object","properties":{"name":{"type":"string"}},"required":["name"],"additionalProperties":false}'
    ),
    name="city",
    description="A city.",
)
HELLO = Conversation(messages=(Message.user("hi"),))


def encoded(
    target: str, tools: tuple[ToolSpec, ...] = (), conversation: Conversation = HELLO, **options: Any
) -> Encoded:
    """The request to `provider:model`; `stream` is not an option but part of the call."""
    provider, _, model = target.partition(":")
    stream = options.pop("stream", False)
    profile = profile_of(provider, model)
    call = Call(
        model=model,
        conversation=conversation,
        profile=profile,
        tools=tools,
        options=ModelOptions(**options),
        stream=stream,
    )
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


def test_streams_ask_for_usage_where_that_is_allowed() -> None:
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    assert body("openai:gpt-4o", stream=True) == asked
    assert body("groq:llama-3.3-70b-versatile", stream=True) == asked
    assert body("mistral:mistral-large-latest", stream=True) == {"stream": True}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("openai:gpt-4o", {"max_completion_tokens": 9, "seed": 1, "safety_identifier": "u"}),
        ("openai:o3", {"max_completion_tokens": 9, "seed": 1, "safety_identifier": "u"}),
        ("openai-compatible:m", {"max_tokens": 9, "seed": 1, "user": "u"}),
        ("vllm:m", {"max_tokens": 9, "seed": 1, "user": "u"}),
        ("cerebras:gpt-oss-120b", {"max_completion_tokens": 9, "seed": 1, "user": "u"}),
    ],
)
def test_parameters_have_the_names_of_the_server(target: str, expected: dict[str, Any]) -> None:
    assert body(target, max_tokens=9, seed=1, user="u") == expected


def test_mistral_and_zai_have_names_of_their_own() -> None:
    assert body("mistral:mistral-large-latest", seed=1, max_tokens=9) == {"random_seed": 1, "max_tokens": 9}
    assert body("zai:glm-5.3", user="u") == {"user_id": "u"}


def test_sampling() -> None:
    wanted = {"temperature": 0.5, "top_p": 0.9, "stop": ("a", "b")}
    sent = {"temperature": 0.5, "top_p": 0.9, "stop": ["a", "b"]}
    assert body("openai:gpt-4o", **wanted) == sent
    assert body("vllm:m", top_k=5, **wanted) == {**sent, "top_k": 5}
    assert "top_k" in refusal("openai:gpt-4o", top_k=5)


@pytest.mark.parametrize("model", ["o1", "o3-mini", "o3", "o4-mini", "gpt-5", "gpt-5-mini", "gpt-6-astra"])
@pytest.mark.parametrize("name", ["temperature", "top_p"])
def test_models_that_always_reason_take_no_sampling_parameters(model: str, name: str) -> None:
    assert name in refusal(f"openai:{model}", **{name: 0.5})
    found = encoded(f"openai:{model}", **{name: 0.5}, adapt=True)
    assert name not in json.loads(found.request.body)
    assert found.adaptations == (Adaptation(name, "this model does not support it"),)


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


@pytest.mark.parametrize(
    ("target", "reasoning", "expected"),
    [
        ("openai:o3", Reasoning(effort="low"), {"reasoning_effort": "low"}),
        ("openai:gpt-5", Reasoning(effort="minimal"), {"reasoning_effort": "minimal"}),
        ("openai:gpt-5.6-terra", Reasoning(effort="max"), {"reasoning_effort": "max"}),
        ("openai-compatible:m", Reasoning(effort="high"), {"reasoning_effort": "high"}),
        ("openrouter:anthropic/claude-sonnet-4.6", Reasoning(effort="high"), {"reasoning": {"effort": "high"}}),
        ("openrouter:anthropic/claude-sonnet-4.6", Reasoning(budget=500), {"reasoning": {"max_tokens": 500}}),
        (
            "openrouter:x-ai/grok-4",
            Reasoning(effort="low", summary=False),
            {"reasoning": {"effort": "low", "exclude": True}},
        ),
        ("deepseek:deepseek-v4-pro", Reasoning(effort="none"), {"thinking": {"type": "disabled"}}),
        (
            "deepseek:deepseek-v4-pro",
            Reasoning(effort="max"),
            {"thinking": {"type": "enabled"}, "reasoning_effort": "max"},
        ),
        ("zai:glm-4.7", Reasoning(effort="high"), {"thinking": {"type": "enabled"}}),
        ("zai:glm-5.3", Reasoning(effort="max"), {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
        (
            "groq:openai/gpt-oss-120b",
            Reasoning(effort="low"),
            {"reasoning_effort": "low", "reasoning_format": "parsed"},
        ),
        ("groq:qwen/qwen3-32b", Reasoning(effort="none"), {"reasoning_effort": "none"}),
        (
            "groq:qwen/qwen3-32b",
            Reasoning(effort="high"),
            {"reasoning_effort": "default", "reasoning_format": "parsed"},
        ),
        ("mistral:mistral-small-latest", Reasoning(effort="high"), {"reasoning_effort": "high"}),
        ("ollama:gpt-oss:20b", Reasoning(effort="medium"), {"reasoning_effort": "medium"}),
        ("openai:o3", Reasoning(), {}),
    ],
)
def test_reasoning_in_the_words_of_each_server(target: str, reasoning: Reasoning, expected: dict[str, Any]) -> None:
    assert body(target, reasoning=reasoning) == expected


def test_an_effort_that_the_model_does_not_know_is_refused_or_the_nearest_is_taken() -> None:
    assert "minimal, low, medium, high" in refusal("openai:gpt-5", reasoning=Reasoning(effort="max"))
    found = encoded("openai:gpt-5", reasoning=Reasoning(effort="max"), adapt=True)
    assert json.loads(found.request.body)["reasoning_effort"] == "high"
    assert len(found.adaptations) == 1


def test_a_budget_where_only_efforts_are_known_and_models_that_do_not_reason() -> None:
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


def test_a_tool() -> None:
    assert body("openai:gpt-4o", (WEATHER,)) == {
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "description": "The weather in a city.",
                    "parameters": WEATHER.schema,
                },
            }
        ]
    }


def test_strict_tools_where_the_server_knows_them() -> None:
    strict = msgspec.structs.replace(WEATHER, strict=True)
    assert body("openai:gpt-4o", (strict,))["tools"][0]["function"]["strict"] is True
    found = encoded("ollama:m", (strict,))
    assert "strict" not in json.loads(found.request.body)["tools"][0]["function"]
    assert found.adaptations == (Adaptation("strict of tool 'get_weather'", "this model does not support it"),)


def test_tools_keep_their_order_and_their_bytes() -> None:
    other = msgspec.structs.replace(WEATHER, name="another")
    first, second = (encoded("openai:gpt-4o", tools).request.body for tools in ((WEATHER, other), (WEATHER, other)))
    assert first == second
    assert [tool["function"]["name"] for tool in json.loads(first)["tools"]] == ["get_weather", "another"]


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


def test_tool_choices_that_a_server_does_not_take() -> None:
    assert "tool_choice='required'" in refusal("zai:glm-5.3", (WEATHER,), tool_choice="required")
    found = body("lmstudio:m", (WEATHER,), tool_choice=OneTool("get_weather"), adapt=True)
    assert "tool_choice" not in found


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


def test_models_without_tools() -> None:
    found = encoded("openai:o1-mini", (WEATHER,), adapt=True)
    assert "tools" not in json.loads(found.request.body)
    assert [adaptation.what for adaptation in found.adaptations] == ["tools"]


# --- structured replies ---


def test_a_reply_of_a_given_schema() -> None:
    found = body("openai:gpt-4o", response_format=CITY)["response_format"]
    assert found["type"] == "json_schema"
    described = found["json_schema"]
    assert (described["name"], described["description"], described["strict"]) == ("city", "A city.", True)
    assert described["schema"]["properties"] == {"name": {"type": "string"}}


def test_a_schema_with_an_illegal_name_and_one_that_is_not_strict() -> None:
    loose = msgspec.structs.replace(CITY, name="my city!", strict=False, description="")
    found = encoded("openai:gpt-4o", response_format=loose)
    described = json.loads(found.request.body)["response_format"]["json_schema"]
    assert described["name"] == "my_city_"
    assert not described.keys() & {"strict", "description"}
    assert any("my city!" in adaptation.what for adaptation in found.adaptations)


# --- what the caller adds ---


def test_what_the_caller_adds_wins() -> None:
    found = encoded(
        "openai:gpt-4o",
        max_tokens=5,
        extra_body={"max_completion_tokens": 7, "logprobs": True, "metadata": {"a": "b"}},
        extra_headers={"x-mine": "1"},
    )
    sent = json.loads(found.request.body)
    assert (sent["max_completion_tokens"], sent["logprobs"], sent["metadata"]) == (7, True, {"a": "b"})
    assert found.request.headers == {"x-mine": "1"}
    assert found.request.body.count(b"max_completion_tokens") == 1


def test_marks_for_the_cache_where_they_are_needed() -> None:
    conversation = Conversation(
        system="Be brief.", messages=(Message.user("one"), Message.assistant("two"), Message.user("three"))
    )
    mark = {"type": "ephemeral"}
    found = json.loads(
        encoded("openrouter:anthropic/claude-sonnet-4.6", (WEATHER,), conversation, cache=True).request.body
    )
    system, first, _, last = found["messages"]
    assert system["content"] == [{"type": "text", "text": "Be brief.", "cache_control": mark}]
    assert first["content"] == "one"
    assert last["content"] == [{"type": "text", "text": "three", "cache_control": mark}]
    assert found["tools"][0]["cache_control"] == mark
    plain = encoded("openai:gpt-4o", (WEATHER,), conversation, cache=True).request.body
    assert b"cache_control" not in plain
    assert b"cache_control" not in encoded("openrouter:anthropic/x", (WEATHER,), conversation).request.body


def test_what_was_rewritten_in_a_schema_is_told() -> None:
    loose = ToolSpec("f", "", Raw(b'{"type":"object","properties":{"a":{"type":"integer"}}}'), strict=True)
    found = encoded("openai:gpt-4o", (loose,))
    function = json.loads(found.request.body)["tools"][0]["function"]
    assert function["strict"] is True
    assert function["parameters"]["required"] == ["a"]
    assert {adaptation.what for adaptation in found.adaptations} == {"schema of tool 'f'"}
    assert encoded("openai:gpt-4o", (loose,)).adaptations == found.adaptations
