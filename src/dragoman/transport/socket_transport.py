"""A plain transport on the standard library's sockets.

Owns: connecting, TLS, proxies, the pool and reading, with blocking calls.
Must not know: what the bytes mean, and how HTTP is written down (`http1` does).

Blocking calls of the standard library end when Ctrl-C is pressed, and what has arrived is handed out at once: with it a
chunk of a stream costs little more than the system call that reads it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from weakref import WeakSet

from msgspec import Struct

from dragoman.errors import DragomanError

from .bases import BaseTransport, Reading, check_head
from .decoding import Unpacker, unpacker
from .http1 import MalformedReplyError, ReplyReader
from .protocol import DEFAULT_LIMITS, MAX_BODY_BYTES, HttpRequest, PoolLimits
from .routes import Route, Routes, failure, watch
from .troubles import trouble

__all__ = ["SocketTransport"]

_READ: Final = 64 * 1024
_LOOK: Final = 0.5
"""Seconds after which whoever waits for a turn looks whether one was dropped."""
_ERRORS: Final = (OSError, EOFError, ValueError, MalformedReplyError)


class _Connection:
    """An open connection."""

    __slots__ = ("_deadline", "_limit", "_read", "closed", "disturbed", "idle_since", "route", "sock")

    def __init__(self, route: Route, sock: socket.socket) -> None:
        self.route: Route = route
        self.sock: socket.socket = sock
        self.idle_since: float = 0.0
        self._read: float | None = None
        self._deadline: float | None = None
        self._limit: float | None = sock.gettimeout()
        """What the socket was told last."""
        self.closed: bool = False
        self.disturbed: Callable[[], Sequence[object]] = watch(sock.fileno())
        """Whether something has come, be it the end; then an idle connection cannot be used."""

    def send(self, data: bytes, read: float | None, deadline: float | None) -> None:
        """Send a request, and set the time limits for it and for its reply."""
        self._read = read
        self._deadline = deadline
        if deadline is not None or self._limit != read:
            self._set_limit()
        self.sock.sendall(data)

    def receive(self) -> bytes:
        if self._deadline is not None:
            self._set_limit()
        return self.sock.recv(_READ)

    def _set_limit(self) -> None:
        self._limit = self._read if self._deadline is None else _shorter(self._read, _left(self._deadline))
        self.sock.settimeout(self._limit)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.sock.close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _shorter(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else min(one, other)


class _Turn:
    """The right to one request at a time, with the connection it is made on.

    Made before anything is taken and given back by whoever made it. One that Ctrl-C dropped on the way gives itself
    back when it is freed, so no interrupt can use up the pool.
    """

    __slots__ = ("_pool", "connection")

    def __init__(self, pool: _Pool) -> None:
        self._pool: _Pool = pool
        self.connection: _Connection | None = None

    def __del__(self) -> None:
        self._pool.forget(self)


class _Pool:
    """The connections of a transport."""

    def __init__(self, limits: PoolLimits) -> None:
        self._limits: PoolLimits = limits
        self.closed: bool = False
        self.begin()
        _pools.add(self)

    def begin(self) -> None:
        """Begin anew, also in the child of a fork: what is open belongs to the parent."""
        self._lock: threading.Lock = threading.Lock()
        self._turn: threading.Condition = threading.Condition(self._lock)
        self._busy: set[int] = set()
        """The turns that are taken, by identity."""
        self._waiting: int = 0
        self._idle: dict[Route, list[_Connection]] = {}

    def take(self, turn: _Turn, route: Route, request: HttpRequest) -> None:
        """Wait until the turn may begin; it gets an idle connection if there is one."""
        lock, limits = self._lock, self._limits
        with lock:  # never `acquire` before a `try`: Ctrl-C between the two would leave it locked
            if len(self._busy) >= limits.connections:
                self._wait(request)
            if self.closed:
                raise trouble("client_closed", request)
            self._busy.add(id(turn))
            connections = self._idle.get(route)
            connection = turn.connection = connections.pop() if connections else None
        while connection is not None:
            if connection.idle_since >= time.monotonic() - limits.idle_seconds and not connection.disturbed():
                return
            connection.close()
            with lock:
                connection = turn.connection = connections.pop() if connections else None

    def _wait(self, request: HttpRequest) -> None:
        limit = _shorter(self._limits.wait, request.timeout.total)
        end = None if limit is None else time.monotonic() + limit
        self._waiting += 1
        try:
            while len(self._busy) >= self._limits.connections:
                left = _LOOK if end is None else min(_LOOK, end - time.monotonic())
                if left <= 0:
                    raise trouble("pool_timeout", request)
                self._turn.wait(left)
        finally:
            self._waiting -= 1

    def forget(self, turn: _Turn) -> None:
        """End a turn that nobody gave back. Takes no lock: whoever frees an object may hold it."""
        self._busy.discard(id(turn))
        if turn.connection is not None:
            turn.connection.close()

    def give_back(self, turn: _Turn, *, reusable: bool) -> None:
        """End a turn. A connection that is not reusable (`may_go_back`) is closed."""
        connection = turn.connection
        if not reusable and connection is not None:
            connection.close()
        with self._lock:
            turn.connection = None
            self._busy.discard(id(turn))
            if self._waiting:
                self._turn.notify()
            if connection is not None and reusable and not self.closed:
                connections = self._idle.get(connection.route)
                if connections is None:
                    connections = self._idle[connection.route] = []
                if len(connections) < self._limits.idle:
                    connection.idle_since = time.monotonic()
                    connections.append(connection)
                    return
        if connection is not None:
            connection.close()

    def close(self) -> None:
        with self._lock:
            self.closed = True
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()


_pools: Final[WeakSet[_Pool]] = WeakSet()


def _begin_anew() -> None:
    for pool in _pools:
        pool.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


# A struct, because one is made for every request, and a struct is made at a third of the cost.
class _Response(Reading, Struct, eq=False):
    request: HttpRequest
    status: int
    headers: Mapping[str, str]
    _pool: _Pool
    _turn: _Turn
    _connection: _Connection
    _reader: ReplyReader
    _first: bytes
    """What came along with the head."""
    _unpacker: Unpacker | None
    _over: bool = False

    def __next__(self) -> bytes:
        while not self._over:
            try:
                piece = self._piece()
            except _ERRORS as error:
                wrong = failure(error, self.request, connecting=False)
            else:
                if piece:
                    return piece
                continue
            self.close()
            raise wrong
        raise StopIteration

    def _piece(self) -> bytes:
        """Some bytes of the body, perhaps none; closes at the end."""
        reader = self._reader
        if self._first:
            piece, self._first = self._first, b""
        elif reader.complete:
            if self._unpacker is not None:
                self._unpacker.finish()
            self.close()
            return b""
        else:
            data = self._connection.receive()
            if not data:
                reader.end()
                return b""
            piece = reader.feed(data)
        if self._unpacker is not None:
            return self._unpacker.feed(piece)
        if reader.complete:
            self.close()  # at once: nothing can be wrong with what is here, and others may wait for the connection
        return piece

    def read(self, limit: int = MAX_BODY_BYTES) -> bytes:
        if not self._reader.complete or self._unpacker is not None or len(self._first) > limit:
            return super().read(limit)
        # All of it came along with the head.
        body, self._first = self._first, b""
        self.close()
        return body

    def close(self) -> None:
        if not self._over:
            self._over = True
            reusable = self._reader.may_go_back(unread=len(self._first))
            self._pool.give_back(self._turn, reusable=reusable)


class SocketTransport(BaseTransport):
    """The plain transport on sockets; the arguments are those of the other transports.

    HTTP/1.1; gzip and deflate, and br and zstd where a library for them is installed; proxies with an http:// address.
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
        self._pool: _Pool = _Pool(limits)

    def open(self, request: HttpRequest) -> _Response:
        route, data = self._routes.find(request)
        total = request.timeout.total
        deadline = None if total is None else time.monotonic() + total
        turn = _Turn(self._pool)
        try:
            self._pool.take(turn, route, request)
            if turn.connection is None:
                turn.connection = self._connect(route, request, deadline)
            return self._begin(turn, turn.connection, request, data, deadline)
        except BaseException:  # Ctrl-C too
            self._pool.give_back(turn, reusable=False)
            raise

    def _begin(
        self, turn: _Turn, connection: _Connection, request: HttpRequest, data: bytes, deadline: float | None
    ) -> _Response:
        """Send the request and wait for the head of the reply."""
        reader, first, unsent = ReplyReader(request.method), b"", False
        try:
            try:
                connection.send(data, request.timeout.read, deadline)
            except (BrokenPipeError, ConnectionResetError):
                # A server that refuses a request early (one that is too large, say) may have answered nevertheless.
                unsent = True
            while not reader.head_complete:
                received = connection.receive()
                if not received:
                    reader.end()
                first = reader.feed(received)
            status, headers = reader.status, reader.headers
            reader.reusable = reader.reusable and not unsent
            if status >= 300:
                check_head(request, status, headers)
            packed = unpacker(headers["content-encoding"]) if "content-encoding" in headers else None
            return _Response(request, status, headers, self._pool, turn, connection, reader, first, packed)
        except _ERRORS as error:
            if reader.untouched and isinstance(error, EOFError):
                wrong = trouble("closed_early", request)
            else:
                wrong = failure(error, request, connecting=False)
        raise wrong

    def _connect(self, route: Route, request: HttpRequest, deadline: float | None) -> _Connection:
        limit = request.timeout.connect
        end = None if limit is None else time.monotonic() + limit
        end = _shorter(end, deadline)
        tls = self._routes.tls if route.encrypted else None  # first, since it may complain about a file
        sock: socket.socket | None = None
        wrong: DragomanError
        try:
            sock = _dialled(route.address, end)
            if route.tunnel:
                status = _tunnelled(sock, route.tunnel, end)
                if status != 200:
                    raise trouble("proxy_auth" if status == 407 else "proxy", request)
            if tls is not None:
                sock.settimeout(None if end is None else _left(end))
                # Without ragged ends: a connection that ends without saying so in TLS may have been cut by anybody.
                sock = tls.wrap_socket(sock, server_hostname=route.host, suppress_ragged_eofs=False)
        except _ERRORS as error:
            wrong = failure(error, request, connecting=True, proxied=route.proxy is not None)
        except BaseException:
            if sock is not None:
                sock.close()
            raise
        else:
            return _Connection(route, sock)
        if sock is not None:
            sock.close()
        raise wrong

    def close(self) -> None:
        self._pool.close()


def _dialled(address: tuple[str, int], end: float | None) -> socket.socket:
    """A connection to the first address of the host that answers."""
    problem: OSError = OSError("no address")
    for family, kind, protocol, _, where in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(None if end is None else _left(end))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.connect(where)
        except OSError as error:
            sock.close()
            problem = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise problem


def _tunnelled(sock: socket.socket, ask: bytes, end: float | None) -> int:
    """Ask the proxy for a tunnel. Returns the status of its answer."""
    sock.settimeout(None if end is None else _left(end))
    sock.sendall(ask)
    reader = ReplyReader("HEAD")  # like one to HEAD, the answer has no body
    while not reader.head_complete:
        # One byte at a time: what comes behind the head is no longer the proxy's.
        data = sock.recv(1)
        if not data:
            reader.end()
        reader.feed(data)
    return reader.status
