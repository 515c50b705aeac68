"""Transports on httpx2, for programs that have it anyway, and as the proof that the seam holds.

Owns: the only import of httpx2; how its clients are set up, and what its errors mean.
Must not know: what the bytes mean.

httpx2 has no time limit for a whole request. Here it is checked whenever a piece arrives, and the async transport cuts
a wait short; a plain wait lasts up to the read timeout longer.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Final, Generic, TypeVar

import httpx2

from dragoman.errors import DragomanError

from .addresses import origin_of
from .bases import (
    USER_AGENT,
    BaseAsyncResponse,
    BaseAsyncTransport,
    BaseResponse,
    BaseTransport,
    check_head,
    check_request,
    lower_case,
)
from .decoding import Unpacker, accepted_encodings, unpacker
from .environment import Surroundings, authorities
from .protocol import DEFAULT_LIMITS, HttpRequest, PoolLimits
from .troubles import Code, trouble

__all__ = ["AsyncHttpx2Transport", "Httpx2Transport"]

_Client = TypeVar("_Client", httpx2.Client, httpx2.AsyncClient)
_T = TypeVar("_T")

_ERRORS: Final = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ValueError, EOFError, OSError)

# --- clients ---------------------------------------------------------------------------------------------------------


class _Clients(Generic[_Client]):
    """One client for each proxy, with and without TLS, made when it is first needed."""

    def __init__(self, make: Callable[[str | None, ssl.SSLContext], _Client], surroundings: Surroundings) -> None:
        self._make: Callable[[str | None, ssl.SSLContext], _Client] = make
        self._surroundings: Surroundings = surroundings
        self._by_way: dict[tuple[str | None, bool], _Client] = {}
        self._by_origin: dict[str, tuple[_Client, bool]] = {}
        self._lock: threading.Lock = threading.Lock()
        self._context: ssl.SSLContext | None = None
        self._closed: bool = False

    def find(self, request: HttpRequest) -> tuple[_Client, bool]:
        """The client for this request, and whether it goes through a proxy."""
        if self._closed:
            raise trouble("client_closed", request)
        origin = origin_of(request.url)
        found = self._by_origin.get(origin)
        if found is None:
            with self._lock:
                proxy = self._surroundings.proxy_for(request.url)
                way = (proxy, any(address.startswith("https:") for address in (request.url, proxy or "")))
                if way not in self._by_way:
                    self._by_way[way] = self._make(proxy, self._tls(encrypted=way[1]))
                found = self._by_origin[origin] = (self._by_way[way], proxy is not None)
        return found

    def _tls(self, *, encrypted: bool) -> ssl.SSLContext:
        if not encrypted:  # loading authorities takes long; this context knows none and trusts nobody
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self._context is None:
            self._context = httpx2.create_ssl_context()
            for pem in authorities(self._surroundings):
                self._context.load_verify_locations(cadata=pem.decode("ascii", "replace"))
        return self._context

    def close(self) -> list[_Client]:
        """No more requests. Returns the clients, to be closed."""
        with self._lock:
            self._closed = True
            clients = list(self._by_way.values())
            self._by_way.clear()
            self._by_origin.clear()
        return clients


def _limits(limits: PoolLimits) -> httpx2.Limits:
    return httpx2.Limits(
        max_connections=limits.connections,
        # No connection serves a second request: what a server sends behind a reply stays in httpx2's parser, where
        # nobody can see it, and would be taken for the next reply.
        max_keepalive_connections=0,
    )


def _headers(request: HttpRequest) -> dict[str, str]:
    return {"user-agent": USER_AGENT, "accept-encoding": accepted_encodings(), **request.headers}


def _timeout(request: HttpRequest, limits: PoolLimits) -> httpx2.Timeout:
    times = request.timeout
    read = min((each for each in (times.read, times.total) if each is not None), default=None)
    return httpx2.Timeout(connect=times.connect, read=read, write=read, pool=limits.wait)


# --- errors ----------------------------------------------------------------------------------------------------------

_KINDS: Final[tuple[tuple[type[Exception], Code], ...]] = (
    (httpx2.PoolTimeout, "pool_timeout"),
    (httpx2.ConnectTimeout, "connect_timeout"),
    (httpx2.TimeoutException, "read_timeout"),
    (httpx2.InvalidURL, "bad_url"),
    (httpx2.UnsupportedProtocol, "bad_url"),
    (httpx2.LocalProtocolError, "bad_url"),
    (httpx2.StreamError, "client_closed"),
    (httpx2.DecodingError, "bad_encoding"),
    (EOFError, "cut_off"),
    (ValueError, "bad_encoding"),
)

_NUMBERS: Final[dict[int, Code]] = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
}

_REMOTE_WORDS: Final[tuple[tuple[str, Code], ...]] = (
    ("without sending a response", "closed_early"),
    ("incomplete", "cut_off"),
    ("closed connection", "cut_off"),
)


def _failure(error: Exception, request: HttpRequest, *, proxied: bool, reading: bool) -> DragomanError:
    """Our error for what httpx2 raised."""
    if isinstance(error, httpx2.ProxyError):
        return trouble("proxy_auth" if "407" in str(error) else "proxy", request)
    for kind, code in _KINDS:
        if isinstance(error, kind):
            return trouble(code, request)
    if isinstance(error, httpx2.RemoteProtocolError):
        return trouble(_remote(str(error).lower()), request)
    code, detail = _cause(error)
    if code is None:
        code = "reset" if reading else "connection"
    if proxied and not reading and code in ("refused", "unreachable", "unknown_host", "connection"):
        code = "proxy"
    return trouble(code, request, detail=detail)


def _remote(text: str) -> Code:
    for words, code in _REMOTE_WORDS:
        if words in text:
            return code
    return "malformed"


def _cause(error: BaseException) -> tuple[Code | None, str]:
    """What the operating system or TLS said, somewhere down the chain of causes."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "certificate", cause.verify_message.rstrip(".")
        if isinstance(cause, ssl.SSLEOFError):
            return "cut_off", ""
        if isinstance(cause, ssl.SSLError):
            return "tls", ""
        if isinstance(cause, socket.gaierror):
            return "unknown_host", ""
        if isinstance(cause, OSError) and cause.errno in _NUMBERS:
            return _NUMBERS[cause.errno], ""
        cause = cause.__cause__ or cause.__context__
    # Where several addresses were tried, only a text is left.
    return ("refused", "") if "refused" in str(error).lower() else (None, "")


