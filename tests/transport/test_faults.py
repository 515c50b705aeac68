"""Every fault of a server or of the way to it ends in a typed error that helps, on every transport."""

from __future__ import annotations

import asyncio
import gzip
import traceback
import zlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

import pytest

from dragoman.errors import (
    ConfigurationError,
    ConnectionFailedError,
    DragomanError,
    ProtocolError,
    ProviderError,
    RequestTimeoutError,
)
from dragoman.transport import Timeouts
from tests.transport.colours import Client, Kind
from tests.transport.server import Exchange, Server, closed_port, deaf_server, full_server

SECRET = "sesame-open"
HEADERS = {"authorization": f"Bearer {SECRET}"}
SOON = 0.2
"""A time limit that is meant to run out. Nothing depends on when it does."""


def raises(kind: type[DragomanError], code: str) -> AbstractContextManager[pytest.ExceptionInfo[DragomanError]]:
    def check(error: DragomanError) -> bool:
        assert isinstance(error, kind), repr(error)
        if isinstance(error, ProviderError):
            assert error.code == code, repr(error)
        assert error.hint
        # Neither the text nor anything that a traceback shows holds a key, which may be in the URL or in a header.
        assert error.__cause__ is None
        assert error.__context__ is None
        shown = "".join(traceback.format_exception_only(error)) + repr(vars(error))
        assert SECRET not in shown
        assert "/v1/secret" not in shown
        return True

    return pytest.raises(DragomanError, check=check)


def raw(data: bytes) -> Callable[[Exchange], Awaitable[None]]:
    """A script that sends these bytes and hangs up."""

    async def script(exchange: Exchange) -> None:
        await exchange.send(data)
        exchange.hang_up()

    return script


def address(server: Server) -> str:
    return f"{server.url}/v1/secret?key={SECRET}"


OK = b"HTTP/1.1 200 OK\r\nconnection: close\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


def counted(body: bytes, length: int | None = None, headers: bytes = b"") -> bytes:
    return OK + headers + b"content-length: %d\r\n\r\n" % (len(body) if length is None else length) + body


class TestNoConnection:
    def test_nobody_listens(self, client: Client) -> None:
        with raises(ConnectionFailedError, "refused") as caught:
            client.open(f"http://127.0.0.1:{closed_port()}/v1/secret?key={SECRET}", headers=HEADERS)
        assert "127.0.0.1" in str(caught.value)
        assert "Start the server on this machine" in caught.value.hint

    def test_nobody_takes_the_connection(self, client: Client) -> None:
        with full_server() as port, raises(RequestTimeoutError, "connect_timeout") as caught:
            client.open(f"http://127.0.0.1:{port}/v1/secret", timeout=Timeouts(connect=SOON, read=20))
        assert f"connect {SOON:g} s" in str(caught.value)

    def test_an_encrypted_connection_is_not_agreed_on_in_time(self, client: Client) -> None:
        with deaf_server() as port, raises(RequestTimeoutError, "connect_timeout"):
            client.open(f"https://127.0.0.1:{port}/v1/secret", timeout=Timeouts(connect=SOON, read=20))

    @pytest.mark.parametrize("url", ["http://", "ftp://host/", "nonsense", "http:///path", "http://a b/"])
    def test_addresses_that_are_none(self, client: Client, url: str) -> None:
        with raises(ConfigurationError, "bad_url"):
            client.open(f"{url}?key={SECRET}")

    @pytest.mark.parametrize("value", [f"{SECRET}\n", f" {SECRET}", f"{SECRET}\r\nx: y", f"{SECRET}é", f"{SECRET}\x00"])
    def test_a_key_with_a_line_break_is_refused_before_it_is_sent(self, client: Client, value: str) -> None:
        with raises(ConfigurationError, "") as caught:
            client.open("http://127.0.0.1:9/", headers={"x-api-key": value})
        assert "'x-api-key'" in str(caught.value)
        assert ".strip()" in caught.value.hint

    def test_a_header_needs_a_name(self, client: Client) -> None:
        with raises(ConfigurationError, ""):
            client.open("http://127.0.0.1:9/", headers={"x y": "z"})


