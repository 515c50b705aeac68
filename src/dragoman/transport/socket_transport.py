"""The sync transport, on sockets of the standard library.

Ctrl-C and the current Stop end a blocking call, and bytes are returned as soon as they arrive.
"""

from __future__ import annotations

import errno
import os
import select
import selectors
import socket
import ssl
import struct
import time
from _thread import start_new_thread
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from itertools import chain, zip_longest
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias

from dragoman._stop import Stop, current_stop, shorter

from .pool import Outgoing, PooledTransport

_READ: Final = 64 * 1024
STAGGER: Final = 0.25
"""Seconds until the next address of a host is tried in parallel (RFC 8305)."""
_BEGUN: Final = (0, errno.EINPROGRESS, errno.EWOULDBLOCK)
Address: TypeAlias = tuple[Any, Any, int, str, Any]
"""A result of getaddrinfo."""


class SocketWire:
    """A connection on a blocking socket."""

    __slots__ = ("_closed", "_deadline", "_disturbed", "_limit", "_read", "_sock", "_unsent", "idle_since")

    def __init__(self, sock: socket.socket) -> None:
        self.idle_since: float = 0.0
        self._sock: socket.socket = sock
        self._read: float | None = None
        self._deadline: float | None = None
        self._limit: float | None = sock.gettimeout()
        """The timeout that was last set on the socket."""
        self._unsent: bool = False
        self._closed: bool = False
        self._disturbed: Callable[[], Sequence[object]] = watch(sock.fileno())

    def limit(self, read: float | None, deadline: float | None) -> None:
        self._read, self._deadline = read, deadline
        if deadline is None and self._limit != read:
            self._limit = read
            self._sock.settimeout(read)

    def _hurry(self, deadline: float) -> None:
        limit = shorter(self._read, time_left(deadline))
        if limit != self._limit:
            self._limit = limit
            self._sock.settimeout(limit)

    async def send(self, request: Outgoing) -> None:
        if self._deadline is not None:
            self._hurry(self._deadline)
        self._unsent = True
        try:
            self._sock.sendall(request.data)
        except (BrokenPipeError, ConnectionResetError):
            return  # a server that rejects a request early (as too large, for example) may have answered
        self._unsent = False

    async def receive(self) -> bytes:
        if self._deadline is not None:
            self._hurry(self._deadline)
        return self._sock.recv(_READ)

    async def encrypt(self, tls: ssl.SSLContext, host: str) -> None:
        if self._deadline is not None:
            self._hurry(self._deadline)
        # suppress_ragged_eofs=False: an end without TLS close_notify may be an attacker's.
        sock = self._sock = tls.wrap_socket(
            self._sock, server_hostname=host, suppress_ragged_eofs=False, do_handshake_on_connect=False
        )
        self._disturbed = watch(sock.fileno())
        if (stop := current_stop()) is not None:
            stop.check()  # the old socket may have been woken meanwhile
        sock.do_handshake()

    @property
    def settled(self) -> bool:
        return not self._unsent

    @property
    def quiet(self) -> bool:
        return not self._closed and not self._disturbed()

    def wake(self) -> None:
        with suppress(OSError):  # already closed
            # Discard what is in flight: otherwise a server that keeps sending can block the close for a minute.
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)  # an SSLSocket's shutdown would unwrap TLS first

    def close(self) -> None:
        self._closed = True
        self._sock.close()

    async def closed(self) -> None:
        pass


def watch(number: int) -> Callable[[], Sequence[object]]:
    """A function that tells whether a file descriptor is readable: an idle connection then is closing."""
    if not hasattr(select, "poll"):  # Windows, where `select` accepts any descriptor
        return lambda: select.select([number], [], [], 0)[0]
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return partial(poll.poll, 0)


