"""A transport on httpx2, for HTTP/2, SOCKS proxies and proxies behind TLS.

httpx2 has no total timeout, and a sync wait cannot be cancelled. So the connection is shut down at the deadline or when
the work is stopped. While connecting, and over HTTP/2, only the client's own timeouts end a wait.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import nullcontext, suppress
from threading import Timer
from typing import Any, Final, TypeVar

import httpx2

from dragoman._stop import Stop, current_stop, shorter
from dragoman.errors import DragomanError

from .errors import error_for, translate
from .http1 import ACCEPTED_ENCODINGS, Unpacker, unpacker
from .pool import MAX_PIECE
from .protocol import DEFAULT_LIMITS, USER_AGENT, HttpRequest, Response, Timeouts, Transport
from .routes import check_head, check_request

_T = TypeVar("_T")

_ERRORS: Final = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ValueError, EOFError, OSError)


class HttpxTransport(Transport):
    """A transport on your httpx2 client: `HttpxTransport(httpx2.AsyncClient(http2=True))`.

    A Client makes it sync, an AsyncClient async. Proxies, certificate authorities and pool limits are the client's.
    With `httpx2.Limits(max_keepalive_connections=0)` no connection is reused: otherwise bytes that a hostile server
    sends after a response stay in httpx2's parser and become part of the next response.
    """

    def __init__(self, client: httpx2.Client | httpx2.AsyncClient) -> None:
        self.blocking: bool | None = isinstance(client, httpx2.Client)
        self._client: httpx2.Client | httpx2.AsyncClient = client

    async def open(self, request: HttpRequest) -> Response:
        check_request(request)
        client = self._client
        if client.is_closed:
            raise error_for("client_closed", request)
        total, stop = request.timeout.total, current_stop() if self.blocking else None
        deadline = shorter(None if total is None else time.monotonic() + total, stop and stop.deadline)
        wait = _PlainWait(deadline, stop)
        try:
            built = client.build_request(
                request.method,
                request.url,
                headers={"user-agent": USER_AGENT, "accept-encoding": ACCEPTED_ENCODINGS, **request.headers},
                content=request.body,
                timeout=_timeout(request.timeout, deadline),
                extensions={"trace": wait.trace} if self.blocking else None,
            )
            if isinstance(client, httpx2.Client):
                reply = wait.until(lambda: client.send(built, stream=True, follow_redirects=False))
            else:
                reply = await _before(deadline, client.send(built, stream=True, follow_redirects=False))
        except _ERRORS as error:
            late = isinstance(error, TimeoutError)  # ours, not httpx2's
            failure = error_for("read_timeout", request) if late else translate(error, request, connecting=True)
        else:
            response = _Response(request, reply, wait, blocking=isinstance(client, httpx2.Client))
            try:
                check_head(request, response.status, response.headers)
            except DragomanError:
                await response.aclose()
                raise
            return response
        raise failure

    async def aclose(self) -> None:
        if isinstance(self._client, httpx2.Client):
            self._client.close()
        else:
            await self._client.aclose()


class _Response(Response):
    def __init__(self, request: HttpRequest, reply: httpx2.Response, wait: _PlainWait, *, blocking: bool) -> None:
        super().__init__(request, reply.status_code, dict(reply.headers.items()))
        self._reply: httpx2.Response = reply
        self._blocking: bool = blocking
        self._pieces: Iterator[bytes] | AsyncIterator[bytes] = reply.iter_raw() if blocking else reply.aiter_raw()
        self._unpacker: Unpacker | None = unpacker(self.headers.get("content-encoding", ""))
        self._wait: _PlainWait = wait
        self._over: bool = False
        if blocking and reply.http_version != "HTTP/2":
            wait.trace("", {"return_value": reply.extensions["network_stream"]})

    async def next(self) -> bytes:
        unpacking = self._unpacker
        while not self._over:
            try:
                if unpacking is not None and (piece := unpacking.feed(b"", MAX_PIECE)):
                    return piece
                piece = await self._piece()
                if unpacking is not None:
                    piece = unpacking.finish() if piece is None else unpacking.feed(piece, MAX_PIECE)
            except _ERRORS as error:
                failure = translate(error, self.request, connecting=False)
            else:
                if piece:
                    return piece
                if piece is None:
                    await self.aclose()
                continue
            await self.aclose()
            raise failure
        return b""

    async def _piece(self) -> bytes | None:
        pieces = self._pieces
        if isinstance(pieces, AsyncIterator):
            return await _before(self._wait.deadline, anext(pieces, None))
        return self._wait.until(lambda: next(pieces, None))

    async def aclose(self) -> None:
        if not self._over:
            self._over = True
            if self._blocking:
                self._reply.close()
            else:
                await self._reply.aclose()


def _timeout(times: Timeouts, deadline: float | None) -> httpx2.Timeout:
    left = None if deadline is None else max(deadline - time.monotonic(), 0.001)
    read = shorter(times.read, left)
    return httpx2.Timeout(connect=shorter(times.connect, left), read=read, write=read, pool=DEFAULT_LIMITS.wait)


async def _before(deadline: float | None, action: Awaitable[_T]) -> _T:
    """Await the action. TimeoutError at the deadline."""
    if deadline is None:
        return await action
    async with asyncio.timeout(deadline - time.monotonic()):
        return await action


class _PlainWait:
    """The waits of a sync request. Shuts down its connection at the deadline, or when the work is stopped."""

    def __init__(self, deadline: float | None, stop: Stop | None) -> None:
        self.deadline: float | None = deadline
        self._stop: Stop | None = stop
        self._socket: Any = None
        self._cut: bool = False

    def until(self, work: Callable[[], _T]) -> _T:
        """Run blocking work. TimeoutError at the deadline, StoppedError if stopped."""
        self._check()
        if self.deadline is None and self._stop is None:
            return work()
        timer = None if self.deadline is None else Timer(self.deadline - time.monotonic(), self.cut)
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            with nullcontext() if self._stop is None else self._stop.waking(self.cut):
                outcome = work()
        except _ERRORS:
            self._check()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if outcome is None and self._cut:  # looks like the end of the response
            self._check()
        return outcome

    def _check(self) -> None:
        if self._stop is not None:
            self._stop.check()
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise TimeoutError

    def trace(self, _name: str, info: dict[str, Any]) -> None:
        """Trace hook of httpx2: remembers the connection to shut down."""
        look: Any = getattr(info.get("return_value"), "get_extra_info", None)
        if look is None:
            return
        tls = look("ssl_object")
        shared = tls is not None and tls.selected_alpn_protocol() == "h2"  # which other requests share
        self._socket = None if shared else look("socket")
        if self._cut:
            self.cut()

    def cut(self) -> None:
        self._cut = True
        if isinstance(self._socket, socket.socket):
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