# --- plain -----------------------------------------------------------------------------------------------------------


class _Response(BaseResponse):
    def __init__(self, request: HttpRequest, reply: httpx2.Response, deadline: float | None, *, proxied: bool) -> None:
        super().__init__(request, reply.status_code, lower_case(reply.headers.multi_items()))
        self._reply: httpx2.Response = reply
        self._pieces: Iterator[bytes] = reply.iter_raw()
        self._unpacker: Unpacker | None = unpacker(self.headers.get("content-encoding", ""))
        self._deadline: float | None = deadline
        self._proxied: bool = proxied
        self._over: bool = False

    def __next__(self) -> bytes:
        while not self._over:
            try:
                if self._deadline is not None and time.monotonic() > self._deadline:
                    raise TimeoutError
                piece = next(self._pieces, None)
                if self._unpacker is not None:
                    piece = self._unpacker.finish() if piece is None else self._unpacker.feed(piece)
            except TimeoutError:
                failure = trouble("read_timeout", self.request)
            except _ERRORS as error:
                failure = _failure(error, self.request, proxied=self._proxied, reading=True)
            else:
                if piece:
                    return piece
                if piece is None:
                    self.close()
                continue
            self.close()
            raise failure
        raise StopIteration

    def close(self) -> None:
        if not self._over:
            self._over = True
            self._reply.close()


