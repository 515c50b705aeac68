"""Replies that break off or are damaged: never a silent success, never an error of another kind."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dragoman.conversation import ReplyEvent, fold
from dragoman.errors import ProtocolError, ProviderError
from dragoman.providers.gemini import CODEC
from tests.providers.feeding import cut_at, events_of, one_by_one
from tests.providers.gemini.case import NOTHING_SENT, a_call, as_array, as_events, as_whole, attempt, chunk
from tests.providers.recorded import exchanges

USAGE = {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7}
CHUNKS = [
    chunk({"text": 'Let "me" \\ [see', "thought": True}, usage=USAGE),
    chunk({"text": "…", "thought": True, "thoughtSignature": "c2ln"}),
    chunk("It is "),
    chunk("sünny {", groundingMetadata={}),
    chunk("", {"functionCall": {"name": "f", "args": {"a": [1, "}"]}}, "thoughtSignature": "c2ln"}),
    chunk({"toolResponse": {"id": "1"}}),
    chunk({"text": "", "thoughtSignature": "c2ln"}, finish="STOP", usage=USAGE, groundingMetadata={"queries": ["a"]}),
]
FORMS = {"events": as_events(*CHUNKS), "array": as_array(*CHUNKS), "whole": as_whole(CHUNKS[4])}
WHOLE = as_whole(chunk("a", {"functionCall": {"name": "f"}}, finish="STOP", usage=USAGE))


def _last_chunk_ends(data: bytes) -> int:
    """From which length on the reply is complete: the last chunk is there (events), or the last bracket."""
    return len(data.rstrip())


@pytest.mark.parametrize("data", [FORMS["events"], FORMS["array"], WHOLE], ids=["events", "array", "whole"])
def test_cut_at_every_byte(data: bytes) -> None:
    call = a_call(stream=data is not WHOLE)
    complete = events_of(CODEC.decoder(call, NOTHING_SENT), [data])
    for length in range(len(data)):
        message, error = attempt(data[:length], call)
        if length >= _last_chunk_ends(data):
            assert error is None
            assert message == fold(complete)
        else:
            assert isinstance(error, ProtocolError)
            assert message.interrupted


@pytest.mark.recorded
def test_a_recorded_stream_cut_at_every_byte() -> None:
    wanted = "test_google_model_file_search_tool_stream-3"
    found = [exchange for exchange in exchanges("gemini") if exchange.id == wanted]
    if not found:
        pytest.skip("the recorded exchanges are not here")
    data = found[0].body.encode()
    call = a_call(stream=True)
    ends = [place for place in range(len(data)) if data.startswith(b"\r\n\r\n", place)]
    texts = [fold(_events_before_the_break(data[:end])).text for end in [0, *ends]]
    for length in range(_last_chunk_ends(data)):
        message, error = attempt(data[:length], call)
        assert isinstance(error, ProtocolError)
        assert message.interrupted
        assert message.text == texts[sum(end <= length for end in ends)], "all that has come is there"


def _events_before_the_break(data: bytes) -> list[ReplyEvent]:
    events: list[ReplyEvent] = []
    CODEC.decoder(a_call(stream=True), NOTHING_SENT).feed(data + b"\n\n", events)
    return events


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(FORMS)), st.lists(st.integers(0, 10_000), max_size=30))
def test_pieces_make_no_difference(form: str, places: list[int]) -> None:
    data = FORMS[form] if form != "whole" else WHOLE
    call = a_call(stream=form != "whole")
    expected = events_of(CODEC.decoder(call, NOTHING_SENT), [data])
    assert events_of(CODEC.decoder(call, NOTHING_SENT), cut_at(data, places)) == expected
    assert events_of(CODEC.decoder(call, NOTHING_SENT), one_by_one(data)) == expected


def _survives(data: bytes, *, stream: bool) -> None:
    """Reads without another exception than ours; what is complete can be written and read again."""
    events: list[ReplyEvent] = []
    decoder = CODEC.decoder(a_call(stream=stream), NOTHING_SENT)
    try:
        decoder.feed(data[: len(data) // 2], events)
        decoder.feed(data[len(data) // 2 :], events)
        decoder.finish(events)
    except ProviderError:
        fold(events)
        return
    message = fold(events)
    encoded = CODEC.encode(a_call(message))
    json.loads(encoded.request.body)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.booleans())
@example(b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"\\ud800"}}]}}]}', False)
@example(b'{"candidates":[{"content":{"parts":[{"x":"\\ud800"}]},"finishReason":"STOP"}]}', False)
def test_any_bytes(data: bytes, stream: bool) -> None:
    _survives(data, stream=stream)
    _survives(b"data: " + data + b"\n\n", stream=True)


_JUNK = st.sampled_from(
    [b"", b"{", b"}", b"[", b"]", b'"', b"\\", b",", b"null", b"1", b"\xff", b"\n\n", b"data: ", b"0"]
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([*FORMS.values(), WHOLE]),
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 12), _JUNK), min_size=1, max_size=4),
    st.booleans(),
)
def test_damaged_replies(data: bytes, damages: list[tuple[int, int, bytes]], stream: bool) -> None:
    for place, length, junk in damages:
        at = place % len(data)
        data = data[:at] + junk + data[at + length :]
    _survives(data, stream=stream)


_KEYS = (
    "text thought thoughtSignature functionCall name args id inlineData mimeType data fileData fileUri partialArgs "
    "jsonPath stringValue willContinue new"
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS.split()), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_VALUES, max_size=3), _VALUES)
def test_parts_of_any_shape(parts: list[object], beside: object) -> None:
    reply = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP", "groundingMetadata": beside}]}
    _survives(json.dumps(reply).encode(), stream=False)
    _survives(as_events(reply, reply), stream=True)
