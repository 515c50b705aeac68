"""The doors of a server: standard input and output, a port of this machine, or an ASGI application.

Over stdio, anything else that this process prints goes to standard error, because one stray line would break the
protocol; tools and their children see an empty standard input. Over HTTP, the SDK checks Host and Origin, so that no
web page can reach a server on its reader's own machine (DNS rebinding); the bearer token is checked here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings

from dragoman._serving import WebServer
from dragoman.errors import ConfigurationError
from dragoman.tools import AnyTools
from dragoman.transport import is_loopback

from .server import MAX_SESSIONS, McpServer, as_server

if TYPE_CHECKING:
    import anyio

# --- stdio -----------------------------------------------------------------------------------------------------------

_MAX_LINE_BYTES: Final = 64 * 1024 * 1024
_READ_AHEAD: Final = 64
"""Lines that are read ahead."""


class _Lines:
    """The lines of a file descriptor, read in a daemon thread.

    The SDK's own thread must be joined, so that Ctrl-C would take effect only at the next line.
    """

    def __init__(self, fd: int) -> None:
        self._fd: int = fd
        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._slots: threading.Semaphore = threading.Semaphore(_READ_AHEAD)
        threading.Thread(target=self._read, name="dragoman-mcp-stdin", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[str]:
        while (line := await self._lines.get()) is not None:
            self._slots.release()
            yield line

    def _read(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            with contextlib.suppress(OSError), os.fdopen(self._fd, "rb", closefd=False) as file:
                while line := file.readline(_MAX_LINE_BYTES):
                    self._slots.acquire()
                    self._loop.call_soon_threadsafe(self._lines.put_nowait, line.decode("utf-8", "replace"))
            self._loop.call_soon_threadsafe(self._lines.put_nowait, None)


@contextlib.contextmanager
def _own_input() -> Generator[int, None, None]:
    """A private copy of standard input; everything else in this process reads /dev/null."""
    private = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        yield private
    finally:
        # `private` stays open: the reading thread may still wait on it, and its number must not be reused.
        os.dup2(private, 0)


@contextlib.contextmanager
def _end_on_sigterm() -> Generator[None, None, None]:
    """Cancel the task on SIGTERM as on Ctrl-C, so that tools are cancelled and threads end."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    try:
        assert task is not None
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    except (NotImplementedError, RuntimeError, ValueError):  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def aserve_stdio(tools: AnyTools | McpServer) -> None:
    """Serve tools to the parent process until it closes our standard input."""
    with as_server(tools) as server, _own_input() as fd, _end_on_sigterm():
        wire = server.sdk()
        lines = cast("anyio.AsyncFile[str]", cast("Any", _Lines(fd)))
        async with stdio_server(stdin=lines) as (incoming, outgoing):
            sys.stdout.flush()  # buffered output must not end up in the protocol
            with contextlib.redirect_stdout(sys.stderr):
                await wire.run(incoming, outgoing, wire.create_initialization_options())


