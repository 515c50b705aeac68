"""Reading what servers send: lines, events and large messages, in any pieces, and no more than there may be."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Iterable
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from hypothesis import given, strategies as st
from mcp_types import JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from dragoman.mcp.reading import LARGE, Answer, Events, Parcels, Start, TooMuchError, lines_of, parsed

MOST = 1_000_000


class Pieces(httpx2.AsyncByteStream):
    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces: Iterable[bytes] = pieces
        self.read: int = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            self.read += len(piece)
            yield piece


def collect(stream: Any) -> list[bytes]:
    async def main() -> list[bytes]:
        return [each async for each in stream]

    return asyncio.run(main())


def cut(text: bytes, places: Iterable[int]) -> list[bytes]:
    ends = sorted({min(place, len(text)) for place in places} | {0, len(text)})
    return [text[begin:end] for begin, end in pairwise(ends)]


PLACES = st.lists(st.integers(0, 60))
TEXTS = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b":", b" "]), max_size=30).map(b"".join)


@given(text=TEXTS, places=PLACES)
def test_lines_are_the_same_in_any_pieces(text: bytes, places: list[int]) -> None:
    expected = [line.rstrip(b"\r\n") for line in text.splitlines()]
    assert collect(lines_of(Pieces(cut(text, places)), 100)) == expected


def test_a_line_has_a_limit() -> None:
    assert collect(lines_of(Pieces([b"x" * 99 + b"\n"] * 3), 100)) == [b"x" * 99] * 3
    endless = Pieces([b"x" * 10] * 1_000)
    with pytest.raises(TooMuchError, match="line of more than 100 bytes"):
        collect(lines_of(endless, 100))
    assert endless.read <= 120


def read_by_the_sdk(stream: httpx2.AsyncByteStream) -> list[tuple[str, str, str, int | None]]:
    async def main() -> list[tuple[str, str, str, int | None]]:
        response = httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=stream)
        response.request = httpx2.Request("GET", "https://one.dev")
        return [(each.event, each.data, each.id, each.retry) async for each in httpx2.EventSource(response)]

    return asyncio.run(main())


FIELDS = st.sampled_from(
    [
        *(b"data: x\n", b"data:y\r\n", b"data\n", b"data:  z\r", b"id: 7\n"),
        *(b"event: e\n", b": no\n", b"retry: 900\n", b"\n", b"\r\n"),
    ]
)


@given(text=st.lists(FIELDS, max_size=20).map(lambda lines: b"".join(lines) + b"\n\n"), places=PLACES)
def test_the_sdk_reads_the_same_events(text: bytes, places: list[int]) -> None:
    assert read_by_the_sdk(Events(Pieces(cut(text, places)), Parcels(MOST))) == read_by_the_sdk(Pieces([text]))


@pytest.mark.parametrize(
    ("asked", "kept"), [("0", False), ("499", False), ("00000", False), ("500", True), ("x", True)]
)
def test_no_server_makes_the_client_hurry(asked: str, kept: bool) -> None:
    """Without a pause of its own the SDK waits a second before it opens a stream again."""
    shown = b"".join(collect(Events(Pieces([f"retry: {asked}\nid: 1\ndata: \n\n".encode()]), Parcels(MOST))))
    assert (b"retry" in shown) is kept
    assert b"id: 1\ndata: \n\n" in shown


@pytest.mark.parametrize(
    ("event", "what"),
    [
        (b"data:x\n" * 10_001 + b"\n", "10000 lines"),
        ((b"data:" + b"x" * 999 + b"\n") * 1_001, "1000000 bytes"),
        (b"id:" + b"1" * 2_000 + b"\ndata:\n\n", "1024 bytes"),
        (b"data: " + b"x" * 2 * LARGE + b"\n\n", "cannot be read"),
    ],
)
def test_an_event_has_limits(event: bytes, what: str) -> None:
    with pytest.raises(TooMuchError, match=what):
        collect(Events(Pieces([event]), Parcels(MOST)))


def test_only_the_start_of_what_is_no_message_is_read() -> None:
    assert collect(Start(Pieces([b"short"]))) == [b"short"]
    endless = Pieces([b"x" * 10_000] * 1_000)
    assert len(b"".join(collect(Start(endless)))) == 65_536
    assert endless.read == 70_000


# --- large messages ---

LONG = "x" * 2 * LARGE
MESSAGES: list[dict[str, Any]] = [
    {"jsonrpc": "2.0", "id": 1, "result": {"content": LONG}},
    {"jsonrpc": "2.0", "id": "a", "method": "sampling/createMessage", "params": {"text": [LONG]}},
    {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": LONG}},
    {"jsonrpc": "2.0", "id": 1, "result": {"small": True}},
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_large_message_goes_around_the_parser_of_the_sdk(message: dict[str, Any]) -> None:
    parcels, text = Parcels(MOST), json.dumps(message).encode()
    body = Answer(Pieces([text[:9], text[9:]]), parcels)
    (shown,) = collect(body)
    assert len(shown) < 200
    read = jsonrpc_message_adapter.validate_json(shown, by_name=False)
    parcels.deliver(read)
    assert read.model_dump(exclude_unset=True) == message
    parcels.deliver(read)  # which has no ticket any more
    assert read.model_dump(exclude_unset=True) == message


def test_what_nobody_fetches_goes_with_its_response() -> None:
    parcels = Parcels(MOST)
    body = Answer(Pieces([json.dumps(MESSAGES[0]).encode()]), parcels)
    read = jsonrpc_message_adapter.validate_json(collect(body)[0])
    del body
    gc.collect()
    parcels.deliver(read)
    assert isinstance(read, JSONRPCResponse)
    assert "content" not in read.result


def test_a_ticket_that_was_made_up_gives_nothing() -> None:
    for contents in ({"dragoman/ticket": "0" * 32}, {"dragoman/ticket": 1}, {}):
        message = JSONRPCRequest(jsonrpc="2.0", id=1, method="ping", params=dict(contents))
        Parcels(MOST).deliver(message)
        assert message.params == contents


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": LONG, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "method": LONG, "params": {}},
        {"jsonrpc": "2.0", "id": 1, "result": [LONG]},
        [LONG],
    ],
)
def test_a_large_message_that_is_odd_is_refused(message: object) -> None:
    with pytest.raises(TooMuchError):
        Parcels(MOST).send(json.dumps(message).encode())


def test_of_a_large_error_the_code_and_the_start_are_kept() -> None:
    error = {"jsonrpc": "2.0", "id": 1, "error": {"code": -5, "message": "no " + LONG, "data": LONG}}
    shown, parcel = Parcels(MOST).send(json.dumps(error).encode())
    assert parcel is None
    assert json.loads(shown)["error"] == {"code": -5, "message": ("no " + LONG)[:1_000]}


# --- values ---


@pytest.mark.parametrize("piece", [b"[],", b'{"a":1},', b"[[[]]],", b"1,", b'"\xc4\x80",', b'"\\\\","a\\"",'])
def test_values_that_take_far_more_memory_than_their_text_are_refused(piece: bytes) -> None:
    with pytest.raises(TooMuchError, match="too many values"):
        parsed(b"[" + piece * (8_000_000 // len(piece)) + b"0]", MOST)


@pytest.mark.parametrize("piece", [rb"[],{},1:2,", rb"\"[],\"", rb"\\[],\\\"", b"\xc3\xa9,"])
def test_signs_inside_a_text_are_no_values(piece: bytes) -> None:
    text = piece * (4_000_000 // len(piece))
    assert parsed(b'["' + text + b'"]', MOST) == json.loads(b'["' + text + b'"]')


def test_values_inside_each_other_have_a_limit() -> None:
    assert parsed(b"[" * 200 + b"]" * 200, MOST)
    for text in (b"[" * 201 + b"]" * 201, b'{"a":' * 201 + b"1" + b"}" * 201):
        with pytest.raises(TooMuchError, match="nested too deeply: more than 200"):
            parsed(text, MOST)
