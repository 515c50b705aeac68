"""The simulator: a server on this machine, in a thread of its own, and the connections of its clients.

Must not know: how a request is answered.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self, cast
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpRequestParser

from dragoman.providers import ALIASES, PROVIDERS

from .answerer import Answerer, HttpRequest
from .exchange import Chunking, Request
from .faults import Fault
from .plan import Ending, Pause, Plan, steps
from .script import Player, Script

_HOST: Final = "127.0.0.1"
_BACKLOG: Final = 1024
_START_SECONDS: Final = 5.0
_DIALECT_PATHS: Final = {"openai_chat": "/v1", "openai_responses": "/v1", "anthropic": "", "gemini": ""}


class Simulator:
    """A local server that speaks the dialects of all providers and says what its script says.

        with Simulator(["Hello!", Reply(ToolCall("c1", "weather", '{"city":"Paris"}'))]) as simulator:
            client = openai.OpenAI(base_url=simulator.base_url("openai"), api_key="any")

    The script is a list of replies (texts, `Reply`s, faults) that are given in order, or a function from a Request to a
    reply; without one, it says what the user said. It listens on the loopback address only.

    api_key         the only key that is accepted; None accepts any, and none
    check           whether requests that a provider would refuse are refused, in the provider's words
    chunking        how finely replies are cut, where they do not say so themselves
    faults          what befalls every reply, ahead of its own faults
    longest_pause   seconds after which any stall ends, whatever the fault says
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        port: int = 0,
        api_key: str | None = None,
        check: bool = True,
        chunking: Chunking | None = None,
        faults: Sequence[Fault] = (),
        longest_pause: float = 30.0,
    ) -> None:
        self._longest_pause = longest_pause
        self._port = port
        chunking = chunking or Chunking()
        self._answerer = Answerer(
            Player(script), self._record, api_key=api_key, check=check, chunking=chunking, faults=tuple(faults)
        )
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._connections: set[_Connection] = set()
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
        server = await self._loop.create_server(self._connect, sock=listener, backlog=_BACKLOG)
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

    def base_url(self, name: str) -> str:
        """The base URL for a client of this provider or dialect, e.g. `openai`, `anthropic`, `gemini`, `groq`."""
        path = _DIALECT_PATHS.get(name)
        if path is None:
            provider = PROVIDERS.get(ALIASES.get(name, name))
            if provider is None:
                known = ", ".join(sorted({*_DIALECT_PATHS, *PROVIDERS}))
                message = f"there is no provider or dialect {name!r}; there are {known}"
                raise ValueError(message)
            path = urlsplit(provider.base_url).path if provider.base_url else "/v1"
        return f"{self.url}{path}"

    # --- the script ---

    def play(self, script: Script | None) -> None:
        """Go on with another script. What was recorded stays."""
        self._answerer.player = Player(script)

    @property
    def unplayed(self) -> int:
        """How many replies of the script nobody has asked for yet."""
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

    # --- in its own thread ---

    def _connect(self) -> _Connection:
        return _Connection(self._answerer, self._connections.add, self._disconnect, self._longest_pause)

    def _disconnect(self, connection: _Connection) -> None:
        with self._changed:
            self._connections.discard(connection)
            self._changed.notify_all()

    def _record(self, request: Request) -> None:
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()


class _Connection(asyncio.Protocol):
    """Serves one client until either side ends it."""

    def __init__(
        self,
        answerer: Answerer,
        on_open: Callable[[_Connection], None],
        on_lost: Callable[[_Connection], None],
        longest_pause: float,
    ) -> None:
        self._answerer = answerer
        self._on_open = on_open
        self._on_lost = on_lost
        self._longest_pause = longest_pause
        self._parser = HttpRequestParser(self)
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body = b""
        self._requests: deque[HttpRequest | HttpParserError] = deque()
        self._more = asyncio.Event()
        self._gone = asyncio.Event()
        """The client has closed its side, or the connection is lost."""
        self._writable = asyncio.Event()
        self._writable.set()
        self.task: asyncio.Task[None] | None = None

    # --- called by asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # asyncio does this itself, but not for connections of a listener that it did not make.
        sock = cast("socket.socket", transport.get_extra_info("socket"))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._on_open(self)
        self.task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._requests.append(error)
            self._more.set()

    def eof_received(self) -> bool:
        self._gone.set()
        self._more.set()
        return True  # an answer that is under way is still sent; after it, the connection is closed

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()
        self._writable.set()
        if self.task is not None:
            self.task.cancel()
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        self._target, self._headers, self._body = b"", {}, b""

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        method, target = self._parser.get_method().decode(), self._target.decode("latin-1")
        kept = self._parser.should_keep_alive()
        self._requests.append(HttpRequest(method, target, self._headers, self._body, kept))
        self._more.set()

    # --- serving ---

    def abort(self) -> None:
        """End it at once."""
        self._transport.abort()

    async def _serve(self) -> None:
        try:
            if self._answerer.is_deaf:
                self._transport.pause_reading()
                await self._pause(Pause(None))
                return
            while (http := await self._next_request()) is not None:
                if not await self._send(await self._answerer.answer(http)) or not http.keep_alive:
                    break
        except HttpParserError as error:
            text = f"This is no HTTP/1.1 request: {error}\n".encode()
            head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n"
            self._transport.write(head + b"content-length: %d\r\n\r\n" % len(text) + text)
        finally:
            self._transport.close()

    async def _next_request(self) -> HttpRequest | None:
        while not self._requests and not self._gone.is_set():
            self._more.clear()
            await self._more.wait()
        request = self._requests.popleft() if self._requests else None
        if isinstance(request, HttpParserError):
            raise request
        return request

    async def _send(self, plan: Plan) -> bool:
        """Carry the plan out. Returns whether the connection may be used again."""
        for step in steps(plan):
            if isinstance(step, bytes):
                await self._write(step)
            elif not isinstance(step, Pause):
                return await self._end(step)
            elif not await self._pause(step):
                break
        return False

    async def _write(self, data: bytes) -> None:
        """Send these bytes, when the client has read enough of what came before."""
        self._transport.write(data)
        await self._writable.wait()
        await asyncio.sleep(0)  # the other connections' turn, and a packet of its own

    async def _pause(self, pause: Pause) -> bool:
        """Wait. Returns whether to go on, which makes no sense when the client has gone."""
        seconds = self._longest_pause if pause.seconds is None else min(pause.seconds, self._longest_pause)
        try:
            async with asyncio.timeout(seconds):
                await self._gone.wait()
        except TimeoutError:
            return pause.go_on
        return False

    async def _end(self, how: Ending) -> bool:
        """The response is over. Returns whether the connection may be used again."""
        if how == "reset":
            # What was written shall arrive before the reset, which overtakes what waits in buffers.
            await asyncio.sleep(0.01)
            sock = cast("socket.socket", self._transport.get_extra_info("socket"))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
        return how == "end"