class TestTime:
    """Limits that run out, however long that takes: the server would wait for ever."""

    @staticmethod
    async def silent(exchange: Exchange) -> None:
        await exchange.forever()

    @staticmethod
    async def stalls(exchange: Exchange) -> None:
        await exchange.start()
        await exchange.chunk(b"hello")
        await exchange.forever()

    @staticmethod
    async def drips(exchange: Exchange) -> None:
        """Never silent for long, and never done."""
        await exchange.start()
        while True:
            await exchange.chunk(b"drop")
            await asyncio.sleep(SOON / 10)

    def test_no_head(self, client: Client) -> None:
        with Server({"*": self.silent}) as server:
            with raises(RequestTimeoutError, "read_timeout") as caught:
                client.open(address(server), timeout=Timeouts(read=SOON))
            assert f"read {SOON:g} s" in str(caught.value)
            server.wait_for_open(0)

    def test_each_request_on_a_connection_has_its_own_limit(self, own: Kind) -> None:
        async def after_a_while(exchange: Exchange) -> None:
            await asyncio.sleep(6 * SOON)
            await exchange.reply(b"at last")

        async def at_once(exchange: Exchange) -> None:
            await exchange.reply(b"at once")

        scripts = {"/slow": after_a_while, "/silent": self.silent, "*": at_once}
        with Server(scripts) as server, own.client() as client:
            assert client.open(server.url, timeout=Timeouts(read=5 * SOON)).read() == b"at once"
            # The clock of the request before rings while this one waits.
            assert client.open(f"{server.url}/slow", timeout=Timeouts(read=20)).read() == b"at last"
            assert server.connections == 1
            with raises(RequestTimeoutError, "read_timeout"):
                client.open(f"{server.url}/silent", timeout=Timeouts(read=SOON))

    def test_a_stalled_body(self, client: Client) -> None:
        with Server({"*": self.stalls}) as server:
            reply = client.open(address(server), timeout=Timeouts(read=SOON))
            assert reply.piece() == b"hello"
            with raises(RequestTimeoutError, "read_timeout"):
                reply.piece()
            server.wait_for_open(0)
            assert reply.piece() is None

    def test_a_drip_that_never_ends(self, client: Client) -> None:
        with Server({"*": self.drips}) as server:
            reply = client.open(address(server), timeout=Timeouts(read=20, total=3 * SOON))
            with raises(RequestTimeoutError, "read_timeout"):
                reply.read()
            server.wait_for_open(0)

    def test_the_whole_time_counts_before_the_head_too(self, client: Client) -> None:
        with Server({"*": self.silent}) as server, raises(RequestTimeoutError, "read_timeout"):
            client.open(address(server), timeout=Timeouts(read=20, total=SOON))


