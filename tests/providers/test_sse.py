"""Server-sent events: any pieces give the same events as a literal implementation of the standard."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, strategies as st

from dragoman.errors import ProtocolError
from dragoman.providers import wire as sse
from dragoman.providers.wire import EventStream
from tests.providers.feeding import cut_at, one_by_one

Event = tuple[bytes, bytes]


def by_the_letter(stream: bytes) -> list[Event]:
    """Events as the HTML standard reads them, line by line; and the last one even if its blank line is missing."""
    events: list[Event] = []
    name, data = b"", list[bytes]()
    for line in [*re.split(rb"\r\n|\n|\r", stream), b""]:
        if not line:
            if data:
                events.append((name, b"\n".join(data)))
            name, data = b"", []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return events


def read(pieces: list[bytes]) -> list[Event]:
    stream = EventStream()
    return [*(event for piece in pieces for event in stream.feed(piece)), *stream.finish()]


CASES: list[tuple[bytes, list[Event]]] = [
    (b"data: a\n\n", [(b"", b"a")]),
    (b"data:a\n\ndata:  b\n\n", [(b"", b"a"), (b"", b" b")]),
    (b"event: ping\ndata: {}\n\n", [(b"ping", b"{}")]),
    (b"data: {}\nevent: late\n\n", [(b"late", b"{}")]),
    (b"event:ping\nid: 7\nretry: 10\ndata:{}\n\n", [(b"ping", b"{}")]),
    (b"data: a\ndata: b\n\n", [(b"", b"a\nb")]),
    (b"data\ndata:\n\n", [(b"", b"\n")]),
    (b"data: a\r\n\r\ndata: b\r\n\r\n", [(b"", b"a"), (b"", b"b")]),
    (b"data: a\r\rdata: b\r\r", [(b"", b"a"), (b"", b"b")]),
    (b"data: a\r\n\ndata: b\n\r\n", [(b"", b"a"), (b"", b"b")]),
    (b": keep-alive\n\n:\n\ndata: a\n\n", [(b"", b"a")]),
    (b": processing\ndata: a\n: again\n\n", [(b"", b"a")]),
    (b"event: nothing\n\ndata: a\n\n", [(b"", b"a")]),
    (b"\n\n\n\ndata: a\n\n\n\n\ndata: b\n\n", [(b"", b"a"), (b"", b"b")]),
    (b"data: a", [(b"", b"a")]),
    (b"data: a\n", [(b"", b"a")]),
    (b"event: x\ndata: [DONE]\r", [(b"x", b"[DONE]")]),
    (b"", []),
    (b"Data: a\n\n data: b\n\n", []),
    ("data: grüße\n\n".encode(), [(b"", "grüße".encode())]),
]


@pytest.mark.parametrize(("stream", "events"), CASES)
def test_streams(stream: bytes, events: list[Event]) -> None:
    assert by_the_letter(stream) == events
    assert read([stream]) == events
    assert read(one_by_one(stream)) == events
    for place in range(len(stream)):
        assert read([stream[:place], b"", stream[place:]]) == events


ENDS = (b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n")
words = st.sampled_from([b"data", b"event", b"id", b":", b": ", b" ", *ENDS, b"x", b'{"a":1}'])
streams = st.lists(words | st.binary(max_size=3), max_size=25).map(b"".join)


@given(stream=streams, places=st.lists(st.integers(0, 120), max_size=8))
@example(stream=b"data: a\r\n\r\n", places=[8, 9])
@example(stream=b"data: a\r", places=[])
def test_any_pieces_give_the_same_events(stream: bytes, places: list[int]) -> None:
    wanted = by_the_letter(stream)
    assert read([stream]) == wanted
    assert read(cut_at(stream, places)) == wanted
    assert read(one_by_one(stream)) == wanted


def test_events_come_as_soon_as_they_are_complete() -> None:
    stream = EventStream()
    assert stream.feed(b"data: a\n") == []
    assert stream.feed(b"\ndata: b") == [(b"", b"a")]
    assert stream.feed(b"\r") == []
    assert stream.feed(b"\r") == [(b"", b"b")]
    assert stream.feed(b"\n") == []
    assert stream.finish() == []


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "_MAX_EVENT_BYTES", 100)
    stream = EventStream()
    assert stream.feed(b"data: " + b"x" * 60) == []
    with pytest.raises(ProtocolError, match="longer than 100 bytes"):
        stream.feed(b"x" * 60)
    assert len(read([b"data: 12", b"345\n\n"] * 100)) == 100, "many short ones are not taken for one"


def test_a_long_event_does_not_take_quadratic_time() -> None:
    """Counted rather than timed: the pieces of a long event are looked at once and joined once."""
    looked_at = 0

    class Counted(bytes):
        __slots__ = ()

        def __contains__(self, part: object) -> bool:
            nonlocal looked_at
            looked_at += len(self)
            return bytes.__contains__(self, part)  # type: ignore[arg-type]

    stream = EventStream()
    pieces = [Counted(b"data: "), *[Counted(b"x" * 100)] * 1_000, Counted(b"\n\n")]
    events = [event for piece in pieces for event in stream.feed(piece)]
    assert events == [(b"", b"x" * 100_000)]
    assert looked_at <= 3 * sum(map(len, pieces))
