"""Connections that are used again, and the requests on them, written once for both colours.

How bytes are sent, received and waited for is a Network, which blocks or awaits: see `socket_transport` and
`asyncio_transport`.
"""

from __future__ import annotations

import os
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol
from weakref import ref

from dragoman.errors import DragomanError

from .errors import MalformedReplyError, error_for, translate
from .http1 import ReplyReader, Unpacker, unpacker
from .protocol import DEFAULT_LIMITS, BaseResponse, BaseTransport, HttpRequest, PoolLimits
from .routes import Route, Routes, check_head

_LOOK: Final = 0.5
"""Seconds after which whoever waits for a turn looks whether one was dropped."""
_ERRORS: Final = (OSError, EOFError, ValueError, MalformedReplyError)


# --- what the colours bring ------------------------------------------------------------------------------------------


class Wire(Protocol):
    """An open connection. What it raises is an OSError."""

    idle_since: float

    def limit(self, read: float | None, deadline: float | None) -> None:
        """From now on each operation takes at most `read` seconds and ends before the deadline, or TimeoutError."""
        ...

    async def send(self, data: bytes) -> None:
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


class Network(Protocol):
    """Makes connections, and lets somebody wait."""

    async def dial(self, address: tuple[str, int], deadline: float | None) -> Wire:
        """A connection to the first address of this host that answers."""
        ...

    def gate(self) -> Gate:
        """A gate that is closed."""
        ...


# --- whose turn it is ------------------------------------------------------------------------------------------------


class Turn:
    """The right to one request at a time, with the connection it is made on.

    Made before anything is taken, and ended by whoever made it. One that was dropped on the way (Ctrl-C, a response
    that nobody closed) ends itself when it is freed, so that no interrupt can use up the pool.
    """

    __slots__ = ("__weakref__", "_pool", "gate", "route", "wire")

    def __init__(self, pool: Pool, route: Route) -> None:
        self._pool: Pool = pool
        self.route: Route = route
        self.wire: Wire | None = None
        self.gate: Gate | None = None
        """Where it waits, or has waited, for its beginning."""

    def __del__(self) -> None:
        self._pool.forget(self)


