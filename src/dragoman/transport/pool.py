"""Connections that are used again, and the requests on them, written once for both colours.

How bytes are sent, received and waited for is a Wire and a Gate, which block or await: see `socket_transport` and
`asyncio_transport`.
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
"""Seconds after which whoever waits for a turn looks whether one was dropped."""
_GRACE: Final = 0.2
"""Seconds in which a body whose content is complete may end, before its connection is cut."""
_MAX_KNOWN: Final = 256
MAX_PIECE: Final = 256 * 1024
"""The most that is unpacked at once."""
_ERRORS: Final = (OSError, EOFError, ValueError, MalformedReplyError)


# --- what the colours bring ------------------------------------------------------------------------------------------


class Wire(Protocol):
    """An open connection. What it raises is an OSError."""

    idle_since: float

    def limit(self, read: float | None, deadline: float | None) -> None:
        """From now on each operation takes at most `read` seconds and ends before the deadline, or TimeoutError."""
        ...

    async def send(self, request: Outgoing) -> None:
        """Send, or begin to. If the other side has stopped reading, that is not an error: it may have answered."""
        ...

    async def receive(self) -> bytes:
        """What has come, as soon as something has; empty at the end."""
        ...

    async def encrypt(self, tls: ssl.SSLContext, host: str) -> None:
        """Begin TLS."""
        ...

    @property
    def settled(self) -> bool:
        """Whether everything was sent and all that has come was taken."""
        ...

    @property
    def quiet(self) -> bool:
        """Whether it is settled and open still, as far as the system knows: asked before it is used again."""
        ...

    def wake(self) -> None:
        """End the operation that is under way, from any thread or a signal handler. Only where operations block."""
        ...

    def close(self) -> None:
        """Cut the connection."""
        ...

    async def closed(self) -> None:
        """Wait until a connection that was cut is really gone."""
        ...


class Gate(Protocol):
    """What somebody waits at until it is opened."""

    async def wait(self, seconds: float) -> None:
        """Wait until it is open, but no longer than this."""
        ...

    def open(self) -> None:
        """Let the one that waits go on."""
        ...


class Outgoing:
    """What is to be sent. Not bytes: a traceback that shows local variables would show the key in them."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data: bytes = data


# --- whose turn it is ------------------------------------------------------------------------------------------------


