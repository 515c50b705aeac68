"""Serving an ASGI app on this machine with uvicorn: in the foreground, or beside a program, as tests do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Self

import uvicorn

from dragoman.errors import ConfigurationError
from dragoman.tools import LoopThread

_START_SECONDS: Final = 20.0
_CLOSE_SECONDS: Final = 10.0
_BACKLOG: Final = 1024


class WebServer:
    """An ASGI app at an address of this machine: `serve()`, or `with WebServer(app) as server:` in the background."""

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        when_closed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._app: Callable[..., Awaitable[None]] = app
        self._host: str = "127.0.0.1" if host == "localhost" else host
        self._when_closed: Callable[[], Awaitable[None]] | None = when_closed
        """Awaited when nobody is served any more."""
        self._socket: socket.socket = _bind(self._host, port)
        self.port: int = int(self._socket.getsockname()[1])
        """Where it listens; a free port if 0 was asked for."""
        self._listener: _Listener | None = None
        self._thread: LoopThread = LoopThread()
        self._done: Any = None

    @property
    def url(self) -> str:
        """Where it can be reached."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    @property
    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            loop="asyncio",
            http="httptools",
            ws="none",
            timeout_graceful_shutdown=2,
        )

    def serve(self, when_ready: Callable[[], object] | None = None) -> None:
        """Serve until Ctrl-C or SIGTERM."""
        with contextlib.closing(self._socket), contextlib.suppress(KeyboardInterrupt):
            asyncio.run(self._serve(uvicorn.Server(self._config), when_ready))

    async def _serve(self, server: uvicorn.Server, when_ready: Callable[[], object] | None = None) -> None:
        if when_ready is not None:
            when_ready()
        try:
            await server.serve(sockets=[self._socket])
        finally:
            if self._when_closed is not None:
                await self._when_closed()

    def __enter__(self) -> Self:
        listener = self._listener = _Listener(self._config)
        self._done = self._thread.submit(lambda: self._serve(listener))
        self._thread.submit(lambda: _wait_for_start(listener)).result(_START_SECONDS)
        return self

    def __exit__(self, *_exc: object) -> None:
        assert self._listener is not None
        self._listener.should_exit = True
        try:
            self._done.result(_CLOSE_SECONDS)
        finally:
            self._thread.close()
            self._socket.close()


class _Listener(uvicorn.Server):
    """Listens without touching the program's signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def _wait_for_start(server: uvicorn.Server) -> None:
    while not server.started:  # noqa: ASYNC110 -- uvicorn tells nobody
        await asyncio.sleep(0.005)


def _bind(host: str, port: int) -> socket.socket:
    """Take the address now, so that an error is raised here and not in the background."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_BACKLOG)  # whoever comes from now on is heard, if a little later
    except OSError as error:
        bound.close()
        message = f"Nothing can listen on {host} port {port}: {error.strerror or error}."
        raise ConfigurationError(message, hint="Choose another port, or 0 for a free one.") from error
    return bound
