"""The log of a turn: slow readers lose nothing within its bound, and are cut off beyond it."""

from __future__ import annotations

import asyncio
import http.client
import socket
import time
from collections.abc import MutableMapping
from typing import Any

import pytest
from hypothesis import given, strategies as st

import dragoman.web.log as log_module
from dragoman.web import WebServer
from dragoman.web.log import EventStream, FrameLog, MissedError


def numbers(data: bytes) -> list[int]:
    return [int(line.rpartition(b".")[2]) for line in data.split(b"\n") if line.startswith(b"id: ")]


@given(
    st.lists(st.binary(max_size=50).map(lambda data: data.hex().encode()), max_size=60),
    st.integers(200, 2_000),
    st.data(),
)
def test_reader_gets_every_frame_in_order_or_an_error(frames: list[bytes], limit: int, data: st.DataObject) -> None:
    log, seen, place = FrameLog(limit), list[int](), 0
    for frame in frames:
        log.append(frame)
        if data.draw(st.booleans()):
            try:
                place, read = log.read(place)
            except MissedError:
                assert not log.has(place)
                assert not log.complete
                return
            seen += numbers(read)
    if log.has(place):
        while place < log.last:
            place, read = log.read(place)
            seen += numbers(read)
        assert seen == list(range(1, len(frames) + 1))
    assert log.last == len(frames)


def test_log_is_bounded() -> None:
    log = FrameLog(10_000)
    for _ in range(5_000):
        log.append(b"x" * 100)
    assert sum(map(len, log._frames)) <= 10_000
    with pytest.raises(MissedError):
        log.read(0)


def test_reads_are_small_and_continue_only_in_the_same_log() -> None:
    log, other = FrameLog(), FrameLog()
    for _ in range(2_000):
        log.append(b"x" * 100)
        other.append(b"x")
    log.append(b"x" * 1_000_000)
    place, most = 0, 0
    while place < log.last - 1:
        place, read = log.read(place)
        most = max(most, len(read))
    assert most <= 64 * 1024
    assert len(log.read(place)[1]) > 1_000_000, "a frame is never cut"
    id = log.read(2)[1].split(b"\n")[0].removeprefix(b"id: ").decode()
    assert (log.find(id), log.find("")) == (3, 0)
    assert (other.find(id), log.find("3"), log.find(id + "0000")) == (None, None, None)


def test_slow_reader_loses_nothing_and_needs_no_buffer() -> None:
    """A reader that sleeps holds nothing but the socket's buffers; what it reads in the end is everything."""
    log = FrameLog(64_000_000)

    async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        await EventStream(log, end=b"data: end\n\n")(scope, receive, send)

    with WebServer(app) as server:
        loop = server._thread._loop
        assert loop is not None
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", "/")
        response = connection.getresponse()
        for _ in range(2_000):
            loop.call_soon_threadsafe(log.append, b"x" * 4_000)
        loop.call_soon_threadsafe(log.close)
        read = response.read()
        connection.close()
    assert numbers(read) == list(range(1, 2_001))
    assert read.endswith(b"data: end\n\n")


def test_stalled_watcher_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(log_module, "STALLED_SECONDS", 0.1)
    log = FrameLog(64_000_000)
    for _ in range(4_000):
        log.append(b"x" * 4_000)

    async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        await EventStream(log)(scope, receive, send)

    with WebServer(app) as server, socket.create_connection(("127.0.0.1", server.port), timeout=60) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert peer.recv(100)
        for _ in range(1_000):
            if not log._watchers:
                break
            time.sleep(0.02)
        assert not log._watchers


def test_watcher_that_missed_frames_is_cut_off() -> None:
    log = FrameLog(1_000)
    for _ in range(100):
        log.append(b"x" * 100)

    async def watch() -> list[MutableMapping[str, Any]]:
        sent: list[MutableMapping[str, Any]] = []

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        async def receive() -> MutableMapping[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError

        await EventStream(log, after=3, end=b"end")({}, receive, send)
        return sent

    [_, last] = asyncio.run(watch())
    assert (last["body"], last["more_body"]) == (b"", False)
