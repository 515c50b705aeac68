"""Replies written by hand: what becomes of each kind of part, whole and streamed."""

from __future__ import annotations

import base64
import json
from typing import Any, ClassVar

import pytest
from msgspec import Raw

from dragoman.conversation import (
    Completed,
    Media,
    Message,
    Native,
    Opaque,
    ReplyEvent,
    ReplyStarted,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
    UsageReported,
)
from dragoman.errors import ContentFilteredError, OverloadedError, ProtocolError, RateLimitError
from dragoman.providers.codec import Encoded, WireRequest
from dragoman.providers.gemini import CODEC
from tests.providers.feeding import events_of, message_of
from tests.providers.gemini.case import (
    NOTHING_SENT,
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


def native(**fields: Any) -> Native:
    compact = (",", ":")
    return Native(
        "gemini", {name: Raw(json.dumps(value, separators=compact).encode()) for name, value in fields.items()}
    )


def signed(value: str = SIG) -> Native:
    return native(thoughtSignature=value)


class TestText:
    def test_pieces_of_a_stream_are_one_text(self) -> None:
        message = streamed(chunk("Hel"), chunk("lo"), chunk(" there", finish="STOP"))
        assert message.blocks == (Text("Hello there"),)
        assert message == whole(chunk("Hello there", finish="STOP"))

    def test_parts_of_one_chunk_stay_apart(self) -> None:
        assert whole(chunk("a", "b", finish="STOP")).blocks == (Text("a"), Text("b"))
        assert streamed(chunk("a", "b"), chunk("c", finish="STOP")).blocks == (Text("a"), Text("bc"))

    def test_one_chunk_is_the_same_whole_and_streamed(self) -> None:
        reply = chunk(
            {"text": "think", "thought": True},
            {"text": "say", "thoughtSignature": SIG},
            {"functionCall": {"name": "f", "args": {"a": 1}}},
            {"text": ""},
            {"newThing": {"deep": [1, 2.50]}},
            finish="STOP",
            usage={"promptTokenCount": 1, "totalTokenCount": 3, "candidatesTokenCount": 2},
        )
        assert streamed(reply) == whole(reply)

    def test_empty_texts_say_nothing(self) -> None:
        assert streamed(chunk(""), chunk("a"), chunk(""), chunk("b"), chunk("", finish="STOP")).blocks == (Text("ab"),)
        assert whole(chunk("", {}, finish="STOP")).blocks == ()

    def test_unknown_members_of_a_text_are_kept_and_end_it(self) -> None:
        message = streamed(chunk({"text": "a", "partMetadata": {"k": 1}}), chunk("b", finish="STOP"))
        assert message.blocks == (Text("a", native=native(partMetadata={"k": 1})), Text("b"))


class TestThinking:
    def test_thoughts_of_a_stream_are_one(self) -> None:
        one, two = {"text": "Let me", "thought": True}, {"text": " see.", "thought": True}
        message = streamed(chunk(one), chunk(two), chunk("Yes.", finish="STOP"))
        assert message.blocks == (Thinking("Let me see.", "gemini"), Text("Yes."))

    def test_thought_and_answer_in_one_chunk(self) -> None:
        message = streamed(chunk({"text": "Hm.", "thought": True}, "Yes"), chunk(".", finish="STOP"))
        assert message.blocks == (Thinking("Hm.", "gemini"), Text("Yes."))

    def test_a_signed_thought(self) -> None:
        part = {"text": "Hm.", "thought": True, "thoughtSignature": SIG, "partMetadata": {}}
        message = whole(chunk(part, finish="STOP"))
        assert message.blocks == (Thinking("Hm.", "gemini", SIG, native=native(partMetadata={})),)

    def test_a_signature_without_a_thought(self) -> None:
        message = whole(chunk({"thought": True, "thoughtSignature": SIG}, "a", finish="STOP"))
        assert message.blocks == (Thinking("", "gemini", SIG), Text("a"))


class TestSignatures:
    def test_at_the_end_of_a_text(self) -> None:
        """Gemini 3 streams the signature behind the text, on an empty one."""
        end = chunk({"text": "", "thoughtSignature": SIG}, finish="STOP")
        message = streamed(chunk("a"), chunk("b"), end)
        assert message.blocks == (Text("ab", native=signed()),)
        assert message == whole(chunk({"text": "ab", "thoughtSignature": SIG}, finish="STOP"))

    def test_at_the_beginning_of_a_text(self) -> None:
        """Gemini 2.5 streams it on the first piece; the pieces behind it are another part."""
        message = streamed(chunk({"text": "a", "thoughtSignature": SIG}), chunk("b"), chunk("c", finish="STOP"))
        assert message.blocks == (Text("a", native=signed()), Text("bc"))

    def test_two_signatures_are_never_merged(self) -> None:
        first, second = {"text": "a", "thoughtSignature": "b25l"}, {"text": "", "thoughtSignature": "dHdv"}
        message = streamed(chunk(first), chunk(second, finish="STOP"))
        assert message.blocks == (
            Text("a", native=signed("b25l")),
            Opaque("gemini", Raw(b'{"text":"","thoughtSignature":"dHdv"}')),
        )

    def test_on_an_empty_part_with_no_text_before(self) -> None:
        call = {"functionCall": {"name": "f", "args": {}, "id": "1"}}
        message = streamed(chunk(call), chunk({"text": "", "thoughtSignature": SIG}, finish="STOP"))
        assert message.blocks[1] == Opaque("gemini", Raw(b'{"text":"","thoughtSignature":"%b"}' % SIG.encode()))

    def test_on_a_part_of_no_kind(self) -> None:
        """It must have a kind to be accepted when it goes back."""
        message = whole(chunk({"thoughtSignature": SIG}, finish="STOP"))
        assert message.blocks == (Opaque("gemini", Raw(b'{"text":"","thoughtSignature":"%b"}' % SIG.encode())),)

    def test_on_calls(self) -> None:
        first = {"functionCall": {"name": "f", "args": {}, "id": "1"}, "thoughtSignature": SIG}
        message = whole(chunk(first, {"functionCall": {"name": "f", "args": {}, "id": "2"}}, finish="STOP"))
        assert message.blocks == (ToolCall("1", "f", "{}", native=signed()), ToolCall("2", "f", "{}"))


class TestCalls:
    def test_arguments_keep_their_spelling_but_not_their_spaces(self) -> None:
        body = b"""{"candidates": [{"content": {"parts": [{"functionCall":
            {"name": "f", "args": {"n": 1.0, "s": "\\u00e9", "big": 12345678901234567890, "l": [ 1, 2 ]}}}]},
            "finishReason": "STOP"}], "responseId": "r"}"""
        message = message_of(CODEC.decoder(a_call(), NOTHING_SENT), [body])
        assert message.tool_calls[0].arguments == '{"n":1.0,"s":"\\u00e9","big":12345678901234567890,"l":[1,2]}'

    def test_ids_are_made_up_from_the_reply(self) -> None:
        call = {"functionCall": {"name": "f"}}
        message = whole({**chunk(call, call, finish="STOP"), "responseId": "a/b+" + "x" * 40})
        assert [one.id for one in message.tool_calls] == ["call_gem_" + "x" * 24 + "_0", "call_gem_" + "x" * 24 + "_1"]
        assert all(len(one.id) <= 40 for one in message.tool_calls), "OpenAI takes no longer ones"

    def test_ids_are_unique_in_the_conversation_without_a_reply_id(self) -> None:
        before = Message.user("q"), Message.assistant(ToolCall("x", "f"), ToolCall("y", "f"))
        reply = {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f"}}]}, "finishReason": "STOP"}]}
        assert whole(reply, a_call(*before)).tool_calls[0].id == "call_gem_2"

    def test_an_id_that_comes_twice_is_used_once(self) -> None:
        call = {"functionCall": {"name": "f", "id": "same"}}
        ids = [one.id for one in whole(chunk(call, call, finish="STOP")).tool_calls]
        assert ids == ["same", "call_gem_reply-1_1"]

    @pytest.mark.parametrize("members", [{}, {"args": None}])
    def test_no_arguments(self, members: dict[str, Any]) -> None:
        call = whole(chunk({"functionCall": {"name": "f", **members}}, finish="STOP")).tool_calls[0]
        assert call.arguments == ""
        assert call.parsed == {}

    def test_arguments_as_a_text(self) -> None:
        """Not Google's way, but that of some proxies."""
        part = {"functionCall": {"name": "f", "args": '{"a": 1}'}}
        assert whole(chunk(part, finish="STOP")).tool_calls[0].parsed == {"a": 1}

    def test_names_are_mapped_back(self) -> None:
        encoded = Encoded(request=WireRequest(path="", body=b""), tool_names={"f_1": "f/1"})
        body = as_whole(chunk({"functionCall": {"name": "f_1"}}, {"functionCall": {"name": "g"}}, finish="STOP"))
        message = message_of(CODEC.decoder(a_call(), encoded), [body])
        assert [call.name for call in message.tool_calls] == ["f/1", "g"]

    def test_unknown_members_are_kept(self) -> None:
        part = {"functionCall": {"name": "f", "id": "1", "mood": "calm"}, "thought": True}
        call = whole(chunk(part, finish="STOP")).tool_calls[0]
        assert call.native == native(thought=True, functionCall={"mood": "calm"})

    def test_a_call_without_a_name_is_malformed(self) -> None:
        _, error = attempt(as_whole(chunk({"functionCall": {"args": {}}}, finish="STOP")), a_call())
        assert isinstance(error, ProtocolError)

    def test_text_around_calls(self) -> None:
        call = {"functionCall": {"name": "f", "id": "1"}}
        message = streamed(chunk("I will"), chunk(" look."), chunk(call), chunk("Done"), chunk(".", finish="STOP"))
        assert message.blocks == (Text("I will look."), ToolCall("1", "f"), Text("Done."))
        assert message.stop_reason is StopReason.TOOL_CALLS


class TestStreamedArguments:
    """Vertex AI, when asked to: the arguments come as values with paths."""

    def test_they_grow_into_one_object(self) -> None:
        def more(*pieces: dict[str, Any], **members: Any) -> dict[str, Any]:
            return chunk({"functionCall": {"partialArgs": list(pieces), "willContinue": True, **members}})

        message = streamed(
            chunk({"functionCall": {"name": "f", "willContinue": True}, "thoughtSignature": SIG}),
            more({"jsonPath": "$.city", "stringValue": "New ", "willContinue": True}),
            more({"jsonPath": "$.city", "stringValue": "Delhi"}, {"jsonPath": "$.days", "numberValue": 3}),
            more(
                {"jsonPath": "$.stops[0].name", "stringValue": "a"}, {"jsonPath": "$.stops[0].open", "boolValue": True}
            ),
            more({"jsonPath": "$.stops[1]", "nullValue": "NULL_VALUE"}, {"jsonPath": "$['x.y']", "numberValue": 1.50}),
            chunk({"functionCall": {}}),
            chunk("", finish="STOP"),
        )
        (call,) = message.tool_calls
        assert call.native == signed()
        assert call.parsed == {
            "city": "New Delhi",
            "days": 3,
            "stops": [{"name": "a", "open": True}, None],
            "x.y": 1.5,
        }
        assert not call.partial

    def test_two_calls_one_after_the_other(self) -> None:
        piece = [{"jsonPath": "$.a", "numberValue": 1}]
        message = streamed(
            chunk({"functionCall": {"name": "f", "id": "1", "willContinue": True}}),
            chunk({"functionCall": {"partialArgs": piece}}),
            chunk({"functionCall": {"name": "g", "id": "2", "args": {"b": 2}}}, finish="STOP"),
        )
        assert message.blocks == (ToolCall("1", "f", '{"a":1}'), ToolCall("2", "g", '{"b":2}'))

    def test_a_call_that_never_ends_is_partial(self) -> None:
        call = {"functionCall": {"name": "f", "willContinue": True}}
        message = streamed(chunk(call), chunk("", finish="MAX_TOKENS"))
        assert message.tool_calls[0].partial

    @pytest.mark.parametrize(
        "piece",
        [
            {"stringValue": "no place"},
            {"jsonPath": "", "stringValue": "a"},
            {"jsonPath": "$", "stringValue": "a"},
            {"jsonPath": "$.a[", "stringValue": "a"},
            {"jsonPath": "$..a", "stringValue": "a"},
            {"jsonPath": "$[0]", "stringValue": "a"},
            {"jsonPath": "$.a[7]", "stringValue": "a"},
            {"jsonPath": "$.a[99999999999]", "stringValue": "a"},
            {"jsonPath": "$.a.b[0]" + ".c" * 100_000, "numberValue": 1},
        ],
    )
    def test_pieces_that_fit_nowhere(self, piece: dict[str, Any]) -> None:
        call = {"functionCall": {"name": "f", "partialArgs": [piece]}}
        _, error = attempt(as_events(chunk(call, finish="STOP")), a_call(stream=True))
        assert isinstance(error, ProtocolError)


class TestMedia:
    def test_a_picture(self) -> None:
        data = bytes(range(256))
        part = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(data).decode()}}
        message = streamed(chunk("Here:"), chunk({**part, "thoughtSignature": SIG}, finish="STOP"))
        assert message.blocks == (
            Text("Here:"),
            Media(kind="image", mime_type="image/png", data=data, native=signed()),
        )

    def test_either_alphabet_of_base64(self) -> None:
        data = bytes(range(250, 256)) * 3 + b"x"
        for encoded in (base64.b64encode(data), base64.urlsafe_b64encode(data), base64.b64encode(data).rstrip(b"=")):
            part = {"inlineData": {"mimeType": "audio/wav", "data": encoded.decode(), "displayName": "a"}}
            (media,) = whole(chunk(part, finish="STOP")).blocks
            assert isinstance(media, Media)
            assert (media.kind, media.data) == ("audio", data)
            assert media.native == Native("gemini", {"inlineData": Raw(b'{"displayName":"a"}')})

    def test_what_is_not_base64(self) -> None:
        part = {"inlineData": {"mimeType": "image/png", "data": "not base64!"}}
        assert isinstance(attempt(as_whole(chunk(part, finish="STOP")), a_call())[1], ProtocolError)

    def test_a_file(self) -> None:
        part = {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://bucket/film"}}
        assert whole(chunk(part, finish="STOP")).blocks == (Media.from_url("gs://bucket/film", mime_type="video/mp4"),)

    def test_a_file_that_is_nowhere(self) -> None:
        message = whole(chunk({"fileData": {"mimeType": "video/mp4"}}, finish="STOP"))
        assert isinstance(message.blocks[0], Opaque)

    def test_sketches_are_not_the_answer(self) -> None:
        part = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}, "thought": True}
        assert isinstance(whole(chunk(part, finish="STOP")).blocks[0], Opaque)
        assert isinstance(whole(chunk({**part, "thought": False}, finish="STOP")).blocks[0], Media)


