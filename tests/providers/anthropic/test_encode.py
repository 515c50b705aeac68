"""Requests: members of the body, tools, cache marks and headers."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.conversation import Message, Native, OneTool, Opaque, Text, ToolCall, ToolResult, ToolSpec
from dragoman.errors import (
    ConfigurationError,
)
from dragoman.providers import Adaptation, ResponseFormat, codec_of
from dragoman.providers.anthropic import CODEC
from tests.providers.anthropic.calls import body_of, encoded

HI = Message.user("Hi")
ADD = ToolSpec("add", "Adds.", Raw(b'{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}'))
NONE = ToolSpec("none")
SEARCH = Raw(b'{"type":"web_search_20250305","name":"web_search"}')


def test_the_smallest_request() -> None:
    assert codec_of("anthropic") is CODEC
    done = encoded(HI)
    assert (done.request.method, done.request.path) == ("POST", "/v1/messages")
    assert done.request.headers == {"anthropic-version": "2023-06-01"}
    assert json.loads(done.request.body) == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }
    assert (done.adaptations, done.losses, done.tool_names) == ((), (), {})


def test_parameters() -> None:
    body = body_of(HI, system="Be brief.", temperature=0.5, top_k=3, stop=("END",), user="u", max_tokens=9, stream=True)
    expected = {
        "system": [{"type": "text", "text": "Be brief."}],
        "temperature": 0.5,
        "top_k": 3,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u"},
        "max_tokens": 9,
        "stream": True,
    }
    assert {name: body[name] for name in expected} == expected
    for model in ("claude-sonnet-4-0", "anything-else"):  # a server of another name speaks the plain dialect
        body = body_of(HI, model=model, temperature=0.5, top_p=0.9)
        assert (body["temperature"], body["top_p"]) == (0.5, 0.9)


@pytest.mark.parametrize("system", [None, "", " \n"])
def test_an_empty_system_prompt_is_not_sent(system: str | None) -> None:
    assert "system" not in body_of(HI, system=system)


# --- tools ---


def test_tools_in_the_given_order_and_server_tools_after_them() -> None:
    body = body_of(HI, tools=[NONE, ADD], server_tools=(SEARCH,))
    assert [tool["name"] for tool in body["tools"]] == ["none", "add", "web_search"]
    assert body["tools"][0] == {"name": "none", "input_schema": {"type": "object", "properties": {}}}
    assert body["tools"][1]["description"] == "Adds."
    assert body["tools"][1]["input_schema"] == ADD.schema
    assert "tool_choice" not in body


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        ("auto", None, None),
        ("auto", True, None),
        ("auto", False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("none", None, {"type": "none"}),
        ("none", False, {"type": "none"}),
        ("required", None, {"type": "any"}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        (OneTool("add"), None, {"type": "tool", "name": "add"}),
        (OneTool("add"), False, {"type": "tool", "name": "add", "disable_parallel_tool_use": True}),
    ],
)
def test_tool_choices(choice: Any, parallel: bool | None, expected: dict[str, Any] | None) -> None:
    body = body_of(HI, tools=[ADD], tool_choice=choice, parallel_tool_calls=parallel)
    assert body.get("tool_choice") == expected


def test_no_choice_without_tools() -> None:
    assert "tool_choice" not in body_of(HI, tool_choice="none", parallel_tool_calls=False)
    assert body_of(HI, server_tools=(SEARCH,), parallel_tool_calls=False)["tool_choice"]["type"] == "auto"


def test_strict_tools() -> None:
    strict = msgspec.structs.replace(ADD, strict=True)
    (tool,) = body_of(HI, tools=[strict])["tools"]
    assert tool["strict"] is True
    assert tool["input_schema"]["additionalProperties"] is False
    assert "strict" not in body_of(HI, tools=[msgspec.structs.replace(ADD, strict=False)])["tools"][0]
    done = encoded(HI, tools=[strict], model="claude-sonnet-4-0")
    assert "strict" not in json.loads(done.request.body)["tools"][0]
    assert Adaptation("strict of tool 'add'", "this model does not support it") in done.adaptations


# --- structured replies ---

ANSWER = ResponseFormat(schema=Raw(b'{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'))


def test_a_structured_reply() -> None:
    config = body_of(HI, response_format=ANSWER)["output_config"]
    assert config["format"]["type"] == "json_schema"
    assert config["format"]["schema"]["additionalProperties"] is False
    assert config["format"]["schema"]["properties"] == {"n": {"type": "integer"}}


def test_a_schema_that_it_cannot_enforce_is_refused() -> None:
    free = ResponseFormat(schema=Raw(b'{"type":"object","additionalProperties":{"type":"string"}}'))
    with pytest.raises(ConfigurationError, match="response_format"):
        encoded(HI, response_format=free)
    done = encoded(HI, response_format=free, adapt=True)
    assert "output_config" not in json.loads(done.request.body)
    assert [one.what for one in done.adaptations] == ["response_format"]


# --- cache marks ---

MARK = {"type": "ephemeral"}


def marks_of(body: dict[str, Any]) -> list[str]:
    """Where marks are, in the order in which the provider reads them."""
    found = [f"tool {tool['name']}" for tool in body.get("tools", []) if "cache_control" in tool]
    found += ["system" for part in body.get("system", []) if "cache_control" in part]
    for at, message in enumerate(body["messages"]):
        found += [f"{at}.{i}" for i, block in enumerate(message["content"]) if block.get("cache_control") == MARK]
    return found


def test_marks_for_the_cache() -> None:
    messages = (
        HI,
        Message.assistant("a"),
        Message.user("b", "c"),
        Message.assistant(ToolCall("t", "add")),
        Message.tool([ToolResult("t", "add")]),
        Message.user("d"),
    )
    body = body_of(*messages, system="S", tools=[NONE, ADD], cache=True, server_tools=(SEARCH,))
    assert marks_of(body) == ["tool add", "system", "2.1", "4.1"]
    assert marks_of(body_of(*messages, system="S", tools=[ADD])) == []
    assert marks_of(body_of(HI, cache=True)) == ["0.0"]
    assert marks_of(body_of(HI, Message.assistant("so far"), cache=True)) == ["0.0"]


def test_never_more_than_four_marks() -> None:
    marked = Raw(b'{"type":"web_search_20250305","name":"web_search","cache_control":{"type":"ephemeral"}}')
    messages = (HI, Message.assistant("a"), Message.user("b"))
    body = body_of(*messages, system="S", tools=[ADD], cache=True, server_tools=(marked,))
    assert marks_of(body) == ["tool add", "tool web_search", "system", "2.0"]
    body = body_of(*messages, system="S", tools=[ADD], cache=True, server_tools=(marked,) * 4)
    assert marks_of(body) == ["tool web_search"] * 4
    body = body_of(*messages, system="S", tools=[ADD], cache=True, extra_body={"cache_control": MARK})
    assert marks_of(body) == ["tool add", "system", "2.0"]


def test_a_block_that_only_the_provider_understands_is_not_marked() -> None:
    upload = Opaque("anthropic", Raw(b'{"type":"container_upload","file_id":"f"}'))
    assert marks_of(body_of(Message.user("a", upload), cache=True)) == []
    own = Text("a", native=Native("anthropic", {"cache_control": Raw(b'{"type":"ephemeral","ttl":"1h"}')}))
    assert body_of(Message.user(own), cache=True)["messages"][0]["content"][0]["cache_control"]["ttl"] == "1h"


# --- the provider's own words ---


def test_extra_members_win_and_extra_headers_are_added() -> None:
    done = encoded(
        HI,
        max_tokens=5,
        extra_body={"max_tokens": 6, "service_tier": "auto", "thinking": {"type": "disabled"}},
        extra_headers={"X-One": "1", "Anthropic-Version": "2026-10-21"},
    )
    body = json.loads(done.request.body)
    assert (body["max_tokens"], body["service_tier"]) == (6, "auto")
    assert done.request.body.count(b'"max_tokens"') == 1
    assert done.request.headers == {"anthropic-version": "2026-10-21", "x-one": "1"}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"server_tools": (SEARCH,)}, None),
        ({"server_tools": (Raw(b'{"type":"advisor_20260301"}'),)}, "advisor-tool-2026-03-01"),
        ({"server_tools": (Raw(b"[]"),)}, None),
        (
            {"extra_body": {"mcp_servers": [], "context_management": "x"}},
            "mcp-client-2025-11-20,context-management-2025-06-27",
        ),
        ({"extra_headers": {"anthropic-beta": "one, two"}}, "one,two"),
        (
            {"extra_headers": {"Anthropic-Beta": "one"}, "extra_body": {"fallbacks": "default"}},
            "server-side-fallback-2026-07-01,one",
        ),
    ],
)
def test_features_in_beta_bring_their_header(how: dict[str, Any], expected: str | None) -> None:
    assert encoded(HI, **how).request.headers.get("anthropic-beta") == expected


def test_the_sandbox_of_the_last_reply_is_used_again() -> None:
    fields = {"container": Raw(b'{"id":"container_1","expires_at":"2026-01-01T00:00:00Z"}')}
    reply = Message(role="assistant", blocks=(Text("a"),), native=Native("anthropic", fields))
    code = Raw(b'{"type":"code_execution_20250825","name":"code_execution"}')
    assert body_of(HI, reply, Message.assistant("b"), HI, server_tools=(code,))["container"] == "container_1"
    assert "container" not in body_of(HI, reply, HI)
    assert "container" not in body_of(HI, server_tools=(code,))
