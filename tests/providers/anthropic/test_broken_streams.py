"""Streams that end too early or are damaged: never a silent success, never another exception than a ProviderError."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.conversation import Message, ReplyEvent, StopReason, Text, Thinking, fold
from dragoman.errors import ProtocolError, ProviderError
from tests.providers.anthropic.calls import block, decoder_of, event, started, stopped, text_block, whole
from tests.providers.feeding import cut_at, message_of
from tests.providers.recorded import exchanges

BY_HAND = b"".join(
    [
        started(),
        block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Hm, é"},
            {"type": "signature_delta", "signature": "c2ln"},
        ),
        event("ping"),
        text_block(1, "Hello ", "wörld", "!"),
        block(
            2,
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"query": "x"}'},
        ),
        block(
            3,
            {"type": "tool_use", "id": "t", "name": "add", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"a": '},
            {"type": "input_json_delta", "partial_json": "1}"},
        ),
        stopped("tool_use"),
    ]
)


def recorded() -> list[bytes]:
    """The longest recorded stream; where there are none, none."""
    streams = [exchange.body.encode() for exchange in exchanges("anthropic") if exchange.streamed]
    usual = [body for body in streams if b"thinking_delta" in body and b"tool_use" in body and len(body) < 15_000]
    return sorted(usual, key=len)[-1:]


def read(data: bytes, *, stream: bool = True) -> tuple[Message, ProviderError | None]:
    """What came of these bytes, and the error if there was one."""
    events: list[ReplyEvent] = []
    decoder = decoder_of(stream=stream)
    try:
        decoder.feed(data, events)
        decoder.finish(events)
    except ProviderError as error:
        return fold(events), error
    return fold(events), None


ABSENT = [pytest.param(b"", id="recorded", marks=pytest.mark.skip(reason="the recorded exchanges are not here"))]
RECORDED = [pytest.param(body, id="recorded", marks=pytest.mark.recorded) for body in recorded()] or ABSENT


@pytest.mark.parametrize("body", [pytest.param(BY_HAND, id="by hand"), *RECORDED])
def test_a_stream_cut_anywhere_is_never_a_silent_success(body: bytes) -> None:
    whole_message = message_of(decoder_of(), [body])
    end = body.rindex(b'"message_stop"')
    complete = body.index(b"}", end) + 1
    texts = len(whole_message.text)
    before = 0
    for cut in range(len(body)):
        message, error = read(body[:cut])
        if cut >= complete:
            assert error is None
            assert message == whole_message
            continue
        assert isinstance(error, ProtocolError)
        assert message.stop_reason is StopReason.INTERRUPTED
        # Everything that has arrived is there, and it only ever grows.
        assert whole_message.text.startswith(message.text)
        assert len(message.text) >= before
        before = len(message.text)
    assert before == texts


def test_whatever_was_complete_before_the_cut_is_there() -> None:
    place = BY_HAND.index(b"event: content_block_start", BY_HAND.index(b"!"))
    message, error = read(BY_HAND[:place])
    assert isinstance(error, ProtocolError)
    assert message.blocks == (Thinking("Hm, é", "anthropic", signature="c2ln"), Text("Hello wörld!"))
    assert message.usage is not None
    partial, _ = read(BY_HAND[: BY_HAND.rindex(b"event: content_block_stop")])
    assert partial.tool_calls[0].partial


def test_a_body_cut_anywhere_is_never_a_silent_success() -> None:
    body = whole({"type": "text", "text": "Hello"}, {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 1}})
    for cut in range(len(body)):
        message, error = read(body[:cut], stream=False)
        assert isinstance(error, ProtocolError), cut
        assert message.stop_reason is StopReason.INTERRUPTED
    assert read(body, stream=False)[1] is None


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes(data: bytes, stream: bool) -> None:
    _, error = read(data, stream=stream)
    assert error is not None


@settings(max_examples=300)
@given(st.data())
def test_damaged_streams(data: st.DataObject) -> None:
    body = bytearray(data.draw(st.sampled_from([BY_HAND, *recorded()])))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(body) - 1))
        way = data.draw(st.sampled_from(["flip", "drop", "double", "put"]))
        length = data.draw(st.integers(1, 40))
        if way == "flip":
            body[place] = data.draw(st.integers(0, 255))
        elif way == "drop":
            del body[place : place + length]
        elif way == "double":
            body[place:place] = body[place : place + length]
        else:
            body[place:place] = data.draw(
                st.sampled_from([b"\n\n", b"{}", b'"', b"null", b"\\ud83d", b"1e999", b"\xff"])
            )
        if not body:
            return
    read(bytes(body))  # a message or a ProviderError; anything else fails the test
    places = data.draw(st.lists(st.integers(0, len(body)), max_size=5))
    events: list[ReplyEvent] = []
    decoder = decoder_of()
    try:
        for piece in cut_at(bytes(body), places):
            decoder.feed(piece, events)
        decoder.finish(events)
    except ProviderError:
        pass
    assert fold(events) == read(bytes(body))[0]


@given(st.data())
def test_events_in_any_order(data: st.DataObject) -> None:
    frames = [frame + b"\n\n" for frame in BY_HAND.strip().split(b"\n\n")]
    chosen = data.draw(st.lists(st.sampled_from(frames), max_size=30))
    message, error = read(b"".join(chosen))
    assert (error is None) == (message.stop_reason is StopReason.TOOL_CALLS)


@pytest.mark.parametrize("field", ["stop_reason", "id", "unknown"])
def test_a_whole_reply_with_bytes_that_are_not_utf8_is_a_protocol_error(field: str) -> None:
    body = b'{"type":"message","content":[],"stop_reason":"end_turn","%b":"\xab"}' % field.encode()
    with pytest.raises(ProtocolError):
        message_of(decoder_of(stream=False), [body])
