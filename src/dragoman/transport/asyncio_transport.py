"""The async transport, on asyncio. A cancelled task closes its connection at once."""

from __future__ import annotations

import asyncio
import math
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from socket import socket
from typing import Final, cast

from dragoman._stop import no_event_loop

from .pool import Outgoing, Pool, PooledTransport
from .socket_transport import STAGGER, Address, by_turns, look_up, numeric, open_socket, watch

_MANY: Final = 256 * 1024
"""With this many unread bytes, reading is paused."""


class AsyncioWire(asyncio.Protocol):
    """A connection on an event loop. Received bytes are kept until they are read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.idle_since: float = 0.0
        self._loop: asyncio.AbstractEventLoop = loop
        self._transport: asyncio.Transport | None = None
        self._connection: asyncio.Transport | None = None
        """The transport below TLS."""
        self._received: list[bytes] = []
        self._size: int = 0
        self._paused: bool = False
        self._ended: bool = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._read: float | None = None
        self._deadline: float = math.inf
        self._until: float = math.inf
        """When the current wait times out, by the loop's clock."""
        self._timer: asyncio.TimerHandle | None = None
        self._disturbed: Callable[[], Sequence[object]] | None = None
        self._gone: asyncio.Future[None] = loop.create_future()
        self._thread: int = threading.get_ident()

    # --- called by the event loop ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._connection = cast("asyncio.Transport", transport)
        sock = cast("socket | None", transport.get_extra_info("socket"))
        self._disturbed = None if sock is None else watch(sock.fileno())

    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        self._size += len(data)
        if self._size > _MANY and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        if tls is not None:
            try:  # returns b"" after a close_notify
                tls.read(1)
            except ssl.SSLError:  # without one, the end may be an attacker's
                self._error = self._error or ssl.SSLEOFError()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._error = self._error or exc
        self._ended = True
        self._wake()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._gone.done():
            self._gone.set_result(None)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- called by the pool ------------------------------------------------------------------------------------------

    def limit(self, read: float | None, deadline: float | None) -> None:
        self._read = read
        self._deadline = math.inf if deadline is None else deadline - time.monotonic() + self._loop.time()

    async def send(self, request: Outgoing) -> None:
        if self._transport is not None:
            self._transport.write(request.data)

    async def receive(self) -> bytes:
        while not self._received:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            await self._something()
        received = self._received
        data = received[0] if len(received) == 1 else b"".join(received)
        received.clear()
        self._size = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    def _something(self) -> asyncio.Future[None]:
        waiter = self._waiter = self._loop.create_future()
        self._until = self._deadline
        if self._read is not None:
            self._until = min(self._until, self._loop.time() + self._read)
        self._set_timer()
        return waiter

    def _set_timer(self) -> None:
        """Schedule `_tick`. A timer that fires early is set again: that is rarer than setting one for each wait."""
        until, timer = self._until, self._timer
        if until < math.inf and (timer is None or timer.when() > until):
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_at(until, self._tick)

    def _tick(self) -> None:
        self._timer = None
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if self._until > self._loop.time():
            self._set_timer()
        else:
            waiter.set_exception(TimeoutError())

    async def encrypt(self, tls: ssl.SSLContext, host: str) -> None:
        transport = self._transport
        assert transport is not None
        try:
            async with asyncio.timeout_at(None if self._deadline == math.inf else self._deadline):
                self._transport = await self._loop.start_tls(transport, self, tls, server_hostname=host)
        except BaseException:
            transport.abort()
            self._gone.set_result(None)  # connection_lost is not called if the TLS handshake failed
            raise

    @property
    def settled(self) -> bool:
        transport = self._transport
        return not self._received and transport is not None and not transport.get_write_buffer_size()

    @property
    def quiet(self) -> bool:
        # The last check asks the system: the loop may not have noticed the end yet.
        transport = self._transport
        if transport is None or self._ended or transport.is_closing() or not self.settled:
            return False
        return self._disturbed is not None and not self._disturbed()

    def close(self) -> None:
        transport = self._transport
        if transport is None or self._gone.done():
            return
        with suppress(RuntimeError):  # its loop is closed
            if self._loop.is_closed():
                # What the loop would have called: else the socket stays open until it is collected.
                forget: Callable[[object], object] = getattr(self._connection, "_call_connection_lost", id)
                forget(None)
            elif self._thread == threading.get_ident():
                transport.abort()
            else:  # freed in another thread
                self._loop.call_soon_threadsafe(transport.abort)

    wake = close

    async def closed(self) -> None:
        if self._transport is not None:
            await asyncio.wait([self._gone])


class _LoopGate:
    """A gate for tasks."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, seconds: float) -> None:
        await asyncio.wait([self._future], timeout=seconds)

    def open(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


class AsyncioTransport(PooledTransport):
    """The async transport.

    HTTP/1.1 with gzip; proxies with an http:// address. Connections belong to an event loop: on another loop the
    transport starts with an empty pool.
    """

    blocking: bool | None = False

    _loop: asyncio.AbstractEventLoop | None = None

    def _pool(self) -> Pool:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise no_event_loop() from None
        if self._loop is not loop:
            old, self._current = self._current, Pool(self._limits, self._gate)
            self._current.closed = old.closed
            self._loop = loop
            old.close()
        return self._current

    _gate = _LoopGate

    async def _dial(self, address: tuple[str, int], deadline: float | None) -> AsyncioWire:
        loop = asyncio.get_running_loop()
        wire = AsyncioWire(loop)
        async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
            sock = await _connect(loop, numeric(*address) or await _look_up(loop, *address))
            await loop.create_connection(lambda: wire, sock=sock)
        return wire


async def _look_up(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[Address]:
    """The addresses of a name. Not in the loop's executor, which the loop joins when it closes."""
    answer: asyncio.Future[list[Address] | Exception] = loop.create_future()

    def deliver(found: list[Address] | Exception) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: answer.done() or answer.set_result(found))

    look_up(host, port, deliver)
    found = await answer
    if isinstance(found, Exception):
        raise found
    return found


async def _connect(loop: asyncio.AbstractEventLoop, addresses: list[Address]) -> socket:
    """Connect to the first address that answers; they are tried in parallel, STAGGER seconds apart.

    asyncio can do this too, but leaks a connection that is established just as the task is cancelled.
    """
    waiting = by_turns(addresses)
    begun: dict[asyncio.Task[None], socket] = {}
    problem: BaseException | None = OSError("no address")
    try:
        while waiting or begun:
            if waiting:
                sock = open_socket(waiting[0])
                begun[loop.create_task(_try(loop, sock, waiting.pop(0)))] = sock
            pause = STAGGER if waiting else None
            done, _ = await asyncio.wait(begun, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                sock = begun.pop(task)
                problem = task.exception()
                if problem is None:
                    return sock
    finally:
        for task, sock in begun.items():
            if task.done():
                sock.close()
            task.cancel()
    raise problem


async def _try(loop: asyncio.AbstractEventLoop, sock: socket, address: Address) -> None:
    try:
        await loop.sock_connect(sock, address[4])
    except BaseException:
        sock.close()
        raise