class TestProvidersTools:
    @pytest.mark.parametrize(
        "part",
        [
            {"executableCode": {"language": "PYTHON", "code": "print(1)", "id": "1"}, "thoughtSignature": SIG},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
            {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["a"]}, "id": "1"}},
            {"toolResponse": {"toolType": "URL_CONTEXT", "response": {}, "id": "1"}, "thoughtSignature": SIG},
            {"somethingNew": {"a": [1, {"b": None}]}},
        ],
    )
    def test_their_parts_are_kept_as_they_came(self, part: dict[str, Any]) -> None:
        message = streamed(chunk("a"), chunk(part), chunk("b", finish="STOP"))
        assert [type(block) for block in message.blocks] == [Text, Opaque, Text]
        opaque = message.blocks[1]
        assert isinstance(opaque, Opaque)
        assert opaque.value == part

    def test_grounding_is_kept_on_the_message(self) -> None:
        grounding = {"webSearchQueries": ["a"], "groundingChunks": [{"web": {"uri": "https://host"}}]}
        message = streamed(
            chunk("a", groundingMetadata={}, urlContextMetadata={"urlMetadata": [{"retrievedUrl": "u"}]}),
            chunk("b", groundingMetadata={}),
            chunk("c", finish="STOP", groundingMetadata=grounding),
        )
        assert message.text == "abc"
        assert message.native is not None
        kept = {name: json.loads(bytes(raw)) for name, raw in message.native.fields.items()}
        assert kept == {"groundingMetadata": grounding, "urlContextMetadata": {"urlMetadata": [{"retrievedUrl": "u"}]}}

    def test_metadata_in_pieces_and_anew(self) -> None:
        """Some models send a list anew with each chunk, some only what is new."""
        message = streamed(
            chunk("a", groundingMetadata={"queries": ["a"], "chunks": [1]}, citationMetadata={"citations": [1]}),
            chunk("b", groundingMetadata={"queries": ["a", "b"], "chunks": [2]}, avgLogprobs=-1.5),
            chunk("c", finish="STOP", groundingMetadata={"queries": ["a", "b"], "entry": {"x": 1}}, avgLogprobs=-2.50),
        )
        assert message.native is not None
        kept = {name: json.loads(bytes(raw)) for name, raw in message.native.fields.items()}
        assert kept == {
            "groundingMetadata": {"queries": ["a", "b"], "chunks": [1, 2], "entry": {"x": 1}},
            "citationMetadata": {"citations": [1]},
            "avgLogprobs": -2.5,
        }


