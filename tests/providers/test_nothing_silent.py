"""What a program says reaches the model as it is, or a loss or an adaptation says what became of it: at every provider.

A new provider, dialect or kind of block is looked at as soon as it is in the tables.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from msgspec import Raw

from dragoman.conversation import (
    Json,
    Media,
    Message,
    Native,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from dragoman.engines.claude_cli.protocol import wire_tools
from dragoman.errors import ConfigurationError, DragomanError, ToolDefinitionError
from dragoman.providers import PROVIDERS, Adaptation, Reasoning, ResponseFormat, ToolLimits, ToolNames, prepare
from dragoman.tools import ToolExecutor, tool
from tests.providers.bedrock import wire as bedrock
from tests.providers.calls import HI, body_of, call_of, decoder_of, encode, encoded
from tests.providers.feeding import message_of
from tests.providers.gemini import case as gemini
from tests.providers.openai_chat import wire as chat
from tests.providers.openai_responses import calls as responses
from tests.rounds import stride

MODELS = {
    "anthropic": ["claude-sonnet-4-6", "claude-3-haiku"],
    "vertex-claude": ["claude-sonnet-4-6"],
    "gemini": ["gemini-3-flash-preview", "gemini-2.0-flash", "gemini-2.5-flash"],
    "openai": ["gpt-4o", "gpt-5"],
    "openai-responses": ["gpt-4o", "gpt-5"],
    "bedrock": ["us.anthropic.claude-sonnet-4-5", "amazon.nova-pro-v1:0", "meta.llama3-8b"],
    "cerebras": ["zai-glm-4.7", "gpt-oss-120b"],
    "groq": ["qwen/qwen3-32b", "openai/gpt-oss-120b"],
    "mistral": ["mistral-medium-latest", "magistral-medium-latest"],
    "deepseek": ["deepseek-v4-pro", "deepseek-chat"],
}
"""Of providers whose models differ; of the others any model."""
TARGETS = [
    f"{name}:{model}" for name, row in PROVIDERS.items() if row.chat for model in MODELS.get(name, ["some-model"])
]
every_target = pytest.mark.parametrize("target", TARGETS)
ADD = ToolSpec("add", "Adds.")


def reader_of(target: str) -> str:
    """The name of the provider's own thinking."""
    provider, _, model = target.partition(":")
    dialect = PROVIDERS[provider].dialect
    if dialect == "openai_chat":
        return f"openai_chat:{provider}"
    return "anthropic" if "anthropic" in model else dialect


# --- every block arrives, or its loss is reported ---------------------------------------------------------------------


def media(mark: str) -> list[Media]:
    return [
        Media.from_bytes(mark.encode(), kind, name=f"file.{end}")
        for kind, end in (
            ("image/png", "png"),
            ("application/pdf", "pdf"),
            ("text/plain", "txt"),
            ("audio/wav", "wav"),
            ("video/mp4", "mp4"),
        )
    ]


def conversation(target: str) -> tuple[tuple[Message, ...], dict[tuple[int, int], list[str]]]:
    """Messages with every kind of block, and the marks of each: one of them must be in the request."""
    own = Thinking("THOUGHT", reader_of(target), signature="SEAL")
    provider, _, _ = target.partition(":")
    seen, taken = media("SEEN-BY-USER"), media("TAKEN-BY-TOOL")
    call = ToolCall("call_1", "add", '{"a":"ARGUMENT"}')
    results = [ToolResult("call_1", "add", (Text("RESULT"), Json(Raw(b'{"b":"DATA"}')), *taken))]
    messages = (
        Message.user("SAID", *seen),
        Message(
            role="assistant",
            provider=provider,
            blocks=(own, Thinking("STRANGE", "elsewhere"), Text("ANSWERED"), call),
        ),
        Message.tool(results),
        Message.user("WENT ON"),
    )
    marks: dict[tuple[int, int], list[str]] = {(0, 0): ["SAID"], (3, 0): ["WENT ON"]}
    marks |= {(0, at): ["SEEN-BY-USER", base64("SEEN-BY-USER")] for at in range(1, 1 + len(seen))}
    marks |= {(1, 0): ["THOUGHT", "SEAL"], (1, 1): ["STRANGE"], (1, 2): ["ANSWERED"], (1, 3): ["ARGUMENT"]}
    return messages, marks


def base64(text: str) -> str:
    return b64encode(text.encode()).decode()


