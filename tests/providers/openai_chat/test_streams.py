"""The course of a stream: its framing, its events, and above all its end, which must never be taken for granted."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.conversation import (
    Completed,
    ReplyEvent,
    ReplyStarted,
    StopReason,
    TextDelta,
    TextEnded,
    TextStarted,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
    Usage,
    UsageReported,
    fold,
)
from dragoman.errors import ProtocolError
from dragoman.providers.openai_chat import CODEC
from tests.providers.feeding import message_of
from tests.providers.openai_chat.wire import (
    DONE,
    NOTHING,
    USAGE,
    call_piece,
    call_to,
    chunk,
    decoder,
    event,
    fails,
    read,
    stream,
    whole,
)

# --- the plain course of things ---


def test_a_plain_stream_gives_these_events() -> None:
    body = stream(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({}, "stop"),
        chunk(choices=[], usage=USAGE),
    )
    events: list[ReplyEvent] = []
    reader = decoder()
    reader.feed(body, events)
    reader.finish(events)
    assert events[:-1] == [
        ReplyStarted("openai-compatible", "m-1", "chatcmpl-1"),
        TextStarted(0, ""),
        TextDelta(0, "", "Hel"),
        TextDelta(0, "", "lo"),
        TextEnded(0, ""),
        UsageReported(Usage(input=10, output=4, total=14)),
    ]
    assert isinstance(events[-1], Completed)
    assert events[-1].stop_reason is StopReason.END
    assert events[-1].raw_stop_reason == "stop"


def test_a_stream_and_a_whole_reply_make_the_same_message() -> None:
    calls = [call_piece('{"a":1}', 0, "call_1", "f"), call_piece("{}", 1, "call_2", "g")]
    streamed = read(
        stream(
            chunk({"role": "assistant", "content": "", "reasoning_content": "hm"}),
            chunk({"content": "Well"}),
            chunk({"tool_calls": [call_piece("", 0, "call_1", "f")]}),
            chunk({"tool_calls": [call_piece('{"a":', 0)]}),
            chunk({"tool_calls": [call_piece("1}", 0)]}),
            chunk({"tool_calls": [call_piece("{}", 1, "call_2", "g")]}),
            chunk({}, "tool_calls"),
            chunk(choices=[], usage=USAGE),
        )
    )
    message = {"content": "Well", "reasoning_content": "hm", "tool_calls": calls}
    at_once = read(whole(message, "tool_calls", usage=USAGE), stream=False)
    assert streamed.blocks == at_once.blocks
    assert (streamed.stop_reason, streamed.usage) == (at_once.stop_reason, at_once.usage)
    assert [call.parsed for call in streamed.tool_calls] == [{"a": 1}, {}]


def test_arguments_arrive_piece_by_piece() -> None:
    body = stream(
        chunk({"tool_calls": [call_piece("", 0, "c1", "f")]}),
        chunk({"tool_calls": [call_piece('{"x"', 0)]}),
        chunk({"tool_calls": [call_piece(":2}", 0)]}),
        chunk({}, "tool_calls"),
    )
    events: list[ReplyEvent] = []
    decoder().feed(body, events)
    assert events[1:5] == [
        ToolCallStarted(0, "c1", "f"),
        ToolCallDelta(0, "c1", '{"x"'),
        ToolCallDelta(0, "c1", ":2}"),
        ToolCallEnded(0, "c1"),
    ]


def test_names_that_were_changed_are_changed_back() -> None:
    body = stream(chunk({"tool_calls": [call_piece("{}", 0, "c1", "my_tool")]}), chunk({}, "tool_calls"))
    assert read(body, names={"my_tool": "my.tool"}).tool_calls[0].name == "my.tool"


# --- framing ---


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("before", [b"", b": keep-alive\n\n", b"\xef\xbb\xbf", b"\n\n", b"retry: 100\n\n"])
def test_lines_may_end_in_any_way_and_comments_may_come_anywhere(newline: bytes, before: bytes) -> None:
    body = before + event(chunk({"content": "a"})) + b": OPENROUTER PROCESSING\n\n" + event(chunk({"content": "b"}))
    body += event(chunk({}, "stop")) + DONE
    assert read(body.replace(b"\n", newline)).text == "ab"


def test_no_space_behind_the_colon_and_named_events() -> None:
    body = stream(chunk({"content": "a"}), chunk({}, "stop")).replace(b"data: ", b"event: chunk\ndata:")
    assert read(body).text == "a"


def test_several_events_in_one_read_are_all_taken() -> None:
    events: list[ReplyEvent] = []
    reader = decoder()
    reader.feed(event(chunk({"content": "a"})), events)
    reader.feed(event(chunk({"content": "b"})) + event(chunk({"content": "c"})), events)
    reader.feed(event(chunk({"content": "d"})) + b": comment\n\n" + event(chunk({"content": "e"})), events)
    reader.feed(event(chunk({"content": "f"})) + DONE.replace(b"[DONE]", b'{"choices":[]}'), events)
    reader.feed(event(chunk({}, "stop")), events)
    reader.finish(events)
    assert fold(events).text == "abcdef"


def test_what_comes_after_done_is_not_read() -> None:
    body = stream(chunk({"content": "a"}), chunk({}, "stop")) + event(chunk({"content": "b"}))
    assert read(body).text == "a"
    events: list[ReplyEvent] = []
    reader = decoder()
    for piece in (event(chunk({"content": "a"})), event(chunk({}, "stop")) + DONE + event(chunk({"content": "b"}))):
        reader.feed(piece, events)
    reader.feed(event(chunk({"content": "c"})), events)
    reader.finish(events)
    assert fold(events).text == "a"


def test_a_whole_reply_to_a_request_for_a_stream_and_the_other_way_round() -> None:
    assert read(whole({"content": "a"}), stream=True).text == "a"
    assert read(b"   \n\n  " + whole({"content": "a"}), stream=False).text == "a"
    assert read(stream(chunk({"content": "a"}), chunk({}, "stop")), stream=False).text == "a"


# --- the end ---


def test_without_done_a_finish_reason_is_enough() -> None:
    message = read(stream(chunk({"content": "a"}), chunk({}, "stop"), done=False))
    assert (message.text, message.stop_reason) == ("a", StopReason.END)


def test_the_last_event_may_lack_its_blank_line() -> None:
    assert read(stream(chunk({"content": "a"}), chunk({}, "stop"), done=False).rstrip()).text == "a"


def test_a_stream_that_ends_early_is_an_error_with_everything_so_far() -> None:
    events, error = fails(stream(chunk({"content": "a"}), chunk({"content": "b"}, usage=USAGE), done=False))
    assert type(error) is ProtocolError
    assert error.provider == "openai-compatible"
    message = fold(events)
    assert (message.text, message.stop_reason) == ("ab", StopReason.INTERRUPTED)
    assert message.usage == Usage(input=10, output=4, total=14)


def test_done_without_a_finish_reason_is_not_enough() -> None:
    events, error = fails(stream(chunk({"content": "a"})))
    assert type(error) is ProtocolError
    assert "without saying why" in str(error)
    assert fold(events).interrupted


def test_done_with_a_count_of_tokens_behind_the_last_choice_is() -> None:
    message = read(stream(chunk({"content": "a"}), chunk(choices=[], usage=USAGE)))
    assert (message.text, message.stop_reason, message.raw_stop_reason) == ("a", StopReason.OTHER, None)
    # A count beside a choice may be one of many on the way.
    assert type(fails(stream(chunk({"content": "a"}, usage=USAGE)))[1]) is ProtocolError
    late = stream(chunk({"content": "a"}), chunk(choices=[], usage=USAGE), chunk({"content": "b"}))
    assert type(fails(late)[1]) is ProtocolError


def test_the_quirk_for_servers_that_know_no_finish_reason() -> None:
    call = call_to()
    profile = call.profile.with_changes(quirks=frozenset(["done_is_enough"]))
    lenient = msgspec.structs.replace(call, profile=profile)
    body = stream(chunk({"content": "a"}), chunk({"tool_calls": [call_piece("{}", 0, "c", "f")]}))
    assert message_of(CODEC.decoder(lenient, NOTHING), [body]).stop_reason is StopReason.TOOL_CALLS
    with pytest.raises(ProtocolError):
        message_of(CODEC.decoder(lenient, NOTHING), [stream(chunk({"content": "a"}), done=False)])


@pytest.mark.parametrize("body", [b"", b"\n\n", b"hello", b"data: \n\n", b"data: [DONE]\n\n", b": only comments\n\n"])
def test_nothing_is_not_a_reply(body: bytes) -> None:
    assert type(fails(body)[1]) is ProtocolError
    assert type(fails(body, stream=False)[1]) is ProtocolError


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("stop", StopReason.END),
        ("eos", StopReason.END),
        ("length", StopReason.MAX_TOKENS),
        ("content_filter", StopReason.CONTENT_FILTER),
        ("sensitive", StopReason.CONTENT_FILTER),
        ("model_length", StopReason.CONTEXT_FULL),
        ("STOP", StopReason.END),
        ("something new", StopReason.OTHER),
    ],
)
def test_finish_reasons(finish: str, expected: StopReason) -> None:
    message = read(stream(chunk({"content": "a"}), chunk({}, finish)))
    assert (message.stop_reason, message.raw_stop_reason) == (expected, finish)


def test_calls_count_even_where_the_server_says_stop() -> None:
    calls = {"tool_calls": [call_piece("{}", 0, "c", "f")]}
    assert read(stream(chunk(calls), chunk({}, "stop"))).stop_reason is StopReason.TOOL_CALLS
    assert read(whole(calls, "function_call")).stop_reason is StopReason.TOOL_CALLS


def test_the_word_of_the_server_behind_a_router_and_of_vllm() -> None:
    def ended(**choice: object) -> StopReason | None:
        body = chunk({"content": "a"}, "stop")
        body["choices"][0].update(choice)
        return read(stream(body)).stop_reason

    assert ended(native_finish_reason="refusal") is StopReason.REFUSAL
    assert ended(native_finish_reason="completed") is StopReason.END
    assert ended(stop_reason="END OF TEXT") is StopReason.STOP_SEQUENCE
    assert ended(stop_reason=154827) is StopReason.END


def test_a_call_that_was_cut_off_by_the_limit_is_partial() -> None:
    pieces = [call_piece('{"a":1}', 0, "c1", "f"), call_piece('{"b":', 1, "c2", "g")]
    message = read(stream(chunk({"tool_calls": pieces}), chunk({}, "length")))
    assert [call.partial for call in message.tool_calls] == [False, True]
    assert message.stop_reason is StopReason.MAX_TOKENS
