"""Every feature with every other: each request is one that the provider's own types allow, unknown keys forbidden."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dragoman.conversation import (
    Json,
    Media,
    Message,
    OneTool,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from dragoman.providers.anthropic import CODEC
from dragoman.providers.options import Reasoning, ResponseFormat
from tests.providers.anthropic.calls import call_of
from tests.providers.anthropic.sdk import problems_of

MODELS = (
    "claude-3-opus-latest",
    "claude-3-7-sonnet-latest",
    "claude-sonnet-4-0",
    "claude-sonnet-4-5",
    "claude-opus-4-5",
    "claude-opus-4-6",
    "claude-opus-4-8",
    "claude-sonnet-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
    "claude-opus-5-5",
)

OBJECT = Raw(b'{"type":"object","properties":{"a":{"type":"integer","minimum":1}},"required":["a"]}')

OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "max_tokens": ({"max_tokens": 5000},),
    "sampling": ({"temperature": 0.5}, {"top_p": 0.5, "top_k": 4}, {"temperature": 1.0, "top_p": 0.99}),
    "stop": ({"stop": ("END", "STOP")},),
    "choice": ({"tool_choice": "none"}, {"tool_choice": "required"}, {"tool_choice": OneTool("add.two")}),
    "parallel": ({"parallel_tool_calls": False},),
    "reasoning": (
        {"reasoning": Reasoning()},
        {"reasoning": Reasoning(effort="none")},
        {"reasoning": Reasoning(effort="xhigh", summary=False)},
        {"reasoning": Reasoning(budget=3000)},
    ),
    "format": ({"response_format": ResponseFormat(schema=OBJECT)},),
    "cache": ({"cache": True},),
    "user": ({"user": "u"},),
    "server": ({"server_tools": (Raw(b'{"type":"web_search_20250305","name":"web_search"}'),)},),
    "extra": ({"extra_body": {"service_tier": "auto"}},),
}

TOOLS = (
    ToolSpec("add.two", "Adds.", OBJECT),
    ToolSpec("now", strict=True),
    ToolSpec("set", parameters=OBJECT, strict=True),
)

IMAGE = Media.from_bytes(b"x", "image/png")
MEDIA = (
    IMAGE,
    Media.from_url("https://host/a.png"),
    Media.from_bytes(b"x", "application/pdf", name="a.pdf"),
    Media.from_url("https://host/a.pdf"),
    Media.from_bytes(b"x", "text/markdown"),
    Media.from_bytes(b"x", "audio/wav"),
)
RESULT = ToolResult("t1", "add.two", (Text("2"), Json(raw=Raw(b'{"a":1}')), IMAGE))
SERVER = (
    Opaque("anthropic", Raw(b'{"type":"server_tool_use","id":"s","name":"web_search","input":{}}')),
    Opaque("anthropic", Raw(b'{"type":"web_search_tool_result","tool_use_id":"s","content":[]}')),
)
HISTORIES: dict[str, tuple[Message, ...]] = {
    "plain": (Message.user("Hi"),),
    "media": (Message.user("See", *MEDIA),),
    "turns": (Message.user("Hi"), Message.assistant("Ho", ""), Message.user("Hi", "again")),
    "thinking": (
        Message.user("Hi"),
        Message.assistant(
            Thinking("Hm", "anthropic", signature="s"), Thinking("", "anthropic", encrypted="e"), Text("a")
        ),
        Message.user("Hi"),
    ),
    "tools": (
        Message.user("Hi"),
        Message.assistant("a", ToolCall("t1", "add.two", '{"a":1}'), ToolCall("t|2", "now")),
        Message.tool([RESULT, ToolResult("t|2", "now", is_error=True)]),
    ),
    "server tools": (Message.user("Hi"), Message.assistant("a", *SERVER, "b"), Message.user("Hi")),
    "from elsewhere": (
        Message.user("Hi"),
        Message.assistant(Thinking("Hm", "gemini", signature="s"), Opaque("gemini", Raw(b"{}")), ToolCall("t1", "x y")),
        Message.tool([ToolResult("t1", "x y", (Text("a"), Text("b")))]),
        Message.user("And?"),
    ),
}


def check(model: str, history: str, *, system: str | None, tools: bool, stream: bool, options: dict[str, Any]) -> None:
    call = call_of(
        *HISTORIES[history],
        model=model,
        system=system,
        tools=TOOLS if tools else (),
        stream=stream,
        adapt=True,
        **options,
    )
    done = CODEC.encode(call)
    body = json.loads(done.request.body)
    assert problems_of(body, beta="anthropic-beta" in done.request.headers) == []
    marks = json.dumps(body).count('"cache_control"')
    assert marks <= 4
    assert bool(marks) == bool(options.get("cache"))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("history", HISTORIES)
def test_each_option_alone_and_all_together(model: str, history: str) -> None:
    for kind in OPTIONS.values():
        for options in kind:
            check(model, history, system="S", tools=True, stream=False, options=options)
    together = {name: value for kind in OPTIONS.values() for name, value in kind[0].items()}
    check(model, history, system="S", tools=True, stream=True, options=together)
    check(model, history, system=None, tools=False, stream=False, options={})


@given(
    st.sampled_from(MODELS),
    st.sampled_from(sorted(HISTORIES)),
    st.booleans(),
    st.booleans(),
    st.fixed_dictionaries({}, optional={name: st.sampled_from(kind) for name, kind in OPTIONS.items()}),
)
def test_any_options_together(
    model: str, history: str, tools: bool, stream: bool, chosen: dict[str, dict[str, Any]]
) -> None:
    options = {name: value for one in chosen.values() for name, value in one.items()}
    check(model, history, system="S", tools=tools, stream=stream, options=options)


def test_the_check_itself_finds_what_is_wrong() -> None:
    good: dict[str, Any] = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
    assert problems_of(good, beta=False) == []
    for wrong in (
        {"unknown": 1},
        {"max_tokens": "1"},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "unknown": 1}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"tool_choice": {"type": "sometimes"}},
        {"temperature": "hot"},
        {"tools": [{"name": "x"}]},
        {"thinking": {"type": "adaptive", "block_binding": {}}},
    ):
        assert problems_of({**good, **wrong}, beta=False) != [], wrong
    assert problems_of({**good, "thinking": {"type": "adaptive", "block_binding": {}}}, beta=True) == []
