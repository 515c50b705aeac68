"""Work that is stopped ends at once, wherever it stands, and leaves nothing behind; in both colours."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from dragoman._stepping import step
from dragoman._stop import Stop, stopping
from dragoman.errors import StoppedError
from dragoman.transport import AsyncioTransport, HttpRequest, PoolLimits, SocketTransport, Timeouts, Transport
from dragoman.transport.httpx_adapter import HttpxTransport
from tests.transport.server import Server, deaf_server, echo, full_server, half, silent

PATIENT = Timeouts(connect=60.0, read=60.0)
AT_ONCE = 5.0
"""Seconds: far less than the limits, far more than a busy machine needs."""
PHASES = ["pool", "lookup", "connect", "tls", "tunnel", "send", "head", "body"]


class Place(ExitStack):
    """Where a request stands still, and how one sees that it does."""

    def __init__(self, phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.options: dict[str, Any] = {"environ": {}}
        self.request = HttpRequest(url="", timeout=PATIENT)
        self.server = self.enter_context(Server({"/silent": silent, "/half": half, "*": echo}))
        self.reads_body = phase == "body"
        path = "/half" if self.reads_body else "/silent"
        url, body = f"{self.server.url}{path}", b""
        match phase:
            case "pool":
                self.options["limits"] = PoolLimits(connections=1)
            case "lookup":
                self._stall_lookup(monkeypatch)
                url = "http://slow.test/"
            case "connect":
                url = f"http://127.0.0.1:{self.enter_context(full_server())}/"
            case "tls":
                url = f"https://127.0.0.1:{self.enter_context(deaf_server())}/"
            case "tunnel":
                self.options["proxy"] = f"http://127.0.0.1:{self.enter_context(deaf_server())}"
                url = "https://nowhere.test/"
            case "send":
                url, body = f"http://127.0.0.1:{self.enter_context(deaf_server())}/", b"x" * 50_000_000
            case _:
                pass
        self.request = HttpRequest(url=url, body=body, timeout=PATIENT)

    def _stall_lookup(self, monkeypatch: pytest.MonkeyPatch) -> None:
        over, real = threading.Event(), socket.getaddrinfo

        def slow(host: Any, *arguments: Any, **options: Any) -> Any:
            if host == "slow.test":
                if not options.get("flags"):  # not only asked whether it is an address
                    over.wait(60)
                raise socket.gaierror
            return real(host, *arguments, **options)

        monkeypatch.setattr(socket, "getaddrinfo", slow)
        self.callback(over.set)

    async def go(self, transport: Any) -> None:
        """Make the request, read what comes."""
        response = await transport.open(self.request)
        while await response.next():
            pass


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0  # noqa: PTH112, PTH208


def wait_for_descriptors(number: int) -> None:
    """The server's side of a connection is closed a moment later than ours, in the same process."""
    end = time.monotonic() + AT_ONCE
    while descriptors() > number and time.monotonic() < end:
        time.sleep(0.01)
    assert descriptors() <= number


# --- plain programs --------------------------------------------------------------------------------------------------


def from_a_thread(stop: Stop) -> Callable[[], object]:
    timer = threading.Timer(0.2, stop.cancel)
    timer.start()
    return timer.join


def from_a_signal_handler(stop: Stop) -> Callable[[], object]:
    before = signal.signal(signal.SIGALRM, lambda *_: stop.cancel())
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    return lambda: signal.signal(signal.SIGALRM, before)


def by_its_deadline(stop: Stop) -> Callable[[], object]:
    stop.deadline = time.monotonic() + 0.2
    return lambda: None