def serve_stdio(tools: AnyTools | McpServer) -> None:
    """Serve tools to the parent process over standard input and output, until end of input, SIGTERM or Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(aserve_stdio(tools))


# --- HTTP ------------------------------------------------------------------------------------------------------------

_PATH: Final = "/mcp"
_MAX_BODY_BYTES: Final = 4 * 1024 * 1024
_IDLE_SECONDS: Final = 600.0
"""How long a session without requests and open streams is kept."""

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[_Message, _Receive, _Send], Awaitable[None]]


def serve_http(
    tools: AnyTools | McpServer, host: str = "127.0.0.1", port: int = 8765, *, token: str | None = None
) -> None:
    """Serve tools over streamable HTTP until Ctrl-C: on loopback, unless a host and a token are given."""
    with as_server(tools) as server:
        HttpDoor(server, host=host, port=port, token=token).serve()


class HttpDoor:
    """Serves tools over HTTP: `with HttpDoor(server) as door:` or `async with`; `door.url` is its URL.

    On loopback by default; any other host requires a token. `allowed_hosts` are further names for it, such as that of a
    proxy; `allowed_origins` are the web pages that may use it.
    """

    def __init__(
        self,
        server: McpServer,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        max_body_bytes: int = _MAX_BODY_BYTES,
    ) -> None:
        _check_token(host, token)
        self._host: str = host
        self.port: int = port
        """The port; 0 is replaced with a free one when the door opens."""
        inner = server.sdk().streamable_http_app(
            streamable_http_path=_PATH,
            max_request_body_size=max_body_bytes,
            session_idle_timeout=_IDLE_SECONDS,
            transport_security=_security(host, list(allowed_hosts), list(allowed_origins)),
        )
        app = _end_oldest_sessions(cast("ASGIApp", inner))
        self.app: ASGIApp = app if token is None else _guard(app, token)
        """The ASGI application, for a server of your own; it needs the `lifespan` events."""
        self._server: WebServer | None = None

    @property
    def url(self) -> str:
        """Its URL, once it is open."""
        return "" if self._server is None else self._server.url + _PATH

    def _listen(self) -> WebServer:
        if self._server is not None:
            raise ConfigurationError("This door has been opened before.", hint="Make a new HttpDoor.")
        self._server = WebServer(self.app, host=self._host, port=self.port, lifespan="on", parser="h11")
        self.port = self._server.port
        return self._server

    def serve(self) -> None:
        """Serve until Ctrl-C or SIGTERM."""
        self._listen().serve()

    def __enter__(self) -> HttpDoor:
        self._listen().__enter__()
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._server is not None:
            self._server.__exit__()

    async def __aenter__(self) -> HttpDoor:
        await self._listen().__aenter__()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._server is not None:
            await self._server.__aexit__()


# --- access ----------------------------------------------------------------------------------------------------------

_MIN_TOKEN_LENGTH: Final = 16
_TOKEN: Final = re.compile(r"[\x21-\x7e]+").fullmatch
_SESSION: Final = b"mcp-session-id"
_LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")


def _check_token(host: str, token: str | None) -> None:
    if token is None and not is_loopback(host):
        message = f"A server on {host!r} can be reached from other machines and has no token."
        raise ConfigurationError(message, hint="Give a token, such as secrets.token_urlsafe(), or use 127.0.0.1.")
    if token is not None and (len(token) < _MIN_TOKEN_LENGTH or _TOKEN(token) is None):
        message = f"The token must have at least {_MIN_TOKEN_LENGTH} characters, printable ones without spaces."
        raise ConfigurationError(message, hint="Take one from secrets.token_urlsafe().")


def _security(host: str, hosts: list[str], origins: list[str]) -> TransportSecuritySettings:
    """The allowed values of Host and Origin: those of this machine, and the given ones."""
    local = is_loopback(host)
    if not local and not hosts and not origins:
        # It has a token, which no web page knows, and its names are not known.
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    names = [*_LOOPBACK_NAMES, f"[{host}]" if ":" in host else host, *hosts]
    pages = [f"{scheme}://{name}" for scheme in ("http", "https") for name in _LOOPBACK_NAMES] if local else []
    return TransportSecuritySettings(
        allowed_hosts=[*names, *(f"{name}:*" for name in names)],
        allowed_origins=[*origins, *pages, *(f"{page}:*" for page in pages)],
    )


def _end_oldest_sessions(app: ASGIApp) -> ASGIApp:
    """End the session that was used longest ago when there are too many, so that no client can lock others out."""
    used: dict[bytes, None] = {}

    async def bounded(scope: _Message, receive: _Receive, send: _Send) -> None:
        async def note(message: _Message) -> None:
            for name, value in message.get("headers", ()):
                if name.lower() == _SESSION and message.get("status", 400) < 400:
                    used.pop(value, None)
                    used[value] = None
            await send(message)

        await app(scope, receive, note)
        while len(used) > MAX_SESSIONS:
            del used[oldest := next(iter(used))]
            headers = [each for each in scope["headers"] if each[0].lower() not in (_SESSION, b"content-length")]
            await app({**scope, "method": "DELETE", "headers": [*headers, (_SESSION, oldest)]}, _nobody, _nobody)

    return bounded


async def _nobody(*_message: _Message) -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


def _guard(app: ASGIApp, token: str) -> ASGIApp:
    # Comparing hashes takes the same time for a guess of any length.
    digest = hashlib.sha256(token.encode()).digest()

    async def guarded(scope: _Message, receive: _Receive, send: _Send) -> None:
        given = [value for name, value in scope.get("headers", ()) if name.lower() == b"authorization"]
        kind, _, guess = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        is_right = hmac.compare_digest(hashlib.sha256(guess.strip()).digest(), digest) and kind.lower() == b"bearer"
        if scope["type"] == "lifespan" or is_right:
            await app(scope, receive, send)
        elif scope["type"] == "http":
            body = b'{"error":"a bearer token is needed"}'
            # The body of the request was not read, so the connection cannot be used again.
            headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
            headers += [(b"www-authenticate", b"Bearer"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        else:
            await send({"type": "websocket.close", "code": 1008})

    return guarded
