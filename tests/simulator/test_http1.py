"""Requests from bytes in any pieces."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.simulator.http1 import BadRequestError, HttpRequest, RequestParser

tokens = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=10)
values = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=10)


def encoded(body: bytes, headers: dict[str, str], *, chunks: list[int] | None) -> bytes:
    framing = {"transfer-encoding": "chunked"} if chunks is not None else {"content-length": str(len(body))}
    lines = ["POST /v1/a%20b?x=1&y= HTTP/1.1", *(f"{name}: {value}" for name, value in (headers | framing).items())]
    head = "\r\n".join([*lines, "", ""]).encode()
    if chunks is None:
        return head + body
    pieces: list[bytes] = []
    for size in chunks:
        piece, body = body[:size], body[size:]
        pieces.append(b"%x;note=1\r\n%b\r\n" % (len(piece), piece) if piece else b"")
    pieces.append(b"%x\r\n%b\r\n" % (len(body), body) if body else b"")
    return head + b"".join(pieces) + b"0\r\ntrailer: x\r\n\r\n"


@given(
    st.binary(max_size=100),
    st.dictionaries(tokens.map(lambda name: f"x{name}"), values, max_size=4),
    st.none() | st.lists(st.integers(1, 30), max_size=4),
    st.data(),
)
def test_pieces_make_no_difference(
    body: bytes, headers: dict[str, str], chunks: list[int] | None, data: st.DataObject
) -> None:
    parser = RequestParser()
    stream = encoded(body, headers, chunks=chunks) * 2
    found: list[HttpRequest] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        parser.feed(stream[:size])
        stream = stream[size:]
        while (request := parser.next_request()) is not None:
            found.append(request)
    assert parser.idle
    assert len(found) == 2
    for request in found:
        assert (request.method, request.path, request.query) == ("POST", "/v1/a b", {"x": "1", "y": ""})
        assert request.body == body
        assert headers.items() <= request.headers.items()


@given(st.lists(st.binary(max_size=60) | st.sampled_from([b"\r\n", b"POST / HTTP/1.1\r\n", b"\r\n\r\n"]), max_size=8))
def test_nothing_but_a_bad_request_is_raised(pieces: list[bytes]) -> None:
    parser = RequestParser()
    with contextlib.suppress(BadRequestError):
        for piece in pieces:
            parser.feed(piece)
            while parser.next_request() is not None:
                pass


@pytest.mark.parametrize(
    ("version", "connection", "kept"),
    [
        ("HTTP/1.1", "", True),
        ("HTTP/1.1", "close", False),
        ("HTTP/1.0", "", False),
        ("HTTP/1.0", "Keep-Alive", True),
    ],
)
def test_whether_a_connection_is_kept(version: str, connection: str, kept: bool) -> None:
    assert HttpRequest("GET", "/", version, {"connection": connection}).keeps_alive is kept
