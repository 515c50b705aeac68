"""Messages on the wire: each kind of block, and what is lost."""

from __future__ import annotations

import json
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
from dragoman.providers import Loss
from dragoman.providers.gemini import CODEC
from tests.providers.gemini.case import a_call, contents, parts, sent

HELLO = Message.user("hello")
EMPTY = {"role": "user", "parts": [{"text": ""}]}
SIGNED = Native("gemini", {"thoughtSignature": Raw(b'"c2ln"')})
SKIP = "skip_thought_signature_validator"
PICTURE = Media.from_bytes(b"abc", "image/png")
SOUND = Media.from_bytes(b"abc", "audio/wav")
PDF = Media.from_url("https://host/a.pdf")


def losses_of(*messages: Message, **options: Any) -> tuple[Loss, ...]:
    return CODEC.encode(a_call(*messages, **options)).losses


def test_the_user_is_first() -> None:
    assert contents() == [EMPTY]
    assert contents(Message.assistant("I begin."), HELLO)[0] == EMPTY


def test_roles() -> None:
    turn = HELLO, Message.assistant(ToolCall("1", "f")), Message.tool([ToolResult("1", "f")]), HELLO
    assert [content["role"] for content in contents(*turn)] == ["user", "model", "user", "user"]


def test_a_system_prompt_for_models_that_have_none() -> None:
    body = sent(a_call(HELLO, model="gemma-3-27b-it", system="Be kind."))
    assert "systemInstruction" not in body
    assert body["contents"][0] == {"role": "user", "parts": [{"text": "Be kind."}]}


def test_empty_texts_are_left_out() -> None:
    assert parts(Message.assistant("", "a", "")) == [{"text": "a"}]
    assert parts(Message.user("")) == [{"text": ""}]
    assert len(contents(HELLO, Message.assistant(""), HELLO)) == 2


