"""A transport on httpx2, for what our own cannot do: HTTP/2, SOCKS proxies, proxies behind TLS.

Owns: the only import of httpx2; how its clients are set up.
Must not know: what the bytes mean.

httpx2 has no time limit for a whole request. Here it is checked whenever a piece arrives, and on an event loop a wait
is cut short; a plain wait lasts up to the read timeout longer.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from typing import Final, Self, TypeAlias, TypeVar

import httpx2

from dragoman._stepping import step
from dragoman.errors import ConfigurationError, DragomanError

from .decoding import Unpacker, accepted_encodings, unpacker
from .errors import error_for, translate
from .protocol import DEFAULT_LIMITS, USER_AGENT, BaseResponse, BaseTransport, HttpRequest, PoolLimits, join_headers
from .routes import Surroundings, authorities, check_head, check_request

_Client: TypeAlias = httpx2.Client | httpx2.AsyncClient
_T = TypeVar("_T")

_ERRORS: Final = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ValueError, EOFError, OSError)


class HttpxTransport(BaseTransport):
    """A transport on a client of httpx2 that you made: `HttpxTransport(httpx2.AsyncClient(http2=True))`.

    A Client makes one for plain programs, an AsyncClient one for event loops. Without a client it makes its own, for
    event loops if `asynchronous`; the further arguments are then those of the other transports.
    """

    def __init__(
        self,
        client: httpx2.Client | httpx2.AsyncClient | None = None,
        *,
        asynchronous: bool = False,
        limits: PoolLimits = DEFAULT_LIMITS,
        proxy: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        trust_env: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        if client is not None and not (proxy is None and ca_file is None and environ is None and trust_env):
            message = "A client of httpx2 has its own proxies and certificate authorities."
            raise ConfigurationError(message, hint="Give them to the client, or leave the client out.")
        self.blocking: bool | None = isinstance(client, httpx2.Client) or (client is None and not asynchronous)
        self._limits: PoolLimits = limits
        self._given: _Client | None = client
        self._surroundings: Surroundings = Surroundings.of(
            proxy=proxy, ca_file=ca_file, trust_env=trust_env, environ=environ
        )
        self._clients: dict[tuple[str | None, bool], _Client] = {}
        self._context: ssl.SSLContext | None = None
        self._lock: threading.Lock = threading.Lock()
        self._closed: bool = False

    async def open(self, request: HttpRequest) -> BaseResponse:
        """Send the request and wait for the head of the reply."""
        check_request(request)
        if self._closed:
            raise error_for("client_closed", request)
        proxy = self._surroundings.proxy_for(request.url) if self._given is None else None
        client = self._given or self._client_for(request, proxy)
        total = request.timeout.total
        deadline = None if total is None else time.monotonic() + total
        try:
            built = client.build_request(
                request.method,
                request.url,
                headers={"user-agent": USER_AGENT, "accept-encoding": accepted_encodings(), **request.headers},
                content=request.body,
                timeout=_timeout(request, self._limits),
            )
            if isinstance(client, httpx2.Client):
                reply = client.send(built, stream=True, follow_redirects=False)
            else:
                reply = await _before(deadline, client.send(built, stream=True, follow_redirects=False))
        except TimeoutError:
            failure = error_for("read_timeout", request)
        except _ERRORS as error:
            failure = translate(error, request, connecting=True, proxied=proxy is not None)
        else:
            response = _Response(request, reply, deadline, blocking=isinstance(client, httpx2.Client))
            try:
                check_head(request, response.status, response.headers)
            except DragomanError:
                await response.aclose()
                raise
            return response
        raise failure

    def _client_for(self, request: HttpRequest, proxy: str | None) -> _Client:
        """One client for each proxy, with and without TLS, made when it is first needed."""
        encrypted = any(address.startswith("https:") for address in (request.url, proxy or ""))
        with self._lock:
            client = self._clients.get((proxy, encrypted))
            if client is None:
                # No connection serves a second request: what a server sends behind a reply stays in httpx2's parser,
                # where nobody can see it, and would be taken for the next reply.
                limits = httpx2.Limits(max_connections=self._limits.connections, max_keepalive_connections=0)
                make = httpx2.Client if self.blocking else httpx2.AsyncClient
                client = make(verify=self._tls(encrypted=encrypted), proxy=proxy, trust_env=False, limits=limits)
                self._clients[proxy, encrypted] = client
        return client

    def _tls(self, *, encrypted: bool) -> ssl.SSLContext:
        if not encrypted:  # loading authorities takes long; this context knows none and trusts nobody
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self._context is None:
            context = httpx2.create_ssl_context()
            for pem in authorities(self._surroundings):
                context.load_verify_locations(cadata=pem.decode("ascii", "replace"))
            self._context = context
        return self._context

    async def aclose(self) -> None:
        """Close all connections, those of a client that was given too."""
        self._closed = True
        with self._lock:
            clients = [*self._clients.values(), *([self._given] if self._given is not None else [])]
            self._clients.clear()
        for client in clients:
            if isinstance(client, httpx2.Client):
                client.close()
            else:
                await client.aclose()

    def close(self) -> None:
        """Close all connections, in a plain program."""
        step(self.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


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


def _timeout(request: HttpRequest, limits: PoolLimits) -> httpx2.Timeout:
    times = request.timeout
    read = min((each for each in (times.read, times.total) if each is not None), default=None)
    return httpx2.Timeout(connect=times.connect, read=read, write=read, pool=limits.wait)


async def _before(deadline: float | None, action: Awaitable[_T]) -> _T:
    """The outcome of the action. TimeoutError if the deadline comes first."""
    if deadline is None:
        return await action
    async with asyncio.timeout(deadline - time.monotonic()):
        return await action