class Pool:
    """The connections of a transport. Takes its lock with `with` only: Ctrl-C must not leave it locked."""

    def __init__(self, limits: PoolLimits, network: Network) -> None:
        self._limits: PoolLimits = limits
        self.network: Network = network
        self.closed: bool = False
        self.begin()

    def begin(self) -> None:
        """Begin anew, also in the child of a fork: what is open belongs to the parent."""
        self._lock: threading.Lock = threading.Lock()
        self._busy: set[int] = set()
        """The turns that have begun, by identity."""
        self._waiting: deque[ref[Turn]] = deque()
        self._idle: dict[Route, list[Wire]] = {}

    async def take(self, turn: Turn, request: HttpRequest) -> None:
        """Wait until the turn may begin; it gets an idle connection if there is one."""
        with self._lock:
            if not self._waiting and len(self._busy) < self._limits.connections:
                self._busy.add(id(turn))
            else:
                turn.gate = self.network.gate()
                self._waiting.append(ref(turn))
        if turn.gate is not None:
            await self._wait(turn, turn.gate, request)
        if self.closed:
            raise error_for("client_closed", request)
        oldest = time.monotonic() - self._limits.idle_seconds
        while (wire := self._pop(turn.route)) is not None:
            if wire.idle_since >= oldest and wire.quiet:
                turn.wire = wire
                return
            wire.close()

    async def _wait(self, turn: Turn, gate: Gate, request: HttpRequest) -> None:
        limit = shorter(self._limits.wait, request.timeout.total)
        end = None if limit is None else time.monotonic() + limit
        while id(turn) not in self._busy:
            left = _LOOK if end is None else min(_LOOK, end - time.monotonic())
            if left <= 0:
                raise error_for("pool_timeout", request)
            await gate.wait(left)
            with self._lock:
                self._admit()  # a turn that was dropped has told nobody

    def _admit(self) -> None:
        """Begin the turns that wait, as far as there is room."""
        while self._waiting and len(self._busy) < self._limits.connections:
            turn = self._waiting[0]()
            if turn is not None and turn.gate is not None:
                self._busy.add(id(turn))
                turn.gate.open()
            self._waiting.popleft()

    def _pop(self, route: Route) -> Wire | None:
        with self._lock:
            wires = self._idle.get(route)
            return wires.pop() if wires else None

    def end(self, turn: Turn, *, reusable: bool = False) -> bool:
        """End a turn. Returns whether its connection was kept; one that is not reusable is cut."""
        wire, turn.wire = turn.wire, None
        kept = False
        with self._lock:
            self._busy.discard(id(turn))
            if turn.gate is not None and (waiting := ref(turn)) in self._waiting:
                self._waiting.remove(waiting)
            if wire is not None and reusable and not self.closed:
                wires = self._idle.setdefault(turn.route, [])
                if len(wires) < self._limits.idle:
                    wire.idle_since = time.monotonic()
                    wires.append(wire)
                    kept = True
            if self._waiting:
                self._admit()
        if wire is not None and not kept:
            wire.close()
        return kept

    def forget(self, turn: Turn) -> None:
        """End a turn that nobody has ended. Takes no lock: whoever frees an object may hold it."""
        self._busy.discard(id(turn))
        if turn.wire is not None:
            turn.wire.close()

    def close(self) -> list[Wire]:
        """Cut what is idle. Returns it, to be waited for."""
        with self._lock:
            self.closed = True
            idle, self._idle = self._idle, {}
        wires = [wire for each in idle.values() for wire in each]
        for wire in wires:
            wire.close()
        return wires


def shorter(one: float | None, other: float | None) -> float | None:
    """The shorter of two times; None is without end."""
    return other if one is None else one if other is None else min(one, other)


# --- one request -----------------------------------------------------------------------------------------------------


class PooledResponse(BaseResponse):
    """A reply on a connection of a pool."""

    def __init__(self, request: HttpRequest, pool: Pool, turn: Turn, wire: Wire) -> None:
        super().__init__(request, 0, {})
        self._pool: Pool = pool
        self._turn: Turn | None = turn
        """None as soon as the connection is not ours any more."""
        self._wire: Wire = wire
        self._reader: ReplyReader = ReplyReader(request.method)
        self._first: bytes = b""
        """What came along with the head."""
        self._unpacker: Unpacker | None = None

    async def begin(self, data: bytes, deadline: float | None) -> None:
        """Send the request and wait for the head of the reply."""
        wire, reader, request = self._wire, self._reader, self.request
        try:
            wire.limit(request.timeout.read, deadline)
            await wire.send(data)
            while not reader.head_complete:
                self._first = await self._receive()
        except _ERRORS as error:
            failure = translate(error, request, connecting=False)
            if reader.untouched and isinstance(error, EOFError):
                failure = error_for("closed_early", request)
        else:
            self.status, self.headers = reader.status, reader.headers
            if self.status >= 300:
                check_head(request, self.status, self.headers)
            if "content-encoding" in self.headers:
                self._unpacker = unpacker(self.headers["content-encoding"])
            return
        raise failure

    async def _receive(self) -> bytes:
        """The next bytes of the body, perhaps none."""
        data = await self._wire.receive()
        if data:
            return self._reader.feed(data)
        self._reader.end()
        return b""

    async def next(self) -> bytes:
        """The next piece of the body; empty at the end."""
        reader, unpacking = self._reader, self._unpacker
        try:
            while self._turn is not None:
                if self._first:
                    piece, self._first = self._first, b""
                elif not reader.complete:
                    piece = await self._receive()
                else:
                    if unpacking is not None:
                        unpacking.finish()
                    await self.aclose()
                    break
                if unpacking is not None:
                    piece = unpacking.feed(piece)
                elif reader.complete:
                    await self.aclose()  # at once: nothing can be wrong with what is here, and others may wait
                if piece:
                    return piece
        except _ERRORS as error:
            failure = translate(error, self.request, connecting=False)
        except BaseException:  # Ctrl-C, or a cancelled task: what was just received may be lost
            self._release(broken=True)
            raise
        else:
            return b""
        await self.aclose()
        raise failure

    async def aclose(self) -> None:
        """Give up the rest of the body and free the connection."""
        if not self._release():
            await self._wire.closed()

    def _release(self, *, broken: bool = False) -> bool:
        """End the turn. Returns whether there is nothing to wait for.

        The one rule: a connection serves another request only when whoever used it has consumed the reply to its end
        and nothing is left: no bytes of the request that are still to be sent, none of the body that nobody took, none
        behind it. In every other case it is cut, or what is left would be taken for somebody else's reply.
        """
        turn, self._turn = self._turn, None
        if turn is None:
            return True
        reader = self._reader
        consumed = reader.complete and not self._first and self._wire.settled
        return self._pool.end(turn, reusable=consumed and reader.reusable and not broken)


