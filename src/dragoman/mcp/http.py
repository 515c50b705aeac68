"""The door for HTTP: an address of this machine in both colours, or an ASGI application for one's own server.

Host and Origin are checked by the SDK, so that no web page reaches a server on its reader's own machine (DNS
rebinding); the bearer token here, before anything is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import re
import socket
from collections.abc import Awaitable, Callable, Generator, Iterable, MutableMapping
from ipaddress import ip_address
from typing import Any, TypeAlias, TypeVar, cast

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from dragoman.errors import ConfigurationError, McpConnectionError
from dragoman.tools import AnyTools, LoopThread

from .notices import MAX_SESSIONS
from .server import McpServer, as_server

MAX_BODY_BYTES = 4 * 1024 * 1024
MIN_TOKEN_LENGTH = 16
_CLOSE_SECONDS = 5.0
_START_SECONDS = 30.0
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_TOKEN = re.compile(r"[\x21-\x7e]+").fullmatch

_L = TypeVar("_L", bound=uvicorn.Server)
Message: TypeAlias = MutableMapping[str, Any]
ASGIApp: TypeAlias = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]


class _Listener(uvicorn.Server):
    """Listens without touching the program's signals, and says when it does."""

    on_started: Callable[[], object] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class HttpDoor:
    """Tools at an address of this machine: `with HttpDoor(server) as door:` or `async with`; `door.url` says where.

    On loopback by default. Beyond it a token is required; without one the door cannot even be made. `allowed_hosts` are
    names under which it may be reached besides, such as that of a proxy; `allowed_origins` are web pages that may come.
    """

    def __init__(
        self,
        server: McpServer,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        path: str = "/mcp",
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        if not path.startswith("/") or max_body_bytes < 1:
            message = "The path must begin with '/', and the limit must be at least 1."
            raise ConfigurationError(message)
        _check_token(host, token)
        self._host: str = "127.0.0.1" if host == "localhost" else host
        self._port: int = port
        self._path: str = path
        inner = server.sdk().streamable_http_app(
            streamable_http_path=path,
            max_request_body_size=max_body_bytes,
            max_sessions=MAX_SESSIONS,
            transport_security=_security(self._host, list(allowed_hosts), list(allowed_origins)),
        )
        self.app: ASGIApp = cast("ASGIApp", inner) if token is None else _guard(cast("ASGIApp", inner), token)
        """The ASGI application, for a server of your own; it needs the `lifespan` events."""
        self._socket: socket.socket | None = None
        self._listener: _Listener | None = None
        self._thread: LoopThread | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it can be reached."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}{self._path}"

    @property
    def port(self) -> int:
        """Where it listens; a free port was chosen if 0 was asked for."""
        return self._port

    def _make_listener(self, kind: type[_L]) -> _L:
        """The HTTP server, not started. It writes no log of its own set-up and prints nothing."""
        return kind(
            uvicorn.Config(
                self.app,
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="on",
                loop="asyncio",
                http="h11",
                ws="none",
                timeout_graceful_shutdown=2,
            )
        )

    def _bind(self) -> socket.socket:
        """Take the address now, so that an error is raised here and not in the background."""
        if self._socket is not None:
            message = "This door has been opened before."
            raise ConfigurationError(message, hint="Make a new HttpDoor.")
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((self._host, self._port))
        except OSError as error:
            bound.close()
            message = f"Nothing can listen on {self._host} port {self._port}: {error.strerror or error}."
            raise ConfigurationError(message, hint="Choose another port, or 0 for a free one.") from error
        self._socket, self._port = bound, int(bound.getsockname()[1])
        return bound

    def serve(self) -> None:
        """Serve until Ctrl-C or SIGTERM."""
        with contextlib.closing(self._bind()) as bound, contextlib.suppress(KeyboardInterrupt):
            self._make_listener(uvicorn.Server).run(sockets=[bound])

    def __enter__(self) -> HttpDoor:
        self._thread = thread = LoopThread()
        try:
            thread.submit(self.__aenter__).result()
        except BaseException:  # Ctrl-C included
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                if thread.running:
                    thread.submit(self.__aexit__).result(2 * _CLOSE_SECONDS)
            finally:
                thread.close()

    async def __aenter__(self) -> HttpDoor:
        bound = self._bind()
        listener = self._listener = self._make_listener(_Listener)
        settled = asyncio.Event()
        listener.on_started = settled.set
        task = self._task = asyncio.ensure_future(listener.serve(sockets=[bound]))
        task.add_done_callback(lambda _: settled.set())
        try:
            await asyncio.wait_for(settled.wait(), _START_SECONDS)
            if not listener.started:
                message = f"The HTTP server on {self._host} port {self._port} did not start."
                raise McpConnectionError(message)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        task, self._task = self._task, None
        if self._listener is not None and task is not None:
            self._listener.should_exit = True
            await asyncio.wait([task], timeout=_CLOSE_SECONDS)
            task.cancel()
        if self._socket is not None:
            self._socket.close()


# --- who may come in -------------------------------------------------------------------------------------------------


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _check_token(host: str, token: str | None) -> None:
    if token is None and not _is_loopback(host):
        message = f"A server on {host!r} can be reached from other machines and has no token."
        raise ConfigurationError(message, hint="Give a token, such as secrets.token_urlsafe(), or use 127.0.0.1.")
    if token is not None and (len(token) < MIN_TOKEN_LENGTH or _TOKEN(token) is None):
        message = f"The token must have at least {MIN_TOKEN_LENGTH} characters, printable ones without spaces."
        raise ConfigurationError(message, hint="Take one from secrets.token_urlsafe().")


def _security(host: str, hosts: list[str], origins: list[str]) -> TransportSecuritySettings:
    """Which Host and Origin are let in: those of this machine, and what was named."""
    local = _is_loopback(host)
    if not local and not hosts and not origins:
        # It has a token, which no web page knows, and nobody has said under which names it is reached.
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    names = [*_LOOPBACK_NAMES, f"[{host}]" if ":" in host else host, *hosts]
    pages = [f"{scheme}://{name}" for scheme in ("http", "https") for name in _LOOPBACK_NAMES] if local else []
    return TransportSecuritySettings(
        allowed_hosts=[*names, *(f"{name}:*" for name in names)],
        allowed_origins=[*origins, *pages, *(f"{page}:*" for page in pages)],
    )


def _guard(app: ASGIApp, token: str) -> ASGIApp:
    """The application behind a bearer token."""
    # Comparing hashes takes the same time for every guess, whatever its length.
    digest = hashlib.sha256(token.encode()).digest()

    async def guarded(
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        given = [value for name, value in scope.get("headers", ()) if name.lower() == b"authorization"]
        kind, _, word = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        fits = hmac.compare_digest(hashlib.sha256(word.strip()).digest(), digest) and kind.lower() == b"bearer"
        if scope["type"] == "lifespan" or fits:
            await app(scope, receive, send)
        elif scope["type"] == "http":
            body = b'{"error":"a bearer token is needed"}'
            # The body of the request was not read: without a close the connection would be out of step.
            headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
            headers += [(b"www-authenticate", b"Bearer"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        else:
            await send({"type": "websocket.close", "code": 1008})

    return guarded


# --- until it is stopped ---------------------------------------------------------------------------------------------


def serve_http(
    tools: AnyTools | McpServer, host: str = "127.0.0.1", port: int = 8765, *, token: str | None = None
) -> None:
    """Serve tools over streamable HTTP until Ctrl-C: on loopback, unless a host and a token are given."""
    with as_server(tools) as server:
        HttpDoor(server, host=host, port=port, token=token).serve()
