"""The providers' tool search: requests and replies agree with recorded ones."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dragoman.conversation import Message, Text, ToolExample, ToolResult, ToolSpec
from dragoman.providers import estimated_tokens, profile_of
from tests.providers.calls import body_of, call_of, decoder_of
from tests.providers.feeding import message_of
from tests.providers.recorded import Exchange, conversations

SEARCHES = ("tool_search", "tool_search_tool_bm25_20251119")
CASES = {
    "test_anthropic_native_tool_search_round_trip": "anthropic",
    "test_anthropic_native_tool_search_streaming": "anthropic",
    "test_openai_native_tool_search_round_trip": "responses",
    "test_openai_native_tool_search_streaming": "responses",
}
PROVIDERS = {"anthropic": "anthropic", "responses": "openai-responses"}
KINDS = {
    "anthropic": ["server_tool_use", "tool_search_tool_result", "tool_use"],
    "responses": ["tool_search_call", "tool_search_output", "function_call"],
}
ASKED = Message.user("What is the rate?")


def recorded() -> list[Any]:
    rows = {row[0].name: row[0] for file in PROVIDERS for row in conversations(file)}
    found = [
        pytest.param(CASES[name], rows[name], id=name, marks=pytest.mark.recorded) for name in CASES if name in rows
    ]
    absent = pytest.param("", None, id="absent", marks=[pytest.mark.recorded, pytest.mark.skip(reason="not here")])
    return found or [absent]


def spec_of(tool: dict[str, Any]) -> ToolSpec:
    schema = tool.get("input_schema") or tool.get("parameters")
    return ToolSpec(
        name=tool["name"],
        description=tool["description"],
        parameters=msgspec.Raw(json.dumps(schema).encode()),
        strict=tool.get("strict"),
        deferred=tool.get("defer_loading", False),
    )


def by_name(tools: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The tools, without a `type` that says nothing."""
    kept = [{k: v for k, v in each.items() if k != "type" or v in SEARCHES} for each in tools]
    return {each.get("name", ""): each for each in kept}


@pytest.mark.parametrize(("file", "first"), recorded())
def test_requests_and_replies_agree_with_recorded_ones(file: str, first: Exchange) -> None:
    functions = [each for each in first.request["tools"] if each.get("type") not in SEARCHES]
    specs = tuple(sorted(map(spec_of, functions), key=lambda spec: spec.deferred))
    target = f"{PROVIDERS[file]}:{first.model}"
    assert by_name(body_of(target, ASKED, tools=specs)["tools"]) == by_name(first.request["tools"])
    reply = message_of(decoder_of(call_of(target, ASKED, tools=specs, stream=first.streamed)), [first.data])
    (call,) = reply.tool_calls
    assert call.name == "get_exchange_rate"
    answer = Message.tool([ToolResult(call.id, call.name, (Text("0.92"),))])
    body = body_of(target, ASKED, reply, answer, tools=specs)
    said = [each for each in body.get("input") or body["messages"][1]["content"] if each.get("type") in KINDS[file]]
    assert [each["type"] for each in said] == KINDS[file]
    if not first.streamed:
        whole = json.loads(first.body)
        assert said == [each for each in whole.get("output") or whole["content"] if each["type"] in KINDS[file]]


def test_a_deferred_tool_has_no_cache_mark() -> None:
    told, other = ToolSpec(name="told"), ToolSpec(name="other", deferred=True)
    for tools, names in [
        ((told, other), ["told", "tool_search_tool_bm25", "other"]),
        ((other,), ["tool_search_tool_bm25", "other"]),
    ]:
        sent = body_of("anthropic:claude-opus-5", tools=tools, cache=True)["tools"]
        assert [each["name"] for each in sent] == names
        assert [each["name"] for each in sent if "cache_control" in each] == ["tool_search_tool_bm25"]


def test_examples_of_a_deferred_tool_are_in_its_description() -> None:
    spec = ToolSpec(name="pay", description="Pay.", examples=(ToolExample(input={"amount": 3}),), deferred=True)
    *_, sent = body_of("anthropic:claude-opus-5", tools=(spec,))["tools"]
    assert "input_examples" not in sent
    assert '"amount":3' in sent["description"]


@pytest.mark.parametrize("model", ["openai:gpt-4o", "gemini:gemini-2.5-flash", "anthropic:claude-opus-4-1"])
def test_without_tool_search_a_deferred_tool_is_sent_in_full(model: str) -> None:
    plain, deferred = ToolSpec(name="pay", description="Pay."), ToolSpec(name="pay", description="Pay.", deferred=True)
    assert body_of(model, tools=(deferred,)) == body_of(model, tools=(plain,))


def test_deferred_tools_do_not_count_as_tokens() -> None:
    call = call_of("anthropic:claude-opus-5")
    spec = ToolSpec(name="pay", description="Pay. " * 100)
    assert estimated_tokens(call.conversation, [spec]) > estimated_tokens(call.conversation) + 100
    assert estimated_tokens(call.conversation, [msgspec.structs.replace(spec, deferred=True)]) == estimated_tokens(
        call.conversation
    )


@pytest.mark.parametrize(
    ("model", "searched"),
    [
        ("anthropic:claude-sonnet-4-5", 10_000),
        ("anthropic:claude-haiku-4-5-20251001", 10_000),
        ("anthropic:claude-opus-4-1", 0),
        ("anthropic:claude-sonnet-4-0", 0),
        ("anthropic:claude-3-7-sonnet-latest", 0),
        ("vertex-claude:claude-opus-5", 0),
        ("azure-responses:gpt-5.4", 0),
        ("openai-responses:gpt-5.4", 127),
        ("openai-responses:gpt-5.4-mini", 127),
        ("openai-responses:gpt-5.4-nano", 0),
        ("openai-responses:gpt-5.2", 0),
        ("openai:gpt-5.4", 0),
        ("bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0", 0),
    ],
)
def test_models_with_tool_search(model: str, searched: int) -> None:
    provider, _, name = model.partition(":")
    assert profile_of(provider, name).tool_search == searched
