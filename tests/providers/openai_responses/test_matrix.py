"""Every kind of request, against the official SDK's parameter types with unknown keys forbidden."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from msgspec import Raw
from openai.types.responses import ResponseCreateParams

from dragoman.conversation import (
    Conversation,
    Json,
    Media,
    Message,
    OneTool,
    Opaque,
    Text,
    Thinking,
    ToolResult,
    ToolSpec,
)
from dragoman.providers.codec import Call
from dragoman.providers.openai_responses import CODEC
from dragoman.providers.options import ModelOptions, Reasoning, ResponseFormat
from tests.providers.openai_responses.calls import (
    READER,
    call_item,
    message_item,
    profile_of,
    reasoning_item,
    response,
    whole,
)
from tests.providers.strict_types import problems

OBJECT = Raw(b'{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"]}')
TOOLS = (
    ToolSpec(name="add", description="Add.", parameters=OBJECT),
    ToolSpec(name="strictly", parameters=OBJECT, strict=True),
    ToolSpec(name="nothing"),
    ToolSpec(name="odd name!", description="Renamed."),
)
PNG = Media.from_bytes(b"\x89PNG", "image/png")
PDF = Media.from_bytes(b"%PDF", "application/pdf", name="paper.pdf")
RESULTS = Message.tool(
    [
        ToolResult("call_1", "add", (Text("2"),)),
        ToolResult("call_2", "sub", (Json(Raw(b"[1]")), PNG, Media.from_url("https://host/a.pdf")), is_error=True),
    ]
)
OWN = whole(
    response(
        reasoning_item("Hm."),
        {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
        reasoning_item(id="rs_2"),
        message_item("I add.", phase="commentary"),
        call_item(),
        call_item("sub", "{}", id="fc_2", call_id="call_2"),
    )
)
REFUSED = whole(response(message_item(content=[{"type": "refusal", "refusal": "No."}])))
PICTURE = whole(response({"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "iVBO"}))
FOREIGN = Message(
    role="assistant",
    provider="anthropic",
    blocks=(
        Thinking("hm", "anthropic", signature="s"),
        Text("I add."),
        Opaque("anthropic", Raw(b'{"type":"server_tool_use"}')),
        PNG,
        *OWN.tool_calls,
    ),
)

HISTORIES: dict[str, tuple[Message, ...]] = {
    "one question": (Message.user("Hello"),),
    "media": (Message.user("Look:", PNG, PDF, Media.from_url("https://host/a.png"), "and?"),),
    "media by url": (Message.user(Media.from_url("https://host/a.pdf")),),
    "unsupported media": (Message.user(Media.from_bytes(b"", "audio/wav")),),
    "own reply": (Message.user("Add"), OWN, RESULTS),
    "own refusal": (Message.user("Add"), REFUSED, Message.user("Please")),
    "own picture": (Message.user("Paint"), PICTURE, Message.user("Nice")),
    "foreign reply": (Message.user("Add"), FOREIGN, RESULTS),
    "two users": (Message.user("One"), Message.user("Two")),
}

OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "all numbers": {"max_tokens": 100, "temperature": 0.5, "top_p": 0.9, "reasoning": Reasoning(effort="none")},
    "user": {"user": "u-1"},
    "choice none": {"tool_choice": "none"},
    "choice required": {"tool_choice": "required", "parallel_tool_calls": False},
    "choice of one": {"tool_choice": OneTool("odd name!"), "parallel_tool_calls": True},
    "effort": {"reasoning": Reasoning(effort="high")},
    "effort without summary": {"reasoning": Reasoning(effort="low", summary=False)},
    "format": {"response_format": ResponseFormat(schema=OBJECT, name="sum of it", description="A sum.")},
    "loose format": {"response_format": ResponseFormat(schema=OBJECT, strict=False)},
    "server tools": {"server_tools": (Raw(b'{"type":"web_search"}'), Raw(b'{"type":"image_generation"}'))},
    "cache": {"cache": True},
    "extra": {
        "extra_body": {
            "text": {"verbosity": "low"},
            "include": ["message.output_text.logprobs"],
            "prompt_cache_key": "k",
            "truncation": "auto",
            "store": True,
        }
    },
}

MODELS = [
    ("gpt-5.6", "openai-responses"),
    ("gpt-5.2", "openai-responses"),
    ("gpt-5", "openai-responses"),
    ("o3", "openai-responses"),
    ("gpt-4o", "openai-responses"),
    ("computer-use-preview", "openai-responses"),
    ("openai.gpt-5.6-luna", "bedrock-mantle"),
    ("deepseek-v4-flash", "deepseek-responses"),
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("history", HISTORIES)
def test_requests_fit_the_types(history: str, options: str) -> None:
    for (model, provider), tools, stream in itertools.product(MODELS, ((), TOOLS), (False, True)):
        if not tools and "choice" in options:
            continue
        call = Call(
            model=model,
            conversation=Conversation(system="Be brief." if stream else None, messages=HISTORIES[history]),
            profile=profile_of(model, provider),
            tools=tools,
            options=ModelOptions(**OPTIONS[options], adapt=True),
            stream=stream,
        )
        body = json.loads(CODEC.encode(call).request.body)
        assert problems(body, ResponseCreateParams) == [], (model, body)


def test_the_checker_checks() -> None:
    """What must not pass does not."""
    good: dict[str, Any] = {"model": "m", "input": [{"role": "user", "content": "x"}]}
    assert not problems(good, ResponseCreateParams)
    wrong: list[dict[str, Any]] = [
        {**good, "unknown": 1},
        {**good, "max_output_tokens": "1"},
        {**good, "input": [{"role": "user", "content": "x", "extra": 1}]},
        {**good, "input": [{"role": "user", "content": [{"type": "input_image"}]}]},
        {**good, "tools": [{"type": "function", "name": "x"}]},
        {**good, "include": ["everything"]},
    ]
    for body in wrong:
        assert problems(body, ResponseCreateParams), body


def test_opaque_blocks_are_items_of_their_own() -> None:
    """Outputs that only a person can give, such as an approval, are sent as they are."""
    approval = b'{"type":"mcp_approval_response","approval_request_id":"r","approve":true}'
    call = Call(
        model="gpt-5.6",
        conversation=Conversation(messages=(Message.user("Yes", Opaque(READER, Raw(approval)), "go on"),)),
        profile=profile_of("gpt-5.6"),
    )
    body = json.loads(CODEC.encode(call).request.body)
    assert body["input"] == [
        {"role": "user", "content": "Yes"},
        json.loads(approval),
        {"role": "user", "content": "go on"},
    ]
    assert problems(body, ResponseCreateParams) == []
