"""No text of a value, and no traceback that shows local variables, shows a key; in either colour, wherever it fails."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from rich.pretty import pretty_repr

import dragoman
from dragoman._stepping import step
from dragoman._stop import Stop, stopping
from dragoman.errors import DragomanError
from dragoman.simulator import Request
from dragoman.transport import HttpRequest, Routes, SocketTransport, Tape, Timeouts, Transport
from dragoman.transport.routes import Route
from dragoman.transport.tape import Exchange as TapeExchange
from tests.transport.colours import Kind
from tests.transport.server import Exchange, Server, closed_port, deaf_server, raw, silent

KEY = "sk-planted-aB3dE5fG7hJ9kL1mN3pQ5"
HEADERS = {"authorization": f"Bearer {KEY}", "x-api-key": KEY}
QUICK = Timeouts(connect=0.3, read=0.3)
OURS = str(Path(dragoman.__file__).parent)


def local_variables(error: BaseException | None) -> Iterator[str]:
    """What rich shows of the frames of the library, those of causes and contexts included."""
    while error is not None:
        trace: TracebackType | None = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename.startswith(OURS):
                yield pretty_repr(trace.tb_frame.f_locals)
            trace = trace.tb_next
        yield f"{error!r} {error}"
        error = error.__cause__ or error.__context__


def check(error: BaseException) -> None:
    shown = list(local_variables(error))
    assert len(shown) > 1
    assert KEY not in "\n".join(shown)


async def redirect(exchange: Exchange) -> None:
    await exchange.reply(b"", 302, headers={"location": "http://127.0.0.1:9/"})


@pytest.mark.parametrize(
    "script", [silent, raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello"), redirect, raw(b"garbage\r\n\r\n")]
)
def test_failed_responses(kind: Kind, script: Any) -> None:
    with Server({"*": script}) as server, kind.client() as client, pytest.raises(DragomanError) as caught:
        client.open(server.url, headers=HEADERS, timeout=QUICK).read()
    check(caught.value)


def test_headers_that_cannot_be_sent(kind: Kind) -> None:
    with kind.client() as client:
        for header in ({"x-api-key": f"{KEY}\n"}, {"x-api-key": KEY, "b d": "x"}):
            with pytest.raises(DragomanError) as caught:
                client.open("http://127.0.0.1:9/", headers=header)
            check(caught.value)


def test_failed_connections(own: Kind) -> None:
    with deaf_server() as deaf, own.client(environ={}) as client:
        for url in (f"http://127.0.0.1:{closed_port()}/?key={KEY}", f"https://127.0.0.1:{deaf}/", f"http://[{KEY}]/"):
            with pytest.raises(DragomanError) as caught:
                client.open(url, headers=HEADERS, timeout=QUICK)
            check(caught.value)
        with pytest.raises(DragomanError) as caught:  # sending
            client.open(f"http://127.0.0.1:{deaf}/", headers=HEADERS, body=b"x" * 50_000_000, timeout=QUICK)
        check(caught.value)


def test_unusable_proxies_are_named(own: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme in ("http", "socks5"):
        with own.client(proxy=f"{scheme}://user:{KEY}@127.0.0.1:{closed_port()}") as client:
            for url in ("http://nowhere.test/", "https://nowhere.test/"):
                with pytest.raises(DragomanError) as caught:
                    client.open(url, timeout=QUICK)
                check(caught.value)
    for options in ({"proxy": f"ftp://user:{KEY}@h"}, {"environ": {"HTTPS_PROXY": "ftp://h", "OTHER_KEY": KEY}}, {}):
        monkeypatch.setitem(os.environ, "OTHER_KEY", KEY)
        monkeypatch.setitem(os.environ, "https_proxy", "" if options else "ftp://h")
        with pytest.raises(DragomanError) as caught:
            own.client(**options)
        check(caught.value)


def test_a_stopped_or_interrupted_request_frees_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server({"*": silent}) as server, SocketTransport() as transport:
        request = HttpRequest(url=server.url, headers=HEADERS)
        stop = Stop(deadline=time.monotonic() + 0.2)
        with stopping(stop), pytest.raises(DragomanError) as stopped:
            step(transport.open(request))
        check(stopped.value)
        monkeypatch.setattr("dragoman.transport.socket_transport.SocketWire.receive", _interrupt)
        with pytest.raises(KeyboardInterrupt) as interrupted:
            step(transport.open(request))
        check(interrupted.value)
        server.wait_until(lambda: server.connections == 2, "both connections were made")
        server.wait_for_open(0)


async def _interrupt(_: object) -> None:
    raise KeyboardInterrupt


async def _read(transport: Transport, request: HttpRequest) -> None:
    response = await transport.open(request)
    while await response.next():
        pass


def test_a_tape_refuses_keys(tmp_path: Path) -> None:
    async def leak(exchange: Exchange) -> None:
        await exchange.reply(f"Your key is {KEY}.".encode())

    with Server({"*": leak}) as server:
        transport = Tape(tmp_path / "tape.jsonl").transport(SocketTransport)
        for body in (KEY.encode(), b"harmless"):  # in the request, or in the reply
            with pytest.raises(DragomanError) as caught:
                step(_read(transport, HttpRequest(url=server.url, body=body, headers=HEADERS)))
            check(caught.value)
        step(transport.aclose())


VALUES: list[Callable[[], object]] = [
    lambda: HttpRequest(url=f"https://h/x?key={KEY}", headers=HEADERS, body=KEY.encode()),
    lambda: Route(scheme="https", host="h", port=443, proxy=("p", 1), proxy_authorization=KEY),
    lambda: Routes(proxy=f"http://user:{KEY}@h"),
    lambda: Routes(environ={}).find(HttpRequest(url="https://h/", headers=HEADERS)),
    lambda: TapeExchange(method="POST", host="h", path=f"/{KEY}", headers=HEADERS, body=KEY),
    lambda: Request(headers=HEADERS, query={"key": KEY}, raw=KEY.encode(), body={"a": KEY}),
]


def test_reprs_hide_keys() -> None:
    for make in VALUES:
        value = make()
        assert KEY not in f"{value!r} {value} {pretty_repr(value)}"
