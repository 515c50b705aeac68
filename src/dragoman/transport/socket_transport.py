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
from collections.abc import Mapping
from typing import Final

from dragoman.errors import DragomanError

from .bases import BaseResponse, BaseTransport, check_head, check_request
from .decoding import Unpacker, unpacker
from .http1 import MalformedReplyError, ReplyReader
from .protocol import DEFAULT_LIMITS, HttpRequest, Limits
from .routes import Route, Routes, failure, is_readable
from .troubles import trouble

__all__ = ["SocketTransport"]

_READ: Final = 64 * 1024
_ERRORS: Final = (OSError, EOFError, ValueError, MalformedReplyError)


class _Connection:
    """An open connection."""

    __slots__ = ("_total", "closed", "idle_since", "read_timeout", "route", "sock")

    def __init__(self, route: Route, sock: socket.socket) -> None:
        self.route: Route = route
        self.sock: socket.socket = sock
        self.idle_since: float = 0.0
        self.read_timeout: float | None = None
        self._total: float | None = None
        self.closed: bool = False

    def begin(self, read: float | None, deadline: float | None) -> None:
        """Set the time limits of a request."""
        self._total = deadline
        if read != self.read_timeout or deadline is not None or self.sock.gettimeout() != read:
            self.read_timeout = read
            self.sock.settimeout(read)

    def send(self, data: bytes) -> None:
        self._limit()
        self.sock.sendall(data)

    def receive(self) -> bytes:
        self._limit()
        return self.sock.recv(_READ)

    def _limit(self) -> None:
        if self._total is not None:
            self.sock.settimeout(_shorter(self.read_timeout, _left(self._total)))

    def looks_alive(self) -> bool:
        """Whether an idle connection can be used: nothing has come, not even its end."""
        return not is_readable(self.sock.fileno())

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


class _Pool:
    """The connections of a transport."""

    def __init__(self, limits: Limits) -> None:
        self._limits: Limits = limits
        self.closed: bool = False
        self._begin()

    def _begin(self) -> None:
        self._process: int = os.getpid()
        self._lock: threading.Lock = threading.Lock()
        self._turn: threading.Condition = threading.Condition(self._lock)
        self._busy: int = 0
        self._idle: dict[Route, list[_Connection]] = {}

    def take(self, route: Route, request: HttpRequest) -> _Connection | None:
        """Wait for a turn; then an idle connection, or None where a new one must be made."""
        if self._process != os.getpid():  # a fork: what is open belongs to the parent
            self._begin()
        with self._lock:
            if self._busy >= self._limits.connections:
                self._wait(request)
            if self.closed:
                raise trouble("client_closed", request)
            self._busy += 1
        oldest = time.monotonic() - self._limits.idle_seconds
        while True:
            with self._lock:
                connections = self._idle.get(route)
                if not connections:
                    return None
                connection = connections.pop()
            if connection.idle_since >= oldest and connection.looks_alive():
                return connection
            connection.close()

    def _wait(self, request: HttpRequest) -> None:
        limit = _shorter(self._limits.wait, request.timeout.total)
        if not self._turn.wait_for(lambda: self._busy < self._limits.connections, limit):
            raise trouble("pool_timeout", request)

    def give_back(self, connection: _Connection | None, *, reusable: bool) -> None:
        """End a turn. A connection that is not reusable is closed."""
        with self._lock:
            self._busy -= 1
            self._turn.notify()
            if connection is not None and reusable and not self.closed:
                connections = self._idle.setdefault(connection.route, [])
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


class _Response(BaseResponse):
    def __init__(self, request: HttpRequest, pool: _Pool, connection: _Connection) -> None:
        super().__init__(request, 0, {})
        self._pool: _Pool = pool
        self._connection: _Connection = connection
        self._reader: ReplyReader = ReplyReader(request.method)
        self._unpacker: Unpacker | None = None
        self._first: bytes = b""
        """What came along with the head."""
        self.spoiled: bool = False
        """Whether the request was not sent to its end."""
        self._over: bool = False

    def read_head(self) -> None:
        """Wait for the head. Raises as sockets do."""
        reader = self._reader
        while not reader.head_complete:
            data = self._connection.receive()
            if not data:
                reader.end()
            self._first = reader.feed(data)
        self.status = reader.status
        self.headers: Mapping[str, str] = reader.headers
        if "content-encoding" in reader.headers:
            self._unpacker = unpacker(reader.headers["content-encoding"])

    @property
    def unanswered(self) -> bool:
        """Whether the server has not sent a single byte."""
        return self._reader.untouched

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
        return piece if self._unpacker is None else self._unpacker.feed(piece)

    def close(self) -> None:
        if not self._over:
            self._over = True
            reader = self._reader
            reusable = reader.complete and reader.reusable and not self.spoiled
            self._pool.give_back(self._connection, reusable=reusable)


class SocketTransport(BaseTransport):
    """The plain transport on sockets; the arguments are those of the other transports.

    HTTP/1.1; gzip and deflate, and br and zstd where a library for them is installed; proxies with an http:// address.
    """

    def __init__(
        self,
        *,
        limits: Limits = DEFAULT_LIMITS,
        proxy: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        trust_env: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._routes: Routes = Routes(proxy=proxy, ca_file=ca_file, trust_env=trust_env, environ=environ)
        self._pool: _Pool = _Pool(limits)

    def open(self, request: HttpRequest) -> _Response:
        check_request(request)
        route, head = self._routes.find(request)
        total = request.timeout.total
        deadline = None if total is None else time.monotonic() + total
        connection = self._pool.take(route, request)
        if connection is None:
            try:
                connection = self._connect(route, request, deadline)
            except BaseException:
                self._pool.give_back(None, reusable=False)
                raise
        response = _Response(request, self._pool, connection)
        try:
            connection.begin(request.timeout.read, deadline)
            try:
                connection.send(head + request.body)
            except (BrokenPipeError, ConnectionResetError):
                # A server that refuses a request early (one that is too large, say) may have answered nevertheless.
                response.spoiled = True
            response.read_head()
            check_head(request, response.status, response.headers)
        except _ERRORS as error:
            if response.unanswered and isinstance(error, EOFError):
                wrong = trouble("closed_early", request)
            else:
                wrong = failure(error, request, connecting=False)
        except BaseException:  # Ctrl-C too
            response.close()
            raise
        else:
            return response
        response.close()
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
            sock.settimeout(request.timeout.read)
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
