"""The door for HTTP: who may come in, and that it opens and closes in both colours."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import httpx2
import mcp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.client.streamable_http import streamable_http_client

from dragoman import errors, tool
from dragoman.mcp import HttpDoor, McpServer, aserve_http
from dragoman.mcp.server.guard import Guard
from tests.processes import started

TOKEN = "a-token-of-some-length"
ROOT = Path(__file__).resolve().parents[3]


@tool
def add(a: int, b: int) -> int:
    return a + b


async def nothing(*_: object) -> None:
    pytest.fail("it must not come so far")


def guard(**settings: object) -> Guard:
    return Guard(nothing, **{"host": "127.0.0.1", **settings})  # type: ignore[arg-type]


def headers(**values: str | Iterable[str]) -> list[tuple[bytes, bytes]]:
    pairs = {"host": "127.0.0.1:8000", **values}
    return [
        (name.encode(), value.encode())
        for name, given in pairs.items()
        for value in ([given] if isinstance(given, str) else given)
    ]


def status(guarding: Guard, **values: str | Iterable[str]) -> int:
    refused = guarding.refusal(headers(**values))
    return 200 if refused is None else refused.status


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:80", "localhost:8000", "LocalHost.", "[::1]:8000"])
def test_names_of_this_machine_are_let_in(host: str) -> None:
    assert status(guard(), host=host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.org",
        "127.0.0.1.evil.org",
        "localhost.evil.org:8000",
        "evil.org:127.0.0.1",
        "127.0.0.1:8000@evil.org",
        "127.0.0.1:port",
        "127.0.0.1:8000:9000",
        "[::1",
        "[::1]evil",
        "10.0.0.7",
        "",
        " 127.0.0.1",
        "127.0.0.1\tx",
    ],
)
def test_other_hosts_are_turned_away(host: str) -> None:
    assert status(guard(), host=host) == 421


def test_a_host_must_be_given_exactly_once() -> None:
    assert status(guard(), host=()) == 421
    assert status(guard(), host=("127.0.0.1", "127.0.0.1")) == 421


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:1"])
def test_pages_of_this_machine_are_let_in(origin: str) -> None:
    assert status(guard(), origin=origin) == 200


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.org",
        "http://localhost.evil.org",
        "http://localhost:80@evil.org",
        "http://evil.org/http://localhost",
        "file://",
        "http://localhost\\@evil.org",
        "ftp://localhost",
    ],
)
def test_pages_from_elsewhere_are_turned_away(origin: str) -> None:
    assert status(guard(), origin=origin) == 403


def test_other_origins_and_hosts_can_be_allowed() -> None:
    allowing = guard(
        host="10.0.0.7", token=TOKEN, allowed_hosts=["tools.dragoman.dev"], allowed_origins=["https://app.dragoman.dev"]
    )
    bearer = f"Bearer {TOKEN}"
    assert status(allowing, host="tools.dragoman.dev", authorization=bearer) == 200
    assert status(allowing, host="10.0.0.7:8000", authorization=bearer) == 200
    assert status(allowing, host="10.0.0.8:8000", authorization=bearer) == 421
    assert status(allowing, host="10.0.0.7", origin="https://app.dragoman.dev", authorization=bearer) == 200
    assert status(allowing, host="10.0.0.7", origin="http://localhost", authorization=bearer) == 403
    everywhere = guard(host="0.0.0.0", token=TOKEN)
    assert status(everywhere, host="192.168.1.5:8000", authorization=bearer) == 200
    assert status(everywhere, host="rebound.evil.org", authorization=bearer) == 421


@pytest.mark.parametrize(
    "given",
    [
        (),
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        TOKEN,
        (f"Bearer {TOKEN}", f"Bearer {TOKEN}"),
        f"Bearer {TOKEN.upper()}",
    ],
)
def test_without_the_token_nobody_comes_in(given: str | tuple[str, ...]) -> None:
    assert status(guard(token=TOKEN), authorization=given) == 401


def test_with_the_token_one_comes_in() -> None:
    assert status(guard(token=TOKEN), authorization=f"Bearer {TOKEN}") == 200
    assert status(guard(token=TOKEN), authorization=f"bearer  {TOKEN}") == 200


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=30)), max_size=6))
def test_whatever_the_headers_are_there_is_an_answer(given: list[tuple[bytes, bytes]]) -> None:
    refused = guard(token=TOKEN).refusal(given)
    assert refused is not None
    assert refused.status in (401, 403, 421)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "tools.dragoman.dev", ""])
def test_beyond_this_machine_a_token_is_required(host: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="no token"):
        HttpDoor(McpServer([add]), host=host)


@pytest.mark.parametrize(
    "token", ["", "short", "with spaces in the middle of it", "ümlaut-and-enough-length", "x" * 15]
)
def test_a_weak_token_is_refused(token: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="token"):
        HttpDoor(McpServer([add]), token=token)


def test_a_token_is_not_kept() -> None:
    door = HttpDoor(McpServer([add]), token=TOKEN)
    assert TOKEN not in repr(vars(door)) + repr(vars(door.app))


def post(door: HttpDoor, body: bytes, **more: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=30)
    try:
        sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **more}
        connection.request("POST", "/mcp", body, sent)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


def test_the_door_itself_turns_away() -> None:
    with McpServer([add]) as server, HttpDoor(server, token=TOKEN, max_body_bytes=1_000) as door:
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert post(door, PING)[0] == 401
        assert post(door, PING, Host="evil.org", **bearer)[0] == 421
        assert post(door, PING, Origin="http://evil.org", **bearer)[0] == 403
        assert post(door, b" " * 2_000, **bearer)[0] == 413
        assert post(door, b" " * 2_000)[0] == 401  # the token comes before the body
        code, reply = post(door, b"[" * 500, **bearer)
        assert code == 400
        assert json.loads(reply)["error"]["code"] == -32700


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_clients_with_the_token_are_served(mode: str) -> None:
    async def main() -> None:
        async with aserve_http([add], token=TOKEN) as door:
            client = httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"})
            async with client, mcp.Client(streamable_http_client(door.url, http_client=client), mode=mode) as ours:
                assert not (await ours.call_tool("add", {"a": 1, "b": 2})).is_error

    asyncio.run(main())


def test_a_plain_program_can_open_and_close_it() -> None:
    before = set(threading.enumerate())
    with McpServer([add]) as server:
        with HttpDoor(server) as door:
            assert door.url == f"http://127.0.0.1:{door.port}/mcp"
            assert post(door, PING)[0] in (200, 400)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", door.port), 1).close()
        with pytest.raises(errors.ConfigurationError, match="before"):
            door.__enter__()
    assert not [t for t in threading.enumerate() if t not in before and t.name == "dragoman-mcp-http"]


def test_it_closes_while_a_client_listens() -> None:
    async def main() -> None:
        server = McpServer([add])
        async with HttpDoor(server) as door, mcp.Client(door.url) as client, client.listen(tools_list_changed=True):
            assert door._listener is not None
            assert door._task is not None
            door._listener.should_exit = True
            await asyncio.wait([door._task], timeout=30)
            assert door._task.done()
        server.close()

    asyncio.run(main())


def test_a_port_that_is_taken_is_said_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with (
            pytest.raises(errors.ConfigurationError, match="port"),
            HttpDoor(McpServer([add]), port=taken.getsockname()[1]),
        ):
            pass


@pytest.mark.parametrize("settings", [{"path": "mcp"}, {"max_body_bytes": 0}, {"max_sessions": 0}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(errors.ConfigurationError):
        HttpDoor(McpServer([add]), **settings)  # type: ignore[arg-type]


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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(script), str(port)]
    with started(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert said == "ended well\n"