class Httpx2Transport(BaseTransport):
    """The plain transport on httpx2; the arguments are those of the other transports."""

    def __init__(
        self,
        *,
        limits: PoolLimits = DEFAULT_LIMITS,
        proxy: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        trust_env: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        def make(proxy: str | None, tls: ssl.SSLContext) -> httpx2.Client:
            return httpx2.Client(verify=tls, proxy=proxy, trust_env=False, limits=_limits(limits))

        self._limits: PoolLimits = limits
        surroundings = Surroundings.of(proxy=proxy, ca_file=ca_file, trust_env=trust_env, environ=environ)
        self._clients: _Clients[httpx2.Client] = _Clients(make, surroundings)

    def open(self, request: HttpRequest) -> _Response:
        check_request(request)
        client, proxied = self._clients.find(request)
        total = request.timeout.total
        deadline = None if total is None else time.monotonic() + total
        try:
            built = client.build_request(
                request.method,
                request.url,
                headers=_headers(request),
                content=request.body,
                timeout=_timeout(request, self._limits),
            )
            reply = client.send(built, stream=True)
        except _ERRORS as error:
            failure = _failure(error, request, proxied=proxied, reading=False)
        else:
            response = _Response(request, reply, deadline, proxied=proxied)
            try:
                check_head(request, response.status, response.headers)
            except DragomanError:
                response.close()
                raise
            return response
        raise failure

    def close(self) -> None:
        for client in self._clients.close():
            client.close()


# --- async -----------------------------------------------------------------------------------------------------------


async def _before(deadline: float | None, action: Awaitable[_T]) -> _T:
    """The outcome of the action. TimeoutError if the deadline comes first."""
    if deadline is None:
        return await action
    async with asyncio.timeout_at(deadline):
        return await action


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


class _AsyncResponse(BaseAsyncResponse):
    def __init__(self, request: HttpRequest, reply: httpx2.Response, deadline: float | None, *, proxied: bool) -> None:
        super().__init__(request, reply.status_code, lower_case(reply.headers.multi_items()))
        self._reply: httpx2.Response = reply
        self._pieces: AsyncIterator[bytes] = reply.aiter_raw()
        self._unpacker: Unpacker | None = unpacker(self.headers.get("content-encoding", ""))
        self._deadline: float | None = deadline
        self._proxied: bool = proxied
        self._over: bool = False

    async def __anext__(self) -> bytes:
        while not self._over:
            try:
                piece = await _before(self._deadline, _next(self._pieces))
                if self._unpacker is not None:
                    piece = self._unpacker.finish() if piece is None else self._unpacker.feed(piece)
            except TimeoutError:
                failure = trouble("read_timeout", self.request)
            except _ERRORS as error:
                failure = _failure(error, self.request, proxied=self._proxied, reading=True)
            else:
                if piece:
                    return piece
                if piece is None:
                    await self.aclose()
                continue
            await self.aclose()
            raise failure
        raise StopAsyncIteration

    async def aclose(self) -> None:
        if not self._over:
            self._over = True
            await self._reply.aclose()


class AsyncHttpx2Transport(BaseAsyncTransport):
    """The async transport on httpx2; the arguments are those of the other transports."""

    def __init__(
        self,
        *,
        limits: PoolLimits = DEFAULT_LIMITS,
        proxy: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        trust_env: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        def make(proxy: str | None, tls: ssl.SSLContext) -> httpx2.AsyncClient:
            return httpx2.AsyncClient(verify=tls, proxy=proxy, trust_env=False, limits=_limits(limits))

        self._limits: PoolLimits = limits
        surroundings = Surroundings.of(proxy=proxy, ca_file=ca_file, trust_env=trust_env, environ=environ)
        self._clients: _Clients[httpx2.AsyncClient] = _Clients(make, surroundings)

    async def open(self, request: HttpRequest) -> _AsyncResponse:
        check_request(request)
        client, proxied = self._clients.find(request)
        total = request.timeout.total
        deadline = None if total is None else asyncio.get_running_loop().time() + total
        try:
            built = client.build_request(
                request.method,
                request.url,
                headers=_headers(request),
                content=request.body,
                timeout=_timeout(request, self._limits),
            )
            reply = await _before(deadline, client.send(built, stream=True))
        except TimeoutError:
            failure = trouble("read_timeout", request)
        except _ERRORS as error:
            failure = _failure(error, request, proxied=proxied, reading=False)
        else:
            response = _AsyncResponse(request, reply, deadline, proxied=proxied)
            try:
                check_head(request, response.status, response.headers)
            except DragomanError:
                await response.aclose()
                raise
            return response
        raise failure

    async def aclose(self) -> None:
        for client in self._clients.close():
            await client.aclose()
