"""A server on loopback that misbehaves on request.

It runs an event loop in a thread of its own, so that tests of both colours can talk to it. What it does is a script: a
coroutine for each path, which gets the exchange and writes what it likes, well-formed or not. The server counts
connections and knows which are open, so that tests can see what a client keeps and what it lets go.

Scripts wait for `gate(name)` where a test must decide when they go on: no test sleeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator

Script = Callable[["Exchange"], Awaitable[None]]

WAIT = 20.0
"""Seconds after which a test that waits for the server fails instead of hanging."""


class Exchange:
    """One request on a connection, and the way back to the client."""

    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer
        self.method = self.target = ""
        self.headers: dict[str, str] = {}
        self.body = b""
        self.closing = False

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def reply(self, body: bytes = b"", status: int = 200, *, headers: dict[str, str] | None = None) -> None:
        """A well-formed reply."""
        lines = [f"HTTP/1.1 {status} Whatever", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def start(self, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """The head of a reply in chunks."""
        lines = [f"HTTP/1.1 {status} Whatever", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    def hang_up(self) -> None:
        """Close the connection in the usual way once the script is done."""
        self.closing = True

    def reset(self) -> None:
        """Close the connection with a reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
        self.closing = True

    async def wait_for(self, gate: str) -> None:
        """Wait until the test opens the gate; until the client goes away at the latest."""
        await self.server._gate(gate).wait()

    async def forever(self) -> None:
        """Say nothing more until the client goes away or the server is closed."""
        await asyncio.Event().wait()


async def echo(exchange: Exchange) -> None:
    """What came goes back."""
    headers = {"X-Method": exchange.method, "X-Target": exchange.target, "x-host": exchange.headers["host"]}
    await exchange.reply(exchange.body, headers=headers)


async def silent(exchange: Exchange) -> None:
    """Never a word."""
    await exchange.forever()


async def half(exchange: Exchange) -> None:
    """The first piece of a body that does not go on."""
    await exchange.start()
    await exchange.chunk(b"hello")
    await exchange.forever()


def raw(data: bytes) -> Script:
    """Sends these bytes and hangs up."""

    async def script(exchange: Exchange) -> None:
        await exchange.send(data)
        exchange.hang_up()

    return script


class Server:
    """Use as a context manager: `with Server({"/": script}) as server`."""

    def __init__(
        self, scripts: dict[str, Script], *, tls: ssl.SSLContext | None = None, reads_bodies: bool = True
    ) -> None:
        self.scripts = scripts
        self._reads_bodies = reads_bodies
        self.requests: list[Exchange] = []
        self.connections = 0
        """How many connections were ever made."""
        self._tls = tls
        self._open: set[asyncio.Task[None]] = set()
        self._changed = threading.Condition()
        self._gates: dict[str, asyncio.Event] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="test-server", daemon=True)
        self._started = threading.Event()
        self.port = 0
        self.greeting = b""
        """What the server says, if anything, before it hears a word; then it hangs up."""

    # --- for tests ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> Server:
        self._thread.start()
        assert self._started.wait(WAIT)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT)
        assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        return len(self._open)

    def open_gate(self, name: str) -> None:
        """Let the scripts that wait for this gate go on."""
        self._loop.call_soon_threadsafe(lambda: self._gate(name).set())

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something that depends on connections or requests."""
        with self._changed:
            assert self._changed.wait_for(condition, WAIT), f"waited in vain until {what}"

    def wait_for_open(self, number: int) -> None:
        self.wait_until(lambda: self.open_connections == number, f"{number} connections are open")

    def wait_for_requests(self, number: int) -> None:
        self.wait_until(lambda: len(self.requests) >= number, f"{number} requests have come")

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls, backlog=512, limit=2**22)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        # Connections that were just made are ours to close, too; asyncio drops them if its server is closed meanwhile.
        self._loop.remove_reader(server.sockets[0].fileno())
        for _ in range(20):
            await asyncio.sleep(0)
        server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _gate(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        with self._changed:
            self.connections += 1
            self._open.add(task)
            self._changed.notify_all()
        try:
            with contextlib.suppress(
                ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError
            ):
                await self._talk(reader, writer)
        finally:
            writer.close()
            try:
                with contextlib.suppress(ConnectionError, ssl.SSLError):
                    await writer.wait_closed()
            except asyncio.CancelledError:  # the server is being closed
                writer.transport.abort()
            with self._changed:
                self._open.discard(task)
                self._changed.notify_all()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.greeting:
            writer.write(self.greeting)
            await writer.drain()
            return
        while True:
            exchange = await self._request(reader, writer)
            with self._changed:
                self.requests.append(exchange)
                self._changed.notify_all()
            script = self.scripts.get(exchange.path) or self.scripts["*"]
            await self._run_script(script(exchange), reader)
            if exchange.closing:
                return

    async def _run_script(self, script: Awaitable[None], reader: asyncio.StreamReader) -> None:
        """Run the script, but no longer than the client stays."""
        running = asyncio.ensure_future(script)
        gone = asyncio.ensure_future(self._gone(reader))
        try:
            await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                raise ConnectionResetError
            await running
        finally:
            for task in (running, gone):
                task.cancel()
            await asyncio.gather(running, gone, return_exceptions=True)

    async def _gone(self, reader: asyncio.StreamReader) -> None:
        while not reader.at_eof() and reader.exception() is None:  # noqa: ASYNC110 - a stream has no event for its end
            await asyncio.sleep(0.005)

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange:
        exchange = Exchange(self, reader, writer)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        exchange.method, exchange.target, _ = first.split(" ")
        exchange.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if self._reads_bodies:
            exchange.body = await reader.readexactly(int(exchange.headers.get("content-length", "0")))
        return exchange


@contextlib.contextmanager
def deaf_server() -> Iterator[int]:
    """A port where connections are taken by the system and nobody ever says a word."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock.getsockname()[1]


@contextlib.contextmanager
def full_server() -> Iterator[int]:
    """A port whose queue is full: connecting hangs."""
    with socket.socket() as server, contextlib.ExitStack() as stack:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def closed_port() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]