@every_target
def test_every_block_arrives_or_is_a_loss(target: str) -> None:
    messages, marks = conversation(target)
    for (at, block), expected in marks.items():
        alone = messages[at].blocks[block]
        kept = tuple([alone if one is alone else Text("x") for one in messages[at].blocks[: block + 1]])
        if at == 1:  # the call stays, as its result must have one
            kept = (*kept[:3], messages[1].blocks[3])
        changed = (*messages[:at], Message(role=messages[at].role, provider=messages[at].provider, blocks=kept))
        done = encoded(target, *changed, *messages[at + 1 :], tools=(ADD,))
        sent = done.request.body.decode()
        if at == 0 and block:  # other messages have the same marks
            sent = sent.replace("TAKEN-BY-TOOL", "").replace(base64("TAKEN-BY-TOOL"), "")
        lost = {(loss.message, loss.block) for loss in done.losses}
        assert any(mark in sent for mark in expected) or (at, block) in lost, (at, block, expected)


@every_target
@pytest.mark.parametrize("place", range(5))
def test_every_part_of_a_result_arrives_or_is_a_loss(target: str, place: int) -> None:
    part = media("TAKEN-BY-TOOL")[place]
    result = ToolResult("call_1", "add", (Text("RESULT"), part))
    called = Message.assistant(ToolCall("call_1", "add", "{}"))
    done = encoded(target, HI, called, Message.tool([result]), HI, tools=(ADD,))
    sent = done.request.body.decode()
    assert "RESULT" in sent
    arrived = any(mark in sent for mark in ("TAKEN-BY-TOOL", base64("TAKEN-BY-TOOL")))
    assert arrived or [(loss.message, loss.block) for loss in done.losses] == [(2, 0)]


@pytest.mark.parametrize("model", ["us.meta.llama4-maverick-17b-instruct-v1:0", "us.mistral.pixtral-large-2502-v1:0"])
def test_documents_in_results_reach_models_on_bedrock_that_read_them(model: str) -> None:
    document = Media.from_bytes(b"%PDF", "application/pdf", name="a.pdf")
    called = Message.assistant(ToolCall("call_1", "add", "{}"))
    result = Message.tool([ToolResult("call_1", "add", (document,))])
    done = encoded(f"bedrock:{model}", HI, called, result, tools=(ADD,))
    assert (b'"document"' in done.request.body, done.losses) == (True, ())


@pytest.mark.parametrize("target", ["groq:qwen/qwen3-32b", "cerebras:zai-glm-4.7", "gemini:gemini-2.0-flash"])
def test_thinking_that_does_not_go_back_is_a_loss(target: str) -> None:
    reply = Message(role="assistant", blocks=(Thinking("hm", reader_of(target)), Text("a")), provider="x")
    (loss,) = encoded(target, HI, reply, HI).losses
    assert (loss.message, loss.block, loss.what) == (1, 0, "thinking")
    assert "does not get its thinking back" in loss.why


# --- nobody is made to say what they did not say ----------------------------------------------------------------------


def texts_of_the_model(target: str, body: dict[str, Any]) -> Iterator[str]:
    """Everything that the request says the model has written as text."""
    for one in body.get("messages") or body.get("contents") or body["input"]:
        if one.get("role") not in ("assistant", "model"):
            continue
        content = one.get("content", one.get("parts"))
        for part in [{"text": content}] if isinstance(content, str) else content or []:
            if part.get("text"):
                yield part["text"]


