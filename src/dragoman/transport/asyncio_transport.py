"""An async transport on the standard library's event loop.

Owns: connecting, TLS, proxies, the pool and reading, on asyncio.
Must not know: what the bytes mean, and how HTTP is written down (`http1` does).

A cancelled task cuts its connection at once, whether the reply had begun or not.
"""

from __future__ import annotations

import asyncio
import math
import os
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from socket import socket
from typing import Final, cast

from dragoman.errors import DragomanError

from .bases import BaseAsyncResponse, BaseAsyncTransport, check_head
from .decoding import Unpacker, unpacker
from .http1 import MalformedReplyError, ReplyReader
from .protocol import DEFAULT_LIMITS, MAX_BODY_BYTES, HttpRequest, PoolLimits
from .routes import Route, Routes, failure, watch
from .troubles import trouble

__all__ = ["AsyncioTransport"]

_MANY: Final = 256 * 1024
"""When so many bytes wait to be read, the server has to wait."""

_ERRORS: Final = (OSError, EOFError, ValueError, MalformedReplyError)


class _Connection(asyncio.Protocol):
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


class _Pool:
    """The connections of a transport on one event loop."""

    def __init__(self, limits: PoolLimits, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self._limits: PoolLimits = limits
        self._busy: int = 0
        """How many turns are taken, or promised to somebody who waits for one."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: dict[Route, list[_Connection]] = {}
        self.closed: bool = False

    async def take(self, route: Route, request: HttpRequest) -> _Connection | None:
        """Wait for a turn; then an idle connection, or None where a new one must be made."""
        if self._busy >= self._limits.connections:
            await self._turn(request)
        else:
            self._busy += 1
        return self._usable(route)

    async def _turn(self, request: HttpRequest) -> None:
        """Wait until somebody hands their turn on."""
        promised = self.loop.create_future()
        self._waiting.append(promised)
        try:
            async with asyncio.timeout(_shorter(self._limits.wait, request.timeout.total)):
                await promised
        except BaseException as error:
            if promised.done() and not promised.cancelled():
                self._hand_on()  # it came in the same moment in which nobody wanted it any more
            elif promised in self._waiting:
                self._waiting.remove(promised)
            if not isinstance(error, TimeoutError):
                raise
        else:
            return
        raise trouble("pool_timeout", request)

    def _hand_on(self) -> None:
        """Somebody else's turn."""
        while self._waiting:
            promised = self._waiting.popleft()
            if not promised.done():
                promised.set_result(None)
                return
        self._busy -= 1

    def _usable(self, route: Route) -> _Connection | None:
        connections = self._idle.get(route)
        oldest = time.monotonic() - self._limits.idle_seconds
        while connections:
            connection = connections.pop()
            if connection.usable and connection.idle_since >= oldest and connection.quiet:
                return connection
            connection.abort()
        return None

    def give_back(self, connection: _Connection | None, *, reusable: bool) -> bool:
        """End a turn. Returns whether the connection was kept; otherwise it is cut."""
        self._hand_on()
        if connection is None:
            return False
        connection.reader = None
        connection.idle_since = time.monotonic()
        connections = self._idle.setdefault(connection.route, [])
        if reusable and connection.usable and not self.closed and len(connections) < self._limits.idle:
            connections.append(connection)
            return True
        connection.abort()
        return False

    def close(self) -> list[_Connection]:
        """Cut what is idle. Returns it, to be waited for."""
        self.closed = True
        idle = [connection for connections in self._idle.values() for connection in connections]
        self._idle.clear()
        for connection in idle:
            connection.abort()
        return idle


def _shorter(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else min(one, other)


class _Response(BaseAsyncResponse):
    def __init__(self, request: HttpRequest, pool: _Pool, connection: _Connection, deadline: float | None) -> None:
        self.request: HttpRequest = request
        self._pool: _Pool = pool
        self._connection: _Connection = connection
        self._reader: ReplyReader = ReplyReader(request.method)
        self._unpacker: Unpacker | None = None
        self._deadline: float | None = deadline
        self._over: bool = False

    async def begin(self, data: bytes) -> None:
        """Send the request and wait for the head. Raises as connections do."""
        connection, reader = self._connection, self._reader
        connection.send(data, reader)
        while not reader.head_complete:
            await connection.something(self.request.timeout.read, self._deadline)
        self.status: int = reader.status
        self.headers: Mapping[str, str] = reader.headers
        if reader.status >= 300:
            check_head(self.request, reader.status, reader.headers)
        if "content-encoding" in reader.headers:
            self._unpacker = unpacker(reader.headers["content-encoding"])

    @property
    def unanswered(self) -> bool:
        """Whether the server has not sent a single byte."""
        return self._reader.untouched

    async def read(self, limit: int = MAX_BODY_BYTES) -> bytes:
        connection = self._connection
        if self._over or not self._reader.complete or self._unpacker is not None or connection.size > limit:
            return await super().read(limit)
        # All of it is here.
        body = connection.taken()
        await self.aclose()
        return body

    async def __anext__(self) -> bytes:
        while not self._over:
            try:
                piece = await self._connection.piece(self.request.timeout.read, self._deadline)
                unpacking = self._unpacker
                if not piece:
                    if unpacking is not None:
                        unpacking.finish()
                    await self.aclose()
                    break
                if unpacking is not None:
                    piece = unpacking.feed(piece)
            except _ERRORS as error:
                wrong = failure(error, self.request, connecting=False)
            else:
                if piece:
                    return piece
                continue
            await self.aclose()
            raise wrong
        raise StopAsyncIteration

    async def aclose(self) -> None:
        if not self._over:
            self._over = True
            reader = self._reader
            kept = self._pool.give_back(self._connection, reusable=reader.complete and reader.reusable)
            if not kept:
                await self._connection.closed()


class AsyncioTransport(BaseAsyncTransport):
    """The async transport on asyncio; the arguments are those of the other transports.

    HTTP/1.1; gzip and deflate, and br and zstd where a library for them is installed; proxies with an http:// address.
    Connections belong to an event loop: used on another one, the transport begins anew.
    """

    def __init__(
        self,
        *,
        limits: PoolLimits = DEFAULT_LIMITS,
        proxy: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        trust_env: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._routes: Routes = Routes(proxy=proxy, ca_file=ca_file, trust_env=trust_env, environ=environ)
        self._limits: PoolLimits = limits
        self._pool: _Pool | None = None
        self._closed: bool = False

    async def open(self, request: HttpRequest) -> _Response:
        route, data = self._routes.find(request)
        if self._closed:
            raise trouble("client_closed", request)
        loop = asyncio.get_running_loop()
        pool = self._pool
        if pool is None or pool.loop is not loop:
            if pool is not None:
                pool.close()
            pool = self._pool = _Pool(self._limits, loop)
        total = request.timeout.total
        deadline = None if total is None else loop.time() + total
        connection = await pool.take(route, request)
        if connection is None:
            try:
                connection = await self._connect(route, request, deadline)
            except BaseException:
                pool.give_back(None, reusable=False)
                raise
        response = _Response(request, pool, connection, deadline)
        try:
            await response.begin(data)
        except _ERRORS as error:
            if response.unanswered and isinstance(error, EOFError):
                wrong = trouble("closed_early", request)
            else:
                wrong = failure(error, request, connecting=False)
        except BaseException:  # a cancelled task too
            await response.aclose()
            raise
        else:
            return response
        await response.aclose()
        raise wrong

    async def _connect(self, route: Route, request: HttpRequest, deadline: float | None) -> _Connection:
        loop = asyncio.get_running_loop()
        limit = request.timeout.connect
        until = None if limit is None else loop.time() + limit
        connection = _Connection(loop, route)
        tls = self._routes.tls if route.encrypted else None  # first, since it may complain about a file
        wrong: DragomanError
        try:
            async with asyncio.timeout_at(_shorter(until, deadline)):
                await _dial(connection, request, tls)
        except _ERRORS as error:
            wrong = failure(error, request, connecting=True, proxied=route.proxy is not None)
        except BaseException:
            connection.abort()
            raise
        else:
            return connection
        connection.abort()
        await connection.closed()
        raise wrong

    async def aclose(self) -> None:
        self._closed = True
        if self._pool is not None and self._pool.loop is asyncio.get_running_loop():
            for connection in self._pool.close():
                await connection.closed()


async def _dial(connection: _Connection, request: HttpRequest, tls: ssl.SSLContext | None) -> None:
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
