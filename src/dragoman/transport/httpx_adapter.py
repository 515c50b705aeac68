"""A transport on httpx2, for what our own cannot do: HTTP/2, SOCKS proxies, proxies behind TLS.

httpx2 has no limit for a whole request, and a plain client cannot be told to end a wait. So where a request has such a
limit, or its work may be stopped, a plain client waits in a thread, which is left behind when the time has come: until
then, at most for the read limit, the connection stays open. (In the body of a reply over HTTP/1.1 it is cut at once.)
"""

from __future__ import annotations

import asyncio
import socket
import time
from _thread import start_new_thread
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import nullcontext, suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar, cast

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
    """A transport on a client of httpx2 that you made: `HttpxTransport(httpx2.AsyncClient(http2=True))`.

    A Client makes one for plain programs, an AsyncClient one for event loops. Proxies, certificate authorities and the
    number of connections are those of the client. With `httpx2.Limits(max_keepalive_connections=0)` no connection
    serves a second request: what a server sends behind a reply stays in httpx2's parser, where nobody can see it, and
    would be taken for the next reply.
    """

    def __init__(self, client: httpx2.Client | httpx2.AsyncClient) -> None:
        self.blocking: bool | None = isinstance(client, httpx2.Client)
        self._client: httpx2.Client | httpx2.AsyncClient = client

    async def open(self, request: HttpRequest) -> Response:
        """Send the request and wait for the head of the reply."""
        check_request(request)
        client = self._client
        if client.is_closed:
            raise error_for("client_closed", request)
        total, stop = request.timeout.total, current_stop() if self.blocking else None
        deadline = shorter(None if total is None else time.monotonic() + total, stop and stop.deadline)
        try:
            built = client.build_request(
                request.method,
                request.url,
                headers={"user-agent": USER_AGENT, "accept-encoding": ACCEPTED_ENCODINGS, **request.headers},
                content=request.body,
                timeout=_timeout(request.timeout),
            )
            if isinstance(client, httpx2.Client):
                send = partial(client.send, built, stream=True, follow_redirects=False)
                reply = _in_time(send, deadline, stop, late=lambda late: late and late.close())
            else:
                reply = await _before(deadline, client.send(built, stream=True, follow_redirects=False))
        except _ERRORS as error:
            late = isinstance(error, TimeoutError)  # ours; httpx2 has its own
            failure = error_for("read_timeout", request) if late else translate(error, request, connecting=True)
        else:
            response = _Response(request, reply, deadline, stop, blocking=isinstance(client, httpx2.Client))
            try:
                check_head(request, response.status, response.headers)
            except DragomanError:
                await response.aclose()
                raise
            return response
        raise failure

    async def aclose(self) -> None:
        """Close the client."""
        if isinstance(self._client, httpx2.Client):
            self._client.close()
        else:
            await self._client.aclose()


class _Response(Response):
    def __init__(
        self, request: HttpRequest, reply: httpx2.Response, deadline: float | None, stop: Stop | None, *, blocking: bool
    ) -> None:
        super().__init__(request, reply.status_code, dict(reply.headers.items()))
        self._reply: httpx2.Response = reply
        self._blocking: bool = blocking
        self._pieces: Iterator[bytes] | AsyncIterator[bytes] = reply.iter_raw() if blocking else reply.aiter_raw()
        self._unpacker: Unpacker | None = unpacker(self.headers.get("content-encoding", ""))
        self._deadline: float | None = deadline
        self._stop: Stop | None = stop
        self._over: bool = False

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
        """The next bytes as they came; None at the end."""
        if isinstance(self._pieces, AsyncIterator):
            return await _before(self._deadline, anext(self._pieces, None))
        return _in_time(partial(next, self._pieces, None), self._deadline, self._stop, late=self._close, left=self._cut)

    def _cut(self) -> None:
        """The thread that waits for a piece is left behind. It closes the reply; its wait ends if that is possible."""
        self._over = True
        sock: Any = self._reply.extensions["network_stream"].get_extra_info("socket")
        if isinstance(sock, socket.socket) and self._reply.http_version != "HTTP/2":  # which has others' replies on it
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _close(self, _: object) -> None:
        self._reply.close()

    async def aclose(self) -> None:
        if not self._over:
            self._over = True
            if self._blocking:
                self._reply.close()
            else:
                await self._reply.aclose()


def _timeout(times: Timeouts) -> httpx2.Timeout:
    read = shorter(times.read, times.total)
    return httpx2.Timeout(connect=times.connect, read=read, write=read, pool=DEFAULT_LIMITS.wait)


async def _before(deadline: float | None, action: Awaitable[_T]) -> _T:
    """The outcome of the action. TimeoutError if the deadline comes first."""
    if deadline is None:
        return await action
    async with asyncio.timeout(deadline - time.monotonic()):
        return await action


def _in_time(
    work: Callable[[], _T],
    deadline: float | None,
    stop: Stop | None,
    *,
    late: Callable[[_T | None], object],
    left: Callable[[], object] = lambda: None,
) -> _T:
    """The outcome of work that blocks. TimeoutError or StoppedError if that takes too long.

    The thread that does the work is then `left`, and `late` gets what it brings, None if that is an error.
    """
    if deadline is None and stop is None:
        return work()
    outcomes: SimpleQueue[tuple[_T | None, BaseException | None] | None] = SimpleQueue()
    outcome: tuple[_T | None, BaseException | None] | None = None
    gone = False

    def run() -> None:
        try:
            outcomes.put((work(), None))
        except BaseException as error:  # noqa: BLE001 -- raised where the work is waited for
            outcomes.put((None, error))
        if gone:
            clean_up()

    def clean_up() -> None:  # by whichever thread finds something
        with suppress(Empty):
            while True:
                if (found := outcomes.get_nowait()) is not None:
                    late(found[0])

    try:
        with nullcontext() if stop is None else stop.waking(partial(outcomes.put, None)), suppress(Empty):
            start_new_thread(copy_context().run, (run,))
            outcome = outcomes.get(timeout=None if deadline is None else max(deadline - time.monotonic(), 0.0))
    finally:
        if outcome is None:  # Ctrl-C too
            gone = True
            left()
            clean_up()
    if outcome is None:
        if stop is not None:
            stop.check()
        raise TimeoutError
    result, error = outcome
    if error is not None:
        raise error
    return cast("_T", result)
