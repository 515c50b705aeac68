"""What every transport does when all goes well, and with connections."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from dragoman.errors import ConfigurationError, ConnectionFailedError, ProtocolError
from dragoman.transport import USER_AGENT, PoolLimits
from dragoman.transport.httpx_adapter import HttpxTransport
from tests.transport.colours import Client, Kind, failing
from tests.transport.server import Exchange, Server, echo, half, raw


async def drip(exchange: Exchange) -> None:
    """Three pieces; each but the first only when the test has seen the one before."""
    await exchange.start(headers={"content-type": "text/event-stream"})
    for number in range(3):
        await exchange.chunk(f"piece {number}".encode())
        await exchange.wait_for(f"seen {number}")
    await exchange.end()


class TestOneRequest:
    def test_the_request_arrives_as_it_is_and_the_reply_comes_back(self, client: Client) -> None:
        with Server({"*": echo}) as server:
            headers = {"content-type": "application/json", "x-api-key": "key"}
            with client.open(f"{server.url}/v1/x?alt=sse", headers=headers, body=b'{"a": 1}') as reply:
                assert reply.status == 200
                assert reply.headers["x-method"] == "POST"
                assert reply.headers["x-target"] == "/v1/x?alt=sse"
                assert reply.read() == b'{"a": 1}'
                # A large one both ways, and by its own name.
                large = b"x" * 3_000_000
                named = client.open(server.url, headers={"user-agent": "mine/1"}, body=large)
                assert b"".join(named.pieces()) == large
            request, other = server.requests
            assert other.headers["user-agent"] == "mine/1"
            assert request.headers["x-api-key"] == "key"
            assert request.headers["content-type"] == "application/json"
            assert request.headers["content-length"] == "8"
            assert request.headers["host"] == f"127.0.0.1:{server.port}"
            assert request.headers["user-agent"] == USER_AGENT

    @pytest.mark.parametrize("status", [201, 400, 401, 429, 500, 529])
    def test_statuses_are_reported_and_headers_joined_under_names_in_lower_case(
        self, client: Client, status: int
    ) -> None:
        headers = b"Retry-After: 7\r\nX-Two: a\r\nX-TWO: caf\xe9\r\nx-large: " + b"y" * 50_000
        script = raw(b"HTTP/1.1 %d Word\r\n%s\r\ncontent-length: 2\r\n\r\n{}" % (status, headers))
        with Server({"*": script}) as server, client.open(server.url) as reply:
            assert (reply.status, reply.headers["retry-after"], reply.headers["x-two"]) == (status, "7", "a, caf\xe9")
            assert len(reply.headers["x-large"]) == 50_000
            assert reply.read() == b"{}"


class TestPieces:
    def test_each_piece_is_delivered_as_soon_as_it_arrives(self, client: Client) -> None:
        with Server({"*": drip}) as server, client.open(server.url) as reply:
            for number in range(3):
                assert reply.piece() == f"piece {number}".encode()
                server.open_gate(f"seen {number}")
            assert reply.piece() is None
            assert reply.piece() is None

    def test_no_body_and_one_that_ends_with_the_connection(self, client: Client) -> None:
        async def empty(exchange: Exchange) -> None:
            await exchange.send(b"HTTP/1.1 204 No Content\r\n\r\n")

        until_close = raw(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello")
        with Server({"/empty": empty, "*": until_close}) as server:
            assert client.open(f"{server.url}/empty").pieces() == []
            assert client.open(f"{server.url}/empty").read() == b""
            assert server.connections == 1 or not client.reuses
            assert client.open(server.url).read() == b"hello"

    def test_read_takes_the_rest_and_stops_at_its_limit(self, client: Client) -> None:
        with Server({"*": drip}) as server:
            for number in range(3):
                server.open_gate(f"seen {number}")
            with client.open(server.url) as reply:
                first = reply.piece()
                assert first is not None
                assert first + reply.read() == b"piece 0piece 1piece 2"
                assert reply.read() == b""
            with (
                client.open(server.url) as reply,
                pytest.raises(ProtocolError, match="larger than the limit") as caught,
            ):
                reply.read(10)
            assert caught.value.code == "too_large"


class TestConnections:
    def test_earlier_reply_text_is_not_mixed_into_the_next(self, client: Client) -> None:
        seen: list[tuple[str, str, str | None]] = []

        async def note(exchange: Exchange) -> None:
            seen.append((exchange.method, exchange.headers["x-key"], exchange.headers.get("x-more")))
            await exchange.reply(exchange.body)

        with Server({"*": note}) as server:
            headers = {"x-key": "one"}
            said = [("POST", {}), ("PUT", {"x-key": "two"}), ("PUT", {"x-more": "1"}), ("POST", {"x-key": "one"})]
            for method, changes in said:
                headers |= changes  # the caller's own mapping, changed in place
                assert client.open(server.url, method=method, headers=headers, body=b"x").read() == b"x"
            assert seen == [("POST", "one", None), ("PUT", "two", None), ("PUT", "two", "1"), ("POST", "one", "1")]
            for bad in ({"x-key": "one\r\ny: z"}, {"x y": "z"}):
                with pytest.raises(ConfigurationError):
                    client.open(server.url, headers={**headers, **bad})
            assert server.connections == 1 or not client.reuses
            assert len(seen) == 4

    def test_the_transport_closes_its_connections(self, kind: Kind) -> None:
        with Server({"*": echo}) as server:
            with kind.client() as client:
                client.open(server.url).read()
                assert server.open_connections == 1 or not client.reuses
                client.close()
                server.wait_for_open(0)
                with pytest.raises(ConfigurationError, match="transport was closed"):
                    client.open(server.url)
            assert len(server.requests) == 1

    def test_no_more_requests_at_once_than_allowed(self, own: Kind) -> None:
        limits = PoolLimits(connections=2, wait=0.05)
        with Server({"/half": half, "*": echo}) as server, own.client(limits=limits) as client:
            one, two = client.open(f"{server.url}/half"), client.open(f"{server.url}/half")
            with failing("pool_timeout"):
                client.open(server.url)
            assert server.connections == 2
            one.close()
            server.wait_for_open(1)
            assert client.open(server.url, body=b"now").read() == b"now"
            two.close()
            for _ in range(5):
                client.open(f"{server.url}/half").piece()  # what nobody closed does not keep its turn
            assert client.open(server.url, body=b"now").read() == b"now"


class TestClientsOfOthers:
    """HttpxTransport on a client that somebody made."""

    @pytest.mark.parametrize("make", [httpx2.Client, httpx2.AsyncClient])
    def test_a_given_transport_is_used_and_closed(self, make: type[httpx2.Client | httpx2.AsyncClient]) -> None:
        theirs = make(headers={"x-theirs": "1"})
        with Server({"*": echo}) as server, Client(HttpxTransport(theirs)) as client:
            assert client.plain is (make is httpx2.Client)
            assert client.open(server.url, body=b"hello").read() == b"hello"
            assert server.requests[0].headers["x-theirs"] == "1"
        assert theirs.is_closed


class TestPressure:
    SIZE = 24 * 1024 * 1024

    def test_a_slow_reader_gets_everything_and_the_memory_stays_small(self, client: Client) -> None:
        """The server is made to wait: it has sent far less than all when the client has not begun to read."""
        sent = 0

        async def flood(exchange: Exchange) -> None:
            nonlocal sent
            await exchange.start()
            for _ in range(self.SIZE // 262144):
                await exchange.chunk(b"x" * 262144)
                sent += 262144
            await exchange.end()

        with Server({"*": flood}) as server, client.open(server.url) as reply:
            first = reply.piece()
            assert first is not None
            assert sent < self.SIZE
            assert len(first) + len(reply.read()) == self.SIZE
            assert sent == self.SIZE

    def test_a_large_request_that_is_refused_early(self, kind: Kind) -> None:
        """The server does not read the body, answers and leaves; the answer is not lost."""

        async def refuse(exchange: Exchange) -> None:
            await exchange.reply(b"too large", 413, headers={"connection": "close"})
            exchange.hang_up()

        with Server({"*": refuse}, reads_bodies=False) as server, kind.client() as client:
            try:
                with client.open(server.url, body=b"x" * 500_000) as reply:
                    assert (reply.status, reply.read()) == (413, b"too large")
            except ConnectionFailedError as error:  # if the reset overtakes the answer
                assert error.code == "reset"  # noqa: PT017 - one of two good outcomes
            server.wait_for_open(0)


def threads_of_this_process() -> int:
    """Those of other languages included."""
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_transports_leave_no_threads_behind(kind: Kind) -> None:
    with Server({"*": echo}) as server:

        def use() -> None:
            with kind.client() as client:
                client.open(server.url).read()
            server.wait_for_open(0)

        use()  # what a library starts once for the whole process is here to stay
        before = threads_of_this_process()
        for _ in range(5):
            use()
        assert threads_of_this_process() <= before