@every_target
def test_the_model_has_said_nothing_but_what_it_said(target: str) -> None:
    called = Message(role="assistant", blocks=(ToolCall("call_1", "add", "{}"),))
    result = Message.tool([ToolResult("call_1", "add", (Text("3"), Media.from_bytes(b"abc", "image/png")))])
    for behind in ((), (HI,), (HI, Message.assistant("ANSWERED"), HI)):
        body = body_of(target, HI, called, result, *behind, tools=(ADD,))
        assert list(texts_of_the_model(target, body)) == ["ANSWERED"] * (len(behind) // 3)


# --- tools ------------------------------------------------------------------------------------------------------------


@every_target
def test_a_long_description_of_a_tool_is_sent_as_it_is(target: str) -> None:
    text = "é" * 15_664
    done = encoded(target, tools=(ToolSpec("f", text),))
    assert text in done.request.body.decode()
    assert not done.adaptations


def test_a_description_that_must_be_cut_is_reported() -> None:
    limits = {"tool_limits": ToolLimits(max_description_length=1024)}
    done = encoded("openai-compatible:m", tools=(ToolSpec("f", "é" * 1025),), profile=limits)
    assert json.loads(done.request.body)["tools"][0]["function"]["description"] == "é" * 1023 + "…"
    said = Adaptation("description of tool 'f'", "1025 characters, cut to the 1024 that are allowed")
    assert done.adaptations == (said,)


@tool
def now() -> str:
    """The time."""
    return "noon"


@tool
def later(hours: int = 1) -> str:
    """The time in some hours."""
    return f"{hours} past noon"


NULLS: dict[str, tuple[str, Any, list[bytes]]] = {
    "chat": (
        "groq:llama-3.3-70b-versatile",
        False,
        [chat.whole({"tool_calls": [chat.call_piece("null", 0, "c", "now")]}, "tool_calls", usage=chat.USAGE)],
    ),
    "chat, streamed": (
        "groq:llama-3.3-70b-versatile",
        True,
        [chat.stream(*[chat.chunk({"tool_calls": [chat.call_piece("null", 0, "c", "now")]}), chat.chunk({}, "stop")])],
    ),
    "anthropic": (
        "anthropic:claude-sonnet-4-6",
        False,
        [
            json.dumps(
                {
                    "type": "message",
                    "content": [{"type": "tool_use", "id": "c", "name": "now", "input": None}],
                    "stop_reason": "tool_use",
                }
            ).encode()
        ],
    ),
    "responses": (
        "openai-responses:gpt-5",
        False,
        [json.dumps(responses.response(responses.call_item("now", "null"))).encode()],
    ),
    "gemini": (
        "gemini:gemini-3-flash-preview",
        False,
        [json.dumps(gemini.chunk({"functionCall": {"name": "now", "args": "null"}}, finish="STOP")).encode()],
    ),
    "bedrock": (
        "bedrock:amazon.nova-pro-v1:0",
        False,
        [bedrock.whole({"toolUse": {"toolUseId": "c", "name": "now", "input": None}}, reason="tool_use")],
    ),
    "bedrock, streamed": (
        "bedrock:amazon.nova-pro-v1:0",
        True,
        [bedrock.STARTED + bedrock.call(0, "null", id="c", name="now") + bedrock.ended("tool_use")],
    ),
}


@pytest.mark.parametrize("case", NULLS)
def test_null_is_no_arguments(case: str) -> None:
    target, streamed, body = NULLS[case]
    message = message_of(decoder_of(call_of(target, stream=streamed)), body)
    (call,) = message.tool_calls
    assert call.parsed == {}
    with ToolExecutor([now, later]) as executor:
        assert executor.execute(call).text == "noon"
        assert executor.execute(ToolCall("d", "later", " null\n")).text == "1 past noon"

    async def run() -> str:
        async with ToolExecutor([now]) as executor:
            return (await executor.aexecute(call)).text

    assert asyncio.run(run()) == "noon"
    done = encoded(target, HI, message, Message.tool([ToolResult(call.id, "now", (Text("noon"),))]), tools=(ADD,))
    assert not done.losses
    assert b"null" not in done.request.body
    assert b"INVALID" not in done.request.body


@every_target
def test_null_goes_back_as_no_arguments(target: str) -> None:
    result = Message.tool([ToolResult("c", "add", (Text("3"),))])
    empty = [encoded(target, HI, Message.assistant(ToolCall("c", "add", text)), result) for text in ("null", "")]
    assert empty[0].request.body == empty[1].request.body
    assert not empty[0].losses


def test_two_calls_with_null_are_two() -> None:
    pieces = [chat.call_piece("null", 0, "a", "f"), chat.call_piece("null", 0, "b", "f")]
    for calls in (pieces, [{**piece, "id": ""} for piece in pieces], [chat.call_piece("null", None, None, "f")] * 2):
        message = chat.read(chat.stream(*[chat.chunk({"tool_calls": [one]}) for one in calls], chat.chunk({}, "stop")))
        assert [call.arguments for call in message.tool_calls] == ["null", "null"]


SEARCHES = {
    "anthropic:claude-sonnet-4-6": b'{"type":"tool_search_tool_bm25_20251119","name":"tool_search_tool_bm25"}',
    "openai-responses:gpt-5.4": b'{"type":"tool_search"}',
}


@pytest.mark.parametrize("target", SEARCHES)
@pytest.mark.parametrize("cache", [False, True])
def test_a_search_that_the_caller_gives_is_the_only_one(target: str, cache: bool) -> None:
    found = ToolSpec("found", deferred=True)
    for tools in ((found,), (ADD, found)):
        body = body_of(target, tools=tools, server_tools=(Raw(SEARCHES[target]),), cache=cache)
        kinds = [one.get("type", "function") for one in body["tools"]]
        assert sum("search" in kind for kind in kinds) == 1
        assert "cache_control" not in next(one for one in body["tools"] if one.get("name") == "found")


# --- options ----------------------------------------------------------------------------------------------------------


def test_deepseek_takes_a_forced_call_while_it_does_not_think() -> None:
    off = {"reasoning": Reasoning(effort="none")}
    body = body_of("deepseek:deepseek-v4-flash", tools=(ADD,), tool_choice="required", **off)
    assert (body["tool_choice"], body["thinking"]) == ("required", {"type": "disabled"})
    for how in ({}, {"reasoning": Reasoning(effort="high")}, {"reasoning": Reasoning()}):
        with pytest.raises(ConfigurationError, match="while it reasons") as caught:
            encoded("deepseek:deepseek-v4-flash", tools=(ADD,), tool_choice="required", **how)
        assert "Reasoning(effort='none')" in caught.value.hint
        assert "tool_choice" in body_of("deepseek:deepseek-v4-flash", tools=(ADD,), tool_choice="none", **how)
    assert body_of("deepseek:deepseek-chat", tools=(ADD,), tool_choice="required")["tool_choice"] == "required"
    # Also when it is the answer that is called.
    answer = {"response_format": ResponseFormat(schema=Raw(b'{"type":"object"}')), "profile": {"structured": "tool"}}
    for how, forced in (({}, False), (off, True)):
        call, _ = prepare(call_of("deepseek:deepseek-v4-flash", **answer, **how))
        assert (call.options.tool_choice != "auto") is forced
        encode(call)


def test_what_an_api_cannot_say_of_a_call_or_an_answer_is_reported() -> None:
    forced = {"tools": (ADD,), "tool_choice": "required", "parallel_tool_calls": False}
    done = encoded("bedrock:anthropic.claude-sonnet-4-6", **forced)
    assert [one.what for one in done.adaptations] == ["parallel_tool_calls=False"]
    about = ResponseFormat(schema=Raw(b'{"type":"object","properties":{}}'), description="A city.")
    done = encoded("anthropic:claude-sonnet-4-6", response_format=about)
    assert "description of the reply" in [one.what for one in done.adaptations]


def test_a_keyword_that_a_strict_schema_has_no_place_for_is_reported() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "format": "int64"}}, "required": ["a"]}
    for strict in (ToolSpec("f", "", Raw(json.dumps(schema).encode()), strict=True),):
        done = encoded("openai:gpt-5", tools=(strict,))
        assert "int64" not in done.request.body.decode()
        assert ["/properties/a/format" in one.why for one in done.adaptations] == [True]


