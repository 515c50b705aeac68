"""An async transport on the standard library's event loop.

Owns: the pool, and a response that gives its connection back.
Must not know: how a connection is made and read (`asyncio_connection`), and how HTTP is written down (`http1`).

A cancelled task cuts its connection at once, whether the reply had begun or not.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Mapping
from typing import Final

from dragoman.errors import DragomanError

from .asyncio_connection import Connection, dial
from .bases import BaseAsyncResponse, BaseAsyncTransport, check_head
from .decoding import Unpacker, unpacker
from .http1 import MalformedReplyError, ReplyReader
from .protocol import DEFAULT_LIMITS, MAX_BODY_BYTES, HttpRequest, PoolLimits
from .routes import Route, Routes, failure
from .troubles import trouble

__all__ = ["AsyncioTransport"]

_ERRORS: Final = (OSError, EOFError, ValueError, MalformedReplyError)


class _Pool:
    """The connections of a transport on one event loop."""

    def __init__(self, limits: PoolLimits, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self._limits: PoolLimits = limits
        self._busy: int = 0
        """How many turns are taken, or promised to somebody who waits for one."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: dict[Route, list[Connection]] = {}
        self.closed: bool = False

    async def take(self, route: Route, request: HttpRequest) -> Connection | None:
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

    def _usable(self, route: Route) -> Connection | None:
        connections = self._idle.get(route)
        oldest = time.monotonic() - self._limits.idle_seconds
        while connections:
            connection = connections.pop()
            if connection.usable and connection.idle_since >= oldest and connection.quiet:
                return connection
            connection.abort()
        return None

    def give_back(self, connection: Connection | None, *, reusable: bool) -> bool:
        """End a turn. Returns whether the connection was kept; otherwise it is cut. `reusable`: `may_go_back`."""
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

    def close(self) -> list[Connection]:
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
    def __init__(self, request: HttpRequest, pool: _Pool, connection: Connection, deadline: float | None) -> None:
        self.request: HttpRequest = request
        self._pool: _Pool = pool
        self._connection: Connection = connection
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
            connection = self._connection
            reusable = self._reader.may_go_back(unread=connection.size, unsent=connection.unsent)
            if not self._pool.give_back(connection, reusable=reusable):
                await connection.closed()


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

    async def _connect(self, route: Route, request: HttpRequest, deadline: float | None) -> Connection:
        loop = asyncio.get_running_loop()
        limit = request.timeout.connect
        until = None if limit is None else loop.time() + limit
        connection = Connection(loop, route)
        tls = self._routes.tls if route.encrypted else None  # first, since it may complain about a file
        wrong: DragomanError
        try:
            async with asyncio.timeout_at(_shorter(until, deadline)):
                await dial(connection, request, tls)
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
