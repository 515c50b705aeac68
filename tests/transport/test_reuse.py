"""Who may use a connection again, as one rule, against every transport and any order of events.

A server that a test plays by hand notes on which connection each request came. The rule: a connection serves another
request only if the one before has read its reply to the end and nothing is left.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import termios
import threading
import time
from array import array
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from dragoman.errors import DragomanError
from tests.transport.colours import Client, Kind, Reply

WAIT = 20.0


class Line:
    """A connection as the server sees it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.exchanges: list[Exchange] = []

    def send(self, data: bytes) -> None:
        """Send, and wait until it is with the client's system, which may take a moment even on one machine."""
        end = time.monotonic() + WAIT
        with suppress(OSError):  # the client may have gone
            self.sock.sendall(data)
            while self._is_under_way() and time.monotonic() < end:
                time.sleep(0.0001)

    def _is_under_way(self) -> bool:
        """Whether something was sent to a client that still listens, and has not reached its system."""
        established = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 1
        return established and array("i", fcntl.ioctl(self.sock, termios.TIOCOUTQ, b"\0" * 4))[0] > 0


class Exchange:
    """A request, what the server means to answer, and how much of that was sent and read."""

    def __init__(self, name: str, framing: str, pieces: int, status: int) -> None:
        self.name = name
        self.framing = framing
        self.status = status
        self.body = [f"<{name}:{number}>".encode() for number in range(pieces)]
        self.line: Line | None = None
        self.came = threading.Event()
        self.sent = 0
        """How many pieces the server has sent; one more for the end of a body in chunks."""
        self.read = b""
        self.at_end = False
        """Whether the client has seen the end."""
        self.surplus = False
        self.ended_by_server = False
        self.reply: Reply | None = None

    @property
    def whole(self) -> bytes:
        return b"".join(self.body)

    @property
    def all_sent(self) -> bool:
        return self.sent >= len(self.body) + (self.framing == "chunked")

    @property
    def arrived(self) -> bytes:
        return b"".join(self.body[: self.sent])

    def head(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} Whatever", "location: http://127.0.0.1/elsewhere"]
        lines.append(f"content-length: {len(self.whole)}" if self.framing == "length" else "transfer-encoding: chunked")
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    def next_piece(self) -> bytes:
        """The bytes that the server sends next."""
        self.sent += 1
        if self.sent <= len(self.body):
            piece = self.body[self.sent - 1]
            return piece if self.framing == "length" else b"%x\r\n%s\r\n" % (len(piece), piece)
        return b"" if self.framing == "length" else b"0\r\n\r\n"

    @property
    def consumed(self) -> bool:
        """What the rule asks for."""
        return self.all_sent and self.read == self.whole and not self.surplus and not self.ended_by_server

    @property
    def has_the_line(self) -> bool:
        """Whether the server may still say something to this one."""
        return self.line is not None and self.line.exchanges[-1] is self and not self.ended_by_server


