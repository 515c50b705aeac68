"""The door for HTTP.

Owns: listening on an address of this machine in both colours, and the ASGI application for those who listen themselves.
Must not know: who may come in (guard.py), and the tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from typing import TypedDict, Unpack, cast

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from dragoman.errors import ConfigurationError, McpConnectionError
from dragoman.tools.registry import AnyTools

from .app import McpServer, McpServerSettings, server_of
from .guard import ASGIApp, Guard

__all__ = ["HttpDoor", "HttpSettings", "aserve_http", "serve_http"]

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_SESSIONS = 1_000
_CLOSE_SECONDS = 5.0
_START_SECONDS = 30.0


class HttpSettings(McpServerSettings, total=False):
    """The keyword arguments of `serve_http`: those of HttpDoor and of McpServer."""

    token: str | None
    path: str
    allowed_hosts: Iterable[str]
    allowed_origins: Iterable[str]
    max_body_bytes: int
    max_sessions: int


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

    On loopback by default. Beyond it a token is required; without one the door cannot even be made.
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
        max_sessions: int = MAX_SESSIONS,
    ) -> None:
        if not path.startswith("/") or max_body_bytes < 1 or max_sessions < 1:
            message = "The path must begin with '/', and the limits must be at least 1."
            raise ConfigurationError(message)
        self._host: str = "127.0.0.1" if host == "localhost" else host
        self._port: int = port
        self._path: str = path
        wire = server.sdk()
        inner = wire.streamable_http_app(
            streamable_http_path=path,
            max_request_body_size=max_body_bytes,
            max_sessions=max_sessions,
            # The guard has looked at Host and Origin before, more strictly.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self.app: ASGIApp = Guard(
            cast("ASGIApp", inner),
            host=self._host,
            token=token,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
        )
        """The ASGI application, for a server of your own; it needs the `lifespan` events."""
        self._socket: socket.socket | None = None
        self._listener: _Listener | None = None
        self._thread: threading.Thread | None = None
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

    def listener(self, kind: type[uvicorn.Server] = _Listener) -> uvicorn.Server:
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

    def bind(self) -> socket.socket:
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

    # --- in a plain program ---

    def __enter__(self) -> HttpDoor:
        bound = self.bind()
        listener = self._listener = cast("_Listener", self.listener())
        settled = threading.Event()
        listener.on_started = settled.set

        def run() -> None:
            try:
                asyncio.run(listener.serve(sockets=[bound]))
            finally:
                settled.set()

        thread = threading.Thread(target=run, name="dragoman-mcp-http", daemon=True)
        try:
            thread.start()
            self._thread = thread
            settled.wait(_START_SECONDS)
            if not listener.started:
                raise self._not_started()
        except BaseException:  # Ctrl-C included
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._listener is not None:
            self._listener.should_exit = True
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)
            self._thread = None
        self._let_go()

    # --- on an event loop ---

    async def __aenter__(self) -> HttpDoor:
        bound = self.bind()
        listener = self._listener = cast("_Listener", self.listener())
        settled = asyncio.Event()
        listener.on_started = settled.set
        task = self._task = asyncio.ensure_future(listener.serve(sockets=[bound]))
        task.add_done_callback(lambda _: settled.set())
        try:
            await asyncio.wait_for(settled.wait(), _START_SECONDS)
            if not listener.started:
                raise self._not_started()
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
        self._let_go()

    def _let_go(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _not_started(self) -> McpConnectionError:
        return McpConnectionError(f"The HTTP server on {self._host} port {self._port} did not start.")


def serve_http(
    tools: AnyTools | McpServer, host: str = "127.0.0.1", port: int = 8765, **settings: Unpack[HttpSettings]
) -> None:
    """Serve tools over streamable HTTP until Ctrl-C: on loopback, unless a host and a token are given."""
    door, server = _made(tools, host, port, settings)
    listener = door.listener(uvicorn.Server)  # this one ends on Ctrl-C and SIGTERM
    with contextlib.closing(server), contextlib.closing(door.bind()) as bound, contextlib.suppress(KeyboardInterrupt):
        listener.run(sockets=[bound])


@contextlib.asynccontextmanager
async def aserve_http(
    tools: AnyTools | McpServer, host: str = "127.0.0.1", port: int = 0, **settings: Unpack[HttpSettings]
) -> AsyncGenerator[HttpDoor, None]:
    """`serve_http` on the running event loop, for as long as the `async with` block lasts."""
    door, server = _made(tools, host, port, settings)
    with contextlib.closing(server):
        async with door:
            yield door


class _DoorSettings(TypedDict, total=False):
    token: str | None
    path: str
    allowed_hosts: Iterable[str]
    allowed_origins: Iterable[str]
    max_body_bytes: int
    max_sessions: int


def _made(tools: AnyTools | McpServer, host: str, port: int, settings: HttpSettings) -> tuple[HttpDoor, McpServer]:
    of_door = {key: value for key, value in settings.items() if key in _DoorSettings.__annotations__}
    of_server = {key: value for key, value in settings.items() if key not in of_door}
    given = isinstance(tools, McpServer)
    server = server_of(tools, cast("McpServerSettings", of_server))
    try:
        return HttpDoor(server, host=host, port=port, **cast("_DoorSettings", of_door)), server
    except BaseException:
        if not given:
            server.close()
        raise
