"""The connection pool and requests on its connections, for the sync and the async transport.

A Wire sends and receives bytes and a Gate waits; they block (`socket_transport`) or await (`asyncio_transport`).
"""

from __future__ import annotations

import os
import ssl
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from typing import Final, Protocol
from weakref import WeakSet, ref

from msgspec.structs import replace

from dragoman._stop import CURRENT, Stop, shorter
from dragoman.errors import DragomanError

from .errors import MalformedReplyError, error_for, translate
from .http1 import ReplyReader, Unpacker, end_of_head, unpacker
from .protocol import DEFAULT_LIMITS, MAX_BODY_BYTES, HttpRequest, PoolLimits, Response, Transport
from .routes import Beginning, Route, Routes, check_head

_LOOK: Final = 0.5
"""Seconds after which a waiting request checks for responses that were dropped without being closed."""
_GRACE: Final = 0.2
"""Seconds that `finish` waits for the formal end of a body before it closes the connection."""
_MAX_KNOWN: Final = 256
MAX_PIECE: Final = 256 * 1024
"""How much is decompressed at once."""
_ERRORS: Final = (OSError, EOFError, ValueError, MalformedReplyError)


# --- what differs between sync and async ------------------------------------------------------------------------------


class Wire(Protocol):
    """An open connection. It raises OSError."""

    idle_since: float

    def limit(self, read: float | None, deadline: float | None) -> None:
        """Set the timeout of each operation and the deadline of all; exceeding one raises TimeoutError."""
        ...

    async def send(self, request: Outgoing) -> None:
        """Send, or start sending. It is not an error if the server stops reading: it may have answered early."""
        ...

    async def receive(self) -> bytes:
        """The next bytes, as soon as any arrive; empty at the end."""
        ...

    async def encrypt(self, tls: ssl.SSLContext, host: str) -> None:
        """Start TLS."""
        ...

    @property
    def settled(self) -> bool:
        """Whether all was sent and everything received was read."""
        ...

    @property
    def quiet(self) -> bool:
        """Whether it can be reused: settled, and still open as far as the system knows."""
        ...

    def wake(self) -> None:
        """End the current operation, from any thread or signal handler. For blocking wires only."""
        ...

    def close(self) -> None:
        """Close the connection at once."""
        ...

    async def closed(self) -> None:
        """Wait until a closed connection is gone."""
        ...


class Gate(Protocol):
    """Lets one request wait until another one opens it."""

    async def wait(self, seconds: float) -> None:
        """Wait until it is open, at most this long."""
        ...

    def open(self) -> None:
        """End the wait."""
        ...