@pytest.mark.parametrize("how", [from_a_thread, from_a_signal_handler, by_its_deadline])
@pytest.mark.parametrize(
    ("phase", "with_httpx"),
    [*((phase, False) for phase in PHASES), ("head", True), ("body", True)],
)
def test_a_plain_request_ends_at_once(
    phase: str, with_httpx: bool, how: Callable[[Stop], Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Place(phase, monkeypatch) as there, transport_of(there, with_httpx=with_httpx) as transport:
        others = [step(transport.open(HttpRequest(url=f"{there.server.url}/half")))] if phase == "pool" else []
        before = descriptors()
        stop = Stop()
        with stopping(stop):
            began = time.monotonic()
            settle = how(stop)
            with pytest.raises(StoppedError) as caught:
                step(there.go(transport))
            assert time.monotonic() - began < AT_ONCE
            settle()
        assert caught.value.reason == ("deadline" if how is by_its_deadline else "cancelled")
        assert not stop.wakers
        del caught
        wait_for_descriptors(before)
        for other in others:
            step(other.aclose())
        there.server.wait_for_open(0)
        if "proxy" not in there.options:  # the transport works still, and what was stopped before begins nothing
            assert step(step(transport.open(HttpRequest(url=there.server.url, body=b"on"))).read()) == b"on"
            asked = len(there.server.requests)
            with stopping(stop), pytest.raises(StoppedError):
                step(transport.open(HttpRequest(url=there.server.url)))
            assert len(there.server.requests) == asked


def transport_of(there: Place, *, with_httpx: bool) -> SocketTransport | HttpxTransport:
    return HttpxTransport(httpx2.Client(trust_env=False)) if with_httpx else SocketTransport(**there.options)


def test_a_stopped_reply_does_not_come_back_and_others_go_on() -> None:
    with Server({"*": echo}) as server, SocketTransport() as transport:
        stop = Stop(deadline=time.monotonic() + 60)
        with stopping(stop):
            for _ in range(3):
                assert step(step(transport.open(HttpRequest(url=server.url, body=b"x"))).read()) == b"x"
        assert not stop.wakers
        response = step(transport.open(HttpRequest(url=server.url, body=b"y")))
        stop.cancel()  # which is nobody's any more
        assert step(response.read()) == b"y"
        assert server.connections == 1
        # What was cancelled while its reply was complete is cut: somebody may be about to wake it.
        stop = Stop()
        with stopping(stop):
            response = step(transport.open(HttpRequest(url=server.url, body=b"x")))
        stop.wakers.clear()  # cancelled in the very moment between the two
        stop.cancelled = True
        assert step(response.read()) == b"x"
        server.wait_for_open(0)
        assert step(step(transport.open(HttpRequest(url=server.url, body=b"y"))).read()) == b"y"
        assert server.connections == 2


def test_a_dropped_response_frees_its_connection() -> None:
    stop = Stop()
    with Server({"*": half}) as server, stopping(stop), SocketTransport(limits=PoolLimits(connections=1)) as transport:
        for _ in range(3):
            step(step(transport.open(HttpRequest(url=server.url, timeout=PATIENT))).next())
            assert not stop.wakers
        server.wait_for_open(0)


# --- event loops -----------------------------------------------------------------------------------------------------


def transport_on_loop(options: dict[str, Any], *, with_httpx: bool) -> Transport:
    return HttpxTransport(httpx2.AsyncClient(trust_env=False)) if with_httpx else AsyncioTransport(**options)


@pytest.mark.parametrize(
    ("phase", "with_httpx"), [*((phase, False) for phase in PHASES), ("head", True), ("body", True)]
)
def test_an_async_request_ends_with_its_task(phase: str, with_httpx: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(there: Place) -> None:
        async with transport_on_loop(there.options, with_httpx=with_httpx) as transport:
            others = [await transport.open(HttpRequest(url=f"{there.server.url}/half"))] if phase == "pool" else []
            await asyncio.to_thread(gc.collect)  # the thread is here to stay
            before = descriptors()
            for _ in range(3):
                task = asyncio.create_task(there.go(transport))
                await asyncio.sleep(0.1)
                began = time.monotonic()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert time.monotonic() - began < AT_ONCE
            for _ in range(5):  # a connection that was not made yet is closed in the next turns of the loop
                await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == 1
            await asyncio.to_thread(wait_for_descriptors, before)
            for other in others:
                await other.aclose()
            await asyncio.to_thread(there.server.wait_for_open, 0)
            if "proxy" not in there.options:
                url = there.server.url
                assert await (await transport.open(HttpRequest(url=url, body=b"on"))).read() == b"on"

    with Place(phase, monkeypatch) as there:
        asyncio.run(main(there))