class TestEnd:
    @pytest.mark.parametrize(
        ("word", "reason"),
        [
            ("STOP", StopReason.END),
            ("MAX_TOKENS", StopReason.MAX_TOKENS),
            ("SAFETY", StopReason.CONTENT_FILTER),
            ("RECITATION", StopReason.CONTENT_FILTER),
            ("PROHIBITED_CONTENT", StopReason.CONTENT_FILTER),
            ("BLOCKLIST", StopReason.CONTENT_FILTER),
            ("SPII", StopReason.CONTENT_FILTER),
            ("MODEL_ARMOR", StopReason.CONTENT_FILTER),
            ("IMAGE_SAFETY", StopReason.CONTENT_FILTER),
            ("MALFORMED_FUNCTION_CALL", StopReason.ERROR),
            ("UNEXPECTED_TOOL_CALL", StopReason.ERROR),
            ("CONTINUATION", StopReason.PAUSED),
            ("LANGUAGE", StopReason.OTHER),
            ("OTHER", StopReason.OTHER),
            ("NO_IMAGE", StopReason.OTHER),
            ("A_NEW_WORD", StopReason.OTHER),
        ],
    )
    def test_reasons(self, word: str, reason: StopReason) -> None:
        message = whole(chunk("a", finish=word))
        assert (message.stop_reason, message.raw_stop_reason) == (reason, word)
        assert streamed(chunk("a"), chunk(finish=word)) == message

    def test_a_call_of_a_function_that_was_not_offered_is_a_call(self) -> None:
        message = whole(chunk({"functionCall": {"name": "f"}}, finish="UNEXPECTED_TOOL_CALL", finishMessage="no f"))
        assert message.stop_reason is StopReason.TOOL_CALLS
        assert message.native is not None
        assert bytes(message.native.fields["finishMessage"]) == b'"no f"'

    def test_a_reply_without_content(self) -> None:
        reply = {"candidates": [{"finishReason": "SAFETY", "safetyRatings": [{"blocked": True}]}]}
        message = whole(reply)
        assert (message.blocks, message.stop_reason) == ((), StopReason.CONTENT_FILTER)
        assert streamed(reply) == message

    def test_every_chunk_may_say_that_it_is_the_last(self) -> None:
        """As the oldest models did; and usage may come behind."""
        usage = {"candidates": [], "usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 3}}
        message = streamed(chunk("a", finish="STOP"), chunk("b", finish="STOP"), usage)
        assert message.text == "ab"
        assert message.usage == Usage(input=3, output=0, total=3)

    def test_a_stream_without_a_finish_reason_is_not_complete(self) -> None:
        for data in (as_events(chunk("a"), chunk("b")), as_array(chunk("a"), chunk("b")), b"", b"data: [DONE]\n\n"):
            message, error = attempt(data, a_call(stream=True))
            assert isinstance(error, ProtocolError)
            assert message.text in {"ab", ""}
            assert message.interrupted

    def test_an_unspecified_finish_reason_is_none(self) -> None:
        _, error = attempt(as_events(chunk("a", finish="FINISH_REASON_UNSPECIFIED")), a_call(stream=True))
        assert isinstance(error, ProtocolError)

    def test_a_whole_reply_may_do_without_if_it_says_something(self) -> None:
        assert whole(chunk("a")).stop_reason is StopReason.OTHER
        assert isinstance(attempt(as_whole(chunk()), a_call())[1], ProtocolError)
        assert isinstance(attempt(b"{}", a_call())[1], ProtocolError)

    def test_what_came_before_a_break_is_there_with_its_cost(self) -> None:
        usage = {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}
        message, error = attempt(
            as_events(chunk("a", usage={"promptTokenCount": 5}), chunk("b", usage=usage)), a_call(stream=True)
        )
        assert isinstance(error, ProtocolError)
        assert message.text == "ab"
        assert message.usage == Usage(input=5, output=2, total=7)


class TestBlockedPrompts:
    FEEDBACK: ClassVar[dict[str, Any]] = {
        "promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "No."},
        "usageMetadata": {"promptTokenCount": 4, "totalTokenCount": 4},
        "modelVersion": "m",
        "responseId": "r",
    }

    def test_they_are_errors(self) -> None:
        for data, stream in ((as_whole(self.FEEDBACK), False), (as_events(self.FEEDBACK), True)):
            message, error = attempt(data, a_call(stream=stream))
            assert isinstance(error, ContentFilteredError)
            assert error.code == "PROHIBITED_CONTENT"
            assert "No." in error.message
            assert message.usage == Usage(input=4, output=0, total=4)

    def test_in_the_middle_of_a_stream(self) -> None:
        message, error = attempt(as_events(chunk("a"), self.FEEDBACK), a_call(stream=True))
        assert isinstance(error, ContentFilteredError)
        assert message.text == "a"

    def test_feedback_that_blocks_nothing_is_kept(self) -> None:
        feedback = {"safetyRatings": [{"category": "C", "probability": "LOW"}]}
        message = whole({**chunk("a", finish="STOP"), "promptFeedback": feedback})
        assert message.native is not None
        assert json.loads(bytes(message.native.fields["promptFeedback"])) == feedback


class TestUsage:
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
            ({"promptTokenCount": "15", "totalTokenCount": 15}, Usage(input=15, output=0, total=15)),
            ({"trafficType": "ON_DEMAND"}, None),
        ],
    )
    def test_counts(self, wire: dict[str, Any], usage: Usage | None) -> None:
        message = whole(chunk("a", finish="STOP", usage=wire))
        assert message.usage == usage
        assert message.native is not None
        assert json.loads(bytes(message.native.fields["usageMetadata"])) == wire

    def test_the_last_report_counts_but_a_cached_part_is_not_forgotten(self) -> None:
        message = streamed(
            chunk("a", usage={"promptTokenCount": 9, "cachedContentTokenCount": 8, "totalTokenCount": 9}),
            chunk("b", usage={"promptTokenCount": 9, "candidatesTokenCount": 1, "totalTokenCount": 10}),
            chunk("c", finish="STOP", usage={"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}),
        )
        assert message.usage == Usage(input=9, output=3, cache_read=8, total=12)

    def test_reports_come_first_and_last(self) -> None:
        usage = {"promptTokenCount": 1, "totalTokenCount": 1}
        data = as_events(*[chunk("a", usage=usage) for _ in range(5)], chunk("b", finish="STOP", usage=usage))
        events = events_of(CODEC.decoder(a_call(stream=True), NOTHING_SENT), [data])
        places = [index for index, event in enumerate(events) if isinstance(event, UsageReported)]
        assert isinstance(events[0], ReplyStarted)
        assert places == [1, len(events) - 2]
        assert isinstance(events[-1], Completed)


class TestErrorsInStreams:
    ERROR: ClassVar[dict[str, Any]] = {
        "error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
    }

    def test_what_came_before_is_there(self) -> None:
        for data in (as_events(chunk("a"), self.ERROR), as_array(chunk("a"), self.ERROR)):
            message, error = attempt(data, a_call(stream=True))
            assert isinstance(error, OverloadedError)
            assert (error.status, error.code) == (503, "UNAVAILABLE")
            assert message.text == "a"

    def test_a_whole_body_that_is_an_error(self) -> None:
        _, error = attempt(as_whole({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}), a_call())
        assert isinstance(error, RateLimitError)


class TestForms:
    def test_a_stream_answered_with_a_whole_reply(self) -> None:
        reply = chunk("a", finish="STOP")
        for data in (as_whole(reply), b"\xef\xbb\xbf \r\n" + as_whole(reply)):
            assert message_of(CODEC.decoder(a_call(stream=True), NOTHING_SENT), [data]) == whole(reply)

    def test_a_whole_reply_asked_for_and_an_array_given(self) -> None:
        data = as_array(chunk("a"), chunk("b", finish="STOP"))
        assert message_of(CODEC.decoder(a_call(), NOTHING_SENT), [data]).text == "ab"

    def test_other_names_and_comments_of_events(self) -> None:
        data = (
            b": keep-alive\n\nevent: message\nid: 1\ndata: %b\n\ndata: [DONE]\n\n"
            % json.dumps(chunk("a", finish="STOP")).encode()
        )
        assert message_of(CODEC.decoder(a_call(stream=True), NOTHING_SENT), [data]).text == "a"

    def test_null_is_absent(self) -> None:
        """Google leaves out what is not there; some proxies write null."""
        nothing = {"thought": None, "thoughtSignature": None, "functionCall": None, "inlineData": None}
        first = {**chunk({"text": "a", **nothing}), "promptFeedback": None, "error": None, "responseId": None}
        first["candidates"][0] |= {"finishReason": None, "groundingMetadata": None}
        assert streamed(
            {**chunk("a"), "modelVersion": None, "responseId": None, "usageMetadata": None}, chunk(finish="STOP")
        )
        last = {**chunk(finish="STOP"), "usageMetadata": None}
        last["candidates"][0]["content"] = {"parts": None, "role": None}
        message = streamed(first, last)
        assert (message.blocks, message.stop_reason, message.native) == ((Text("a"),), StopReason.END, None)

    def test_only_the_first_candidate_is_the_reply(self) -> None:
        second = {"content": {"parts": [{"text": "other"}]}, "finishReason": "STOP", "index": 1}
        reply = chunk("a", finish="STOP")
        reply["candidates"].append(second)
        message = whole(reply)
        assert message.text == "a"
        assert message.native is not None
        assert json.loads(bytes(message.native.fields["candidates"])) == [second]

    def test_members_that_we_do_not_know_are_kept(self) -> None:
        message = streamed({**chunk("a"), "createTime": "t"}, {**chunk("b", finish="STOP"), "modelStatus": {"x": 1}})
        assert message.native is not None
        assert message.native.fields.keys() == {"createTime", "modelStatus"}

    def test_without_a_model_or_an_id(self) -> None:
        message = whole({"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}]})
        assert (message.model, message.id) == ("gemini-3-flash-preview", None)

    @pytest.mark.parametrize(
        "data",
        [
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
    def test_what_is_not_a_reply(self, data: bytes) -> None:
        for stream in (False, True):
            assert isinstance(attempt(data, a_call(stream=stream))[1], ProtocolError)
            assert isinstance(attempt(b"data: " + data + b"\n\n", a_call(stream=True))[1], ProtocolError)

    def test_events_of_a_reply(self) -> None:
        events: list[ReplyEvent] = events_of(
            CODEC.decoder(a_call(stream=True), NOTHING_SENT), [as_events(chunk("a"), chunk("b", finish="STOP"))]
        )
        assert [type(event).__name__ for event in events] == [
            "ReplyStarted",
            "TextStarted",
            "TextDelta",
            "TextDelta",
            "TextEnded",
            "Completed",
        ]