def time_left(deadline: float) -> float:
    """Seconds until the deadline. TimeoutError if it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _ThreadGate:
    """A gate for threads. Not an Event: interrupted by Ctrl-C, its lock may raise RuntimeError."""

    def __init__(self) -> None:
        self._opened: SimpleQueue[None] = SimpleQueue()

    async def wait(self, seconds: float) -> None:
        with suppress(Empty):
            self._opened.get(timeout=seconds)

    def open(self) -> None:
        self._opened.put(None)


class SocketTransport(PooledTransport):
    """The sync transport. Works with many threads, after a fork, and with Ctrl-C.

    HTTP/1.1 with gzip; proxies with an http:// address.
    """

    blocking: bool | None = True

    _gate = _ThreadGate

    async def _dial(self, address: tuple[str, int], deadline: float | None) -> SocketWire:
        stop = current_stop()
        return SocketWire(connect(find_addresses(*address, deadline, stop), deadline, stop))


# --- addresses -------------------------------------------------------------------------------------------------------


def numeric(host: str, port: int) -> list[Address]:
    """The address, if the host is an IP address; empty for a name."""
    with suppress(socket.gaierror):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return []


def look_up(host: str, port: int, deliver: Callable[[list[Address] | Exception], object]) -> None:
    """Look up a name in a thread, since a lookup cannot be cancelled; `deliver` gets the addresses or the error."""

    def run() -> None:
        try:
            deliver(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:  # noqa: BLE001 -- raised by the waiting thread
            deliver(error)

    start_new_thread(run, ())


def by_turns(addresses: list[Address]) -> list[Address]:
    """The addresses in the order to try: families alternate, the preferred one first."""
    family = addresses[0][0]
    preferred, others = ([each for each in addresses if (each[0] == family) is same] for same in (True, False))
    return [each for each in chain(*zip_longest(preferred, others)) if each is not None]


def open_socket(address: Address) -> socket.socket:
    """A non-blocking socket for this address."""
    sock = socket.socket(*address[:3])
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def find_addresses(host: str, port: int, deadline: float | None, stop: Stop | None) -> list[Address]:
    """The addresses of a host. TimeoutError at the deadline, or if stopped."""
    if found := numeric(host, port):
        return found
    answers: SimpleQueue[list[Address] | Exception] = SimpleQueue()
    look_up(host, port, answers.put)
    with nullcontext() if stop is None else stop.waking(partial(answers.put, TimeoutError())), suppress(Empty):
        answer = answers.get(timeout=None if deadline is None else time_left(deadline))
        if isinstance(answer, Exception):
            raise answer
        return answer
    raise TimeoutError


def connect(addresses: list[Address], deadline: float | None, stop: Stop | None) -> socket.socket:
    """Connect to the first address that answers; they are tried in parallel, STAGGER seconds apart."""
    waiting = by_turns(addresses)
    problem: OSError = OSError("no address")
    begun: set[socket.socket] = set()
    with selectors.DefaultSelector() as selector, ExitStack() as stack:
        stack.callback(lambda: [sock.close() for sock in begun])
        if stop is not None:
            woken, waker = (stack.enter_context(sock) for sock in socket.socketpair())
            selector.register(woken, selectors.EVENT_READ)
            stack.enter_context(stop.waking(partial(waker.send, b"!")))
        pause = 0.0
        while waiting or begun:
            if waiting and pause <= 0:
                try:
                    begun.add(_begin(waiting.pop(0), selector))
                except OSError as error:
                    problem = error
                    continue
                pause = STAGGER
            left = None if deadline is None else time_left(deadline)
            started = time.monotonic()
            ready = selector.select(shorter(left, pause if waiting else None))
            pause -= time.monotonic() - started
            for key, _ in ready:
                sock = key.fileobj
                if not isinstance(sock, socket.socket) or sock not in begun:  # woken
                    raise TimeoutError
                selector.unregister(sock)
                begun.discard(sock)
                number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if not number:
                    sock.setblocking(True)
                    return sock
                sock.close()
                problem, pause = OSError(number, os.strerror(number)), 0.0
    raise problem


def _begin(address: Address, selector: selectors.BaseSelector) -> socket.socket:
    sock = open_socket(address)
    try:
        number = sock.connect_ex(address[4])
        if number not in _BEGUN:
            raise OSError(number, os.strerror(number))
        selector.register(sock, selectors.EVENT_WRITE)
    except BaseException:
        sock.close()
        raise
    return sock
