"""The reader of replies, against a list of cases and against h11, an implementation that many trust."""

from __future__ import annotations

import contextlib

import h11
import pytest
from hypothesis import given, settings, strategies as st

from dragoman.transport import HttpRequest, MalformedReplyError, ReplyReader, request_head

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
GOOD: list[tuple[str, bytes, int, bytes, bool]] = [
    # name, bytes, status, body, whether the connection can be used again
    ("length", OK + b"Content-Length: 5\r\n\r\nhello", 200, b"hello", True),
    ("no reason", b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", 200, b"", True),
    ("empty reason", b"HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n", 200, b"", True),
    ("chunks", CHUNKED + b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", 200, b"hello!", True),
    (
        "extensions and trailers",
        OK + b"Transfer-Encoding: Chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nx: y\r\nz: z\r\n\r\n",
        200,
        b"hello",
        True,
    ),
    ("large chunk size", CHUNKED + b"00A\r\n0123456789\r\n0\r\n\r\n", 200, b"0123456789", True),
    ("line feeds in chunks", CHUNKED + b"4\r\n\r\n\r\n\r\n0\r\n\r\n", 200, b"\r\n\r\n", True),
    ("until the end", OK + b"\r\nhello", 200, b"hello", False),
    ("old version", b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", 200, b"hello", False),
    ("close", OK + b"connection: Close\r\ncontent-length: 5\r\n\r\nhello", 200, b"hello", False),
    ("no content", b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    (
        "interim",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        200,
        b"ok",
        True,
    ),
]
BAD: list[tuple[str, bytes]] = [
    ("same length twice", OK + b"content-length: 2\r\ncontent-length: 2\r\n\r\nok"),
    ("chunks and a length", OK + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
    ("bare line feeds", b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok"),
    ("a folded header", OK + b"x: a\r\n b\r\ncontent-length: 2\r\n\r\nok"),
    ("no status", b"HTTP/1.1 OK\r\n\r\n"),
    ("other protocol", b"220 mail ready\r\n"),
    ("other version", b"HTTP/2.0 200 OK\r\n\r\n"),
    ("tls", b"\x15\x03\x03\x00\x02\x02\x46"),
    ("lengths differ", OK + b"content-length: 5, 6\r\n\r\nhello"),
    ("negative", OK + b"content-length: -5\r\n\r\nhello"),
    ("signed", OK + b"content-length: +5\r\n\r\nhello"),
    ("huge", OK + b"content-length: 99999999999999999999\r\n\r\nhello"),
    ("unknown coding", OK + b"transfer-encoding: gzip, chunked\r\n\r\n"),
    ("switching", b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n"),
    ("no colon", OK + b"nocolon\r\n\r\n"),
    ("blank in a name", OK + b"x : y\r\n\r\n"),
    ("null", OK + b"x: \x00\r\n\r\n"),
    ("a bare return", OK + b"x: a\rcontent-length: 2\r\n\r\nok"),
    ("a bare return among bare line feeds", b"HTTP/1.1 200 OK\nx: a\ry: b\n\n"),
    ("a blank first", OK + b" x: y\r\n\r\n"),
    ("hex with prefix", CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n"),
    ("hex with underscore", CHUNKED + b"0_5\r\nhello\r\n0\r\n\r\n"),
    ("negative size", CHUNKED + b"-5\r\nhello\r\n"),
    ("empty size", CHUNKED + b"\r\nhello\r\n0\r\n\r\n"),
    ("chunk too long", CHUNKED + b"4\r\nhello\r\n0\r\n\r\n"),
    ("endless head", OK + b"" + b"x: y\r\n" * 100_000),
    ("endless size", CHUNKED + b"5;" + b"x" * 600_000),
]


def read(data: bytes, size: int, method: str = "POST", *, ends: bool = True) -> tuple[ReplyReader, bytes]:
    """Read a reply in pieces of this size; then the connection ends."""
    reader = ReplyReader(method)
    body = b"".join([reader.feed(data[start : start + size]) for start in range(0, len(data), size)])
    if ends:
        reader.end()
    return reader, body


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("data", "status", "body", "reusable"), [row[1:] for row in GOOD], ids=[row[0] for row in GOOD]
)
def test_good_replies(data: bytes, status: int, body: bytes, reusable: bool, size: int) -> None:
    reader, got = read(data, size, ends=not reusable)  # where the end is known, nobody waits for that of the connection
    assert (reader.status, got, reader.complete, reader.reusable) == (status, body, True, reusable)
    assert all(name == name.lower() for name in reader.headers)


@pytest.mark.parametrize("size", [1, 3, 100_000])
@pytest.mark.parametrize("data", [row[1] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_replies(data: bytes, size: int) -> None:
    if size == 1 and len(data) > 10_000:
        size = 1000
    with pytest.raises(MalformedReplyError):
        read(data, size)


@pytest.mark.parametrize("data", [row[1] for row in GOOD], ids=[row[0] for row in GOOD])
def test_a_reply_cut_anywhere_is_never_complete(data: bytes) -> None:
    for end in range(len(data)):
        reader = ReplyReader("POST")
        reader.feed(data[:end])
        if reader.complete or (reader.head_complete and "content-length" not in reader.headers and not reader.reusable):
            continue  # trailing bytes do not matter; a reply without a length ends with its connection
        with pytest.raises(EOFError):
            reader.end()


def test_replies_to_head_have_no_body() -> None:
    reader, body = read(OK + b"content-length: 5\r\n\r\n", 1000, "HEAD", ends=False)
    assert (reader.complete, body, reader.reusable) == (True, b"", True)


@pytest.mark.parametrize("data", [GOOD[0][1], GOOD[3][1], GOOD[10][1]])
def test_a_connection_with_surplus_bytes_is_not_reused(data: bytes) -> None:
    reader = ReplyReader("POST")
    reader.feed(data + OK + b"\r\n")
    assert reader.complete
    assert not reader.reusable


def test_ctrl_c_while_reading_is_not_swallowed() -> None:
    class Interrupted(ReplyReader):
        def on_body(self, body: bytes) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Interrupted("POST").feed(GOOD[0][1])


def test_headers_of_one_name_are_joined() -> None:
    head = OK + b"Set-X: a\r\nset-x:  b \r\nSET-X:\r\ncontent-length: 0\r\n\r\n"
    for size in (1, 1000):
        assert read(head, size)[0].headers == {"set-x": "a, b, ", "content-length": "0"}


def test_callers_cannot_set_framing_headers() -> None:
    def lines(**fields: object) -> list[str]:
        request = HttpRequest(url="http://h:1/x", **fields)  # type: ignore[arg-type]
        head = request_head(request, target="/x", usual={"host": "h:1", "x-usual": "1"}).decode()
        assert head.endswith("\r\n\r\n")
        return head.removesuffix("\r\n\r\n").split("\r\n")

    given = {"Content-Length": "7", "Transfer-Encoding": "chunked", "Connection": "upgrade", "X-Mine": "1"}
    assert lines(headers=given, body=b"abc") == [
        *("POST /x HTTP/1.1", "host: h:1", "x-usual: 1", "x-mine: 1", "content-length: 3")
    ]
    assert "content-length: 0" in lines()
    assert not any("content-length" in line for line in lines(method="GET"))


# --- against h11 -----------------------------------------------------------------------------------------------------


def as_h11(data: bytes) -> tuple[int, bytes] | None:
    """What h11 makes of a reply and the end of its connection; None if it refuses."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "h"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    connection.receive_data(b"")
    head, body = None, b""
    with contextlib.suppress(h11.RemoteProtocolError):
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                return head.status_code, body
            elif event in (h11.NEED_DATA, h11.PAUSED) or isinstance(event, h11.ConnectionClosed):
                return None
    return None


def as_ours(data: bytes, size: int = 10**9) -> tuple[int, bytes] | None:
    try:
        reader, body = read(data, size)
    except (MalformedReplyError, EOFError):
        return None
    return reader.status, body


@settings(max_examples=600)
@given(st.sampled_from([row[1] for row in GOOD]), st.data())
def test_replies_are_refused_or_read_as_h11_reads_them(data: bytes, draw: st.DataObject) -> None:
    """Where both accept a damaged reply, they agree on its body; ours accepts nothing that has no end."""
    assert as_ours(data, draw.draw(st.integers(1, 50))) == as_h11(data)
    position = draw.draw(st.integers(0, len(data) - 1))
    damaged = data[:position] + draw.draw(st.binary(max_size=3)) + data[position + 1 :]
    ours, theirs = as_ours(damaged), as_h11(damaged)
    if ours is not None and theirs is not None:
        assert ours == theirs


@given(st.binary(max_size=300), st.integers(1, 20))
def test_random_bytes_raise_nothing_else(data: bytes, size: int) -> None:
    as_ours(data, size)
    as_ours(CHUNKED + b"" + data, size)
    as_ours(OK + b"" + data + b"\r\n\r\n", size)