HEADS = [
    ("closed_early", ConnectionFailedError, b""),
    ("cut_off|closed_early", ConnectionFailedError, b"HTTP/1.1 200 OK\r\nx-half: "),
    ("malformed", ProtocolError, b"<html>this is not it</html>\r\n\r\n"),
    ("malformed", ProtocolError, b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
    ("malformed", ProtocolError, b"HTTP/1.1 abc OK\r\n\r\n"),
    ("malformed", ProtocolError, b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n"),
    ("malformed", ProtocolError, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!"),
    ("malformed", ProtocolError, b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\nhello"),
    ("malformed", ProtocolError, b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200_000 + b"\r\n"),
]


@pytest.mark.parametrize(("code", "error", "data"), HEADS, ids=[str(n) for n in range(len(HEADS))])
def test_a_head_that_is_none(client: Client, code: str, error: type[ProviderError], data: bytes) -> None:
    with Server({"*": raw(data)}) as server:
        with pytest.raises(error) as caught:
            client.open(address(server))
        assert caught.value.code in code.split("|")
        assert SECRET not in str(caught.value)
        server.wait_for_open(0)


BODIES = [
    ("cut_off", b"hello", counted(b"hello", 10)),
    ("cut_off", b"hello", CHUNKED + b"5\r\nhello\r\n"),
    ("cut_off", b"hello", CHUNKED + b"5\r\nhello\r\n0\r\n"),
    ("cut_off", b"hel", CHUNKED + b"5\r\nhel"),
    ("cut_off", b"hello", CHUNKED + b"5\r\nhello\r\n5"),
    ("malformed", b"", CHUNKED + b"zz\r\nhello\r\n"),
    ("malformed", b"", CHUNKED + b"-5\r\nhello\r\n"),
    ("malformed", b"hello", CHUNKED + b"5\r\nhello, world\r\n0\r\n\r\n"),
]


@pytest.mark.parametrize(("code", "before", "data"), BODIES, ids=[str(n) for n in range(len(BODIES))])
def test_a_body_that_does_not_end_well(client: Client, code: str, before: bytes, data: bytes) -> None:
    with Server({"*": raw(data)}) as server:
        kind = ConnectionFailedError if code == "cut_off" else ProtocolError
        got = b""
        with raises(kind, code):
            reply = client.open(address(server))
            while (piece := reply.piece()) is not None:
                got += piece
        # What came before the fault is delivered, unless the fault came along with it.
        assert before.startswith(got)
        server.wait_for_open(0)


def test_a_reset_in_the_middle_of_a_body(client: Client) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.start()
        await exchange.chunk(b"hello")
        await exchange.wait_for("seen")
        exchange.reset()

    with Server({"*": script}) as server, client.open(address(server)) as reply:
        assert reply.piece() == b"hello"
        server.open_gate("seen")
        with raises(ConnectionFailedError, "reset"):
            reply.piece()


def test_a_reset_in_place_of_a_head(client: Client) -> None:
    async def script(exchange: Exchange) -> None:
        exchange.reset()

    with Server({"*": script}) as server:
        with pytest.raises(ConnectionFailedError) as caught:
            client.open(address(server))
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
        with raises(ProtocolError, "redirect") as caught:
            client.open(address(server), headers=HEADERS)
        assert words in str(caught.value)
        assert isinstance(caught.value, ProtocolError)
        assert caught.value.status == status
        assert len(server.requests) == 1


TEXT = b"The quick brown fox. " * 500
HELLO = b"hello"
PACKED = {"gzip": gzip.compress(HELLO), "deflate": zlib.compress(HELLO)}


class TestEncodings:
    @staticmethod
    def reply(encoding: str, body: bytes) -> bytes:
        return counted(body, headers=f"content-encoding: {encoding}\r\n".encode())

    @pytest.mark.parametrize("encoding", list(PACKED))
    def test_bodies_are_unpacked(self, kind: Kind, encoding: str) -> None:
        with Server({"*": raw(self.reply(encoding, PACKED[encoding]))}) as server, kind.client() as client:
            assert client.open(server.url).read() == HELLO
            assert server.requests[0].headers["accept-encoding"] == "gzip"

    @pytest.mark.parametrize("missing", [1, 4, 8, 12])
    def test_packed_data_that_ends_early(self, client: Client, missing: int) -> None:
        packed = gzip.compress(TEXT)[:-missing]
        with Server({"*": raw(self.reply("gzip", packed))}) as server, raises(ConnectionFailedError, "cut_off"):
            client.open(address(server)).read()

    @pytest.mark.parametrize(
        "packed", [b"this is not gzip at all", gzip.compress(TEXT)[:-8] + b"damaged!"], ids=["all", "end"]
    )
    def test_packed_data_that_is_damaged(self, client: Client, packed: bytes) -> None:
        with Server({"*": raw(self.reply("gzip", packed))}) as server, raises(ProtocolError, "bad_encoding"):
            client.open(address(server)).read()