class Pool:
    """The connections of a transport. Takes its lock with `with` only: Ctrl-C must not leave it locked."""

    def __init__(self, limits: PoolLimits, gate: Callable[[], Gate]) -> None:
        self._limits: PoolLimits = limits
        self._gate: Callable[[], Gate] = gate
        self.closed: bool = False
        self.begin()
        _pools.add(self)

    def begin(self) -> None:
        """Begin anew, also in the child of a fork: what is open belongs to the parent."""
        self._lock: threading.Lock = threading.Lock()
        self._busy: set[int] = set()
        """The responses that have begun, by identity."""
        self._waiting: deque[ref[PooledResponse]] = deque()
        self._idle: dict[Route, list[Wire]] = {}

    async def take(self, response: PooledResponse) -> None:
        """Wait until the response may begin; it gets an idle connection if there is one."""
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
                wire = wires.pop()  # without the lock: nobody else gets the same one
            except IndexError:  # somebody else was quicker
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
                    self._admit()  # a response that was dropped has told nobody

    def _admit(self) -> None:
        while self._waiting and len(self._busy) < self._limits.connections:
            response = self._waiting[0]()
            if response is not None and response.gate is not None:
                self._busy.add(id(response))
                response.gate.open()
            self._waiting.popleft()

    def end(self, response: PooledResponse, *, reusable: bool = False) -> bool:
        """End a response's turn. Returns whether its connection was kept; one that is not reusable is cut."""
        wire = response.detach()
        # Whoever cancels may be about to wake the connection: it must not wake somebody else's request.
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
        """End a turn that nobody has ended. Takes no lock: whoever frees an object may hold it."""
        self._busy.discard(id(response))
        if (wire := response.detach()) is not None:
            wire.close()

    def close(self) -> list[Wire]:
        """Cut what is idle. Returns it, to be waited for."""
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
    """One request on a connection of a pool: its turn, and its reply.

    Made before anything is taken, and ended by whoever made it. One that was dropped on the way (Ctrl-C, a response
    that nobody closed) ends itself when it is freed, so that no interrupt can use up the pool.
    """

    def __init__(self, request: HttpRequest, pool: Pool, route: Route, stop: Stop | None) -> None:
        self.request: HttpRequest = request
        self.status: int = 0
        self.headers: Mapping[str, str] = {}
        self.route: Route = route
        self.stop: Stop | None = stop
        """What may end it from outside; on an event loop, tasks are cancelled instead."""
        self.gate: Gate | None = None
        """Where it waits, or has waited, for its turn."""
        self.wire: Wire | None = None
        """None before it has a connection, and as soon as that is not its own any more."""
        self.ended: bool = False
        self._pool: Pool = pool
        self._reader: ReplyReader = ReplyReader(request.method)
        self._deadline: float | None = None
        self._hurried: bool = False
        """Whether the connection was told a limit for the rest of a piece only."""
        self._first: bytes = b""
        """What came along with the head."""
        self._unpacker: Unpacker | None = None

    def __del__(self) -> None:
        if not self.ended:
            self._pool.forget(self)

    def attach(self, wire: Wire) -> None:
        """Use this connection. Whoever stops the work ends what is waited for on it, once for all pieces."""
        self.wire = wire
        if self.stop is not None:
            self.stop.wakers[id(self)] = wire.wake  # by its identity: a response that is dropped must be freed
            if self.stop.cancelled:
                wire.wake()

    def detach(self) -> Wire | None:
        if self.stop is not None:
            self.stop.wakers.pop(id(self), None)
        wire, self.wire = self.wire, None
        return wire

    async def begin(self, wire: Wire, request: Outgoing, deadline: float | None) -> None:
        """Send the request and wait for the head of the reply."""
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
        """Nothing of the body has come yet: the read limit goes on, and does not begin again with every byte."""
        read = self.request.timeout.read
        wire.limit(None, self._deadline if read is None else shorter(self._deadline, began + read))
        self._hurried = True

    def _take_in(self, data: bytes) -> bytes:
        """The part of the body in what was received; nothing was, at the end."""
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
                    await self.aclose()  # at once: nothing can be wrong with what is here, and others may wait
                if piece:
                    return piece
        except _ERRORS as error:
            failure = translate(error, self.request, connecting=False)
        except BaseException:  # Ctrl-C, or a cancelled task: what was just received may be lost
            self._pool.end(self)
            raise
        else:
            return b""
        await self.aclose()
        if self.stop is not None:
            self.stop.check()
        raise failure

    async def finish(self) -> None:
        """Wait a moment for the formal end of the body, behind which the connection can be used again."""
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
        # Most replies that are not streamed come in one piece.
        return first if self.wire is None else await self.read_rest([first], limit)

    async def aclose(self) -> None:
        """Give up the rest of the body and free the connection.

        The one rule: a connection serves another request only when whoever used it has consumed the reply to its end
        and nothing is left: no bytes of the request that are still to be sent, none of the body that nobody took, none
        behind it. In every other case it is cut, or what is left would be taken for somebody else's reply.
        """
        wire, reader = self.wire, self._reader
        if wire is not None:
            consumed = reader.complete and not self._first and wire.settled
            if not self._pool.end(self, reusable=consumed and reader.reusable):
                await wire.closed()


class PooledTransport(Transport):
    """A transport that speaks HTTP/1.1 over connections of its own."""

    _gate: Callable[[], Gate]
    """Makes a gate that is closed."""

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
            del proxy, environ  # which a traceback might show
        self._known: dict[str, Beginning] = {}
        """How the last request to an address began. Most have the same headers: a third of the work is then done."""

    def _pool(self) -> Pool:
        return self._current

    @abstractmethod
    async def _dial(self, address: tuple[str, int], deadline: float | None) -> Wire:
        """A connection to the first address of this host that answers."""

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
        except BaseException as error:  # Ctrl-C and a cancelled task too
            wire = response.wire
            pool.end(response)
            if wire is not None and not isinstance(error, GeneratorExit):  # where nothing can be awaited any more
                await wire.closed()
            raise
        return response

    def _check_head(self, response: Response) -> None:
        """Refuse a reply that must not be read, such as a redirect."""
        check_head(response.request, response.status, response.headers)

    async def _connect(self, response: PooledResponse, deadline: float | None) -> Wire:
        request, route = response.request, response.route
        limit = request.timeout.connect
        end = shorter(None if limit is None else time.monotonic() + limit, deadline)
        tls = self._routes.tls if route.encrypted else None  # first, since it may complain about a file
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
    """Ask the proxy for a way through. Returns the status of its answer."""
    await wire.send(ask)
    reader = ReplyReader("HEAD")  # like one to HEAD, the answer has no body
    while not reader.head_complete:
        data = await wire.receive()
        if not data:
            reader.end()
        reader.feed(data)
    return reader.status
