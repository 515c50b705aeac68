"""The transport for plain programs, on blocking sockets of the standard library.

Blocking calls end when Ctrl-C is pressed, and what has arrived is handed out at once.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final
from weakref import WeakSet

from .pool import Pool, PooledTransport, shorter
from .protocol import BlockingTransport

_READ: Final = 64 * 1024


class SocketWire:
    """A connection on a blocking socket."""

    __slots__ = ("_closed", "_deadline", "_disturbed", "_limit", "_read", "_sock", "_unsent", "idle_since")

    def __init__(self, sock: socket.socket) -> None:
        self.idle_since: float = 0.0
        self._sock: socket.socket = sock
        self._read: float | None = None
        self._deadline: float | None = None
        self._limit: float | None = sock.gettimeout()
        """What the socket was told last."""
        self._unsent: bool = False
        self._closed: bool = False
        self._disturbed: Callable[[], Sequence[object]] = watch(sock.fileno())

    def limit(self, read: float | None, deadline: float | None) -> None:
        self._read, self._deadline = read, deadline
        if deadline is None and self._limit != read:
            self._limit = read
            self._sock.settimeout(read)

    def _hurry(self) -> None:
        """Set the socket's limit by the deadline, if there is one."""
        if self._deadline is not None:
            self._limit = shorter(self._read, time_left(self._deadline))
            self._sock.settimeout(self._limit)

    async def send(self, data: bytes) -> None:
        self._hurry()
        self._unsent = True
        try:
            self._sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return  # a server that refuses a request early (one that is too large, say) may have answered
        self._unsent = False

    async def receive(self) -> bytes:
        self._hurry()
        return self._sock.recv(_READ)

    async def encrypt(self, tls: ssl.SSLContext, host: str) -> None:
        self._hurry()
        # Without ragged ends: a connection that ends without saying so in TLS may have been cut by anybody.
        self._sock = tls.wrap_socket(self._sock, server_hostname=host, suppress_ragged_eofs=False)
        self._disturbed = watch(self._sock.fileno())

    @property
    def settled(self) -> bool:
        return not self._unsent

    @property
    def quiet(self) -> bool:
        return not self._closed and not self._disturbed()

    def close(self) -> None:
        self._closed = True
        self._sock.close()

    async def closed(self) -> None:
        pass


def watch(number: int) -> Callable[[], Sequence[object]]:
    """A way to ask whether something has come for an open file: for an idle connection, that its end is near."""
    if not hasattr(select, "poll"):  # on Windows; and only there does `select` take any number
        return lambda: select.select([number], [], [], 0)[0]
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return partial(poll.poll, 0)


def time_left(deadline: float) -> float:
    """Seconds until the deadline. TimeoutError if it is over."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _ThreadGate:
    """A gate for a thread. Not an Event, whose lock may complain instead of a Ctrl-C."""

    def __init__(self) -> None:
        self._opened: SimpleQueue[None] = SimpleQueue()

    async def wait(self, seconds: float) -> None:
        with suppress(Empty):
            self._opened.get(timeout=seconds)

    def open(self) -> None:
        self._opened.put(None)


class SocketNetwork:
    """Makes blocking connections."""

    async def dial(self, address: tuple[str, int], deadline: float | None) -> SocketWire:
        problem: OSError = OSError("no address")
        for family, kind, protocol, _, where in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(None if deadline is None else time_left(deadline))
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.connect(where)
            except OSError as error:
                sock.close()
                problem = error
            except BaseException:
                sock.close()
                raise
            else:
                return SocketWire(sock)
        raise problem

    def gate(self) -> _ThreadGate:
        return _ThreadGate()


_pools: Final[WeakSet[Pool]] = WeakSet()


def _begin_anew() -> None:
    for pool in _pools:
        pool.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class SocketTransport(PooledTransport, BlockingTransport):
    """The transport for plain programs: works in many threads, after a fork, and with Ctrl-C.

    HTTP/1.1, compressed with gzip where the server does that; proxies with an http:// address.
    """

    blocking: bool | None = True

    def _start(self) -> None:
        self._only_pool: Pool = Pool(self._limits, SocketNetwork())
        _pools.add(self._only_pool)

    def _pool(self) -> Pool:
        return self._only_pool

    async def aclose(self) -> None:
        """Close all connections; blocks, and never suspends."""
        self._only_pool.close()
