"""A connection on the standard library's event loop.

Owns: reading and waiting for one request at a time, TLS, and the way through a proxy.
Must not know: who uses the connection next (the pool of `asyncio_transport` does), and what the bytes mean.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from socket import socket
from typing import Final, cast

from .http1 import MalformedReplyError, ReplyReader
from .protocol import HttpRequest
from .routes import Route, watch
from .troubles import trouble

__all__ = ["Connection", "dial"]

_MANY: Final = 256 * 1024
"""When so many bytes wait to be read, the server has to wait."""


class Connection(asyncio.Protocol):
    """An open connection. It reads for one request at a time; what comes while there is none ends it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, route: Route) -> None:
        self.route: Route = route
        self.idle_since: float = 0.0
        self.reader: ReplyReader | None = None
        self._loop: asyncio.AbstractEventLoop = loop
        self._transport: asyncio.Transport | None = None
        self._pieces: deque[bytes] = deque()
        self.size: int = 0
        """Of the pieces that were not taken yet."""
        self._paused: bool = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._until: float = 0.0
        """When waiting ends without success."""
        self._timer: asyncio.TimerHandle | None = None
        self._disturbed: Callable[[], Sequence[object]] | None = None
        self._gone: asyncio.Future[None] = loop.create_future()

    # --- what the event loop says ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = cast("socket | None", transport.get_extra_info("socket"))
        self._disturbed = None if sock is None else watch(sock.fileno())

    def data_received(self, data: bytes) -> None:
        if self.reader is None:
            self.abort()
            return
        try:
            piece = self.reader.feed(data)
        except MalformedReplyError as error:
            self._error = error
            self.abort()
        else:
            if piece:
                self._pieces.append(piece)
                self.size += len(piece)
                if self.size > _MANY and not self._paused and self._transport is not None:
                    self._paused = True
                    self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._error is None and exc is not None:
            self._error = exc
        self._end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._gone.done():
            self._gone.set_result(None)

    def _end(self) -> None:
        if self.reader is not None and self._error is None:
            try:
                self.reader.end()
            except EOFError as error:
                self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- what a response asks ----------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether the connection can serve another request, as far as is known."""
        return self._error is None and self._transport is not None and not self._transport.is_closing()

    @property
    def unsent(self) -> int:
        """How many bytes of the request are still to be sent."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def quiet(self) -> bool:
        """Whether nothing has come that the event loop, busy elsewhere, has not told us yet."""
        return self._disturbed is not None and not self._disturbed()

    def send(self, data: bytes, reader: ReplyReader) -> None:
        assert self._transport is not None
        self.reader = reader
        self._transport.write(data)

    def something(self, read: float | None, deadline: float | None) -> asyncio.Future[None]:
        """To be awaited: something happens, or TimeoutError. Raises what has already gone wrong."""
        if self._error is not None:
            raise self._error
        loop = self._loop
        waiter = self._waiter = loop.create_future()
        self._until = math.inf if deadline is None else deadline
        if read is not None:
            self._until = min(self._until, loop.time() + read)
        if self._timer is None or self._timer.when() > self._until:
            self._set_timer()
        return waiter

    async def piece(self, read: float | None, deadline: float | None) -> bytes:
        """All that has come since; empty at the end."""
        while not self._pieces:
            if self._error is None and (self.reader is None or self.reader.complete):
                return b""
            await self.something(read, deadline)
        return self.taken()

    def taken(self) -> bytes:
        """All that is here and was not taken yet."""
        piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self.size = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return piece

    def _set_timer(self) -> None:
        """Have `_tick` called in time. A timer that rings too early is set again then, which is rarer than waiting."""
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

    async def encrypt(self, tls: ssl.SSLContext) -> None:
        """Begin TLS behind a tunnel."""
        assert self._transport is not None
        self._transport = await self._loop.start_tls(self._transport, self, tls, server_hostname=self.route.host)
        self.reader = None

    def abort(self) -> None:
        """Cut the connection."""
        if self._transport is not None and not self._gone.done():
            with suppress(RuntimeError):  # the loop it belonged to is closed
                self._transport.abort()

    async def closed(self) -> None:
        """Wait until the connection is really gone."""
        if self._transport is not None:
            await self._gone


async def dial(connection: Connection, request: HttpRequest, tls: ssl.SSLContext | None) -> None:
    """Connect, through the proxy if there is one."""
    loop, route = asyncio.get_running_loop(), connection.route
    host, port = route.address
    if tls is not None and not route.tunnel:
        await loop.create_connection(lambda: connection, host, port, ssl=tls, server_hostname=route.host)
        return
    await loop.create_connection(lambda: connection, host, port)
    if tls is not None:
        reader = ReplyReader("HEAD")  # like one to HEAD, the answer has no body
        connection.send(route.tunnel, reader)
        while not reader.head_complete:
            await connection.something(None, None)
        if reader.status != 200:
            raise trouble("proxy_auth" if reader.status == 407 else "proxy", request)
        await connection.encrypt(tls)
