"""Transports on pyreqwest, an HTTP client in Rust.

Owns: how its clients are set up and used. Together with pyreqwest_troubles.py the only import of pyreqwest.
Must not know: what the bytes mean.

Facts about pyreqwest that shaped this module:

- A streamed body is held back until `streamed_read_buffer_limit` bytes are there, or the end. So the limit is 0 for
  streams: each piece as it comes. A body that is wanted whole may wait, which saves hand-overs between threads.
- Timeouts for connecting and reading, and the proxy, belong to a client. So there is one client, with its own pool, for
  each combination that is asked for; nearly always that is one.
- Texts of its errors repeat the whole URL. Ours are raised outside the `except`, so that not even the context of an
  error holds one.
- A request that was cancelled before its head arrived goes on in the background until the server answers or the read
  timeout ends it; a plain call cannot be interrupted by Ctrl-C before then. Nothing here can change that.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final, Generic, TypeAlias, TypeVar

from pyreqwest.bytes import Bytes
from pyreqwest.client import BaseClientBuilder, Client, ClientBuilder, SyncClient, SyncClientBuilder
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.proxy import ProxyBuilder
from pyreqwest.request import BaseRequestBuilder, StreamRequest, SyncStreamRequest
from pyreqwest.response import BaseResponse as PyreqwestResponse

from dragoman.errors import ConfigurationError, DragomanError

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
from .environment import Surroundings, authorities
from .protocol import DEFAULT_LIMITS, HttpRequest, PoolLimits, Timeouts
from .pyreqwest_troubles import causes_of, failure
from .troubles import trouble

__all__ = ["AsyncPyreqwestTransport", "PyreqwestTransport"]

_PIECES: Final = 0
_WHOLE: Final = 8 * 1024
_MAX_CLIENTS: Final = 16
_MAX_ORIGINS: Final = 256

_Builder = TypeVar("_Builder", bound=BaseClientBuilder)
_Request = TypeVar("_Request", bound=BaseRequestBuilder)
_AnyClient = TypeVar("_AnyClient", Client, SyncClient)
_Key: TypeAlias = tuple[bool, str | None, float | None, float | None]
"""Whether TLS is used; the proxy; the timeouts for connecting and reading."""

# --- clients ---------------------------------------------------------------------------------------------------------


class _Clients(Generic[_AnyClient]):
    """The clients of one transport, made when they are first needed."""

    def __init__(self, make: Callable[[_Key], _AnyClient], surroundings: Surroundings) -> None:
        self._make: Callable[[_Key], _AnyClient] = make
        self._surroundings: Surroundings = surroundings
        self._by_key: dict[_Key, _AnyClient] = {}
        self._by_origin: dict[tuple[str, Timeouts], tuple[_AnyClient, bool]] = {}
        self._lock: threading.Lock = threading.Lock()
        self._process: int = 0
        self._closed: bool = False

    def find(self, request: HttpRequest) -> tuple[_AnyClient, bool]:
        """The client for this request, and whether it goes through a proxy."""
        if self._closed:
            raise trouble("client_closed", request)
        if self._process and self._process != os.getpid():
            raise trouble("forked", request)
        key = (origin_of(request.url), request.timeout)
        found = self._by_origin.get(key)
        if found is None:
            with self._lock:
                found = self._by_origin[key] = self._find(request)
        return found

    def _find(self, request: HttpRequest) -> tuple[_AnyClient, bool]:
        proxy = self._surroundings.proxy_for(request.url)
        encrypted = not request.url.startswith("http://") or (proxy is not None and not proxy.startswith("http://"))
        key = (encrypted, proxy, request.timeout.connect, request.timeout.read)
        # Old ones are dropped, not closed: requests that still run on them may finish.
        if len(self._by_origin) >= _MAX_ORIGINS:
            self._by_origin.clear()
        client = self._by_key.get(key)
        if client is None:
            if len(self._by_key) >= _MAX_CLIENTS:
                self._by_key.clear()
            client = self._by_key[key] = self._built(key, request)
            self._process = os.getpid()
        return client, proxy is not None

    def _built(self, key: _Key, request: HttpRequest) -> _AnyClient:
        wrong: DragomanError
        try:
            return self._make(key)
        except (PyreqwestError, ValueError) as error:
            wrong = ConfigurationError(
                "The HTTP client could not be set up" + _setup_detail(causes_of(error)),
                hint="Install the certificates of your system (package ca-certificates), or name a PEM file in "
                "SSL_CERT_FILE or in the ca_file argument.",
            )
        except RuntimeError:  # pyreqwest says so itself, in its own words
            wrong = trouble("forked", request)
        raise wrong

    def close(self) -> list[_AnyClient]:
        """No more requests. Returns the clients, to be closed."""
        with self._lock:
            self._closed = True
            clients = list(self._by_key.values())
            self._by_key.clear()
            self._by_origin.clear()
        return clients


def _setup_detail(causes: str) -> str:
    return ": no certificate authorities were found on this machine." if "no ca certificates" in causes else "."


def _without_certificates(builder: _Builder) -> _Builder:
    """For clients that never use TLS: loading certificates takes long, and fails where the system has none."""
    return builder.no_proxy().danger_accept_invalid_certs(True)


def _configured(builder: _Builder, key: _Key, limits: PoolLimits, surroundings: Surroundings, http2: bool) -> _Builder:
    encrypted, proxy, connect, read = key
    builder = (
        builder.user_agent(USER_AGENT)
        .follow_redirects(False)  # a key must not travel to another host
        .referer(False)
        .http2(http2)
        .no_proxy()  # ours come from `Surroundings`, the same for all transports
        .max_connections(limits.connections)
        .pool_max_idle_per_host(limits.idle)
        .pool_idle_timeout(timedelta(seconds=limits.idle_seconds))
    )
    if proxy is not None:
        builder = builder.proxy(ProxyBuilder.all(proxy))
    if connect is not None:
        builder = builder.connect_timeout(timedelta(seconds=connect))
    if read is not None:
        builder = builder.read_timeout(timedelta(seconds=read))
    if limits.wait is not None:
        builder = builder.pool_timeout(timedelta(seconds=limits.wait))
    if not encrypted:
        return _without_certificates(builder) if proxy is None else builder.danger_accept_invalid_certs(True)
    for pem in authorities(surroundings):
        builder = builder.add_root_certificate_pem(pem)
    return builder


def _filled(builder: _Request, request: HttpRequest) -> _Request:
    builder = builder.headers(request.headers).body_bytes(request.body)
    if request.timeout.total is not None:
        builder = builder.timeout(timedelta(seconds=request.timeout.total))
    return builder.streamed_read_buffer_limit(_PIECES if request.stream else _WHOLE)


def _headers(response: PyreqwestResponse) -> dict[str, str]:
    try:
        return lower_case(response.headers.items())
    except ValueError:  # a value that is not UTF-8; such a header is left out
        headers: list[tuple[str, str]] = []
        for name in response.headers:
            with suppress(ValueError):
                headers.append((name, ", ".join(response.get_header_all(name))))
        return dict(headers)


# --- plain -----------------------------------------------------------------------------------------------------------


class _Response(BaseResponse):
    def __init__(
        self,
        request: HttpRequest,
        sent: SyncStreamRequest,
        read: Callable[[], Bytes | None],
        head: tuple[int, Mapping[str, str]],
        *,
        proxied: bool,
    ) -> None:
        super().__init__(request, *head)
        self._sent: SyncStreamRequest = sent
        self._read: Callable[[], Bytes | None] = read
        self._proxied: bool = proxied
        self._over: bool = False

    def __next__(self) -> bytes:
        if self._over:
            raise StopIteration
        try:
            piece = self._read()
        except PyreqwestError as error:
            wrong = failure(error, self.request, proxied=self._proxied)
        else:
            if piece is not None:
                return piece.to_bytes()
            self.close()
            raise StopIteration
        self.close()
        raise wrong

    def close(self) -> None:
        if not self._over:
            self._over = True
            with suppress(PyreqwestError):
                self._sent.__exit__(None, None, None)


class PyreqwestTransport(BaseTransport):
    """The plain transport on pyreqwest.

    Proxy and authorities come from the environment unless given; see `Surroundings.of`. HTTP/2 is off unless asked for:
    with it all requests to a host share one connection, and one lost packet or one reset stops them all.
    """

    def __init__(
        self,
        *,
        limits: PoolLimits = DEFAULT_LIMITS,
        proxy: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        trust_env: bool = True,
        environ: Mapping[str, str] | None = None,
        http2: bool = False,
    ) -> None:
        surroundings = Surroundings.of(proxy=proxy, ca_file=ca_file, trust_env=trust_env, environ=environ)

        def make(key: _Key) -> SyncClient:
            return _configured(SyncClientBuilder(), key, limits, surroundings, http2).build()

        self._clients: _Clients[SyncClient] = _Clients(make, surroundings)

    def open(self, request: HttpRequest) -> _Response:
        check_request(request)
        client, proxied = self._clients.find(request)
        try:
            sent = _filled(client.request(request.method, request.url), request).build_streamed()
            opened = sent.__enter__()
        except (PyreqwestError, ValueError) as error:
            wrong = failure(error, request, proxied=proxied)
        else:
            head = (opened.status, _headers(opened))
            response = _Response(request, sent, opened.body_reader.read_chunk, head, proxied=proxied)
            try:
                check_head(request, *head)
            except DragomanError:
                response.close()
                raise
            return response
        raise wrong

    def close(self) -> None:
        for client in self._clients.close():
            client.close()


# --- async -----------------------------------------------------------------------------------------------------------


class _AsyncResponse(BaseAsyncResponse):
    def __init__(
        self,
        request: HttpRequest,
        sent: StreamRequest,
        read: Callable[[], Awaitable[Bytes | None]],
        head: tuple[int, Mapping[str, str]],
        *,
        proxied: bool,
    ) -> None:
        super().__init__(request, *head)
        self._sent: StreamRequest = sent
        self._read: Callable[[], Awaitable[Bytes | None]] = read
        self._proxied: bool = proxied
        self._over: bool = False

    async def __anext__(self) -> bytes:
        if self._over:
            raise StopAsyncIteration
        try:
            piece = await self._read()
        except PyreqwestError as error:
            wrong = failure(error, self.request, proxied=self._proxied)
        else:
            if piece is not None:
                return piece.to_bytes()
            await self.aclose()
            raise StopAsyncIteration
        await self.aclose()
        raise wrong

    async def aclose(self) -> None:
        if not self._over:
            self._over = True
            with suppress(PyreqwestError):
                await self._sent.__aexit__(None, None, None)


class AsyncPyreqwestTransport(BaseAsyncTransport):
    """The async transport on pyreqwest; the arguments are those of the plain one."""

    def __init__(
        self,
        *,
        limits: PoolLimits = DEFAULT_LIMITS,
        proxy: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        trust_env: bool = True,
        environ: Mapping[str, str] | None = None,
        http2: bool = False,
    ) -> None:
        surroundings = Surroundings.of(proxy=proxy, ca_file=ca_file, trust_env=trust_env, environ=environ)

        def make(key: _Key) -> Client:
            _settle_at_exit()
            return _configured(ClientBuilder(), key, limits, surroundings, http2).build()

        self._clients: _Clients[Client] = _Clients(make, surroundings)

    async def open(self, request: HttpRequest) -> _AsyncResponse:
        check_request(request)
        client, proxied = self._clients.find(request)
        try:
            sent = _filled(client.request(request.method, request.url), request).build_streamed()
            opened = await sent.__aenter__()
        except (PyreqwestError, ValueError) as error:
            wrong = failure(error, request, proxied=proxied)
        else:
            head = (opened.status, _headers(opened))
            response = _AsyncResponse(request, sent, opened.body_reader.read_chunk, head, proxied=proxied)
            try:
                check_head(request, *head)
            except DragomanError:
                await response.aclose()
                raise
            return response
        raise wrong

    async def aclose(self) -> None:
        for client in self._clients.close():
            await client.close()


_settling: list[bool] = []


def _settle_at_exit() -> None:
    """Let pyreqwest's thread come to rest before the interpreter goes.

    After a reply its thread still has to wake up the event loop. If the interpreter is being taken down at that moment,
    Python up to 3.13 aborts the process ("PyGILState_Release: thread state must be current"): a third of all programs
    that end right after their last reply, on a busy machine. A request that fails at once stands behind all that in the
    queue of the thread, so that waiting for it is waiting for them.
    """
    if not _settling:
        _settling.append(True)
        atexit.register(_settle)


def _settle() -> None:
    with suppress(PyreqwestError, RuntimeError):
        _without_certificates(SyncClientBuilder()).build().get("http://127.0.0.1:0/").build().send()
