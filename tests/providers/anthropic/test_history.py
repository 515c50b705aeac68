"""Messages on the wire: each kind of block, what is lost, and how turns are joined."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from msgspec import Raw

from dragoman.conversation import (
    Json,
    Media,
    Message,
    Native,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from dragoman.errors import ConfigurationError
from dragoman.providers import Loss, profile_of
from tests.providers.anthropic.calls import encoded, sent

PNG = b"\x89PNG"
HI = Message.user("Hi")


def blocks_of(*blocks: Any, role: str = "user", **how: Any) -> list[dict[str, Any]]:
    """What these blocks become in a message of this role."""
    message = Message(role=role, blocks=blocks)
    return sent(HI, message, Message.user("end"), **how)[-2 if role == "assistant" else 0]["content"][
        0 if role == "assistant" else 1 : None if role == "assistant" else -1
    ]


def losses_of(*messages: Message, **how: Any) -> tuple[Loss, ...]:
    return encoded(*messages, **how).losses


def native(**fields: Any) -> Native:
    return Native("anthropic", {name: Raw(json.dumps(value).encode()) for name, value in fields.items()})


def opaque(**fields: Any) -> Opaque:
    return Opaque("anthropic", Raw(json.dumps(fields).encode()))


# --- text ---


def test_empty_texts_are_left_out_since_the_api_refuses_them() -> None:
    assert blocks_of(Text(""), Text(" \n"), Text("a")) == [{"type": "text", "text": "a"}]
    assert losses_of(HI, Message.assistant("", "x"), HI) == ()


def test_citations_and_other_native_fields_go_back() -> None:
    citations = [{"type": "page_location"}]
    block = Text("a", native=native(citations=citations, text="forged", type="forged"))
    assert blocks_of(block, role="assistant") == [{"type": "text", "text": "a", "citations": citations}]
    assert blocks_of(Text("a", native=Native("gemini", {"x": Raw(b"1")}))) == [{"type": "text", "text": "a"}]


@pytest.mark.parametrize(
    "message",
    [
        Message.assistant(""),
        Message(role="assistant"),
        Message.assistant(Thinking("x", "gemini")),
        Message.assistant(Opaque("gemini", Raw(b"{}"))),
        Message.user(Media.from_bytes(b"x", "audio/wav")),
    ],
)
def test_a_message_of_which_nothing_is_left_is_not_sent(message: Message) -> None:
    assert sent(HI, message, Message.user("end")) == [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "end"}]}
    ]
    (loss,) = losses_of(HI, message, Message.user("end"))
    assert (loss.message, loss.block) == (1, 0)


def test_a_conversation_of_which_nothing_is_left_is_refused() -> None:
    for messages in ((Message.user(" "),), (Message.user(""), Message.assistant(Thinking("x", "gemini")))):
        with pytest.raises(ConfigurationError, match="nothing to send"):
            encoded(*messages)


# --- thinking ---


def test_own_thinking_goes_back_as_it_came() -> None:
    blocks = (
        Thinking("Hm", "anthropic", signature="s", native=native(new=1)),
        Thinking("", "anthropic", signature="t"),
        Thinking("", "anthropic", encrypted="e"),
        Thinking("", "anthropic", encrypted=""),
    )
    assert blocks_of(*blocks, role="assistant") == [
        {"type": "thinking", "thinking": "Hm", "signature": "s", "new": 1},
        {"type": "thinking", "thinking": "", "signature": "t"},
        {"type": "redacted_thinking", "data": "e"},
        {"type": "redacted_thinking", "data": ""},
    ]


def test_thinking_that_cannot_be_read_back_is_reported() -> None:
    message = Message.assistant(Thinking("a", "openai_responses", encrypted="x"), "t", Thinking("cut off", "anthropic"))
    assert sent(HI, message, HI)[1]["content"] == [{"type": "text", "text": "t"}]
    assert losses_of(HI, message, HI) == (
        Loss(1, 0, "thinking", "only openai_responses can read it back"),
        Loss(1, 2, "thinking", "its signature never arrived, and the provider takes none without"),
    )
    profile = profile_of("anthropic", "claude-sonnet-4-5").with_changes(reasoning_replayed=False)
    signed = Message.assistant(Thinking("Hm", "anthropic", signature="s"), "t")
    assert losses_of(HI, signed, HI) == ()
    assert losses_of(HI, signed, HI, profile=profile) == (
        Loss(1, 0, "thinking", "this model does not get its thinking back"),
    )


# --- calls and results ---


def turn(call: ToolCall, result: ToolResult, **how: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    messages = sent(HI, Message.assistant(call), Message.tool([result]), **how)
    return messages[1]["content"][0], messages[2]["content"][0]


def test_a_call_and_its_result() -> None:
    call = ToolCall("toolu_1", "add", '{"a": 1}', native=native(caller={"type": "direct"}))
    assert turn(call, ToolResult("toolu_1", "add", (Text("2"),))) == (
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}, "caller": {"type": "direct"}},
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "2"},
    )


@pytest.mark.parametrize(
    ("content", "more", "expected"),
    [
        ((), {}, {}),
        ((Text(""),), {}, {}),
        ((Json(raw=Raw(b'{"a":1}')),), {}, {"content": '{"a":1}'}),
        (
            (Text("a"), Text(""), Json(raw=Raw(b"1"))),
            {},
            {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "1"}]},
        ),
        ((), {"structured": Json(raw=Raw(b"[1]"))}, {"content": "[1]"}),
        ((Text("a"),), {"structured": Json(raw=Raw(b"[1]"))}, {"content": "a"}),
        ((Text("no"),), {"is_error": True}, {"content": "no", "is_error": True}),
        ((), {"is_error": True}, {"content": "The tool failed and gave no reason.", "is_error": True}),
    ],
)
def test_results(content: tuple[Any, ...], more: dict[str, Any], expected: dict[str, Any]) -> None:
    _, result = turn(ToolCall("t", "add"), ToolResult("t", "add", content, **more))
    assert result == {"type": "tool_result", "tool_use_id": "t", **expected}


def test_media_in_results() -> None:
    image, film = Media.from_bytes(PNG, "image/png"), Media.from_bytes(b"x", "video/mp4")
    messages = (HI, Message.assistant(ToolCall("t", "see")), Message.tool([ToolResult("t", "see", (image, film))]))
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(PNG).decode()}
    assert sent(*messages)[2]["content"][0]["content"] == [{"type": "image", "source": source}]
    (loss,) = losses_of(*messages)
    assert (loss.message, loss.block, loss.what) == (2, 0, "tool_result")
    assert "video" in loss.why


@pytest.mark.parametrize(
    ("arguments", "expected", "lost"),
    [
        ("", {}, False),
        (" \n", {}, False),
        ('{"a": 1.0}', {"a": 1.0}, False),
        ('{"a": ', {"INVALID_JSON": '{"a": '}, True),
        ("[1]", {"INVALID_JSON": "[1]"}, True),
    ],
)
def test_arguments_are_an_object_on_the_wire(arguments: str, expected: dict[str, Any], lost: bool) -> None:
    messages = (HI, Message.assistant(ToolCall("t", "add", arguments)), Message.tool([ToolResult("t", "add")]))
    assert sent(*messages)[1]["content"][0]["input"] == expected
    assert bool(losses_of(*messages)) is lost


def test_ids_of_other_providers_are_made_legal_and_stay_apart() -> None:
    ids = ("call_1|fc_2", "call_1?fc_2", "x" * 200, "toolu_1", "é")
    calls = Message.assistant(*[ToolCall(id, "add") for id in ids])
    results = Message.tool([ToolResult(id, "add") for id in ids])
    messages = sent(HI, calls, results)
    on_wire = [block["id"] for block in messages[1]["content"]]
    assert on_wire == [block["tool_use_id"] for block in messages[2]["content"]]
    assert len(set(on_wire)) == len(ids)
    assert on_wire[3] == "toolu_1"
    assert all(id.replace("_", "").replace("-", "").isascii() and len(id) <= 64 for id in on_wire)


def test_results_come_first_and_turns_of_one_role_become_one() -> None:
    calls = Message.assistant(ToolCall("a", "f"), ToolCall("b", "f"))
    messages = sent(
        HI,
        Message.user("there"),
        calls,
        Message.tool([ToolResult("a", "f")]),
        Message.tool([ToolResult("b", "f")]),
        Message.user("and?"),
        Message.assistant("one"),
        Message.assistant("two"),
    )
    assert [(one["role"], [block["type"] for block in one["content"]]) for one in messages] == [
        ("user", ["text", "text"]),
        ("assistant", ["tool_use", "tool_use"]),
        ("user", ["tool_result", "tool_result", "text"]),
        ("assistant", ["text", "text"]),
    ]


# --- media ---

PDF = Media.from_bytes(b"%PDF", "application/pdf", name="a.pdf")
CITED = Media(kind="document", mime_type="text/plain", data=b"a", native=native(citations={"enabled": True}))


def plain(text: str) -> dict[str, Any]:
    return {"type": "text", "media_type": "text/plain", "data": text}


def base64(data: str, media_type: str) -> dict[str, Any]:
    return {"type": "base64", "media_type": media_type, "data": data}


@pytest.mark.parametrize(
    ("media", "kind", "source", "more"),
    [
        (Media.from_bytes(PNG, "image/png"), "image", base64("iVBORw==", "image/png"), {}),
        (Media.from_url("https://host/a.png"), "image", {"type": "url", "url": "https://host/a.png"}, {}),
        (PDF, "document", base64("JVBERg==", "application/pdf"), {"title": "a.pdf"}),
        (Media.from_url("https://host/a.pdf"), "document", {"type": "url", "url": "https://host/a.pdf"}, {}),
        (Media.from_bytes("hé".encode(), "text/plain"), "document", plain("hé"), {}),
        (Media.from_bytes(b"a,b", "text/csv"), "document", plain("a,b"), {}),
        (Media.from_bytes(b"{}", "application/json"), "document", plain("{}"), {}),
        (CITED, "document", plain("a"), {"citations": {"enabled": True}}),
    ],
)
def test_media(media: Media, kind: str, source: dict[str, Any], more: dict[str, Any]) -> None:
    assert blocks_of(media) == [{"type": kind, "source": source, **more}]


@pytest.mark.parametrize(
    "media",
    [
        Media.from_bytes(b"x", "audio/wav"),
        Media.from_bytes(b"x", "video/mp4"),
        Media.from_bytes(b"x", "image/bmp"),
        Media.from_bytes(b"x", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        Media.from_url("https://host/a.txt"),
        Media.from_bytes(b"\xff\xfe", "text/plain"),
    ],
)
def test_media_that_it_does_not_take_are_reported(media: Media) -> None:
    assert blocks_of(media) == []
    (loss,) = losses_of(HI, Message.user("see:", media), HI)
    assert (loss.message, loss.block, loss.what) == (1, 1, "media")


def test_media_elsewhere_and_by_profile() -> None:
    assert len(losses_of(HI, Message.assistant("see:", Media.from_bytes(PNG, "image/png")), HI)) == 1
    assert losses_of(Message.user("x", PDF), model="claude-3-opus-latest")
    profile = profile_of("anthropic", "claude-sonnet-4-5").with_changes(media_urls=frozenset())
    assert losses_of(Message.user("x", Media.from_url("https://host/a.png")), profile=profile)
    with pytest.raises(ConfigurationError, match="was not read"):
        encoded(Message.user(Media.from_path("a.png")))


# --- what only the provider understands ---

CALL = opaque(type="server_tool_use", id="s1", name="web_search", input={})
RESULT = opaque(type="web_search_tool_result", tool_use_id="s1", content=[])


def kinds(messages: list[dict[str, Any]]) -> list[list[str]]:
    return [[block["type"] for block in one["content"]] for one in messages]


def test_opaque_blocks_go_back_in_order_and_byte_for_byte() -> None:
    message = Message.assistant("a", CALL, RESULT, "b", Opaque("gemini", Raw(b"{}")))
    body = encoded(HI, message, HI).request.body
    assert bytes(CALL.raw) + b"," + bytes(RESULT.raw) in body
    (loss,) = losses_of(HI, message, HI)
    assert (loss.block, loss.what) == (4, "opaque")


def test_a_paused_turn_is_sent_back_to_be_continued() -> None:
    paused = Message(role="assistant", blocks=(Text("a"), CALL), stop_reason=StopReason.PAUSED)
    assert kinds(sent(HI, paused)) == [["text"], ["text", "server_tool_use"]]
    then = Message.assistant(RESULT, "b")
    assert kinds(sent(HI, paused, then, HI))[1] == ["text", "server_tool_use", "web_search_tool_result", "text"]


def test_a_server_call_waits_while_only_results_follow() -> None:
    asking = Message.assistant(CALL, ToolCall("t", "add"))
    answer = Message.tool([ToolResult("t", "add")])
    assert kinds(sent(HI, asking, answer))[1] == ["server_tool_use", "tool_use"]
    # The result that comes with the next reply answers it.
    assert kinds(sent(HI, asking, answer, Message.assistant(RESULT, "b"), HI))[1] == ["server_tool_use", "tool_use"]


def test_a_server_call_that_never_got_its_result_is_left_out() -> None:
    asking = Message.assistant("a", CALL, ToolCall("t", "add"))
    messages = (HI, asking, Message.tool([ToolResult("t", "add")]), Message.assistant("b"), HI)
    assert kinds(sent(*messages))[1] == ["text", "tool_use"]
    (loss,) = losses_of(*messages)
    assert (loss.message, loss.block, loss.what) == (1, 1, "opaque")
    broken = Message(role="assistant", blocks=(Text("a"), CALL), stop_reason=StopReason.INTERRUPTED)
    assert kinds(sent(HI, broken, HI))[1] == ["text"]
    assert kinds(sent(HI, broken))[1] == ["text"]