# --- media that cannot be read ----------------------------------------------------------------------------------------


def test_a_text_that_is_not_utf8_is_reported() -> None:
    bad = Media.from_bytes(b"gr\xfc\xdfe", "text/plain", name="n.txt")
    good = Media.from_bytes("gr\ufffde".encode(), "text/plain", name="n.txt")
    assert [loss.block for loss in encoded("openai:gpt-4o", Message.user(good, bad)).losses] == [1]


def test_a_data_url_that_cannot_be_read_is_reported() -> None:
    broken = Media.from_url("data:image/png;base64,####", mime_type="image/png")
    done = encoded("bedrock:amazon.nova-pro-v1:0", Message.user("see", broken))
    assert [(loss.block, loss.what) for loss in done.losses] == [(1, "media")]


# --- answers to items of the responses dialect ------------------------------------------------------------------------

PNG = Media.from_bytes(b"\x89PNG", "image/png")


def answered(kind: str, content: tuple[Any, ...], **more: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """What follows the item of a call in the request, and the losses."""
    item = {"type": kind, "id": "i", "call_id": "c", "status": "completed", "action": {}}
    call = ToolCall("c", "t", "{}", native=Native("openai_responses", {"item": Raw(json.dumps(item).encode())}))
    result = Message.tool([ToolResult("c", "t", content, **more)])
    done = encoded("openai-responses:gpt-5", HI, Message.assistant(call), result)
    assert all((loss.message, loss.block, loss.what) == (2, 0, "tool_result") for loss in done.losses)
    return json.loads(done.request.body)["input"][2:], [loss.why for loss in done.losses]


@pytest.mark.parametrize(
    ("content", "more", "said"),
    [
        ((Text("Found one."),), {}, "t: Found one."),
        ((Text("It broke."),), {"is_error": True}, "t: Error: It broke."),
        ((Json(Raw(b'["add","sub"]')),), {}, 't: ["add","sub"]'),
        ((), {}, "t: "),
    ],
)
def test_what_a_search_says_instead_of_tools_is_sent_after_it(content: Any, more: Any, said: str) -> None:
    (answer, words), losses = answered("tool_search_call", content, **more)
    assert (answer["type"], answer["tools"]) == ("tool_search_output", [])
    assert words == {"role": "user", "content": [{"type": "input_text", "text": said}]}
    assert len(losses) == 1


@pytest.mark.parametrize("given", [b'[{"name":"f"}]', b'{"tools":[{"name":"f"}]}', b'{"name":"f"}', b"[]"])
def test_tools_that_a_search_found_are_its_answer(given: bytes) -> None:
    (answer,), losses = answered("tool_search_call", (Json(Raw(given)),))
    assert answer["tools"] == ([] if given == b"[]" else [{"name": "f"}])
    assert not losses


def test_what_a_shell_says_in_another_form_is_its_output() -> None:
    (answer,), losses = answered("shell_call", (Json(Raw(b'{"listing":["a"]}')),))
    assert (answer["output"][0]["stdout"], losses) == ('{"listing":["a"]}', [])
    for kind in ("shell_call", "local_shell_call", "apply_patch_call", "tool_search_call"):
        assert "image left out" in answered(kind, (Text("a"), PNG))[1][0]


def test_of_a_computer_only_the_last_picture_goes() -> None:
    assert answered("computer_call", (PNG,))[1] == []
    for more in ((PNG, PNG), (PNG, Media.from_bytes(b"abc", "audio/wav"))):
        assert len(answered("computer_call", more)[1]) == 1


# --- schemas that are true or false -----------------------------------------------------------------------------------

SCHEMA_STYLES = [
    "anthropic:claude-sonnet-4-6",
    "openai:gpt-5",
    "openai-responses:gpt-5",
    "gemini:gemini-3-flash-preview",
    "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "deepseek:deepseek-v4-pro",
]
_ONE = (
    "additionalProperties contains contentSchema else if items not propertyNames then unevaluatedItems "
    "unevaluatedProperties prefixItems required enum type nullable"
)
_SEVERAL = "allOf anyOf oneOf prefixItems"
_NAMED = "$defs definitions dependentSchemas patternProperties properties"


def boolean_schemas() -> Iterator[object]:
    for value in (True, False):
        insides: list[dict[str, Any]] = [{word: value} for word in _ONE.split()]
        insides += [{word: several} for word in _SEVERAL.split() for several in ([value], [{"type": "object"}, value])]
        insides += [{word: {"x": value}} for word in _NAMED.split()]
        insides += [{"$ref": "#/$defs/x", "$defs": {"x": value}}]
        yield value
        for inside in insides:
            yield {"type": "object", **inside}
            yield {"type": "object", "properties": {"p": inside}, "required": ["p"]}
            yield {"type": "object", "properties": {"p": {"type": "array", "items": inside}}, "required": ["p"]}


@pytest.mark.parametrize("target", SCHEMA_STYLES)
def test_schemas_that_are_true_or_false_are_written_or_refused(target: str) -> None:
    for schema in list(boolean_schemas())[:: stride(3)]:
        raw = Raw(json.dumps(schema).encode())
        for strict in (True, False):
            asked = [call_of(target, tools=(ToolSpec("f", "", raw, strict=strict),))]
            asked.append(call_of(target, response_format=ResponseFormat(schema=raw, strict=strict)))
            asked.append(prepare(asked[-1])[0])
            for call in asked:
                with suppress(DragomanError):  # any other exception fails the test
                    encode(call)


@pytest.mark.parametrize("target", SCHEMA_STYLES)
def test_true_is_any_object_and_false_is_refused(target: str) -> None:
    done = [encoded(target, tools=(ToolSpec("f", "", Raw(text)),)) for text in (b"true", b"{}")]
    assert done[0].request.body == done[1].request.body
    with pytest.raises(ToolDefinitionError, match="nothing fits it"):
        encoded(target, tools=(ToolSpec("f", "", Raw(b"false")),))
    for text in (b"[]", b"3", b'"object"', b"{", b"null"):
        with pytest.raises(ToolDefinitionError, match="[Ss]chema"):
            encoded(target, tools=(ToolSpec("f", "", Raw(text)),))


def test_programs_get_an_object_too() -> None:
    (row,) = wire_tools([ToolSpec("f", "", Raw(b"true"))], ToolNames(["f"], ToolLimits()))
    assert json.loads(bytes(row))["inputSchema"] == {"type": "object"}
