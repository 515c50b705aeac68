"""Requests: what all dialects have in common."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec import Raw

from dragoman.conversation import (
    Conversation,
    Media,
    Message,
    OneTool,
    Text,
    ToolCall,
    ToolExample,
    ToolResult,
    ToolSpec,
)
from dragoman.engines.claude_cli.protocol import wire_tools
from dragoman.engines.local.prompt import add_tools
from dragoman.errors import ConfigurationError
from dragoman.providers import (
    PROVIDERS,
    Adaptation,
    Call,
    Reasoning,
    ResponseFormat,
    ToolLimits,
    ToolNames,
    profile_of,
)
from tests.providers import calls
from tests.providers.calls import HI, encode
from tests.rounds import rounds
from tests.strategies import conversations

MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-3-flash-preview",
    "openai": "gpt-4o",
    "openai-responses": "gpt-5.6",
}
every_dialect = pytest.mark.parametrize("provider", MODELS)
FREE = ToolSpec("free", "", Raw(b'{"type":"object","additionalProperties":{"type":"string"}}'), strict=True)
PNG = Media.from_bytes(b"\x89PNG", "image/png")


def call_of(provider: str, *messages: Message, model: str | None = None, **how: Any) -> Call:
    return calls.call_of(f"{provider}:{model or MODELS.get(provider, 'some-model')}", *messages, **how)


@every_dialect
def test_options_do_not_change_with_the_callers_objects(provider: str) -> None:
    labels = {"a": "1"}
    body: dict[str, object] = {"labels": labels}
    headers = {"x": "1"}
    call = call_of(provider, extra_body=body, extra_headers=headers)
    first = encode(call)
    labels["a"] = headers["x"] = "2"
    body["more"] = 3
    assert json.loads(first.request.body)["labels"] == {"a": "1"}
    again = msgspec.structs.replace(call, options=msgspec.structs.replace(call.options))  # not cached for these
    assert encode(call) == encode(again) == first


ANSWER = ResponseFormat(schema=Raw(b'{"type":"object","properties":{}}'))
LOW, NONE = Reasoning(effort="low"), Reasoning(effort="none")
# A model, what it cannot take, and which members are sent nevertheless.
NOT_TAKEN: list[tuple[str, str, dict[str, Any], set[str]]] = [
    *[("anthropic", "claude-sonnet-4-5", how, set[str]()) for how in ({"seed": 1}, {"logprobs": 1}, {"choices": 2})],
    ("bedrock", "amazon.nova-lite-v1:0", {"choices": 2}, set()),
    ("groq", "llama-3.3-70b-versatile", {"logprobs": 1}, set()),
    ("anthropic", "claude-sonnet-4-5", {"temperature": 0.5, "top_p": 0.5}, {"temperature"}),
    ("anthropic", "claude-sonnet-4-5", {"stop": (" ", "x")}, {"stop_sequences"}),
    ("anthropic", "claude-opus-4-7", {"temperature": 0.5}, set()),
    ("anthropic", "claude-opus-5-5", {"top_p": 0.5}, set()),
    ("anthropic", "claude-sonnet-5", {"top_k": 5}, set()),
    ("anthropic", "claude-fable-5-1", {"tools": (ToolSpec("f"),), "tool_choice": "required"}, {"tools"}),
    ("gemini", "gemini-3-flash", {"user": "u"}, set()),
    ("gemini", "gemini-3-flash", {"parallel_tool_calls": False}, set()),
    ("gemini", "gemini-2.0-flash", {"reasoning": LOW}, set()),
    ("gemini", "gemini-2.5-flash", {"response_format": ANSWER, "tools": (ToolSpec("f"),)}, {"tools"}),
    ("gemini", "gemini-2.5-flash-image", {"tools": (ToolSpec("f"),)}, set()),
    *[
        ("openai", model, {"temperature": 0.5}, set[str]())
        for model in ("o1", "o3-mini", "o4-mini", "gpt-5", "gpt-6-astra")
    ],
    ("openai", "gpt-5-mini", {"top_p": 0.5}, set()),
    ("openai", "o3", {"logprobs": 1}, set()),
    ("openai-responses", "gpt-4o", {"choices": 2}, set()),
    ("openai-responses", "gpt-5", {"logprobs": 0}, set()),
    ("openai-responses", "gpt-4o", {"seed": 1}, set()),
    ("openai-responses", "gpt-4o", {"stop": ("x",)}, set()),
    ("openai-responses", "gpt-4o", {"reasoning": LOW}, set()),
    ("openai-responses", "gpt-5", {"top_p": 0.5}, set()),
    ("openai-responses", "o3", {"parallel_tool_calls": False}, set()),
    ("openai-responses", "gpt-5", {"reasoning": NONE}, {"reasoning"}),
    ("openai-responses", "gpt-5-pro", {"reasoning": LOW}, {"reasoning"}),
    ("openai-responses", "gpt-5.6", {"temperature": 0.5}, set()),
    ("openai-responses", "gpt-5.2", {"temperature": 0.5, "reasoning": LOW}, {"reasoning"}),
]


@pytest.mark.parametrize(("provider", "model", "how", "kept"), NOT_TAKEN)
def test_unsupported_options_are_refused_or_reported(
    provider: str, model: str, how: dict[str, Any], kept: set[str]
) -> None:
    call = call_of(provider, model=model, **how)
    for _ in range(2):  # also when the terms are cached
        with pytest.raises(ConfigurationError, match=f"{provider}:{model} cannot take") as raised:
            encode(call)
        assert "adapt=True" in raised.value.hint
    done = encode(call_of(provider, model=model, adapt=True, **how))
    assert len(done.adaptations) == 1
    plain = json.loads(encode(call_of(provider, model=model)).request.body)
    assert json.loads(done.request.body).keys() - plain.keys() == kept


@every_dialect
def test_illegal_tool_names_are_replaced_everywhere_and_mapped_back(provider: str) -> None:
    name = "add numbers!"
    turn = (HI, Message.assistant(ToolCall("t", name, "{}")), Message.tool([ToolResult("t", name)]))
    done = encode(call_of(provider, *turn, tools=(ToolSpec(name),), tool_choice=OneTool(name)))
    ((wire, own),) = done.tool_names.items()
    assert own == name
    assert name.encode() not in done.request.body
    assert done.request.body.count(f'"{wire}"'.encode()) >= 3, "the declaration, the choice and the call"
    assert Adaptation(f"name of tool {name!r}", f"sent as {wire!r}") in done.adaptations
    # Without the tool, its name in the history is made legal too.
    without = encode(call_of(provider, *turn)).request.body
    assert name.encode() not in without
    assert re.search(rb'"add[_a-z0-9]*"', without)


@pytest.mark.parametrize("provider", ["anthropic", "openai", "openai-responses"])
def test_a_schema_that_cannot_be_strict_is_sent_as_a_plain_one(provider: str) -> None:
    done = encode(call_of(provider, tools=(FREE,)))
    assert b'"strict":true' not in done.request.body
    assert b'"additionalProperties":{"type":"string"}' in done.request.body
    assert any(one.what == "schema of tool 'free'" and "not strict" in one.why for one in done.adaptations)


@every_dialect
def test_tools_are_refused_for_a_model_without_tools(provider: str) -> None:
    how: dict[str, Any] = {"tools": (ToolSpec("f"),), "profile": {"tools": False}}
    with pytest.raises(ConfigurationError, match="tools"):
        encode(call_of(provider, **how))
    done = encode(call_of(provider, adapt=True, tool_choice="required", **how))
    assert "tools" in {one.what for one in done.adaptations}
    assert not json.loads(done.request.body).keys() & {"tools", "toolConfig", "tool_choice"}


@every_dialect
def test_two_tools_of_the_same_name_are_refused(provider: str) -> None:
    with pytest.raises(ConfigurationError, match="same name: 'f'"):
        encode(call_of(provider, tools=(ToolSpec("f"), ToolSpec("g"), ToolSpec("f", "Another."))))


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "gemini"])
def test_too_many_tools_are_refused_or_cut(provider: str) -> None:
    most = profile_of(provider, MODELS[provider]).tool_limits.max_tools
    assert most is not None
    tools = tuple(ToolSpec(f"t{number}") for number in range(most + 1))
    with pytest.raises(ConfigurationError, match=f"{most + 1} tools"):
        encode(call_of(provider, tools=tools))
    done = encode(call_of(provider, tools=tools, adapt=True))
    assert done.request.body.count(b'"t') >= most
    assert f'"t{most}"'.encode() not in done.request.body
    assert [one.what for one in done.adaptations] == [f"{most + 1} tools"]


@every_dialect
def test_examples_reach_the_model(provider: str) -> None:
    examples = (ToolExample({"city": "Rome"}), ToolExample({"city": "Oslo"}))
    done = encode(call_of(provider, tools=(ToolSpec("weather", "The weather.", examples=examples),)))
    body = json.loads(done.request.body)
    if provider == "anthropic":
        assert body["tools"][0]["input_examples"] == [{"city": "Rome"}, {"city": "Oslo"}]
        assert not done.adaptations
    else:
        assert json.dumps('The weather.\n\nExamples of its arguments: {"city":"Rome"}; {"city":"Oslo"}') in json.dumps(
            body
        )
        assert done.adaptations == (Adaptation("description of tool 'weather'", "the examples are put into it"),)


def test_examples_reach_local_programs() -> None:
    spec = ToolSpec("weather", "The weather.", examples=(ToolExample({"city": "Rome"}),))
    assert b"Rome" in bytes(wire_tools([spec], ToolNames(["weather"], ToolLimits()))[0])
    assert "Rome" in str(add_tools(None, (spec,), must_call=False))


@every_dialect
@pytest.mark.parametrize("content", ["it broke", "", PNG])
def test_a_failed_tool_is_marked_as_an_error(provider: str, content: Any) -> None:
    part = [content] if isinstance(content, Media) else [Text(content)] if content else []
    result = ToolResult("t", "f", tuple(part), is_error=True)
    turn = (HI, Message.assistant(ToolCall("t", "f", "{}")), Message.tool([result]))
    assert b"rror" in encode(call_of(provider, *turn, tools=(ToolSpec("f"),))).request.body


@every_dialect
def test_an_unread_file_is_refused(provider: str) -> None:
    with pytest.raises(ConfigurationError, match="was not read"):
        encode(call_of(provider, Message.user(Media.from_path("a.png"))))


@pytest.mark.parametrize("provider", [*MODELS, "openai-compatible", "llamacpp"])
def test_unsupported_media_are_reported_every_time(provider: str) -> None:
    result = ToolResult("t", "f", (PNG, Text("seen")))
    turn = (Message.user("Look:", PNG), Message.assistant(ToolCall("t", "f", "{}")), Message.tool([result]))
    how: dict[str, Any] = {"tools": (ToolSpec("f"),)}
    blind = call_of(provider, *turn, **how, profile={"media": frozenset(), "tool_result_media": frozenset()})
    first, second = encode(blind).losses, encode(blind).losses
    assert [(loss.message, loss.block) for loss in first] == [(0, 1), (2, 0)]
    assert first == second
    assert (PNG.data or b"").hex() not in encode(blind).request.body.hex()
    seeing = call_of(provider, *turn, **how, profile={"media": frozenset(["image"])})
    assert not [loss for loss in encode(seeing).losses if loss.message == 0]


# --- legal names for tools, and back ----------------------------------------------------------------------------------

OPENAI = ToolLimits()
ANTHROPIC = ToolLimits(name_pattern=r"[a-zA-Z0-9_-]{1,128}", max_name_length=128)
GEMINI = ToolLimits(name_pattern=r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", max_name_length=64)
LETTERS = ToolLimits(name_pattern=r"[a-z]+", max_name_length=20)
LIMITS = st.sampled_from([OPENAI, ANTHROPIC, GEMINI, LETTERS])

names = st.text(min_size=1, max_size=12) | st.text("ab._-é 1", min_size=1, max_size=90)


def legal(name: str, limits: ToolLimits) -> bool:
    return re.fullmatch(limits.name_pattern, name) is not None and len(name) <= limits.max_name_length


WRITTEN: list[tuple[ToolLimits, str, str]] = [
    (OPENAI, "get_weather", "get_weather"),
    (OPENAI, "files.read", "files_read"),
    (OPENAI, "get weather", "get_weather"),
    (OPENAI, "mcp__server/tool", "mcp__server_tool"),
    (OPENAI, "Größe", "Gro_e"),
    (OPENAI, "café", "cafe"),
    (OPENAI, "2nd", "2nd"),
    (GEMINI, "2nd", "_2nd"),
    (GEMINI, "files.read", "files.read"),
    (OPENAI, "x" * 70, "x" * 55 + "_c71bd109"),
]


@pytest.mark.parametrize(("limits", "own", "wire"), WRITTEN)
def test_names_stay_readable(limits: ToolLimits, own: str, wire: str) -> None:
    found = ToolNames([own], limits)
    assert found.to_wire == {own: wire}
    assert found.to_own == ({} if own == wire else {wire: own})
    assert ToolNames(["other"], limits).wire(own) == wire, "also when the tool is gone"


@given(own=st.lists(names, max_size=8, unique=True), limits=LIMITS, seed=st.integers(0, 99))
def test_names_are_legal_unique_and_independent_of_the_order(own: list[str], limits: ToolLimits, seed: int) -> None:
    try:
        found = ToolNames(own, limits)
    except ConfigurationError:
        assert limits is LETTERS  # a hash has digits
        return
    assert list(found.to_wire) == own
    assert all(legal(wire, limits) for wire in found.to_wire.values())
    assert len(set(found.to_wire.values())) == len(own)
    assert all(found.to_wire[name] == name for name in own if legal(name, limits))
    assert found.to_own == {wire: name for name, wire in found.to_wire.items() if wire != name}
    shuffled = Random(seed).sample(own, len(own))
    assert ToolNames(shuffled, limits).to_wire == found.to_wire


@given(own=st.lists(names, min_size=1, max_size=6, unique=True), gone=names)
def test_a_removed_tool_has_a_legal_and_unique_name(own: list[str], gone: str) -> None:
    found = ToolNames(own, OPENAI)
    wire = found.wire(gone)
    assert legal(wire, OPENAI)
    if gone in own:
        assert wire == found.to_wire[gone]
    else:
        assert wire not in found.to_wire.values()


def test_a_pattern_without_legal_names_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="No legal name"):
        ToolNames(["a b"], ToolLimits(name_pattern="only_this"))
    assert ToolNames(["only_this"], ToolLimits(name_pattern="only_this")).to_own == {}


# --- any conversation -------------------------------------------------------------------------------------------------


@settings(max_examples=rounds(400, 8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(conversations, st.sampled_from(sorted(PROVIDERS)))
def test_any_conversation_gives_a_request_or_a_configuration_error(conversation: Conversation, provider: str) -> None:
    model = MODELS.get(provider, "some-model")
    repaired = conversation.repaired().conversation
    call = Call(model=model, conversation=repaired, profile=profile_of(provider, model))
    try:
        done = encode(call)
    except ConfigurationError:
        return  # an unread file, or nothing to send
    body = json.loads(done.request.body)
    for loss in done.losses:
        assert loss.block < max(len(repaired.messages[loss.message].blocks), 1)
    assert encode(call) == done
    if call.profile.dialect == "openai_chat":
        check_results_follow_calls(body["messages"])


def check_results_follow_calls(messages: list[dict[str, Any]]) -> None:
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting, "a call without its result"
        waiting = [one["id"] for one in message.get("tool_calls", [])]