class PooledTransport(BaseTransport, ABC):
    """A transport that speaks HTTP/1.1 over a network."""

    def __init__(
        self,
        *,
        limits: PoolLimits = DEFAULT_LIMITS,
        proxy: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        trust_env: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._limits: PoolLimits = limits
        self._routes: Routes = Routes(proxy=proxy, ca_file=ca_file, trust_env=trust_env, environ=environ)
        self._start()

    def _start(self) -> None:
        """Make what a colour needs besides."""

    @abstractmethod
    def _pool(self) -> Pool:
        """The pool for requests that are made here and now."""

    async def open(self, request: HttpRequest) -> PooledResponse:
        """Send the request and wait for the head of the reply."""
        route, data = self._routes.find(request)
        total = request.timeout.total
        deadline = None if total is None else time.monotonic() + total
        pool = self._pool()
        turn = Turn(pool, route)
        try:
            await pool.take(turn, request)
            if turn.wire is None:
                turn.wire = await self._connect(pool.network, route, request, deadline)
            response = PooledResponse(request, pool, turn, turn.wire)
            await response.begin(data, deadline)
        except BaseException as error:  # Ctrl-C and a cancelled task too
            wire = turn.wire
            pool.end(turn)
            if wire is not None and not isinstance(error, GeneratorExit):  # where nothing can be awaited any more
                await wire.closed()
            raise
        return response

    async def _connect(self, network: Network, route: Route, request: HttpRequest, deadline: float | None) -> Wire:
        limit = request.timeout.connect
        end = shorter(None if limit is None else time.monotonic() + limit, deadline)
        tls = self._routes.tls if route.encrypted else None  # first, since it may complain about a file
        wire: Wire | None = None
        failure: DragomanError
        try:
            wire = await network.dial(route.address, end)
            wire.limit(None, end)
            if route.tunnel and (status := await _ask_for_tunnel(wire, route.tunnel)) != 200:
                failure = error_for("proxy_auth" if status == 407 else "proxy", request)
            else:
                if tls is not None:
                    await wire.encrypt(tls, route.host)
                return wire
        except _ERRORS as error:
            failure = translate(error, request, connecting=True, proxied=route.proxy is not None)
        except BaseException:
            if wire is not None:
                wire.close()
            raise
        if wire is not None:
            wire.close()
            await wire.closed()
        raise failure


async def _ask_for_tunnel(wire: Wire, ask: bytes) -> int:
    """Ask the proxy for a way through. Returns the status of its answer."""
    await wire.send(ask)
    reader = ReplyReader("HEAD")  # like one to HEAD, the answer has no body
    while not reader.head_complete:
        data = await wire.receive()
        if not data:
            reader.end()
        reader.feed(data)
    return reader.status
