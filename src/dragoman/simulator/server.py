"""The simulator: a local server in its own thread, and the connections of its clients.

Must not know: how a request is answered.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Final, Self, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from httptools import HttpParserError, HttpRequestParser

from dragoman.providers import ALIASES, PROVIDERS
from dragoman.tools import LoopThread

from .answerer import Answerer, Player, Script
from .exchange import Request
from .faults import Fault, Stall
from .plan import Plan, steps

_HOST: Final = "127.0.0.1"
_BACKLOG: Final = 1024
_CLOSE_SECONDS: Final = 10.0
_ROUNDS_TO_ACCEPT: Final = 10
"""More than enough: an event loop needs three between the arrival of a connection and its task."""
_READ: Final = 65_536
_DIALECT_PATHS: Final = {"openai_chat": "/v1", "openai_responses": "/v1", "anthropic": "", "gemini": "", "bedrock": ""}


class Simulator:
    """A local server that speaks the dialects of all providers and answers from a script.

        with Simulator(["Hello!", Reply(ToolCall("c1", "weather", '{"city":"Paris"}'))]) as simulator:
            client = openai.OpenAI(base_url=simulator.base_url("openai"), api_key="any")

    The script is a list of replies (texts, `Reply`s, faults), or a function from a Request to a reply; by default it
    repeats what the user said. The server listens on the loopback address only.

    api_key         the only key that is accepted; by default any, or none
    check           whether to refuse requests that the provider would refuse, with its error
    faults          faults of every reply, before its own
    longest_pause   seconds after which any stall ends
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        port: int = 0,
        api_key: str | None = None,
        check: bool = True,
        faults: Sequence[Fault] = (),
        longest_pause: float = 30.0,
    ) -> None:
        self._longest_pause = longest_pause
        self._port = port
        self._answerer = Answerer(Player(script), self._record, api_key, tuple(faults), check=check)
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._connections: set[_Connection] = set()
        self._thread = LoopThread()
        self._server: asyncio.Server | None = None

    # --- life ---

    def start(self) -> Self:
        """Start listening. `with` does this."""
        if self._thread.running:
            raise RuntimeError("this simulator is running already")
        listener = socket.create_server((_HOST, self._port), backlog=_BACKLOG)
        self._port = listener.getsockname()[1]
        try:
            self._thread.submit(lambda: self._listen(listener)).result()
        except BaseException:  # Ctrl-C: it would keep listening
            self.close()
            listener.close()
            raise
        return self

    def close(self) -> None:
        """Stop listening and close all connections. `with` does this."""
        if not self._thread.running:
            return
        try:
            self._thread.submit(self._end).result(_CLOSE_SECONDS)
        except TimeoutError:
            raise RuntimeError("the simulator does not stop: its script's function blocks; use `async def`") from None
        self._thread.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # --- addresses ---

    @property
    def port(self) -> int:
        """The port; 0 before the start, if none was given."""
        return self._port

    @property
    def url(self) -> str:
        """The address, without a path."""
        return f"http://{_HOST}:{self._port}"

    def base_url(self, name: str) -> str:
        """The base URL for a client of this provider or dialect, e.g. `openai`, `anthropic`, `gemini`, `groq`."""
        path = _DIALECT_PATHS.get(name)
        if path is None:
            provider = PROVIDERS.get(ALIASES.get(name, name))
            if provider is None:
                known = ", ".join(sorted({*_DIALECT_PATHS, *PROVIDERS}))
                raise ValueError(f"there is no provider or dialect {name!r}; there are {known}")
            path = urlsplit(provider.base_url).path if provider.base_url else "/v1"
        return f"{self.url}{path}"

    # --- the script ---

    def play(self, script: Script | None) -> None:
        """Continue with another script. Recorded requests stay."""
        self._answerer.player = Player(script)

    # --- what happened ---

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests so far, in the order of their arrival."""
        return tuple(self._requests)

    @property
    def errors(self) -> tuple[Exception, ...]:
        """Errors of the script: it was exhausted, its function failed, a reply could not be written."""
        return tuple(self._answerer.errors)

    @property
    def open_connections(self) -> int:
        """How many connections are open, including those that a client keeps in its pool."""
        return len(self._connections)

    def wait_for_requests(self, count: int, *, timeout: float = 5.0) -> bool:
        """Wait until this many requests have arrived in total. Returns whether they have."""
        return self._wait(lambda: len(self._requests) >= count, timeout)

    def wait_until_idle(self, *, timeout: float = 5.0) -> bool:
        """Wait until no connection is open. Returns whether none is."""
        return self._wait(lambda: not self._connections, timeout)

    def _wait(self, condition: Callable[[], bool], timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    # --- in the server's thread ---

    async def _listen(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self._serve, sock=listener, backlog=_BACKLOG)

    async def _end(self) -> None:
        if self._server is None:
            return
        # Let connections that were just accepted reach `_serve`: a server that is closed before leaves them open.
        asyncio.get_running_loop().remove_reader(self._server.sockets[0].fileno())
        for _ in range(_ROUNDS_TO_ACCEPT):
            await asyncio.sleep(0)
        self._server.close()
        tasks = [connection.abort() for connection in self._connections]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self._answerer, self._longest_pause, reader, writer)
        self._connections.add(connection)
        try:
            await connection.serve()
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client is gone, or the simulator is closed
        finally:
            writer.close()
            with self._changed:
                self._connections.discard(connection)
                self._changed.notify_all()

    def _record(self, request: Request) -> None:
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()


class _Connection:
    """Serves one client until either side ends it."""

    def __init__(
        self, answerer: Answerer, longest_pause: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._answerer = answerer
        self._longest_pause = longest_pause
        self._reader = reader
        self._writer = writer
        self._task = cast("asyncio.Task[None]", asyncio.current_task())
        self._parser = HttpRequestParser(self)
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body = b""
        self._requests: asyncio.Queue[tuple[Request, bool] | HttpParserError | None] = asyncio.Queue()
        self._gone = asyncio.Event()
        """Set when the client has closed its side, or the connection is lost."""

    def abort(self) -> asyncio.Task[None]:
        self._writer.transport.abort()
        self._task.cancel()
        return self._task

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        self._target, self._headers, self._body = b"", {}, b""

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue":
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        address = urlsplit(self._target.decode("latin-1"))
        request = Request(
            method=self._parser.get_method().decode(),
            path=unquote(address.path),
            query=dict(parse_qsl(address.query, keep_blank_values=True)),
            headers=self._headers,
            raw=self._body,
        )
        self._requests.put_nowait((request, self._parser.should_keep_alive()))

    # --- serving ---

    async def serve(self) -> None:
        # asyncio does this only for listeners that it created itself.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reading = asyncio.create_task(self._read())
        try:
            while (arrived := await self._requests.get()) is not None:
                if isinstance(arrived, HttpParserError):
                    text = f"Not an HTTP/1.1 request: {arrived}\n".encode()
                    head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n"
                    await self._write(head + b"content-length: %d\r\n\r\n" % len(text) + text)
                    break
                request, is_kept = arrived
                if not await self._send(await self._answerer.answer(request)) or not is_kept:
                    break
        finally:
            reading.cancel()

    async def _read(self) -> None:
        """Queue requests until the client closes its side; the answers to those before are still sent."""
        try:
            while data := await self._reader.read(_READ):
                self._parser.feed_data(data)
        except HttpParserError as error:
            self._requests.put_nowait(error)
        except ConnectionError:
            self._task.cancel()
        finally:
            self._gone.set()
            self._requests.put_nowait(None)

    @property
    def _socket(self) -> socket.socket:
        return cast("socket.socket", self._writer.get_extra_info("socket"))

    async def _send(self, plan: Plan) -> bool:
        """Send the response. Returns whether the connection can be used again."""
        for step in steps(plan):
            if isinstance(step, bytes):
                await self._write(step)
            elif isinstance(step, float):
                if await self._is_gone_after(step):
                    break
            elif isinstance(step, Stall):
                if await self._is_gone_after(step.seconds) or not step.go_on:
                    break
            else:
                if step == "reset":
                    # A reset discards what is still in buffers.
                    await asyncio.sleep(0.01)
                    self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self._writer.transport.abort()
                return step == "end"
        return False

    async def _write(self, data: bytes) -> None:
        """Send these bytes, once the client has read enough of what came before."""
        self._writer.write(data)
        await self._writer.drain()
        await asyncio.sleep(0)  # let other connections run, and send a packet of its own

    async def _is_gone_after(self, seconds: float | None) -> bool:
        """Wait for so long, or until the client has gone. Returns whether it has."""
        try:
            async with asyncio.timeout(self._longest_pause if seconds is None else min(seconds, self._longest_pause)):
                return await self._gone.wait()
        except TimeoutError:
            return False
