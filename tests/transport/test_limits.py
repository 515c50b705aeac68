"""Limits hold against servers, proxies and resolvers that keep somebody busy; and how addresses are tried."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import ProtocolError, RequestTimeoutError
from dragoman.transport import Timeouts
from tests.transport.authority import Authority
from tests.transport.colours import QUICK, Client, Kind, failing
from tests.transport.server import Exchange, Script, Server, closed_port, full_server, raw

SHORT = Timeouts(connect=20.0, read=0.4)
SOON = 5.0
"""Seconds: far more than the limits in use, far less than without them."""


def dripping(before: bytes, drop: bytes) -> Script:
    """Sends something, then a drop again and again, for much longer than any limit here."""

    async def script(exchange: Exchange) -> None:
        await exchange.send(before)
        for _ in range(200):
            await exchange.send(drop)
            await asyncio.sleep(0.05)

    return script


async def hello(exchange: Exchange) -> None:
    await exchange.reply(b"hello")


CHUNKS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"


class TestDrips:
    @pytest.mark.parametrize(
        ("before", "drop"),
        [
            (b"HTTP/1.1 200 OK\r\nx: ", b"y"),
            (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
            (CHUNKS + b"0\r\n", b"x: y\r\n"),
            (CHUNKS + b"5;", b"x"),
        ],
        ids=["head", "1xx", "trailers", "chunk size"],
    )
    def test_the_read_timeout_does_not_restart_with_every_byte(self, own: Kind, before: bytes, drop: bytes) -> None:
        with Server({"*": dripping(before, drop)}) as server, own.client() as client:
            began = time.monotonic()
            with failing("read_timeout"):
                client.open(server.url, timeout=SHORT).read()
            assert time.monotonic() - began < SOON
            server.wait_for_open(0)

    def test_a_slow_stream_is_not_cut(self, kind: Kind) -> None:
        """Each piece of the body has the whole limit, also behind one that came in drips."""

        async def slow(exchange: Exchange) -> None:
            await exchange.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n")
            for part in (b"\r\n", b"5", b"\r\nhello", b"\r\n5\r\n", b"world\r\n", b"0\r\n", b"\r\n"):
                await asyncio.sleep(0.15)
                await exchange.send(part)

        with Server({"*": slow}) as server, kind.client() as client:
            assert client.open(server.url, timeout=Timeouts(connect=20.0, read=0.6)).read() == b"helloworld"

    @pytest.mark.parametrize("drop", [b"y", b"HTTP/1.1 100 Continue\r\n\r\n"], ids=["head", "1xx"])
    def test_a_proxy_counts_against_the_connect_timeout(self, own: Kind, drop: bytes) -> None:
        before = b"HTTP/1.1 200 OK\r\nx: " if drop == b"y" else b""
        with Server({"*": dripping(before, drop)}) as proxy, own.client(proxy=proxy.url) as client:
            began = time.monotonic()
            with failing("proxy"):
                client.open("https://nowhere.test/", timeout=Timeouts(connect=0.4, read=20.0))
            assert time.monotonic() - began < SOON
            proxy.wait_for_open(0)

    @pytest.mark.parametrize(
        ("before", "drop"), [(b"", b""), (b"HTTP/1.1 200 OK\r\nx: ", b"y"), (CHUNKS, b"1\r\nx\r\n")]
    )
    def test_the_total_limit(self, kind: Kind, before: bytes, drop: bytes) -> None:
        """Before the head, while it drips, and while a body drips."""
        with Server({"*": dripping(before, drop)}) as server, kind.client() as client:
            began = time.monotonic()
            with pytest.raises(RequestTimeoutError):
                client.open(server.url, timeout=Timeouts(connect=20.0, read=8.0, total=0.5)).read()
            assert time.monotonic() - began < SOON


Lookup = Callable[..., Any]


@pytest.fixture
def look_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[Lookup], None]:
    """Have the names below `.test` looked up like this."""
    real = socket.getaddrinfo

    def install(lookup: Lookup) -> None:
        def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
            if not str(host).endswith(".test"):
                return real(host, *arguments, **options)
            if options.get("flags"):
                raise socket.gaierror(socket.EAI_NONAME, "not an address")
            return lookup()

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    return install


class TestAddresses:
    def test_a_name_lookup_counts_against_the_connect_timeout(
        self, own: Kind, look_up: Callable[[Lookup], None]
    ) -> None:
        def unknown() -> None:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")

        over = threading.Event()
        look_up(lambda: over.wait(20) and [])
        began = time.monotonic()
        with own.client(environ={}) as client:
            with failing("connect_timeout"):
                client.open("http://slow.test/", timeout=Timeouts(connect=0.3))
            assert time.monotonic() - began < SOON
            over.set()
            look_up(unknown)
            with failing("unknown_host"):
                client.open("http://nobody.test/")

    @staticmethod
    def info(port: int, host: str = "127.0.0.1") -> Any:
        return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port)

    def test_a_dead_address_does_not_delay_the_next_one(self, own: Kind, look_up: Callable[[Lookup], None]) -> None:
        """As where IPv6 leads nowhere and IPv4 works."""
        closed = closed_port()
        with Server({"*": hello}) as server, full_server() as full, own.client(environ={}) as client:
            look_up(lambda: [self.info(full), self.info(closed), self.info(closed), self.info(server.port)])
            began = time.monotonic()
            assert client.open("http://two.test/", timeout=Timeouts(connect=10.0)).read() == b"hello"
            assert time.monotonic() - began < SOON
            look_up(lambda: [self.info(closed)] * 2)
            with failing("refused"):
                client.open("http://other.test:81/", timeout=QUICK)


class TestBodies:
    def test_decompression_is_bounded_per_piece(self, client: Client) -> None:
        size = 20_000_000
        once = gzip.compress(b"\0" * size)
        packed = {"gzip": once, "gzip, gzip": gzip.compress(once)}

        async def bomb(exchange: Exchange) -> None:
            encoding = exchange.headers["x-encoding"]
            await exchange.reply(packed[encoding], headers={"content-encoding": encoding})

        with Server({"*": bomb}) as server:
            # Packed twice is not what anybody asked for: it stays as it is.
            twice = {"x-encoding": "gzip, gzip"}
            assert client.open(server.url, headers=twice).read() == packed["gzip, gzip"]
            headers = {"x-encoding": "gzip"}
            with client.open(server.url, headers=headers) as reply:
                for _ in range(10):
                    assert 0 < len(reply.piece() or b"") <= 256 * 1024
            with client.open(server.url, headers=headers) as reply, pytest.raises(ProtocolError):
                reply.read(1_000_000)
            assert len(client.open(server.url, headers=headers).read()) == size

    @pytest.mark.parametrize("length", [b"", b"content-length: 5\r\n"], ids=["until the end", "by length"])
    def test_a_body_that_ends_without_the_end_of_tls(self, own: Kind, tmp_path: Path, length: bytes) -> None:
        """Anybody can cut a connection; only the server can say that this is all."""
        authority = Authority(tmp_path)

        async def cut(exchange: Exchange) -> None:
            await exchange.send(b"HTTP/1.1 200 OK\r\n" + length + b"\r\nhello")
            await asyncio.sleep(0.1)
            raw: Any = exchange.writer.transport.get_extra_info("socket")
            raw.shutdown(socket.SHUT_WR)
            await exchange.forever()

        scripts = {"/well": raw(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello"), "*": cut}
        with Server(scripts, tls=authority.server()) as server, own.client(ca_file=authority.file) as client:
            assert client.open(f"{server.url}/well").read() == b"hello"
            if length:
                assert client.open(server.url).read() == b"hello"
            else:
                with failing("cut_off"):
                    client.open(server.url).read()


@pytest.mark.parametrize("blank", [b"\x0b", b"\x0c", b"\x1c", b"\x85", b"\xa0"])
def test_only_blanks_and_tabs_are_stripped_from_header_values(own: Kind, blank: bytes) -> None:
    """Who takes other characters for blanks sees chunks where the parser sees none."""

    async def odd(exchange: Exchange) -> None:
        name = b"x-odd" if exchange.path == "/value" else b"transfer-encoding"
        await exchange.send(b"HTTP/1.1 200 OK\r\n%s: %schunked\r\nx-last: 1\r\n\r\n" % (name, blank))
        exchange.hang_up()

    with Server({"*": odd}) as server, own.client() as client:
        try:
            value = client.open(f"{server.url}/value").headers["x-odd"]
        except ProtocolError:
            pass  # the parser refuses it already
        else:
            assert value == f"{blank.decode('latin-1')}chunked"
        with failing("malformed"):
            client.open(server.url).read()
