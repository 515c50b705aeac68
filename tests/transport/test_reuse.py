"""Who may use a connection again, as one rule, on every transport.

A connection serves another request only if the one before has read its reply to the end and nothing is left. The users
in users.py try the same with everything that users and services do, at random.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress

import pytest

from dragoman.errors import DragomanError
from dragoman.transport import HttpRequest
from tests.transport.colours import Client, Kind
from tests.transport.server import WAIT, Exchange, Script, Server, echo, half

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = OK + b"content-length: 10\r\n\r\n<one><two>"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n5\r\n<one>\r\n5\r\n<two>\r\n0\r\n\r\n"
REFUSED = b"HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\nno"
REDIRECT = b"HTTP/1.1 302 Away\r\nlocation: /\r\ncontent-length: 2\r\n\r\nno"
FORGED = OK + b"content-length: 8\r\n\r\n<forged>"


def sends(data: bytes, *, then: str = "") -> Script:
    async def script(exchange: Exchange) -> None:
        await exchange.send(data)
        if then == "hang up":
            exchange.hang_up()

    return script


def read(client: Client, url: str) -> None:
    with suppress(DragomanError):  # a redirect
        assert client.open(url).read() in (b"<one><two>", b"no")


def leave(client: Client, url: str) -> None:
    client.open(url).close()


def leave_after_a_piece(client: Client, url: str) -> None:
    with client.open(url) as reply:
        assert reply.piece() == b"hello"
        reply.close()  # and once more at the end
        assert reply.piece() is None


def cancel(client: Client, url: str) -> None:
    async def cancelled() -> None:
        response = await client.transport.open(HttpRequest(url=url))
        assert await response.next() == b"hello"
        task = asyncio.ensure_future(response.next())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=WAIT)
        assert task.cancelled()

    if client.plain:
        pytest.skip("for event loops")
    client.run(cancelled())


@pytest.mark.parametrize(
    ("script", "use", "reused"),
    [
        (sends(LENGTH), read, True),
        (sends(CHUNKED), read, True),
        (sends(REFUSED), read, True),
        (sends(LENGTH), leave, False),
        (sends(CHUNKED), leave, False),
        (half, leave_after_a_piece, False),
        (half, cancel, False),
        (sends(REDIRECT), read, False),
        (sends(LENGTH + FORGED), read, False),
        (sends(CHUNKED + FORGED), read, False),
        (sends(LENGTH, then="hang up"), read, False),
    ],
)
def test_a_connection_goes_back_only_when_its_reply_was_consumed(
    client: Client, script: Script, use: object, reused: bool
) -> None:
    with Server({"/first": script, "*": echo}) as server:
        use(client, f"{server.url}/first")  # type: ignore[operator]
        if not reused:
            server.wait_for_open(0)
        for _ in range(2):
            assert client.open(server.url, body=b"mine").read() == b"mine"
        assert server.connections == (2 - reused if client.reuses else 3)


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
def test_a_connection_that_the_server_keeps_open_is_closed(kind: Kind, ask_to_close: bool) -> None:
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
