"""An app served in the background, and in the foreground until a signal."""

from __future__ import annotations

import asyncio
import http.client
import signal
import socket
import subprocess
import sys

import pytest

from dragoman import _serving, errors
from dragoman._serving import WebServer
from tests.processes import started


async def app(scope: object, receive: object, send: object) -> None:
    """Never asked."""


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_errors_of_closing_are_raised() -> None:
    async def fail() -> None:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"), WebServer(app, when_closed=fail) as server:
        assert not is_free(server.port)
    assert is_free(server.port)


def test_a_server_that_does_not_start_in_time_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(scope: object, receive: object, send: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(_serving, "_START_SECONDS", 0.1)
    monkeypatch.setattr(_serving, "_CLOSE_SECONDS", 0.1)
    server = WebServer(hang, lifespan="on")
    with pytest.raises(errors.ConfigurationError, match="did not start"), server:
        pass
    assert is_free(server.port)


def test_no_socket_is_left_open_if_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("dragoman.tools.threads.start_thread", cannot)
    server = WebServer(app)
    with pytest.raises(RuntimeError, match="new thread"), server:
        pass
    assert is_free(server.port)


PROGRAM = """
import asyncio
from dragoman._serving import WebServer
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 204})
    await send({"type": "http.response.body"})
async def close():
    await asyncio.sleep(0.05)
    print("closed", flush=True)
server = WebServer(app, when_closed=close)
server.serve(lambda: print(server.port, flush=True))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_closes_the_server(number: signal.Signals) -> None:
    with started([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        asked = http.client.HTTPConnection("127.0.0.1", int(program.stdout.readline()), timeout=60)
        asked.request("GET", "/")
        assert asked.getresponse().status == 204
        asked.close()
        program.send_signal(number)
        assert program.stdout.readline() == "closed\n"
