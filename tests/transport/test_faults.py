"""Every fault of a server or of the way to it ends in a typed error that helps, on every transport."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from dragoman.errors import ConnectionFailedError, ProviderError
from dragoman.transport import Timeouts
from tests.transport.colours import SECRET, Client, Kind, failing
from tests.transport.server import Exchange, Server, closed_port, deaf_server, echo, full_server, half, raw, silent

HEADERS = {"authorization": f"Bearer {SECRET}"}
SOON = 0.2
"""A time limit that is meant to run out. Nothing depends on when it does."""


def address(server: Server) -> str:
    return f"{server.url}/v1/secret?key={SECRET}"


OK = b"HTTP/1.1 200 OK\r\nconnection: close\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


def counted(body: bytes, length: int | None = None, headers: bytes = b"") -> bytes:
    return OK + headers + b"content-length: %d\r\n\r\n" % (len(body) if length is None else length) + body


class TestNoConnection:
    def test_a_refused_connection_is_named(self, client: Client) -> None:
        with failing("refused") as caught:
            client.open(f"http://127.0.0.1:{closed_port()}/v1/secret?key={SECRET}", headers=HEADERS)
        assert "127.0.0.1" in str(caught.value)
        assert "Start the server on this machine" in caught.value.hint

    def test_nobody_takes_the_connection(self, client: Client) -> None:
        with full_server() as full, deaf_server() as deaf:  # nor agrees on an encrypted one
            for url in (f"http://127.0.0.1:{full}/v1/secret", f"https://127.0.0.1:{deaf}/v1/secret"):
                with failing("connect_timeout") as caught:
                    client.open(url, timeout=Timeouts(connect=SOON, read=20))
                assert f"connect {SOON:g} s" in str(caught.value)

    @pytest.mark.parametrize("url", ["http://", "ftp://host/", "nonsense", "http:///path", "http://a b/"])
    def test_invalid_urls(self, client: Client, url: str) -> None:
        with failing("bad_url"):
            client.open(f"{url}?key={SECRET}")

    @pytest.mark.parametrize(
        "header",
        [
            {"x y": "z"},
            *(
                {"x-api-key": value}
                for value in [f"{SECRET}\n", f" {SECRET}", f"{SECRET}\r\nx: y", f"{SECRET}é", f"{SECRET}\x00"]
            ),
        ],
    )
    def test_a_key_with_a_line_break_is_refused_before_it_is_sent(self, client: Client, header: dict[str, str]) -> None:
        with failing("") as caught:
            client.open("http://127.0.0.1:9/", headers=header)
        assert repr(next(iter(header))) in str(caught.value)
        assert "x y" in header or ".strip()" in caught.value.hint


class TestTime:
    """Limits that run out, however long that takes: the server would wait for ever."""

    def test_read_timeouts_of_head_and_body(self, client: Client) -> None:
        with Server({"/silent": silent, "*": half}) as server:
            with failing("read_timeout") as caught:
                client.open(f"{server.url}/silent", timeout=Timeouts(read=SOON))
            assert f"read {SOON:g} s" in str(caught.value)
            reply = client.open(address(server), timeout=Timeouts(read=SOON))
            assert reply.piece() == b"hello"
            with failing("read_timeout"):
                reply.piece()
            server.wait_for_open(0)
            assert reply.piece() is None

    def test_each_request_on_a_connection_has_its_own_limit(self, own: Kind) -> None:
        async def after_a_while(exchange: Exchange) -> None:
            await asyncio.sleep(6 * SOON)
            await exchange.reply(b"at last")

        scripts = {"/slow": after_a_while, "/silent": silent, "*": echo}
        with Server(scripts) as server, own.client() as client:
            assert client.open(server.url, body=b"now", timeout=Timeouts(read=5 * SOON)).read() == b"now"
            # The clock of the request before rings while this one waits.
            assert client.open(f"{server.url}/slow", timeout=Timeouts(read=20)).read() == b"at last"
            assert server.connections == 1
            with failing("read_timeout"):
                client.open(f"{server.url}/silent", timeout=Timeouts(read=SOON))


HEADS = [
    ("closed_early", b""),
    ("cut_off|closed_early", b"HTTP/1.1 200 OK\r\nx-half: "),
    ("malformed", b"<html>this is not it</html>\r\n\r\n"),
    ("malformed", b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\nhello"),
    ("malformed", b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 110_000 + b"\r\n"),
]


@pytest.mark.parametrize(("code", "data"), HEADS, ids=range(len(HEADS)))
def test_an_invalid_head_is_refused(client: Client, code: str, data: bytes) -> None:
    with Server({"*": raw(data)}) as server:
        with pytest.raises(ProviderError) as caught:
            client.open(address(server))
        assert caught.value.code in code.split("|")
        assert SECRET not in str(caught.value)
        server.wait_for_open(0)


BODIES = [
    ("cut_off", b"hello", counted(b"hello", 10)),
    ("cut_off", b"hello", CHUNKED + b"5\r\nhello\r\n"),
    ("cut_off", b"hel", CHUNKED + b"5\r\nhel"),
    ("malformed", b"", CHUNKED + b"zz\r\nhello\r\n"),
    ("malformed", b"hello", CHUNKED + b"5\r\nhello, world\r\n0\r\n\r\n"),
]


@pytest.mark.parametrize(("code", "before", "data"), BODIES, ids=range(len(BODIES)))
def test_a_truncated_or_corrupt_body_raises(client: Client, code: str, before: bytes, data: bytes) -> None:
    with Server({"*": raw(data)}) as server:
        got = b""
        with failing(code):
            reply = client.open(address(server))
            while (piece := reply.piece()) is not None:
                got += piece
        # What came before the fault is delivered, unless the fault came along with it.
        assert before.startswith(got)
        server.wait_for_open(0)


def test_a_reset_in_place_of_a_head_or_in_the_middle_of_a_body(client: Client) -> None:
    async def script(exchange: Exchange) -> None:
        if exchange.path != "/at-once":
            await exchange.start()
            await exchange.chunk(b"hello")
            await exchange.wait_for("seen")
        exchange.reset()

    with Server({"*": script}) as server:
        with client.open(address(server)) as reply:
            assert reply.piece() == b"hello"
            server.open_gate("seen")
            with failing("reset"):
                reply.piece()
        with pytest.raises(ConnectionFailedError) as caught:
            client.open(f"{server.url}/at-once")
        assert caught.value.code in ("reset", "closed_early")


@pytest.mark.parametrize(
    ("status", "location", "words"),
    [
        (301, f"https://user:{SECRET}@elsewhere.test:8443/v1?key={SECRET}", "the host elsewhere.test"),
        (302, f"/other?key={SECRET}", "another address on the same host"),
        (303, "", "another address on the same host"),
        (307, "http://127.0.0.1/x", "another address on the same host"),
        (308, "https://[::1]/", "the host ::1"),
    ],
)
def test_a_redirect_is_not_followed(client: Client, status: int, location: str, words: str) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.reply(b"moved", status, headers={"location": location})

    with Server({"*": script}) as server:
        with failing("redirect") as caught:
            client.open(address(server), headers=HEADERS)
        assert words in str(caught.value)
        assert caught.value.status == status
        assert len(server.requests) == 1


TEXT = b"The quick brown fox. " * 500


PACKED = gzip.compress(TEXT)
ENCODED = [
    ("gzip", PACKED, ""),
    ("GZIP ", PACKED, ""),
    ("x-gzip", gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]), ""),
    ("deflate", zlib.compress(TEXT), ""),
    ("deflate", zlib.compress(TEXT)[:-3], "cut_off"),
    *(("gzip", PACKED[:-missing], "cut_off") for missing in (1, 4, 8, 12)),
    ("gzip", b"this is not gzip at all", "bad_encoding"),
    ("gzip", PACKED[:-8] + b"damaged!", "bad_encoding"),
]


@pytest.mark.parametrize(("encoding", "body", "code"), ENCODED, ids=range(len(ENCODED)))
def test_packed_bodies(client: Client, encoding: str, body: bytes, code: str) -> None:
    reply = counted(body, headers=f"content-encoding: {encoding}\r\n".encode())
    with Server({"*": raw(reply)}) as server:
        if code:
            with failing(code):
                client.open(address(server)).read()
        else:
            assert client.open(server.url).read() == TEXT
            assert server.requests[0].headers["accept-encoding"] == "gzip"
