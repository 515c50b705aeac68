"""The door for HTTP: who may come in, and that it opens and closes in both colours."""

from __future__ import annotations

import asyncio
import http.client
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import mcp
import pytest

from dragoman import errors, tool
from dragoman.mcp import HttpDoor, McpServer
from tests.mcp.client.colours import free_port, is_open, until
from tests.processes import started

TOKEN = "a-token-of-some-length"
ROOT = Path(__file__).resolve().parents[3]


@tool
def add(a: int, b: int) -> int:
    return a + b


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
OPENING = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"t","version":"1"}}}'
)
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def post(door: HttpDoor, body: bytes = PING, **more: str) -> int:
    return exchange(door, body, more).status


def exchange(door: HttpDoor, body: bytes, more: dict[str, str]) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=30)
    try:
        sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **more}
        connection.request("POST", "/mcp", body, sent)
        return connection.getresponse()
    finally:
        connection.close()


def test_host_and_origin_must_be_of_this_machine() -> None:
    with McpServer([add]) as server, HttpDoor(server) as door:
        for host in ("127.0.0.1", "127.0.0.1:80", "localhost:8000", "[::1]:8000"):
            assert post(door, Host=host) in (200, 400)
        for host in ("evil.example.org", "127.0.0.1.evil.org", "localhost.evil.org:8000", "[::1]evil", "10.0.0.7"):
            assert post(door, Host=host) == 421
        for origin in ("http://localhost:3000", "http://127.0.0.1", "https://[::1]:1"):
            assert post(door, Origin=origin) in (200, 400)
        for origin in ("null", "http://evil.org", "http://localhost.evil.org", "file://", "ftp://localhost"):
            assert post(door, Origin=origin) == 403


def test_other_hosts_and_origins_can_be_allowed() -> None:
    page = "https://app.dragoman.dev"
    with (
        McpServer([add]) as server,
        HttpDoor(server, token=TOKEN, allowed_hosts=["tools.dragoman.dev"], allowed_origins=[page]) as door,
    ):
        assert post(door, Host="tools.dragoman.dev", **BEARER) in (200, 400)
        assert post(door, Host="tools.dragoman.dev", Origin=page, **BEARER) in (200, 400)
        assert post(door, Host="other.dragoman.dev", **BEARER) == 421


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, f"Bearer {TOKEN.upper()}"]
)
def test_requests_without_the_token_are_refused(given: str) -> None:
    with McpServer([add]) as server, HttpDoor(server, token=TOKEN) as door:
        assert post(door) == post(door, Authorization=given) == 401
        assert post(door, Authorization=f"bearer  {TOKEN}") in (200, 400)


def test_a_large_or_invalid_body_is_refused() -> None:
    with McpServer([add]) as server, HttpDoor(server, token=TOKEN, max_body_bytes=1_000) as door:
        assert post(door, b" " * 2_000, **BEARER) == 413
        assert post(door, b" " * 2_000) == 401  # the token comes before the body
        assert post(door, b"[" * 500, **BEARER) == 400


def test_many_sessions_do_not_lock_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.mcp.doors.MAX_SESSIONS", 3)

    def use(door: HttpDoor, session: str | None) -> int:
        assert session is not None
        return post(door, **BEARER, **{"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"})

    with McpServer([add]) as server, HttpDoor(server, token=TOKEN) as door:
        first = exchange(door, OPENING, BEARER).getheader("mcp-session-id")
        for _ in range(5):
            assert exchange(door, OPENING, BEARER).status == 200
            assert use(door, first) == 200  # a session in use stays
        abandoned = [exchange(door, OPENING, BEARER).getheader("mcp-session-id") for _ in range(4)]
        assert [use(door, each) for each in (first, *abandoned)] == [404, 404, 200, 200, 200]


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        *[({"host": host}, "no token") for host in ("0.0.0.0", "::", "10.0.0.7", "tools.dragoman.dev", "")],
        *[({"token": token}, "token") for token in ("", "short", "with spaces in the midst", "ümlaut-long-enough")],
    ],
)
def test_an_http_door_without_protection_is_refused(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=what):
        HttpDoor(McpServer([add]), **settings)


def test_a_sync_program_can_open_and_close_it() -> None:
    before = set(threading.enumerate())
    with McpServer([add]) as server:
        with HttpDoor(server) as door:
            assert door.url == f"http://127.0.0.1:{door.port}/mcp"
            assert post(door) in (200, 400)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", door.port), 1).close()
        with pytest.raises(errors.ConfigurationError, match="before"):
            door.__enter__()
    assert not [t for t in threading.enumerate() if t not in before and t.name == "dragoman-loop"]


def test_it_closes_while_a_client_listens() -> None:
    async def main() -> None:
        server = McpServer([add])
        async with HttpDoor(server) as door, mcp.Client(door.url) as client, client.listen(tools_list_changed=True):
            serving = door._server
            assert serving is not None
            assert serving._task is not None
            serving._listener.should_exit = True
            await asyncio.wait([serving._task], timeout=30)
            assert serving._task.done()
        server.close()

    asyncio.run(main())


def test_a_port_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, McpServer([add]) as server:
        door = HttpDoor(server, port=taken.getsockname()[1])
        with pytest.raises(errors.ConfigurationError, match="port"):
            door.__enter__()


SCRIPT = """
import sys
from dragoman import tool
from dragoman.mcp import serve_http

@tool
def add(a: int, b: int) -> int:
    return a + b

serve_http([add], port=int(sys.argv[1]))
print("ended well")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_blocking_form_serves_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "serve.py"
    script.write_text(SCRIPT)
    port = free_port()
    with started([sys.executable, str(script), str(port)], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        until(lambda: is_open(port), "it listens", 60)
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert said == "ended well\n"
