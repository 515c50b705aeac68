"""Bytes that break off or are not what they should be: never a finished reply, never a foreign exception."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.conversation import Message, ReplyEvent, fold
from dragoman.errors import ProtocolError, ProviderError
from dragoman.providers.codec import Decoder
from tests.providers.feeding import cut_at
from tests.providers.openai_chat.wire import USAGE, call_piece, chunk, decoder, decoder_of, event, read, stream, whole
from tests.providers.recorded import exchanges

STREAM = stream(
    chunk({"role": "assistant", "content": "", "reasoning_content": "hm"}, system_fingerprint="fp"),
    chunk({"content": "Grüße 🎉"}),
    chunk({"content": " und mehr"}),
    chunk({"tool_calls": [call_piece('{"a":', 0, "c1", "f")]}),
    chunk({"tool_calls": [call_piece("1}", 0), call_piece("{}", 1, "c2", "g")]}),
    chunk({}, "tool_calls"),
    chunk(choices=[], usage=USAGE),
)
WHOLE = whole({"content": "Hello", "tool_calls": [call_piece("{}", 0, "c", "f")]}, "tool_calls", usage=USAGE)

RICH = stream(
    chunk({"reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s", "index": 0}]}),
    chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "x"}]}]}),
    chunk({"content": "a", "annotations": [{"index": 0}]}),
    chunk({"annotations": [{"index": 0, "b": 1}], "audio": {"id": "x", "data": "AAEC"}}),
    chunk({"images": [{"image_url": {"url": "data:image/png;base64,AAEC"}}], "refusal": "no"}, "stop", usage=USAGE),
)


def outcome(reader: Decoder, pieces: list[bytes]) -> tuple[Message, ProviderError | None]:
    """The message so far and the error, if there was one; any other exception is a bug."""
    events: list[ReplyEvent] = []
    try:
        for piece in pieces:
            reader.feed(piece, events)
        reader.finish(events)
    except ProviderError as error:
        return fold(events), error
    return fold(events), None


def check_cut(complete: Message, cut: bytes, message: Message, error: ProviderError | None, end: int) -> None:
    if len(cut) < end:
        assert isinstance(error, ProtocolError), cut[-40:]
        assert message.interrupted
    if error is None:
        # Everything that was said is there; only the count of tokens may have been cut off.
        assert (message.blocks, message.stop_reason) == (complete.blocks, complete.stop_reason)
    assert complete.text.startswith(message.text)
    assert complete.thinking.startswith(message.thinking)


def test_a_stream_cut_anywhere() -> None:
    complete = read(STREAM)
    end = STREAM.index(event(chunk({}, "tool_calls"))) + len(event(chunk({}, "tool_calls"))) - 2
    for at in range(len(STREAM)):
        message, error = outcome(decoder(), [STREAM[:at]])
        check_cut(complete, STREAM[:at], message, error, end)


def test_a_whole_reply_cut_anywhere() -> None:
    for at in range(len(WHOLE)):
        message, error = outcome(decoder(stream=False), [WHOLE[:at]])
        assert isinstance(error, ProtocolError)
        assert not message.blocks


@pytest.mark.recorded
@pytest.mark.slow
@pytest.mark.skipif(not exchanges("chat"), reason="the recorded exchanges are not here")
@pytest.mark.parametrize("name", ["test_snowflake_thinking_streaming-0", "test_crusoe_model_streaming-0"])
def test_a_recorded_stream_cut_anywhere(name: str) -> None:
    exchange = next(row for row in exchanges("chat") if row.id == name)
    body = exchange.body.encode()
    complete, error = outcome(decoder_of(exchange), [body])
    assert error is None
    finish = body.find(b'"finish_reason":"')
    end = body.index(b"\n", finish) if finish >= 0 else body.index(b"[DONE]") + 6
    for at in range(len(body)):
        message, error = outcome(decoder_of(exchange), [body[:at]])
        check_cut(complete, body[:at], message, error, end)


@given(st.binary(max_size=200), st.booleans(), st.lists(st.integers(0, 200), max_size=4))
def test_random_bytes(data: bytes, streamed: bool, places: list[int]) -> None:
    assert outcome(decoder(stream=streamed), cut_at(data, places))[1] is not None


DAMAGE = [b"", b"\n", b"\n\n", b"{", b"}", b"]", b'"', b",", b"null", b"0", b"\xff", b"1e999"]


@settings(max_examples=300)
@given(st.data())
def test_a_stream_with_some_bytes_changed(data: st.DataObject) -> None:
    body = bytearray(data.draw(st.sampled_from([STREAM, WHOLE, RICH])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 12))] = data.draw(st.sampled_from(DAMAGE))
    outcome(decoder("openrouter"), cut_at(bytes(body), data.draw(st.lists(st.integers(0, 2000), max_size=3))))


LEAVES = st.sampled_from(["", "a", "text", "thinking", "{}", "custom", "stop"])
INNER = (
    *("id", "type", "text", "thinking", "data", "url", "index", "name", "arguments", "function", "custom", "input"),
    *("message", "code", "content", "image_url", "prompt_tokens", "usage", "transcript", "refusal"),
)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(INNER), inner, max_size=4),
    max_leaves=8,
)
OF_DELTA = (
    *("content", "reasoning", "reasoning_content", "reasoning_details", "refusal", "tool_calls", "function_call"),
    *("audio", "images", "annotations", "role", "new"),
)
DELTAS = st.dictionaries(st.sampled_from(OF_DELTA), JSONS, max_size=4)
OF_TOP = ("usage", "error", "x_groq", "id", "model", "new", "choices")
TOPS = st.dictionaries(st.sampled_from(OF_TOP), JSONS, max_size=2)


@settings(max_examples=300)
@given(st.lists(st.tuples(DELTAS, TOPS), max_size=4), st.sampled_from(["stop", "length", "tool_calls"]))
def test_json_of_any_shape(parts: list[tuple[dict[str, object], dict[str, object]]], finish: str) -> None:
    """Members of the right names and the wrong types: read, or refused as an error of the provider."""
    body = stream(*[chunk(delta, **top) for delta, top in parts], chunk({}, finish))
    first = outcome(decoder(), [body])
    again = outcome(decoder(), [body[at : at + 7] for at in range(0, len(body), 7)])
    assert first[0] == again[0]
    assert type(first[1]) is type(again[1])
    for delta, top in parts[:1]:
        outcome(decoder(stream=False), [whole(delta, finish, **top)])


@given(st.lists(DELTAS, max_size=4))
def test_plain_chunks_are_read_as_those_with_unknown_members(deltas: list[dict[str, object]]) -> None:
    """A member that nobody knows makes a chunk be read member by member; its value says nothing."""
    chunks = [chunk({"content": "a"}), *[chunk(delta) for delta in deltas], chunk({"content": "b"}), chunk({}, "stop")]
    short = outcome(decoder(), [event(one) for one in chunks])
    long = outcome(decoder(), [event({**one, "unknown": None}) for one in chunks])
    assert short[0] == long[0]
    assert type(short[1]) is type(long[1])
