"""Options against profiles: what a model can take stays as it is."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from dragoman.conversation import Conversation, ToolSpec
from dragoman.errors import ConfigurationError
from dragoman.providers import (
    Call,
    ModelOptions,
    Profile,
    Reasoning,
    ResponseFormat,
    effective_options,
)

TOOL = ToolSpec("t")


def call_of(options: dict[str, Any], profile: dict[str, Any], *tools: ToolSpec) -> Call:
    return Call(
        model="m",
        conversation=Conversation(),
        profile=Profile(provider="p", dialect="d", **profile),
        tools=tools,
        options=ModelOptions(**options),
    )


FINE: list[tuple[dict[str, Any], dict[str, Any], tuple[ToolSpec, ...]]] = [
    ({}, {"unsupported": frozenset(["temperature", "seed", "stop", "top_k"])}, ()),
    ({"temperature": 0.0}, {}, ()),
    ({"parallel_tool_calls": True}, {"parallel_tool_calls": False}, (TOOL,)),
    ({"tool_choice": "required"}, {"tool_choices": frozenset(["auto"])}, ()),
    ({"cache": True, "extra_body": {"a": 1}}, {"unsupported": frozenset(["cache", "extra_body"])}, ()),
    ({"response_format": ResponseFormat(schema=Raw(b"{}"))}, {}, ()),
]


@pytest.mark.parametrize(("options", "profile", "tools"), FINE)
def test_what_a_model_can_take_stays(options: Any, profile: Any, tools: Any) -> None:
    call = call_of(options, profile, *tools)
    assert effective_options(call, []) is call.options


def test_not_to_reason_is_what_a_model_without_reasoning_does() -> None:
    call = call_of({"reasoning": Reasoning(effort="none")}, {"reasoning": "none"})
    assert effective_options(call, []).reasoning is None


def test_server_tools_are_tools_too() -> None:
    options = {"tool_choice": "required", "server_tools": (Raw(b"{}"),)}
    with pytest.raises(ConfigurationError, match="tool_choice"):
        effective_options(call_of(options, {"tool_choices": frozenset(["auto"])}), [])


def test_the_default_of_tokens() -> None:
    profile = {"default_max_tokens": 100}
    assert effective_options(call_of({}, profile), []).max_tokens == 100
    assert effective_options(call_of({"max_tokens": 7}, profile), []).max_tokens == 7
