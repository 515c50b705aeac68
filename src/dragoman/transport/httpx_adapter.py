"""A transport on httpx2, for what our own cannot do: HTTP/2, SOCKS proxies, proxies behind TLS.

httpx2 has no time limit for a whole request. Here it is checked whenever a piece arrives, and on an event loop a wait
is cut short; a plain wait lasts up to the read timeout longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Final, TypeVar

import httpx2

from dragoman.errors import DragomanError

from .errors import error_for, translate
from .http1 import ACCEPTED_ENCODINGS, Unpacker, unpacker
from .protocol import DEFAULT_LIMITS, USER_AGENT, BaseResponse, BlockingTransport, HttpRequest, Timeouts, join_headers
from .routes import check_head, check_request

_T = TypeVar("_T")

_ERRORS: Final = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ValueError, EOFError, OSError)


class HttpxTransport(BlockingTransport):
    """A transport on a client of httpx2 that you made: `HttpxTransport(httpx2.AsyncClient(http2=True))`.

    A Client makes one for plain programs, an AsyncClient one for event loops. Proxies, certificate authorities and the
    number of connections are those of the client. With `httpx2.Limits(max_keepalive_connections=0)` no connection
    serves a second request: what a server sends behind a reply stays in httpx2's parser, where nobody can see it, and
    would be taken for the next reply.
    """

    def __init__(self, client: httpx2.Client | httpx2.AsyncClient) -> None:
        self.blocking: bool | None = isinstance(client, httpx2.Client)
        self._client: httpx2.Client | httpx2.AsyncClient = client

    async def open(self, request: HttpRequest) -> BaseResponse:
        """Send the request and wait for the head of the reply."""
        check_request(request)
        client = self._client
        if client.is_closed:
            raise error_for("client_closed", request)
        total = request.timeout.total
        deadline = None if total is None else time.monotonic() + total
        try:
            built = client.build_request(
                request.method,
                request.url,
                headers={"user-agent": USER_AGENT, "accept-encoding": ACCEPTED_ENCODINGS, **request.headers},
                content=request.body,
                timeout=_timeout(request.timeout),
            )
            if isinstance(client, httpx2.Client):
                reply = client.send(built, stream=True, follow_redirects=False)
            else:
                reply = await _before(deadline, client.send(built, stream=True, follow_redirects=False))
        except TimeoutError:
            failure = error_for("read_timeout", request)
        except _ERRORS as error:
            failure = translate(error, request, connecting=True)
        else:
            response = _Response(request, reply, deadline, blocking=isinstance(client, httpx2.Client))
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


class _Response(BaseResponse):
    def __init__(self, request: HttpRequest, reply: httpx2.Response, deadline: float | None, *, blocking: bool) -> None:
        super().__init__(request, reply.status_code, join_headers(reply.headers.multi_items()))
        self._reply: httpx2.Response = reply
        self._blocking: bool = blocking
        self._pieces: Iterator[bytes] | AsyncIterator[bytes] = reply.iter_raw() if blocking else reply.aiter_raw()
        self._unpacker: Unpacker | None = unpacker(self.headers.get("content-encoding", ""))
        self._deadline: float | None = deadline
        self._over: bool = False

    async def next(self) -> bytes:
        while not self._over:
            try:
                piece = await self._piece()
                if self._unpacker is not None:
                    piece = self._unpacker.finish() if piece is None else self._unpacker.feed(piece)
            except TimeoutError:
                failure = error_for("read_timeout", self.request)
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
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise TimeoutError
        return next(self._pieces, None)

    async def aclose(self) -> None:
        if not self._over:
            self._over = True
            if self._blocking:
                self._reply.close()
            else:
                await self._reply.aclose()


def _timeout(times: Timeouts) -> httpx2.Timeout:
    read = min((each for each in (times.read, times.total) if each is not None), default=None)
    return httpx2.Timeout(connect=times.connect, read=read, write=read, pool=DEFAULT_LIMITS.wait)


async def _before(deadline: float | None, action: Awaitable[_T]) -> _T:
    """The outcome of the action. TimeoutError if the deadline comes first."""
    if deadline is None:
        return await action
    async with asyncio.timeout(deadline - time.monotonic()):
        return await action
