"""The simulator: a server on this machine, in a thread of its own.

Owns: its life (start, close), what it recorded, and the addresses that clients are given.
Must not know: how a request is answered.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote, urlsplit

from dragoman.providers.catalogue import ALIASES, PROVIDERS

from .answering import Answerer, Settings
from .connection import Connection
from .faults import Fault
from .http1 import HttpRequest
from .reply import Chunking
from .request import Request
from .routing import KEY_PREFIX
from .script import Player, Script
from .sending import Step

__all__ = ["Simulator"]

_HOST: Final = "127.0.0.1"
_BACKLOG: Final = 1024
_START_SECONDS: Final = 5.0
_DIALECT_PATHS: Final = {"openai_chat": "/v1", "openai_responses": "/v1", "anthropic": "", "gemini": ""}


class Simulator:
    """A local server that speaks the dialects of all providers and says what its script says.

        with Simulator(["Hello!", Reply(ToolCall("c1", "weather", '{"city":"Paris"}'))]) as simulator:
            client = openai.OpenAI(base_url=simulator.base_url("openai"), api_key="any")

    The script is a list of replies (texts, `Reply`s, faults) that are given in order, a function from a Request to a
    reply, or a mapping with one of these for each conversation; without one, it says what the user said. It listens on
    the loopback address only.

    api_key         the only key that is accepted; None accepts any, and none
    models          the only models that there are; None accepts any name
    check           whether requests that a provider would refuse are refused, in the provider's words
    chunking        how finely replies are cut, where they do not say so themselves
    faults          what befalls every reply, ahead of its own faults
    reasoning_field where the chat dialect puts thinking: `reasoning_content` or `reasoning`
    longest_pause   seconds after which any stall ends, whatever the fault says
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        port: int = 0,
        api_key: str | None = None,
        models: Sequence[str] | None = None,
        check: bool = True,
        chunking: Chunking | None = None,
        faults: Sequence[Fault] = (),
        reasoning_field: str = "reasoning_content",
        longest_pause: float = 30.0,
    ) -> None:
        settings = Settings(
            api_key=api_key,
            models=None if models is None else tuple(models),
            check=check,
            chunking=chunking or Chunking(),
            faults=tuple(faults),
            reasoning_field=reasoning_field,
        )
        self.longest_pause = longest_pause
        self._port = port
        self._answerer = Answerer(settings, self._record)
        self._answerer.player = Player(script)
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._connections: set[Connection] = set()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    # --- life ---

    def start(self) -> Self:
        """Begin to listen. `with` does this."""
        if self._thread is not None:
            message = "this simulator is running already"
            raise RuntimeError(message)
        listener = socket.create_server((_HOST, self._port), backlog=_BACKLOG)
        self._port = listener.getsockname()[1]
        ready = threading.Event()
        name = f"dragoman-simulator-{self._port}"
        thread = threading.Thread(target=self._run, args=(listener, ready), name=name, daemon=True)
        try:
            thread.start()
            self._thread = thread
            ready.wait()
        except BaseException:  # Ctrl-C: it would listen for ever
            if ready.wait(_START_SECONDS):
                self._thread = thread
                self.close()
            raise
        return self

    def close(self) -> None:
        """Stop listening and end all connections. `with` does this."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        thread.join(timeout=10)
        if thread.is_alive():
            message = (
                "the simulator does not stop: its script's function blocks. Write it with `async def`, or wait less"
            )
            raise RuntimeError(message)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, listener: socket.socket, ready: threading.Event) -> None:
        try:
            asyncio.run(self._serve(listener, ready))
        finally:
            listener.close()
            ready.set()

    async def _serve(self, listener: socket.socket, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await self._loop.create_server(lambda: Connection(self), sock=listener, backlog=_BACKLOG)
        ready.set()
        await self._stop.wait()
        server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.abort()
        tasks = [connection.task for connection in connections if connection.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()

    # --- addresses ---

    @property
    def port(self) -> int:
        """The port it listens on; 0 before it started, if none was asked for."""
        return self._port

    @property
    def url(self) -> str:
        """Where it is, without a path."""
        return f"http://{_HOST}:{self._port}"

    def base_url(self, name: str, *, key: str | None = None) -> str:
        """The base URL for a client of this provider or dialect, e.g. `openai`, `anthropic`, `gemini`, `groq`.

        A key makes it the address of one conversation: its requests get the replies that the script has for this key.
        """
        path = _DIALECT_PATHS.get(name)
        if path is None:
            provider = PROVIDERS.get(ALIASES.get(name, name))
            if provider is None:
                known = ", ".join(sorted({*_DIALECT_PATHS, *PROVIDERS}))
                message = f"there is no provider or dialect {name!r}; there are {known}"
                raise ValueError(message)
            path = urlsplit(provider.base_url).path if provider.base_url else "/v1"
        prefix = "" if key is None else KEY_PREFIX + quote(key, safe="")
        return f"{self.url}{prefix}{path}"

    # --- the script ---

    def play(self, script: Script | None) -> None:
        """Go on with another script. What was recorded stays."""
        self._answerer.player = Player(script)

    @property
    def unplayed(self) -> int:
        """How many replies of the script's lists nobody has asked for yet."""
        return self._answerer.player.unplayed

    # --- what happened ---

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests so far, in the order of their arrival."""
        return tuple(self._requests)

    @property
    def errors(self) -> tuple[Exception, ...]:
        """What went wrong with the script: it was exhausted, its function failed, a reply could not be written."""
        return tuple(self._answerer.errors)

    @property
    def open_connections(self) -> int:
        """How many connections are open at this moment, those included that a client keeps for later."""
        return len(self._connections)

    def wait_for_requests(self, count: int, *, timeout: float = 5.0) -> bool:
        """Wait until so many requests have come, in total. Returns whether they have."""
        return self._wait(lambda: len(self._requests) >= count, timeout)

    def wait_until_idle(self, *, timeout: float = 5.0) -> bool:
        """Wait until no connection is open: a close takes a moment to arrive. Returns whether none is."""
        return self._wait(lambda: not self._connections, timeout)

    def _wait(self, condition: Callable[[], bool], timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    # --- what connections ask of it; called in its own thread ---

    async def answer(self, http: HttpRequest) -> Iterable[Step]:
        """The steps of the answer to a request."""
        return await self._answerer.answer(http)

    def opened(self, connection: Connection) -> None:
        """A connection was made."""
        self._connections.add(connection)

    def lost(self, connection: Connection) -> None:
        """A connection is gone."""
        with self._changed:
            self._connections.discard(connection)
            self._changed.notify_all()

    def _record(self, request: Request) -> None:
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()
