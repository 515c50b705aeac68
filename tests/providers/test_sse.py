from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import ProtocolError
from dragoman.providers import sse
from dragoman.providers.sse import EventStream
from tests.providers.feeding import cut_at, one_by_one


def events_of(pieces: list[bytes]) -> list[tuple[bytes, bytes]]:
    stream = EventStream()
    return [event for piece in pieces for event in stream.feed(piece)] + stream.finish()


def by_the_book(data: bytes) -> list[tuple[bytes, bytes]]:
    """The specification, line by line, without any cleverness."""
    text = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events: list[tuple[bytes, bytes]] = []
    name, lines = b"", []
    for line in [*text.split(b"\n"), b""]:
        if not line:
            if lines:
                events.append((name, b"\n".join(lines)))
            name, lines = b"", []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            lines.append(value)
        elif field == b"event":
            name = value
    return events


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: a\n\n", [(b"", b"a")]),
        (b"data:a\n\ndata: b\n\n", [(b"", b"a"), (b"", b"b")]),
        (b"event: ping\ndata: {}\n\n", [(b"ping", b"{}")]),
        (b"data: {}\nevent: late\n\n", [(b"late", b"{}")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [(b"", b"a"), (b"", b"b")]),
        (b"data: a\r\rdata: b\r\r", [(b"", b"a"), (b"", b"b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"a")]),
        (b": keep-alive\n\ndata: a\n\n: more\n\n", [(b"", b"a")]),
        (b"data: a\ndata: b\n\n", [(b"", b"a\nb")]),
        (b"event: x\ndata: a\ndata: b\n\n", [(b"x", b"a\nb")]),
        (b"id: 1\nretry: 5\ndata\n\n", [(b"", b"")]),
        (b"event: nothing\n\n", []),
        (b"data: a\n\n\n\ndata: b", [(b"", b"a"), (b"", b"b")]),
        (b"", []),
        (b"\n\n\n", []),
    ],
)
def test_framing(data: bytes, events: list[tuple[bytes, bytes]]) -> None:
    assert events_of([data]) == events_of(one_by_one(data)) == by_the_book(data) == events


lines = st.sampled_from(
    [
        b"data: a",
        b"data:b",
        b'data: {"x": 1}',
        b"event: ping",
        b": comment",
        b"id: 1",
        b"",
        b"",
        b"data",
        b"data: \xc3\xa9",
    ]
)
ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
streams = st.builds(
    lambda bom, parts: bom + b"".join(line + end for line, end in parts),
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\xef"]),
    st.lists(st.tuples(lines, ends), max_size=12),
)


@given(streams, st.lists(st.integers(0, 200), max_size=8))
def test_any_split_gives_what_the_specification_says(data: bytes, places: list[int]) -> None:
    expected = by_the_book(data)
    assert events_of([data]) == expected
    assert events_of(one_by_one(data)) == expected
    assert events_of(cut_at(data, places)) == expected


@given(st.lists(st.binary(max_size=10), max_size=10))
def test_no_bytes_are_too_strange(pieces: list[bytes]) -> None:
    assert events_of(pieces) == events_of([b"".join(pieces)])


def test_an_event_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "_MAX_EVENT_BYTES", 100)
    with pytest.raises(ProtocolError, match="longer than"):
        events_of([b"data: aaaa"] * 20)


def test_an_event_in_very_many_pieces_costs_a_time_that_grows_with_its_length() -> None:
    stream = EventStream()
    pieces = [b"data: ", *[b"x"] * 300_000, b"\n", b"\n"]
    events = [event for piece in pieces for event in stream.feed(piece)]
    assert events == [(b"", b"x" * 300_000)]
