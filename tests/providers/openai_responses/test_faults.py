"""Broken bytes: cut anywhere, mutated anyhow. Never a silent success, never any other exception than ours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.conversation import ReplyEvent, TextDelta, fold
from dragoman.errors import ProviderError
from dragoman.providers.codec import Decoder
from dragoman.providers.openai_responses import CODEC
from tests.providers.feeding import cut_at
from tests.providers.openai_responses.calls import (
    call_item,
    make_call,
    message_item,
    reasoning_item,
    response,
    sse,
    streamed,
)
from tests.providers.recorded import exchanges

ITEMS = [
    reasoning_item("Hm.", "So."),
    message_item("Hello, wörld 🌍", phase="commentary"),
    {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}},
    call_item(arguments='{"city":"Zürich"}'),
]
STREAM = sse(streamed(*ITEMS))
WHOLE = json.dumps(response(*ITEMS)).encode()


CALLS = {stream: make_call(stream=stream) for stream in (False, True)}
ENCODED = {stream: CODEC.encode(call) for stream, call in CALLS.items()}


def decoder_of(*, stream: bool) -> Decoder:
    return CODEC.decoder(CALLS[stream], ENCODED[stream])


def read(data: bytes, *, stream: bool = True, places: Any = ()) -> tuple[list[ReplyEvent], ProviderError | None]:
    """All events, and the error if there was one; any other exception is a failure."""
    decoder = decoder_of(stream=stream)
    events: list[ReplyEvent] = []
    try:
        for piece in cut_at(data, places):
            decoder.feed(piece, events)
        decoder.finish(events)
    except ProviderError as error:
        return events, error
    return events, None


def check_every_cut(data: bytes) -> None:
    """Cut at every byte: an error, unless the last event is there in full."""
    begins = data.index(b"event: response.completed")
    full = data.index(b"\n", data.index(b"data: ", begins))
    complete = "".join(one.text for one in read(data)[0] if isinstance(one, TextDelta))
    for place in range(len(data)):
        events, error = read(data[:place])
        assert (error is None) == (place >= full), place
        assert complete.startswith("".join(one.text for one in events if isinstance(one, TextDelta)))
        fold(events)


@pytest.mark.slow
def test_a_stream_cut_at_every_byte() -> None:
    check_every_cut(STREAM)


@pytest.mark.slow
@pytest.mark.recorded
def test_a_recorded_stream_cut_at_every_byte() -> None:
    rows = [row for row in exchanges("responses") if row.id == "test_openai_responses_stream-1"]
    if not rows:
        pytest.skip("the recorded exchanges are not here")
    check_every_cut(rows[0].body.encode())


def test_everything_received_is_in_the_events() -> None:
    frames = STREAM.split(b"\n\n")
    for count in range(len(frames)):
        events, _ = read(b"\n\n".join(frames[:count]) + b"\n\n")
        arrived = [frame for frame in frames[:count] if b"event: response.output_text.delta" in frame]
        assert len([one for one in events if isinstance(one, TextDelta)]) == len(arrived)


def test_a_whole_reply_cut_at_every_byte() -> None:
    for place in range(len(WHOLE)):
        assert read(WHOLE[:place], stream=False)[1] is not None
        assert read(WHOLE[:place])[1] is not None


@given(st.lists(st.integers(0, len(STREAM))))
def test_pieces_make_no_difference(places: list[int]) -> None:
    assert fold(read(STREAM, places=places)[0]) == fold(read(STREAM)[0])
    assert fold(read(WHOLE, stream=False, places=places)[0]) == fold(read(WHOLE, stream=False)[0])


@given(st.binary(max_size=200), st.booleans())
def test_random_bytes(data: bytes, stream: bool) -> None:
    assert read(data, stream=stream)[1] is not None


@given(
    st.lists(st.tuples(st.integers(0, len(STREAM)), st.integers(0, 40), st.binary(max_size=6)), min_size=1, max_size=4)
)
def test_mutated_streams(changes: list[tuple[int, int, bytes]]) -> None:
    data = STREAM
    for place, length, bytes_ in changes:
        data = data[:place] + bytes_ + data[place + length :]
    events, error = read(data)
    try:
        fold(events)
    except ProviderError:
        assert error is not None


INNER = ("type", "id", "content", "summary", "text", "name", "arguments")
LEAVES = st.text(max_size=5) | st.sampled_from(["message", "reasoning", "output_text"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INNER), inner),
    max_leaves=8,
)
kinds = st.sampled_from([one["type"] for one in streamed(*ITEMS)] + ["error", "response.failed", "response.incomplete"])
OF_EVENT = ("delta", "output_index", "content_index", "item_id", "item", "part", "response", "error")
members = st.dictionaries(st.sampled_from(OF_EVENT), json_values)


@given(st.lists(st.tuples(kinds, members), max_size=6))
def test_events_with_anything_in_them(made: list[tuple[str, dict[str, Any]]]) -> None:
    events, _ = read(sse([{**fields, "type": kind} for kind, fields in made]))
    fold(events)


@given(st.permutations(streamed(*ITEMS)))
def test_events_in_any_order(order: list[dict[str, Any]]) -> None:
    events, error = read(sse(order))
    message, complete = fold(events), fold(read(STREAM)[0])
    if error is None:  # its id is lost where an item came before all else, as in a stream taken up in its middle
        assert (message.blocks, message.usage) == (complete.blocks, complete.usage)
        assert message.stop_reason is complete.stop_reason


@given(st.lists(st.integers(0, 30), min_size=1, max_size=3))
def test_events_twice(twice: list[int]) -> None:
    events = streamed(*ITEMS)
    for index in sorted({index % len(events) for index in twice}, reverse=True):
        events.insert(index, events[index])
    read_events, error = read(sse(events))
    assert error is not None or fold(read_events) == fold(read(STREAM)[0])