class PlayedServer:
    """Takes connections and requests by itself; answers only what it is told."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.expected: dict[str, tuple[Exchange, bytes]] = {}
        self.broken: list[str] = []
        self._lines: list[Line] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, target: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            line = Line(sock)
            self._lines.append(line)
            self._start(self._serve, line)

    def _serve(self, line: Line) -> None:
        buffer = b""
        while True:
            try:
                data = line.sock.recv(65536)
            except OSError:
                return
            if not data:
                return
            buffer += data
            while b"\r\n\r\n" in buffer:
                head, _, buffer = buffer.partition(b"\r\n\r\n")
                exchange, answer = self.expected[head.split(b" ")[1].decode().lstrip("/")]
                self.broken += [
                    f"{exchange.name} came on the connection of {before.name}, which was not consumed"
                    for before in line.exchanges[-1:]
                    if not before.consumed
                ]
                line.exchanges.append(exchange)
                exchange.line = line
                line.send(answer)
                exchange.came.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for line in self._lines:
            with suppress(OSError):
                line.sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WAIT)
            assert not thread.is_alive()
        for line in self._lines:
            line.sock.close()


FRAMINGS = st.sampled_from(["length", "chunked"])
STATUSES = st.sampled_from([200, 200, 200, 302, 500])
NUMBERS = st.integers(0, 2)


class Reuse(RuleBasedStateMachine):
    """Requests that are answered, read, left and cut in any order."""

    kind: Kind

    @initialize()
    def start(self) -> None:
        self.server = PlayedServer()
        self.client: Client = self.kind.client()
        self.count = 0
        self.open_ones: list[Exchange] = []

    def teardown(self) -> None:
        if not hasattr(self, "server"):
            return
        for exchange in self.open_ones:
            assert exchange.reply is not None
            exchange.reply.close()
        self.client.close()
        self.client._runner.close()
        self.server.close()
        assert not self.server.broken, self.server.broken

    def choose(self, number: int) -> Exchange:
        return self.open_ones[number % len(self.open_ones)]

    def begin(self, framing: str, pieces: int, at_once: int, status: int = 200) -> Exchange:
        """A request that is answered with so many pieces at once."""
        self.count += 1
        exchange = Exchange(f"r{self.count}", framing, pieces, status)
        answer = exchange.head() + b"".join(exchange.next_piece() for _ in range(min(at_once, pieces + 1)))
        self.server.expected[exchange.name] = (exchange, answer)
        with suppress(DragomanError):
            exchange.reply = self.client.open(f"http://127.0.0.1:{self.server.port}/{exchange.name}", method="GET")
        return exchange

    @rule(framing=FRAMINGS, pieces=st.integers(0, 4), at_once=st.integers(0, 5), status=STATUSES)
    def open(self, framing: str, pieces: int, at_once: int, status: int) -> None:
        if len(self.open_ones) >= 3:
            return
        exchange = self.begin(framing, pieces, at_once, status)
        if exchange.reply is None:
            assert status == 302
            return  # whatever came with a redirect, nobody has read it
        assert exchange.reply.status == status
        assert exchange.came.wait(WAIT)
        self.open_ones.append(exchange)

    @precondition(lambda self: bool(self.open_ones))
    @rule(number=NUMBERS, pieces=st.integers(1, 3))
    def feed(self, number: int, pieces: int) -> None:
        exchange = self.choose(number)
        if exchange.line is not None and exchange.has_the_line:
            for _ in range(pieces):
                if not exchange.all_sent:
                    exchange.line.send(exchange.next_piece())

    @precondition(lambda self: bool(self.open_ones) and not self.kind.plain)
    @rule()
    def let_the_loop_turn(self) -> None:
        """What was sent may arrive while nobody reads."""
        self.client.run(asyncio.sleep(0.002))

    @precondition(lambda self: bool(self.open_ones))
    @rule(number=NUMBERS)
    def read_some(self, number: int) -> None:
        exchange = self.choose(number)
        if exchange.reply is None or exchange.at_end:
            return
        if len(exchange.arrived) > len(exchange.read) or exchange.all_sent or exchange.ended_by_server:
            try:
                piece = exchange.reply.piece()
            except DragomanError:
                assert exchange.ended_by_server
                self.finish(exchange)
                return
            if piece is None:
                assert exchange.read == exchange.whole
                exchange.at_end = True
            else:
                exchange.read += piece
                assert exchange.arrived.startswith(exchange.read), "somebody else's words"

    @precondition(lambda self: bool(self.open_ones))
    @rule(number=NUMBERS)
    def leave(self, number: int) -> None:
        exchange = self.choose(number)
        assert exchange.reply is not None
        exchange.reply.close()
        self.finish(exchange)

    @precondition(lambda self: bool(self.open_ones) and not self.kind.plain)
    @rule(number=NUMBERS, turns=st.integers(0, 3))
    def cancel(self, number: int, turns: int) -> None:
        """A task that reads is cancelled after so many turns of the loop."""
        exchange = self.choose(number)
        assert exchange.reply is not None
        response = exchange.reply.response

        async def reading() -> None:
            while piece := await response.next():
                exchange.read += piece
            exchange.at_end = True

        async def cancelled() -> None:
            task = asyncio.ensure_future(reading())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task], timeout=WAIT)
            assert task.done()
            if not task.cancelled() and task.exception() is not None:
                assert exchange.ended_by_server

        self.client.run(cancelled())
        assert exchange.whole.startswith(exchange.read), "somebody else's words"
        self.finish(exchange)

    @precondition(lambda self: bool(self.open_ones))
    @rule(number=NUMBERS)
    def send_surplus(self, number: int) -> None:
        """A whole reply that nobody asked for, behind the one that somebody did."""
        exchange = self.choose(number)
        if exchange.line is not None and exchange.has_the_line and exchange.all_sent:
            exchange.surplus = True
            exchange.line.send(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n<forged>")

    @precondition(lambda self: bool(self.open_ones))
    @rule(number=NUMBERS)
    def hang_up(self, number: int) -> None:
        exchange = self.choose(number)
        if exchange.line is not None and exchange.has_the_line:
            exchange.ended_by_server = True
            with suppress(OSError):
                exchange.line.sock.shutdown(socket.SHUT_WR)

    def finish(self, exchange: Exchange) -> None:
        self.open_ones.remove(exchange)
        if exchange.reply is not None:
            exchange.reply.close()

    @precondition(lambda self: not self.open_ones)
    @rule(framing=FRAMINGS, pieces=st.integers(0, 3))
    def two_good_turns_share_a_connection(self, framing: str, pieces: int) -> None:
        """The other half of the rule: a connection is not thrown away without a reason."""
        lines: list[Line | None] = []
        for _ in range(2):
            exchange = self.begin(framing, pieces, at_once=pieces + 1)
            assert exchange.reply is not None
            exchange.read = exchange.reply.read()
            assert exchange.read == exchange.whole
            lines.append(exchange.line)
        assert (lines[0] is lines[1]) == self.kind.reuses


@pytest.mark.slow
def test_a_connection_goes_back_only_when_its_reply_was_consumed(kind: Kind) -> None:
    run_state_machine_as_test(
        type("Reuse", (Reuse,), {"kind": kind}),
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a failure depends on time: shrinking takes minutes
            suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
        ),
    )


def _serve_rudely(listener: socket.socket, ask_to_close: bool, seen: list[bytes]) -> None:
    """Answer each connection before its request was read, and keep the connection open."""
    connections: list[socket.socket] = []
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connections.append(connection)
            seen.append(connection.recv(1024))
            close = b"connection: close\r\n" if ask_to_close else b""
            connection.sendall(b"HTTP/1.1 200 OK\r\n" + close + b"content-length: 2\r\n\r\nok")
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("ask_to_close", [True, False], ids=["it wants to close", "it has not read the request"])
def test_a_connection_that_the_server_keeps_open_is_left_all_the_same(kind: Kind, ask_to_close: bool) -> None:
    """A server that said `close` may close in any moment; one that has not read a request takes its rest for the next.

    A plain program cannot get into the second case, since it reads only after it has sent everything.
    """
    if not ask_to_close and (kind.plain or not kind.reuses):
        pytest.skip("sends all of a request before it reads")
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=_serve_rudely, args=(listener, ask_to_close, seen), daemon=True)
        server.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        with kind.client() as client:
            for _ in range(2):
                body = b"x" if ask_to_close else b"x" * 20_000_000
                assert client.open(url, method="POST", body=body).read() == b"ok"
        listener.shutdown(socket.SHUT_RDWR)
        server.join(WAIT)
    assert [data[:4] for data in seen] == [b"POST", b"POST"]
