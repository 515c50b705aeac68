"""Replies written by hand: what becomes of each kind of part, whole and streamed."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from msgspec import Raw

from dragoman.conversation import (
    Block,
    Media,
    Message,
    Native,
    Opaque,
    ReplyEvent,
    ServerToolUse,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from dragoman.errors import ContentFilteredError, OverloadedError, ProtocolError, RateLimitError
from tests.providers.calls import decoder_of
from tests.providers.feeding import events_of, fields_in, message_of
from tests.providers.gemini.case import (
    a_call,
    as_array,
    as_events,
    as_whole,
    attempt,
    chunk,
    streamed,
    whole,
)

SIG = "c2lnbmF0dXJl+/=="
PIXELS = bytes(range(250, 256)) * 3 + b"x"
USAGE = {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}


def native(**fields: Any) -> Native:
    return Native(
        "gemini", {name: Raw(json.dumps(value, separators=(",", ":")).encode()) for name, value in fields.items()}
    )


def opaque(**part: Any) -> Opaque:
    return Opaque("gemini", Raw(json.dumps(part, separators=(",", ":")).encode()))


def signed(text: str, signature: str = SIG) -> dict[str, Any]:
    return {"text": text, "thoughtSignature": signature}


def thought(text: str, **members: Any) -> dict[str, Any]:
    return {"text": text, "thought": True, **members}


def function(name: str = "f", **members: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, **members}}


def inline(data: bytes, mime_type: str = "image/png", **members: Any) -> dict[str, Any]:
    return {"inlineData": {"mimeType": mime_type, "data": data.decode(), **members}}


# --- parts ------------------------------------------------------------------------------------------------------------

SIGNED = native(thoughtSignature=SIG)
CODE = {"executableCode": {"language": "PYTHON", "code": "print(1)", "id": "1"}, "thoughtSignature": SIG}
RUN = ServerToolUse("code_execution", "call", "1", input="print(1)")
FILM = {"mimeType": "video/mp4", "fileUri": "gs://bucket/film"}

# The parts of each chunk, and the blocks that they become.
PARTS: dict[str, tuple[list[list[Any]], list[Block]]] = {
    "pieces of a stream are one text": ([["Hel"], ["lo"], [" there"]], [Text("Hello there")]),
    "parts of a whole reply stay apart": ([["a", "b"]], [Text("a"), Text("b")]),
    "parts of one chunk stay apart": ([["a", "b"], ["c"]], [Text("a"), Text("bc")]),
    "empty texts say nothing": ([[""], ["a"], [""], ["b"], [""]], [Text("ab")]),
    "nothing": ([["", {}]], []),
    "unknown members of a text end it": (
        [[{"text": "a", "partMetadata": {"k": 1}}], ["b"]],
        [Text("a", native=native(partMetadata={"k": 1})), Text("b")],
    ),
    "thoughts of a stream are one": (
        [[thought("Let me")], [thought(" see.")], ["Yes."]],
        [Thinking("Let me see.", "gemini"), Text("Yes.")],
    ),
    "thought and answer in one chunk": ([[thought("Hm."), "Yes"], ["."]], [Thinking("Hm.", "gemini"), Text("Yes.")]),
    "a signed thought": (
        [[thought("Hm.", thoughtSignature=SIG, partMetadata={})]],
        [Thinking("Hm.", "gemini", SIG, native=native(partMetadata={}))],
    ),
    "a signature without a thought": (
        [[{"thought": True, "thoughtSignature": SIG}, "a"]],
        [Thinking("", "gemini", SIG), Text("a")],
    ),
    # Gemini 3 streams the signature behind the text, on an empty one; Gemini 2.5 on the first piece.
    "a signature at the end": ([["a"], ["b"], [signed("")]], [Text("ab", native=SIGNED)]),
    "a signature at the beginning": ([[signed("a")], ["b"], ["c"]], [Text("a", native=SIGNED), Text("bc")]),
    "two signatures are never merged": (
        [[signed("a", "b25l")], [signed("", "dHdv")]],
        [Text("a", native=native(thoughtSignature="b25l")), opaque(text="", thoughtSignature="dHdv")],
    ),
    "a signature with no text before": (
        [[function(id="1")], [signed("")]],
        [ToolCall("1", "f"), opaque(text="", thoughtSignature=SIG)],
    ),
    # It must have a kind to be accepted when it goes back.
    "a signature on a part of no kind": ([[{"thoughtSignature": SIG}]], [opaque(text="", thoughtSignature=SIG)]),
    "a signature on a call": (
        [[{**function(id="1", args={}), "thoughtSignature": SIG}, function(id="2", args={})]],
        [ToolCall("1", "f", "{}", native=SIGNED), ToolCall("2", "f", "{}")],
    ),
    "text around calls": (
        [["I will"], [" look."], [function(id="1")], ["Done"], ["."]],
        [Text("I will look."), ToolCall("1", "f"), Text("Done.")],
    ),
    "unknown members of a call": (
        [[{**function(id="1", mood="calm"), "thought": True}]],
        [ToolCall("1", "f", native=native(thought=True, functionCall={"mood": "calm"}))],
    ),
    "arguments that are null": ([[function(id="1", args=None)]], [ToolCall("1", "f")]),
    # Not Google's way, but that of some proxies.
    "arguments as a text": ([[function(id="1", args='{"a": 1}')]], [ToolCall("1", "f", '{"a": 1}')]),
    "ids made up from the reply": (
        [[function(), function()]],
        [ToolCall("call_gem_reply-1_0", "f"), ToolCall("call_gem_reply-1_1", "f")],
    ),
    "an id that comes twice": (
        [[function(id="same"), function(id="same")]],
        [ToolCall("same", "f"), ToolCall("call_gem_reply-1_1", "f")],
    ),
    "a picture": (
        [["Here:"], [{**inline(base64.b64encode(PIXELS)), "thoughtSignature": SIG}]],
        [Text("Here:"), Media(kind="image", mime_type="image/png", data=PIXELS, native=SIGNED)],
    ),
    "the other alphabet of base64": (
        [[inline(base64.urlsafe_b64encode(PIXELS), "audio/wav", displayName="a")]],
        [Media(kind="audio", mime_type="audio/wav", data=PIXELS, native=native(inlineData={"displayName": "a"}))],
    ),
    "base64 without padding": (
        [[inline(base64.b64encode(PIXELS).rstrip(b"="))]],
        [Media(kind="image", mime_type="image/png", data=PIXELS)],
    ),
    "a file": ([[{"fileData": FILM}]], [Media.from_url("gs://bucket/film", mime_type="video/mp4")]),
    "a file that is nowhere": (
        [[{"fileData": {"mimeType": "video/mp4"}}]],
        [opaque(fileData={"mimeType": "video/mp4"})],
    ),
    "sketches are not the answer": (
        [[{**inline(b"AAAA"), "thought": True}], [{**inline(b"AAAA"), "thought": False}]],
        [
            opaque(inlineData={"mimeType": "image/png", "data": "AAAA"}, thought=True),
            Media(kind="image", mime_type="image/png", data=bytes(3)),
        ],
    ),
    "code of the provider's own tools": (
        [["a"], [CODE], ["b"]],
        [Text("a"), Opaque("gemini", opaque(**CODE).raw, RUN), Text("b")],
    ),
    "what is new": ([[{"somethingNew": {"a": [1, {"b": None}]}}]], [opaque(somethingNew={"a": [1, {"b": None}]})]),
}


@pytest.mark.parametrize("case", PARTS)
def test_parts_become_blocks(case: str) -> None:
    parts, blocks = PARTS[case]
    chunks = [*[chunk(*one) for one in parts[:-1]], chunk(*parts[-1], finish="STOP", usage=USAGE)]
    message = streamed(*chunks)
    assert list(message.blocks) == blocks
    calls = any(isinstance(block, ToolCall) for block in blocks)
    assert message.stop_reason is (StopReason.TOOL_CALLS if calls else StopReason.END)
    if len(chunks) == 1:
        assert whole(chunks[0]) == message


def test_arguments_keep_their_spelling_but_not_their_spaces() -> None:
    body = b"""{"candidates": [{"content": {"parts": [{"functionCall":
        {"name": "f", "args": {"n": 1.0, "s": "\\u00e9", "big": 12345678901234567890, "l": [ 1, 2 ]}}}]},
        "finishReason": "STOP"}], "responseId": "r"}"""
    message = message_of(decoder_of(a_call()), [body])
    assert message.tool_calls[0].arguments == '{"n":1.0,"s":"\\u00e9","big":12345678901234567890,"l":[1,2]}'


def test_generated_ids_are_short_and_unique_in_the_conversation() -> None:
    message = whole({**chunk(function(), finish="STOP"), "responseId": "a/b+" + "x" * 40})
    assert [call.id for call in message.tool_calls] == ["call_gem_" + "x" * 24 + "_0"]
    before = Message.user("q"), Message.assistant(ToolCall("x", "f"), ToolCall("y", "f"))
    nameless = {"candidates": [{"content": {"parts": [function()]}, "finishReason": "STOP"}]}
    assert whole(nameless, a_call(*before)).tool_calls[0].id == "call_gem_2"


def test_names_are_mapped_back() -> None:
    body = as_whole(chunk(function("f_1"), function("g"), finish="STOP"))
    message = message_of(decoder_of(a_call(), {"f_1": "f/1"}), [body])
    assert [call.name for call in message.tool_calls] == ["f/1", "g"]


@pytest.mark.parametrize(
    "part",
    [
        function(partialArgs=[{"jsonPath": "$.a", "stringValue": "a"}]),
        function(willContinue=True),
        {"functionCall": {"args": {}}},
        inline(b"not base64!"),
    ],
)
def test_malformed_parts_are_refused(part: dict[str, Any]) -> None:
    _, error = attempt(as_events(chunk(part, finish="STOP")), a_call(stream=True))
    assert isinstance(error, ProtocolError)


# --- what a reply says of itself --------------------------------------------------------------------------------------


def test_metadata_in_pieces_or_repeated_is_merged() -> None:
    """Some models send a list anew with each chunk, some only what is new."""
    message = streamed(
        chunk("a", groundingMetadata={"queries": ["a"], "chunks": [1]}, citationMetadata={"citations": [1]}),
        chunk("b", groundingMetadata={"queries": ["a", "b"], "chunks": [2]}, avgLogprobs=-1.5),
        chunk("c", finish="STOP", groundingMetadata={"queries": ["a", "b"], "entry": {"x": 1}}, avgLogprobs=-2.50),
    )
    assert fields_in(message.native) == {
        "groundingMetadata": {"queries": ["a", "b"], "chunks": [1, 2], "entry": {"x": 1}},
        "citationMetadata": {"citations": [1]},
        "avgLogprobs": -2.5,
    }


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("STOP", StopReason.END),
        ("MAX_TOKENS", StopReason.MAX_TOKENS),
        ("SAFETY", StopReason.CONTENT_FILTER),
        ("UNEXPECTED_TOOL_CALL", StopReason.ERROR),
        ("CONTINUATION", StopReason.PAUSED),
        ("A_NEW_WORD", StopReason.OTHER),
    ],
)
def test_stop_reasons(word: str, reason: StopReason) -> None:
    message = whole(chunk("a", finish=word))
    assert (message.stop_reason, message.raw_stop_reason) == (reason, word)
    assert streamed(chunk("a"), chunk(finish=word)) == message


def test_a_call_of_an_unknown_function_is_a_call() -> None:
    message = whole(chunk(function(), finish="UNEXPECTED_TOOL_CALL", finishMessage="no f"))
    assert message.stop_reason is StopReason.TOOL_CALLS
    assert fields_in(message.native) == {"finishMessage": "no f"}


def test_a_reply_without_content() -> None:
    reply = {"candidates": [{"finishReason": "SAFETY", "safetyRatings": [{"blocked": True}]}]}
    message = whole(reply)
    assert (message.blocks, message.stop_reason) == ((), StopReason.CONTENT_FILTER)
    assert streamed(reply) == message


def test_every_chunk_may_have_a_finish_reason() -> None:
    """As the oldest models did; and usage may come behind."""
    usage = {"candidates": [], "usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 3}}
    message = streamed(chunk("a", finish="STOP"), chunk("b", finish="STOP"), usage)
    assert message.text == "ab"
    assert message.usage == Usage(input=3, output=0, total=3)


@pytest.mark.parametrize(
    "data",
    [
        as_events(chunk("a"), chunk("b", usage=USAGE)),
        as_array(chunk("a", usage={"promptTokenCount": 5}), chunk("b", usage=USAGE)),
        as_events(chunk("ab", finish="FINISH_REASON_UNSPECIFIED", usage=USAGE)),
    ],
)
def test_a_stream_without_a_finish_reason_fails_and_keeps_its_text(data: bytes) -> None:
    message, error = attempt(data, a_call(stream=True))
    assert isinstance(error, ProtocolError)
    assert (message.text, message.interrupted) == ("ab", True)
    assert message.usage == Usage(input=5, output=2, total=7)


def test_a_whole_reply_with_content_needs_no_finish_reason() -> None:
    assert whole(chunk("a")).stop_reason is StopReason.OTHER
    for body in (as_whole(chunk()), b"{}"):
        assert isinstance(attempt(body, a_call())[1], ProtocolError)


@pytest.mark.parametrize(
    ("wire", "usage"),
    [
        (
            {
                "promptTokenCount": 100,
                "cachedContentTokenCount": 60,
                "candidatesTokenCount": 7,
                "thoughtsTokenCount": 5,
                "toolUsePromptTokenCount": 11,
                "totalTokenCount": 123,
            },
            Usage(input=111, output=12, cache_read=60, reasoning=5, total=123),
        ),
        (
            {"promptTokenCount": 15, "thoughtsTokenCount": 2, "totalTokenCount": 17},
            Usage(input=15, output=2, reasoning=2, total=17),
        ),
        ({"promptTokenCount": 15}, Usage(input=15)),
        (  # as protobuf writes 64-bit integers
            {"promptTokenCount": "15", "toolUsePromptTokenCount": "1", "totalTokenCount": "16"},
            Usage(input=16, output=0, total=16),
        ),
        ({"promptTokenCount": "many", "totalTokenCount": 16, "cost": 3}, Usage(output=0, total=16)),
        ({"promptTokenCount": 15, "totalTokenCount": 15}, Usage(input=15, output=0, total=15)),
        ({"trafficType": "ON_DEMAND"}, None),
    ],
)
def test_usage(wire: dict[str, Any], usage: Usage | None) -> None:
    message = whole(chunk("a", finish="STOP", usage=wire))
    assert message.usage == usage
    assert fields_in(message.native) == {"usageMetadata": wire}


def test_the_last_usage_wins_but_keeps_the_cached_tokens_of_the_first() -> None:
    message = streamed(
        chunk("a", usage={"promptTokenCount": 9, "cachedContentTokenCount": 8, "totalTokenCount": 9}),
        chunk("b", usage={"promptTokenCount": 9, "candidatesTokenCount": 1, "totalTokenCount": 10}),
        chunk("c", finish="STOP", usage={"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}),
    )
    assert message.usage == Usage(input=9, output=3, cache_read=8, total=12)


def test_the_events_of_a_reply() -> None:
    data = as_events(*[chunk("a", usage=USAGE)] * 3, chunk("b", finish="STOP", usage=USAGE))
    events: list[ReplyEvent] = events_of(decoder_of(a_call(stream=True)), [data])
    names = [type(event).__name__ for event in events]
    assert names[:3] == ["ReplyStarted", "UsageReported", "TextStarted"]
    assert names[3:] == ["TextDelta"] * 4 + ["TextEnded", "UsageReported", "Completed"]


# --- errors inside replies --------------------------------------------------------------------------------------------

FEEDBACK: dict[str, Any] = {
    "promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "No."},
    "usageMetadata": {"promptTokenCount": 4, "totalTokenCount": 4},
    "modelVersion": "m",
    "responseId": "r",
}
BUSY = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}


def test_a_blocked_prompt_is_an_error() -> None:
    for data, stream, said in (
        (as_whole(FEEDBACK), False, ""),
        (as_events(FEEDBACK), True, ""),
        (as_events(chunk("a"), FEEDBACK), True, "a"),
    ):
        message, error = attempt(data, a_call(stream=stream))
        assert isinstance(error, ContentFilteredError)
        assert error.code == "PROHIBITED_CONTENT"
        assert "No." in error.message
        assert message.text == said
        assert said or message.usage == Usage(input=4, output=0, total=4)


def test_prompt_feedback_without_a_block_is_kept() -> None:
    feedback = {"safetyRatings": [{"category": "C", "probability": "LOW"}]}
    assert fields_in(whole({**chunk("a", finish="STOP"), "promptFeedback": feedback}).native) == {
        "promptFeedback": feedback
    }


def test_an_error_in_a_stream_or_in_a_whole_body() -> None:
    for data in (as_events(chunk("a"), BUSY), as_array(chunk("a"), BUSY)):
        message, error = attempt(data, a_call(stream=True))
        assert isinstance(error, OverloadedError)
        assert (error.status, error.code) == (503, "UNAVAILABLE")
        assert message.text == "a", "what came before is there"
    _, error = attempt(as_whole({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}), a_call())
    assert isinstance(error, RateLimitError)


# --- forms ------------------------------------------------------------------------------------------------------------


def test_the_framing_is_detected_from_the_bytes() -> None:
    reply = chunk("ab", finish="STOP")
    events = b": keep-alive\n\nevent: message\nid: 1\ndata: %b\n\ndata: [DONE]\n\n" % json.dumps(reply).encode()
    array = as_array(chunk("a"), chunk("b", finish="STOP"))
    forms = [as_whole(reply), b"\xef\xbb\xbf \r\n" + as_whole(reply), array, events]
    for data in forms:
        assert message_of(decoder_of(a_call(stream=True)), [data]) == whole(reply)
    assert message_of(decoder_of(a_call()), [array]) == whole(reply)


def test_null_is_absent() -> None:
    """Google leaves out what is not there; some proxies write null."""
    nothing = {"thought": None, "thoughtSignature": None, "functionCall": None, "inlineData": None}
    first = {**chunk({"text": "a", **nothing}), "promptFeedback": None, "error": None, "responseId": None}
    first["candidates"][0] |= {"finishReason": None, "groundingMetadata": None}
    plain = {**chunk("a"), "modelVersion": None, "responseId": None, "usageMetadata": None}
    last = {**chunk(finish="STOP"), "usageMetadata": None}
    last["candidates"][0]["content"] = {"parts": None, "role": None}
    for chunks in ((first, last), (plain, chunk(finish="STOP"))):
        message = streamed(*chunks)
        assert (message.blocks, message.stop_reason, message.native) == ((Text("a"),), StopReason.END, None)


def test_only_the_first_candidate_is_the_reply() -> None:
    second = {"content": {"parts": [{"text": "other"}]}, "finishReason": "STOP", "index": 1}
    reply = chunk("a", finish="STOP")
    reply["candidates"].append(second)
    message = whole(reply)
    assert (message.text, fields_in(message.native)) == ("a", {"candidates": [second]})


def test_unknown_members_are_kept() -> None:
    message = streamed({**chunk("a"), "createTime": "t"}, {**chunk("b", finish="STOP"), "modelStatus": {"x": 1}})
    assert fields_in(message.native) == {"createTime": "t", "modelStatus": {"x": 1}}


def test_without_a_model_or_an_id() -> None:
    message = whole({"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}]})
    assert (message.model, message.id) == ("gemini-3-flash-preview", None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[DONE]",
        b"<html>",
        b"{",
        b'{"candidates": 1}',
        b'{"candidates": [{"content": {"parts": [{"text": 1}]}}]}',
        b'{"candidates": [{"content": {"parts": [{"text": "\xff"}]}, "finishReason": "STOP"}]}',
        b'{"candidates": [{"content": {"parts": [{"new": "\xff"}]}, "finishReason": "STOP"}]}',
        b'{"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": 7}]}',
        b'{"candidates": [], "usageMetadata": {"promptTokenCount": "many"}}',
        b'{"candidates": [{"content": {"parts": [{"text": "a"}]}, "index": "x"}]}',
        b'{"candidates": [{"content": {"parts": [{"text": "a"}]}}], "responseId": 1}',
        b'{"candidates": [{"content": {"parts": [{"text": "a"}]}}], "usageMetadata": {"x": "\xff"}}',
        b'{"a": ' + b"[" * 100_000,
        b"[1, 2]",
        b"[]",
        b"[{]",
    ],
)
def test_malformed_replies_are_refused(data: bytes) -> None:
    for stream in (False, True):
        assert isinstance(attempt(data, a_call(stream=stream))[1], ProtocolError)
        assert isinstance(attempt(b"data: " + data + b"\n\n", a_call(stream=True))[1], ProtocolError)