def test_media() -> None:
    native = Native("gemini", {"videoMetadata": Raw(b'{"fps":2.0}')})
    film = Media(kind="video", mime_type="video/mp4", url="gs://b/f", native=native)
    assert parts(Message.user(PICTURE, PDF, film)) == [
        {"inlineData": {"mimeType": "image/png", "data": "YWJj"}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://host/a.pdf"}},
        {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://b/f"}, "videoMetadata": {"fps": 2.0}},
    ]
    assert losses_of(Message.user(SOUND), model="gemma-3-27b-it") == (
        Loss(0, 0, "media", "this model takes no audio here"),
    )
    assert contents(Message.user(SOUND), model="gemma-3-27b-it") == [EMPTY]
    with pytest.raises(ConfigurationError, match="was not read"):
        CODEC.encode(a_call(Message.user(Media.from_path("a.png"))))


# --- replies of the provider's own models -----------------------------------------------------------------------------


def test_signatures_go_back_in_their_parts() -> None:
    message = Message.assistant(
        Thinking("hm", "gemini"),
        Thinking("so", "gemini", signature="dGhvdWdodA=="),
        Text("a", native=SIGNED),
        ToolCall("1", "f", "{}", native=SIGNED),
        ToolCall("2", "f", "{}"),
        Media(kind="image", mime_type="image/png", data=b"abc", native=SIGNED),
        Opaque("gemini", Raw(b'{"text":"","thoughtSignature":"ZW5k"}')),
    )
    assert parts(message) == [
        {"text": "hm", "thought": True},
        {"text": "so", "thought": True, "thoughtSignature": "dGhvdWdodA=="},
        {"text": "a", "thoughtSignature": "c2ln"},
        {"functionCall": {"id": "1", "name": "f", "args": {}}, "thoughtSignature": "c2ln"},
        {"functionCall": {"id": "2", "name": "f", "args": {}}},
        {"inlineData": {"mimeType": "image/png", "data": "YWJj"}, "thoughtSignature": "c2ln"},
        {"text": "", "thoughtSignature": "ZW5k"},
    ]


def test_members_inside_the_data_go_back_too() -> None:
    further = Native("gemini", {"functionCall": Raw(b'{"mood":"calm"}'), "thought": Raw(b"true")})
    named = Native("gemini", {"inlineData": Raw(b'{"displayName":"d"}')})
    media = Media(kind="image", mime_type="image/png", data=b"", native=named)
    turn = (
        HELLO,
        Message.assistant(ToolCall("1", "f", native=further), media),
        Message.tool([ToolResult("1", "f", (media,))]),
    )
    written = json.loads(CODEC.encode(a_call(*turn)).request.body)["contents"]
    inline = {"inlineData": {"mimeType": "image/png", "data": "", "displayName": "d"}}
    assert written[1]["parts"] == [
        {"functionCall": {"id": "1", "name": "f", "mood": "calm"}, "thought": True, "thoughtSignature": SKIP},
        inline,
    ]
    assert written[2]["parts"][0]["functionResponse"]["parts"] == [inline]


def test_made_up_ids_stay_here() -> None:
    call, result = ToolCall("call_gem_r_0", "f"), ToolResult("call_gem_r_0", "f", (Text("x"),))
    turn = contents(HELLO, Message.assistant(call), Message.tool([result]), model="gemini-2.0-flash")
    assert turn[1]["parts"] == [{"functionCall": {"name": "f"}}]
    assert turn[2]["parts"] == [{"functionResponse": {"name": "f", "response": {"output": "x"}}}]


def test_the_providers_tools_for_models_that_do_not_take_them_back() -> None:
    message = Message.assistant(
        Opaque("gemini", Raw(b'{"toolCall":{"toolType":"URL_CONTEXT","id":"1"}}')),
        Opaque("gemini", Raw(b'{"executableCode":{"code":"1"}}')),
    )
    for model in ("gemini-2.5-flash", "publishers/google/models/gemini-3-flash"):
        assert parts(message, model=model) == [{"executableCode": {"code": "1"}}]
        assert [loss.what for loss in losses_of(HELLO, message, model=model)] == ["opaque"]
    assert len(parts(message)) == 2


def test_a_paused_reply_is_continued() -> None:
    paused = [
        Message(
            role="assistant",
            blocks=(Text(text),),
            stop_reason=StopReason.PAUSED,
            native=Native("gemini", {"continuationToken": Raw(token)}),
        )
        for text, token in (("one", b'"b25l"'), ("two", b'"dHdv"'))
    ]
    body = sent(a_call(HELLO, *paused))
    assert (body["continuationToken"], len(body["contents"])) == ("dHdv", 1)
    later = sent(a_call(HELLO, *paused, Message.user("go on")))
    assert "continuationToken" not in later
    assert len(later["contents"]) == 4
    own = sent(a_call(HELLO, *paused, extra_body={"continuationToken": "own"}))
    assert own["continuationToken"] == "own"


# --- replies of others ------------------------------------------------------------------------------------------------


def test_the_first_call_of_each_message_needs_a_signature() -> None:
    message = Message.assistant("Let me see.", ToolCall("toolu_1", "f", '{"a":1}'), ToolCall("toolu_2", "f"))
    assert parts(message) == [
        {"text": "Let me see."},
        {"functionCall": {"id": "toolu_1", "name": "f", "args": {"a": 1}}, "thoughtSignature": SKIP},
        {"functionCall": {"id": "toolu_2", "name": "f"}},
    ]
    assert all("thoughtSignature" not in part for part in parts(message, model="gemini-2.5-flash"))


def test_what_only_others_can_read() -> None:
    message = Message.assistant(
        Thinking("deep", "anthropic", signature="s"),
        Opaque("openai_responses", Raw(b'{"type":"web_search_call"}')),
        Text("a", native=Native("anthropic", {"citations": Raw(b"[]")})),
    )
    assert parts(message) == [{"text": "a"}]
    assert losses_of(HELLO, message) == (
        Loss(1, 0, "thinking", "only anthropic can read it back"),
        Loss(1, 1, "opaque", "only openai_responses can read it back"),
    )
    gone = Message.assistant(Thinking("deep", "anthropic", signature="s"))
    assert len(contents(HELLO, gone, HELLO)) == 2
    own = Message.assistant(Thinking("hm", "gemini"), "a")
    assert losses_of(HELLO, own, model="gemini-2.0-flash") == (
        Loss(1, 0, "thinking", "this model does not take thoughts back"),
    )


@pytest.mark.parametrize("arguments", ['{"a"', "[1]", '"x"', "nonsense"])
def test_arguments_that_are_no_object(arguments: str) -> None:
    turn = HELLO, Message.assistant(ToolCall("1", "f", arguments))
    assert contents(*turn)[1]["parts"][0]["functionCall"]["args"] == {"INVALID_JSON": arguments}
    assert [loss.what for loss in losses_of(*turn)] == ["tool_call"]


# --- results ----------------------------------------------------------------------------------------------------------


def turn_with(*content: Any, is_error: bool = False) -> tuple[Message, ...]:
    result = ToolResult("1", "f", content, is_error=is_error)
    return HELLO, Message.assistant(ToolCall("1", "f")), Message.tool([result])


@pytest.mark.parametrize(
    ("content", "is_error", "response"),
    [
        ((Text("sunny"),), False, {"output": "sunny"}),
        ((Text("a"), Text("b")), False, {"output": "a\nb"}),
        ((Json(raw=Raw(b'{"t": 1.0}')),), False, {"t": 1.0}),
        ((Json(raw=Raw(b'{"output": 1, "more": 2}')),), False, {"output": {"output": 1, "more": 2}}),
        ((Json(raw=Raw(b'{"error": 1}')),), False, {"output": {"error": 1}}),
        ((Json(raw=Raw(b"[1, 2]")),), False, {"output": [1, 2]}),
        ((Json(raw=Raw(b"null")),), False, {"output": None}),
        ((Text("see"), Json(raw=Raw(b"[1]"))), False, {"output": "see\n[1]"}),
        ((), False, {"output": ""}),
        ((Text("no such city"),), True, {"error": "no such city"}),
        ((Json(raw=Raw(b'{"code": 7}')),), True, {"error": {"code": 7}}),
        ((), True, {"error": ""}),
    ],
)
def test_what_the_model_reads_of_a_result(content: Any, is_error: bool, response: Any) -> None:
    part = {"functionResponse": {"id": "1", "name": "f", "response": response}}
    assert contents(*turn_with(*content, is_error=is_error))[2] == {"role": "user", "parts": [part]}


def test_media_in_a_result() -> None:
    part = contents(*turn_with(PICTURE, PDF))[2]["parts"][0]["functionResponse"]
    assert part["response"] == {}
    assert part["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": "YWJj"}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://host/a.pdf"}},
    ]


@pytest.mark.parametrize(("model", "media"), [("gemini-3-flash", SOUND), ("gemini-2.5-flash", PICTURE)])
def test_media_behind_a_result(model: str, media: Media) -> None:
    """In a content of their own: beside a response they would count as the model's words."""
    turn = turn_with(Text("see"), media)
    answer, behind = contents(*turn, model=model)[2:]
    assert [list(part) for part in answer["parts"]] == [["functionResponse"]]
    assert (behind["role"], [list(part) for part in behind["parts"]]) == ("user", [["text"], ["inlineData"]])
    assert [(loss.message, loss.what) for loss in losses_of(*turn, model=model)] == [(2, "tool_result")]


def test_media_that_the_model_does_not_take_at_all() -> None:
    (part,) = contents(*turn_with(SOUND), model="gemma-3-27b-it")[2]["parts"]
    assert part == {"functionResponse": {"id": "1", "name": "f", "response": {}}}
