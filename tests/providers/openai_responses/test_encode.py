"""Requests: parameters, tools, state, and what a model cannot take."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from dragoman.conversation import Message, OneTool, ToolSpec
from dragoman.errors import ConfigurationError
from dragoman.providers import Adaptation, Reasoning, ResponseFormat
from dragoman.providers.openai_responses import CODEC
from tests.providers.openai_responses.calls import (
    body_of,
    created,
    ended,
    make_call,
    message_item,
    profile_of,
    response,
    stream,
    whole,
)

SCHEMA = Raw(b'{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}')
ADD = ToolSpec(name="add", description="Add.", parameters=SCHEMA)


def test_the_least_there_is_to_say() -> None:
    encoded = CODEC.encode(make_call(Message.user("Hello")))
    assert encoded.request.path == "/responses"
    assert encoded.request.method == "POST"
    assert not encoded.request.headers
    assert json.loads(encoded.request.body) == {
        "model": "gpt-5.6",
        "input": [{"role": "user", "content": "Hello"}],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    assert (encoded.adaptations, encoded.losses, encoded.tool_names) == ((), (), {})


def test_models_that_do_not_reason_have_nothing_to_encrypt() -> None:
    assert body_of(make_call(model="gpt-4o")).keys() == {"model", "input", "store"}


def test_parameters() -> None:
    options: dict[str, Any] = {"max_tokens": 100, "temperature": 0.5, "top_p": 0.9, "user": "u-1"}
    call = make_call(model="gpt-4.1", system="Be brief.", stream=True, extra_headers={"x-trace": "1"}, **options)
    sent = {"max_output_tokens": 100, "temperature": 0.5, "top_p": 0.9, "safety_identifier": "u-1"}
    assert body_of(call).items() >= {"instructions": "Be brief.", "stream": True, **sent}.items()
    assert CODEC.encode(call).request.headers == {"x-trace": "1"}


# --- what a model cannot take ----------------------------------------------------------------------------------------


def test_sampling_while_the_model_does_not_reason() -> None:
    off = Reasoning(effort="none")
    assert body_of(make_call(model="gpt-5.6", temperature=0.5, reasoning=off))["temperature"] == 0.5
    assert body_of(make_call(model="gpt-5.2", temperature=0.5))["temperature"] == 0.5


@pytest.mark.parametrize(
    ("wanted", "model", "sent"),
    [
        (Reasoning(effort="high"), "gpt-5.6", {"effort": "high", "summary": "auto"}),
        (Reasoning(effort="high", summary=False), "gpt-5.6", {"effort": "high"}),
        (Reasoning(), "gpt-5.6", {"summary": "auto"}),
        (Reasoning(effort="none"), "gpt-5.6", {"effort": "none"}),
        (Reasoning(effort="high"), "o1", {"effort": "high"}),
        # The nearest of what the model knows, where the caller allows that:
        (Reasoning(effort="minimal"), "gpt-5.2", {"effort": "none"}),
        (Reasoning(effort="max"), "gpt-5", {"effort": "high", "summary": "auto"}),
        (Reasoning(effort="low"), "gpt-5-pro", {"effort": "high", "summary": "auto"}),
        (Reasoning(budget=1000), "gpt-5", {"effort": "low", "summary": "auto"}),
        (Reasoning(budget=100_000), "gpt-5", {"effort": "high", "summary": "auto"}),
    ],
)
def test_reasoning(wanted: Reasoning, model: str, sent: dict[str, str]) -> None:
    assert body_of(make_call(model=model, reasoning=wanted, adapt=True))["reasoning"] == sent


def test_nothing_to_say_about_reasoning() -> None:
    assert "reasoning" not in body_of(make_call(reasoning=Reasoning(summary=False)))


# --- tools -----------------------------------------------------------------------------------------------------------


def test_tools() -> None:
    server = Raw(b'{"type":"web_search"}')
    body = body_of(make_call(tools=(ADD, ToolSpec(name="nothing")), server_tools=(server,)))
    parameters = json.loads(bytes(SCHEMA))
    assert body["tools"] == [
        {"type": "function", "name": "add", "description": "Add.", "parameters": parameters, "strict": False},
        {"type": "function", "name": "nothing", "parameters": {"type": "object", "properties": {}}, "strict": False},
        {"type": "web_search"},
    ]
    assert "tool_choice" not in body


def test_strict_tools() -> None:
    free = Raw(b'{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"]}')
    encoded = CODEC.encode(make_call(tools=(ToolSpec(name="add", parameters=free, strict=True),)))
    (tool,) = json.loads(encoded.request.body)["tools"]
    assert tool["strict"] is True
    assert tool["parameters"]["additionalProperties"] is False
    assert tool["parameters"]["required"] == ["a", "b"]
    assert {one.what for one in encoded.adaptations} == {"schema of tool 'add'"}


def test_tools_and_strictness_that_a_model_does_not_know() -> None:
    strict = ToolSpec(name="add", parameters=SCHEMA, strict=True)
    encoded = CODEC.encode(make_call(profile=profile_of("gpt-5.6").with_changes(strict_tools=False), tools=(strict,)))
    assert [one["strict"] for one in json.loads(encoded.request.body)["tools"]] == [False]
    assert Adaptation("strict of tool 'add'", "this model does not support it") in encoded.adaptations
    profile = profile_of("gpt-5.6").with_changes(tools=False)
    with pytest.raises(ConfigurationError):
        CODEC.encode(make_call(profile=profile, tools=(ADD,)))
    assert "tools" not in body_of(make_call(profile=profile, tools=(ADD,), adapt=True))


@pytest.mark.parametrize("choice", ["none", "required"])
def test_tool_choices(choice: str) -> None:
    body = body_of(make_call(tools=(ADD,), tool_choice=choice, parallel_tool_calls=False))
    assert (body["tool_choice"], body["parallel_tool_calls"]) == (choice, False)
    assert "tool_choice" not in body_of(make_call(tool_choice=choice))
    assert "parallel_tool_calls" not in body_of(make_call(model="o3", tools=(ADD,), parallel_tool_calls=True))


def test_one_tool() -> None:
    body = body_of(make_call(tools=(ADD,), tool_choice=OneTool("add")))
    assert body["tool_choice"] == {"type": "function", "name": "add"}
    with pytest.raises(ConfigurationError, match="'sub'"):
        CODEC.encode(make_call(tools=(ADD,), tool_choice=OneTool("sub")))


# --- structured replies ----------------------------------------------------------------------------------------------


def test_response_format() -> None:
    wanted = ResponseFormat(schema=SCHEMA, name="sum", description="A sum.")
    shape = {"type": "json_schema", "name": "sum", "description": "A sum.", "schema": json.loads(bytes(SCHEMA))}
    assert body_of(make_call(response_format=wanted))["text"] == {"format": {**shape, "strict": True}}
    odd = CODEC.encode(make_call(response_format=ResponseFormat(schema=SCHEMA, name="Antwort für Ä", strict=False)))
    sent = json.loads(odd.request.body)["text"]["format"]
    assert (sent["name"], sent["strict"]) == ("Antwort_f_r__", False)
    assert len(odd.adaptations) == 1


# --- the caller's own members ----------------------------------------------------------------------------------------


def test_extra_members_win() -> None:
    wanted = ResponseFormat(schema=SCHEMA)
    extra = {
        "model": "other",
        "text": {"verbosity": "low"},
        "reasoning": {"context": "all_turns"},
        "include": ["message.output_text.logprobs"],
        "store": True,
        "prompt_cache_key": "k",
    }
    body = body_of(
        make_call(response_format=wanted, reasoning=Reasoning(effort="low"), extra_body=extra, max_tokens=16)
    )
    assert body["model"] == "other"
    assert body["text"].keys() == {"format", "verbosity"}
    assert body["reasoning"] == {"effort": "low", "summary": "auto", "context": "all_turns"}
    assert body["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]
    assert (body["store"], body["prompt_cache_key"], body["max_output_tokens"]) == (True, "k", 16)


def test_nothing_included_if_the_caller_says_so() -> None:
    assert body_of(make_call(extra_body={"include": []}))["include"] == []


def test_own_input_and_instructions() -> None:
    own = {"input": "Hi", "instructions": "Mine."}
    assert body_of(make_call(system="Ours.", extra_body=own)).items() >= own.items()


def test_features_that_need_storage_are_not_forbidden_to_store() -> None:
    assert "store" not in body_of(make_call(extra_body={"background": True}))
    assert "store" not in body_of(make_call(extra_body={"conversation": "conv_1"}))


def test_what_the_service_has_is_not_sent_again() -> None:
    reply = whole(response(message_item("Hi")))
    messages = (Message.user("Hello"), reply, Message.user("And now?"))
    rest = [{"role": "user", "content": "And now?"}]
    assert len(body_of(make_call(*messages))["input"]) == 3
    assert body_of(make_call(*messages, extra_body={"previous_response_id": "resp_1"}))["input"] == rest
    assert len(body_of(make_call(*messages, extra_body={"previous_response_id": "resp_0"}))["input"]) == 3


@pytest.mark.parametrize("conversation", ["conv_1", {"id": "conv_1"}])
def test_conversations_that_the_service_holds(conversation: object) -> None:
    reply = stream([created(), ended(message_item("Hi"), conversation={"id": "conv_1"})])
    messages = (Message.user("Hello"), reply, Message.user("And now?"))
    assert len(body_of(make_call(*messages, extra_body={"conversation": conversation}))["input"]) == 1
    assert len(body_of(make_call(*messages, extra_body={"conversation": "conv_2"}))["input"]) == 3
