"""Serving an ASGI app with uvicorn (extras `mcp` and `web`), in the foreground or in the background."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Generator
from typing import Final, Literal, Self

import uvicorn

from dragoman.errors import ConfigurationError
from dragoman.tools import LoopThread

_START_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 10.0
_BACKLOG: Final = 1024


class WebServer:
    """Serves an ASGI app: with `serve()`, or in the background of a `with` or `async with` block.

    The parser httptools is faster; h11 also strips trailing blanks from the values of headers.
    """

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        lifespan: Literal["on", "off"] = "off",
        parser: Literal["httptools", "h11"] = "httptools",
        when_closed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._host: Final = "127.0.0.1" if host == "localhost" else host
        self._socket: Final = _bind(self._host, port)
        self.port: int = int(self._socket.getsockname()[1])
        """The port that it listens on; a free one for port 0."""
        self._config: Final = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan=lifespan,
            loop="asyncio",
            http=parser,
            ws="none",
            timeout_graceful_shutdown=2,
        )
        self._when_closed: Final = when_closed
        self._listener: Final = _Listener(self._config, when_closed)
        self._thread: Final = LoopThread()
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address of the server."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    def serve(self, when_ready: Callable[[], object] | None = None) -> None:
        """Serve until Ctrl-C or SIGTERM."""
        with contextlib.closing(self._socket), contextlib.suppress(KeyboardInterrupt):
            if when_ready is not None:
                when_ready()
            asyncio.run(_Server(self._config, self._when_closed).serve(sockets=[self._socket]))

    def __enter__(self) -> Self:
        try:
            self._thread.submit(self.__aenter__).result()
        except BaseException:  # Ctrl-C included
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        try:
            if self._thread.running:
                self._thread.submit(self.__aexit__).result(2 * _CLOSE_SECONDS)
        finally:
            self._thread.close()
            self._socket.close()

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._listener.serve(sockets=[self._socket]))
        try:
            async with asyncio.timeout(_START_SECONDS):
                while not self._listener.started and not self._task.done():  # noqa: ASYNC110 -- uvicorn has no event for it
                    await asyncio.sleep(0.005)
        except TimeoutError:
            pass
        except BaseException:
            await self._close()
            raise
        if not self._listener.started:
            await self._close()
            raise ConfigurationError(f"The HTTP server at {self.url} did not start.")
        return self

    async def __aexit__(self, *_exc: object) -> None:
        task = await self._close()
        if task is not None and task.done() and not task.cancelled():
            task.result()  # raises an error of closing

    async def _close(self) -> asyncio.Task[None] | None:
        if self._task is not None:
            self._listener.should_exit = True
            await asyncio.wait([self._task], timeout=_CLOSE_SECONDS)
            self._task.cancel()
        self._socket.close()
        return self._task


class _Server(uvicorn.Server):
    """Awaits `when_closed` after the last request, and before the signal that ended the server is raised again."""

    def __init__(self, config: uvicorn.Config, when_closed: Callable[[], Awaitable[None]] | None) -> None:
        super().__init__(config)
        self._when_closed: Final = when_closed

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().shutdown(sockets)
        finally:
            if self._when_closed is not None:
                await self._when_closed()


class _Listener(_Server):
    """Leaves the program's signal handlers unchanged."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _bind(host: str, port: int) -> socket.socket:
    """Bind the address now, so that an error is raised here and not in the background."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_BACKLOG)  # clients can connect from now on
    except OSError as error:
        bound.close()
        message = f"Cannot listen on {host} port {port}: {error.strerror or error}."
        raise ConfigurationError(message, hint="Choose another port, or 0 for a free one.") from error
    return bound