class Outgoing:
    """The bytes to send, wrapped so that a traceback with local variables does not show the key."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data: bytes = data


# --- the pool ---------------------------------------------------------------------------------------------------------


class Pool:
    """The connections of a transport. Its lock is only used in `with` blocks: Ctrl-C must not leave it held."""

    def __init__(self, limits: PoolLimits, gate: Callable[[], Gate]) -> None:
        self._limits: PoolLimits = limits
        self._gate: Callable[[], Gate] = gate
        self.closed: bool = False
        self.begin()
        _pools.add(self)

    def begin(self) -> None:
        """Start empty; also in the child of a fork, since open connections belong to the parent."""
        self._lock: threading.Lock = threading.Lock()
        self._busy: set[int] = set()
        """The ids of the active responses."""
        self._waiting: deque[ref[PooledResponse]] = deque()
        self._idle: dict[Route, list[Wire]] = {}

    async def take(self, response: PooledResponse) -> None:
        """Wait until the response may start; it gets an idle connection if there is one."""
        with self._lock:
            if not self._waiting and len(self._busy) < self._limits.connections:
                self._busy.add(id(response))
            else:
                response.gate = self._gate()
                self._waiting.append(ref(response))
        if response.gate is not None:
            await self._wait(response, response.gate)
        if self.closed:
            raise error_for("client_closed", response.request)
        oldest = time.monotonic() - self._limits.idle_seconds
        while wires := self._idle.get(response.route):
            try:
                wire = wires.pop()  # atomic, so without the lock
            except IndexError:  # another request took it
                return
            if wire.idle_since >= oldest and wire.quiet:
                response.attach(wire)
                return
            wire.close()

    async def _wait(self, response: PooledResponse, gate: Gate) -> None:
        limit, stop = shorter(self._limits.wait, response.request.timeout.total), response.stop
        end = None if limit is None else time.monotonic() + limit
        with nullcontext() if stop is None else stop.waking(gate.open):
            while id(response) not in self._busy:
                left = _LOOK if end is None else min(_LOOK, end - time.monotonic())
                if stop is not None:
                    left = stop.left(left) or 0.0
                if left <= 0:
                    raise error_for("pool_timeout", response.request)
                await gate.wait(left)
                with self._lock:
                    self._admit()  # a dropped response notifies nobody

    def _admit(self) -> None:
        while self._waiting and len(self._busy) < self._limits.connections:
            response = self._waiting[0]()
            if response is not None and response.gate is not None:
                self._busy.add(id(response))
                response.gate.open()
            self._waiting.popleft()

    def end(self, response: PooledResponse, *, reusable: bool = False) -> bool:
        """End a response. Returns whether its connection was kept; one that is not reusable is closed."""
        wire = response.detach()
        # A cancelling thread may be about to wake the connection; that must not hit another request.
        reusable = reusable and (response.stop is None or not response.stop.cancelled)
        kept = False
        with self._lock:
            self._busy.discard(id(response))
            if response.gate is not None and (waiting := ref(response)) in self._waiting:
                self._waiting.remove(waiting)
            if wire is not None and reusable and not self.closed:
                wires = self._idle.setdefault(response.route, [])
                if len(wires) < self._limits.idle:
                    wire.idle_since = time.monotonic()
                    wires.append(wire)
                    kept = True
            if self._waiting:
                self._admit()
        response.ended = True
        if wire is not None and not kept:
            wire.close()
        return kept

    def forget(self, response: PooledResponse) -> None:
        """End a response that was dropped. Takes no lock: the thread that frees the object may hold it."""
        self._busy.discard(id(response))
        if (wire := response.detach()) is not None:
            wire.close()

    def close(self) -> list[Wire]:
        """Close the idle connections and return them, to be waited for."""
        with self._lock:
            self.closed = True
            idle, self._idle = self._idle, {}
        wires = [wire for each in idle.values() for wire in each]
        for wire in wires:
            wire.close()
        return wires


_pools: Final[WeakSet[Pool]] = WeakSet()


def _begin_anew() -> None:
    for pool in _pools:
        pool.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


# --- one request -----------------------------------------------------------------------------------------------------


class PooledResponse(Response):
    """One request on a pooled connection, and its response.

    It is created before it takes a connection. One that is dropped without being closed (after Ctrl-C, for example)
    ends itself when it is freed, so that interrupts cannot use up the pool.
    """

    ended: bool = True
    """Whether the pool has no business with it: before it is complete, and in the end."""

    def __init__(self, request: HttpRequest, pool: Pool, route: Route, stop: Stop | None) -> None:
        self.request: HttpRequest = request
        self.status: int = 0
        self.headers: Mapping[str, str] = {}
        self.route: Route = route
        self.stop: Stop | None = stop
        """The current Stop of a sync program; async tasks are cancelled instead."""
        self.gate: Gate | None = None
        """Where it waits for a connection, if it has to."""
        self.wire: Wire | None = None
        """Its connection; None before and after."""
        self._pool: Pool = pool
        self._reader: ReplyReader = ReplyReader(request.method)
        self._deadline: float | None = None
        self._hurried: bool = False
        """Whether the timeout was shortened for the rest of one piece."""
        self._first: bytes = b""
        """The part of the body that arrived with the head."""
        self._unpacker: Unpacker | None = None
        self.ended = False

    def __del__(self) -> None:
        if not self.ended:
            self._pool.forget(self)

    def attach(self, wire: Wire) -> None:
        """Use this connection, and let the Stop wake it."""
        self.wire = wire
        if self.stop is not None:
            self.stop.wakers[id(self)] = wire.wake  # by id: a dropped response must be freed
            if self.stop.cancelled:
                wire.wake()

    def detach(self) -> Wire | None:
        if self.stop is not None:
            self.stop.wakers.pop(id(self), None)
        wire, self.wire = self.wire, None
        return wire

    async def begin(self, wire: Wire, request: Outgoing, deadline: float | None) -> None:
        """Send the request and wait for the response head."""
        reader, self._deadline = self._reader, deadline
        try:
            wire.limit(self.request.timeout.read, deadline)
            await wire.send(request)
            began = time.monotonic()
            while True:
                self._first = self._take_in(await wire.receive())
                if reader.head_complete:
                    break
                self._hurry(wire, began)
        except _ERRORS as error:
            failure = translate(error, self.request, connecting=False)
            if reader.untouched and isinstance(error, EOFError):
                failure = error_for("closed_early", self.request)
        else:
            self.status, self.headers = reader.status, reader.headers
            if "content-encoding" in self.headers:
                self._unpacker = unpacker(self.headers["content-encoding"])
            return
        if self.stop is not None:
            self.stop.check()
        raise failure

    def _hurry(self, wire: Wire, began: float) -> None:
        """Keep the read timeout running: it does not restart with bytes that contain nothing of the body."""
        read = self.request.timeout.read
        wire.limit(None, self._deadline if read is None else shorter(self._deadline, began + read))
        self._hurried = True

    def _take_in(self, data: bytes) -> bytes:
        """The part of the body in the received bytes, which are empty at the end."""
        if data:
            return self._reader.feed(data)
        self._reader.end()
        return b""

    async def next(self) -> bytes:
        reader, unpacking = self._reader, self._unpacker
        try:
            if self._hurried and self.wire is not None:
                self._hurried = False
                self.wire.limit(self.request.timeout.read, self._deadline)
            began = time.monotonic()
            while (wire := self.wire) is not None:
                if unpacking is not None and (piece := unpacking.feed(b"", MAX_PIECE)):
                    return piece
                if self._first:
                    piece, self._first = self._first, b""
                elif not reader.complete:
                    piece = self._take_in(await wire.receive())
                    if not piece:
                        self._hurry(wire, began)
                else:
                    if unpacking is not None:
                        unpacking.finish()
                    await self.aclose()
                    break
                if unpacking is not None:
                    piece = unpacking.feed(piece, MAX_PIECE)
                elif reader.complete:
                    await self.aclose()  # at once: others may wait for the connection
                if piece:
                    return piece
        except _ERRORS as error:
            failure = translate(error, self.request, connecting=False)
        except BaseException:  # Ctrl-C or a cancelled task: received bytes may be lost
            self._pool.end(self)
            raise
        else:
            return b""
        await self.aclose()
        if self.stop is not None:
            self.stop.check()
        raise failure

    async def finish(self) -> None:
        """Wait briefly for the formal end of the body, so that the connection can be reused."""
        wire, end = self.wire, time.monotonic() + _GRACE
        if wire is not None and not self._reader.complete:
            self.request = replace(self.request, timeout=replace(self.request.timeout, read=_GRACE))
            wire.limit(_GRACE, shorter(self._deadline, end))
            with suppress(DragomanError):
                while await self.next() and time.monotonic() < end:
                    pass
        await self.aclose()

    async def read(self, limit: int = MAX_BODY_BYTES) -> bytes:
        first = await self.next()
        if len(first) > limit:
            await self.aclose()
            raise error_for("too_large", self.request)
        # Most responses arrive in one piece.
        return first if self.wire is None else await self.read_rest([first], limit)

    async def aclose(self) -> None:
        """Discard the rest of the body and release the connection.

        The one rule: a connection is reused only if its response was read to the end and nothing is left: no unsent
        bytes of the request, no unread bytes of the body, none after it. Otherwise it is closed, since what is left
        would become part of another caller's response.
        """
        wire, reader = self.wire, self._reader
        if wire is not None:
            consumed = reader.complete and not self._first and wire.settled
            if not self._pool.end(self, reusable=consumed and reader.reusable):
                await wire.closed()


class PooledTransport(Transport):
    """A transport that speaks HTTP/1.1 over a connection pool."""

    _gate: Callable[[], Gate]
    """Creates a closed gate."""

    def __init__(
        self,
        *,
        limits: PoolLimits = DEFAULT_LIMITS,
        proxy: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._limits: PoolLimits = limits
        self._current: Pool = Pool(limits, self._gate)
        try:
            self._routes: Routes = Routes(proxy=proxy, ca_file=ca_file, environ=environ)
        finally:
            del proxy, environ  # a traceback might show them
        self._known: dict[str, Beginning] = {}
        """The encoded head of the last request to each URL; most requests have the same headers."""

    def _pool(self) -> Pool:
        return self._current

    @abstractmethod
    async def _dial(self, address: tuple[str, int], deadline: float | None) -> Wire:
        """Connect to the first address of this host that answers."""

    async def open(self, request: HttpRequest) -> PooledResponse:
        known = self._known.get(request.url)
        if known is None or known.method != request.method or known.headers != request.headers:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[request.url] = self._routes.find(request)
        total, stop = request.timeout.total, CURRENT.get() if self.blocking else None
        deadline = None if total is None else time.monotonic() + total
        if stop is not None and (stop.cancelled or stop.deadline is not None):
            stop.check()
            deadline = shorter(deadline, stop.deadline)
        pool = self._pool()
        response = PooledResponse(request, pool, known.route, stop)
        try:
            await pool.take(response)
            wire = response.wire or await self._connect(response, deadline)
            await response.begin(wire, Outgoing(known.head + end_of_head(request) + request.body), deadline)
            if response.status >= 300:
                self._check_head(response)
        except BaseException as error:  # also Ctrl-C and a cancelled task
            wire = response.wire
            pool.end(response)
            if wire is not None and not isinstance(error, GeneratorExit):  # which allows no further await
                await wire.closed()
            raise
        return response

    def _check_head(self, response: Response) -> None:
        """Raise for a response that must not be read, such as a redirect."""
        check_head(response.request, response.status, response.headers)

    async def _connect(self, response: PooledResponse, deadline: float | None) -> Wire:
        request, route = response.request, response.route
        limit = request.timeout.connect
        end = shorter(None if limit is None else time.monotonic() + limit, deadline)
        tls = self._routes.tls if route.encrypted else None  # first, since it may raise for a bad file
        try:
            wire = await self._dial(route.address, end)
            response.attach(wire)
            wire.limit(None, end)
            if route.tunnel and (status := await _ask_for_tunnel(wire, Outgoing(route.tunnel))) != 200:
                raise error_for("proxy_auth" if status == 407 else "proxy", request)
            if tls is not None:
                await wire.encrypt(tls, route.host)
        except _ERRORS as error:
            failure = translate(error, request, connecting=True, proxied=route.proxy is not None)
        else:
            return wire
        if response.stop is not None:
            response.stop.check()
        raise failure

    async def aclose(self) -> None:
        for wire in self._pool().close():
            await wire.closed()


async def _ask_for_tunnel(wire: Wire, ask: Outgoing) -> int:
    """Send CONNECT to the proxy. Returns the status of its response."""
    await wire.send(ask)
    reader = ReplyReader("HEAD")  # as with HEAD, the response has no body
    while not reader.head_complete:
        data = await wire.receive()
        if not data:
            reader.end()
        reader.feed(data)
    return reader.status
