"""The ways to a server: a program that is started, or an address; and what any server may send, and no more.

Owns: the process of a program, the environment it gets, and that nothing of it is left when it has ended: not itself,
not its children, not a pipe. The SDK's own transport buffers a line of any length and hands on our standard error.
Must not know: what is said.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, TypeAlias, cast

import anyio
import httpx2
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from dragoman.errors import McpConnectionError

from .settings import ClientLimits, HttpServer, StdioServer, reveal

_Incoming: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]
_Into: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]
Streams: TypeAlias = tuple[_Incoming, MemoryObjectSendStream[SessionMessage]]
"""What comes from a server, and what goes to it."""

# --- a program -------------------------------------------------------------------------------------------------------

_SAFE: Final = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""What every program may know of ours: where things are and how to write, and nothing that could be a secret."""
_READ: Final = 64 * 1024
_LARGE: Final = 1024 * 1024
_QUEUED: Final = 64
_ENVELOPE: Final = b'"jsonrpc"'
"""What is in every message, and not in what else a program may print."""
_GRACE: Final = 1.0
"""Seconds to end after its input was closed, and again after SIGTERM."""
_REAP: Final = 2.0
_POLL: Final = 0.01
_KEPT_WORDS: Final = 4_096
_SHORTEST_SECRET: Final = 4
"""Shorter ones would take every second letter out of a message, and are none."""


class LastWords:
    """The end of what a program wrote to its standard error, without the secrets that it was given."""

    def __init__(self, server: object) -> None:
        self._kept: bytes = b""
        given = reveal(server.env).values() if isinstance(server, StdioServer) else ()
        self._secrets: list[str] = [each for each in given if len(each) >= _SHORTEST_SECRET]

    def add(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-_KEPT_WORDS:]

    @property
    def text(self) -> str:
        words = self._kept.decode("utf-8", "replace")
        for secret in self._secrets:
            words = words.replace(secret, "…")
        lines = words.strip().splitlines()
        return " / ".join(line.strip() for line in lines[-5:] if line.strip())[-500:]


def kill_all(groups: set[int]) -> None:
    """For the end of the program, when nothing can be waited for any more."""
    while groups:
        _signal(groups.pop(), signal.SIGKILL)


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


@asynccontextmanager
async def child(
    server: StdioServer, environ: Mapping[str, str], groups: set[int], words: LastWords
) -> AsyncGenerator[Streams, None]:
    """Start the program; its streams of messages. While it runs its process group is among `groups`."""
    # A value that begins like a function would be run by old shells.
    inherited = {name: environ[name] for name in _SAFE if not environ.get(name, "()").startswith("()")}
    process: asyncio.subprocess.Process | None = None
    try:
        with anyio.CancelScope(shield=True):  # it takes no time, and half a process would be left behind
            process = await asyncio.create_subprocess_exec(
                server.command,
                *server.args,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**inherited, **reveal(server.env)},
                cwd=server.cwd,
                start_new_session=True,
                limit=server.options.limits.max_message_bytes,
            )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise McpConnectionError(f"The command {server.command!r} cannot be started: {reason}.") from error
    assert process is not None
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    groups.add(process.pid)
    # From here to the task group nothing is awaited: a cancellation in between would leave the process behind.
    into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, out_of = anyio.create_memory_object_stream[SessionMessage](_QUEUED)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, process.stdout, into)
            tasks.start_soon(_write, process.stdin, out_of, into)
            tasks.start_soon(_listen, process.stderr, words)
            try:
                yield incoming, outgoing
            finally:
                with anyio.CancelScope(shield=True):
                    incoming.close()  # so that the reader no longer waits to deliver, and the program can write on
                    outgoing.close()
                    process.stdin.close()
                    await _end(process)
                tasks.cancel_scope.cancel()
    finally:
        for stream in (into, incoming, outgoing, out_of):
            stream.close()
        # What it has started itself must not outlive it.
        _signal(process.pid, signal.SIGKILL)
        groups.discard(process.pid)
        _close_pipes(process)


async def _read(stdout: asyncio.StreamReader, into: _Into) -> None:
    """Hand on what it says, until it ends, or says something that somebody may wait for and nobody can read."""
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with into:
            while line := await _line(stdout):
                await into.send(_message(line))
    with suppress(OSError):
        while await stdout.read(_READ):
            pass  # or the program would wait for us at its end


async def _line(stdout: asyncio.StreamReader) -> bytes:
    try:
        return await stdout.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError:
        return _ENVELOPE  # a message that is too large, and so cannot be read


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        if len(line) < _LARGE:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        # Of many small things this makes a sixth of what pydantic's own reader does.
        return SessionMessage(jsonrpc_message_adapter.validate_python(msgspec.json.decode(line), by_name=False))
    except (ValueError, RecursionError) as error:
        return _UnreadableMessageError() if _ENVELOPE in line else error


async def _write(stdin: asyncio.StreamWriter, out_of: MemoryObjectReceiveStream[SessionMessage], into: _Into) -> None:
    try:
        async for message in out_of:
            stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()
    except OSError:
        into.close()  # it no longer listens, so it will not answer either


async def _listen(stderr: asyncio.StreamReader, words: LastWords) -> None:
    with suppress(OSError):
        while data := await stderr.read(_READ):
            words.add(data)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Wait, now that its input is closed; then ask; then make it."""
    for number, patience in ((None, _GRACE), (signal.SIGTERM, _GRACE), (signal.SIGKILL, _REAP)):
        if number is not None:
            _signal(process.pid, number)
        # Not `process.wait()`: that also waits for the ends of the pipes, which the program's children may hold.
        deadline = anyio.current_time() + patience
        while anyio.current_time() < deadline:
            if process.returncode is not None:
                return
            await anyio.sleep(_POLL)


def _close_pipes(process: asyncio.subprocess.Process) -> None:
    """Close our ends; nothing public does so while somebody else holds the other ends."""
    transport: object = getattr(process, "_transport", None)
    if not isinstance(transport, asyncio.SubprocessTransport):
        return
    with suppress(ProcessLookupError, PermissionError):
        transport.close()
    popen: object = transport.get_extra_info("subprocess")
    if isinstance(popen, subprocess.Popen) and popen.returncode is None:
        # The loop was stopped under us, and nobody will hear of its end: it has been killed, so this takes no time.
        with suppress(subprocess.TimeoutExpired):
            popen.wait(_REAP)


# --- an address ------------------------------------------------------------------------------------------------------


class _Capped(httpx2.AsyncByteStream):
    """A body that is read to a limit and no further."""

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int) -> None:
        self._inner: httpx2.AsyncByteStream = inner
        self._limit: int = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._limit
        async for chunk in self._inner:
            left -= len(chunk)
            if left < 0:
                message = f"the answer is larger than the {self._limit} bytes that are allowed"
                raise httpx2.StreamError(message)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def web(server: HttpServer, heard: Callable[[int], None]) -> AsyncGenerator[Streams, None]:
    """The streams of messages to and from the address. `heard` is told the status of every answer."""
    limit = server.options.limits.max_message_bytes

    async def cap(response: httpx2.Response) -> None:
        heard(response.status_code)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            # A few bytes can stand for as many as one likes, and none of this was asked for.
            message = "the answer is compressed, although that was not asked for"
            raise httpx2.StreamError(message)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _Capped(cast("httpx2.AsyncByteStream", response.stream), limit)

    headers = {"accept-encoding": "identity", **reveal(server.headers)}
    # No limit for reading: an idle stream of events is no fault, and each request has its own deadline.
    timeout = httpx2.Timeout(server.options.connect_timeout, read=None)
    async with (
        httpx2.AsyncClient(
            headers=headers, timeout=timeout, event_hooks={"response": [cap]}, auth=server.auth
        ) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=limit) as streams,
    ):
        yield cast("Streams", streams)


# --- what any server may send ----------------------------------------------------------------------------------------

TOO_MANY: Final = "what the server sent has"
_BURST: Final = 1_000
"""How many notifications and requests are taken at once …"""
_PER_SECOND: Final = 100
"""… and how many in each second from then on. What comes faster is dropped."""
_MAX_DROPPED: Final = 10_000
"""How many are dropped before the connection is given up; a message that is not MCP counts as ten."""


class _UnreadableMessageError(Exception):
    """A message of which not even the id is known: somebody may wait for it without end."""


@asynccontextmanager
async def guard(
    transport: AbstractAsyncContextManager[Streams], limits: ClientLimits, ended: Callable[[str], None]
) -> AsyncGenerator[Streams, None]:
    """A transport on which garbage and floods end. `ended` is told why no more will come."""
    async with transport as (incoming, outgoing), anyio.create_task_group() as tasks:
        into, guarded = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        with into, guarded:
            tasks.start_soon(_Guard(limits).pump, incoming, into, ended)
            try:
                yield guarded, outgoing
            finally:
                tasks.cancel_scope.cancel()


class _Guard:
    """Drops garbage and rations notifications, and counts what it drops."""

    def __init__(self, limits: ClientLimits) -> None:
        self._limits: ClientLimits = limits
        self._left: float = _BURST
        self._looked: float = anyio.current_time()
        self._dropped: int = 0
        self._problem: str = ""
        """Why the server is no longer listened to."""

    async def pump(self, incoming: _Incoming, into: _Into, ended: Callable[[str], None]) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream):
            async for item in incoming:
                if self._admits(item):
                    await into.send(item)
                if self._problem:
                    break
        ended(self._problem or "it closed the connection")
        into.close()

    def _admits(self, item: SessionMessage | Exception) -> bool:
        if isinstance(item, _UnreadableMessageError):
            self._problem = (
                f"it sent a message that cannot be read, or has more than {self._limits.max_message_bytes} bytes"
            )
            return False
        if isinstance(item, Exception):
            return self._drop("messages that are not MCP", 10)  # the session could only log it
        if isinstance(item.message, JSONRPCResponse):
            item.message = self._sized(item.message)
        # Requests of the server's own count as well: each would be a task of ours until it has read our answer.
        if not isinstance(item.message, JSONRPCNotification | JSONRPCRequest) or self._takes_another():
            return True
        return self._drop("notifications or requests")

    def _drop(self, what: str, count: int = 1) -> bool:
        self._dropped += count
        if self._dropped > _MAX_DROPPED:
            self._problem = f"it sent {what} without end"
        return False

    def _sized(self, message: JSONRPCResponse) -> JSONRPCResponse | JSONRPCError:
        """The response, or an error in its place: of many small things each takes a hundred times its size."""
        most = max(
            (len(cast("list[object]", part)) for part in message.result.values() if isinstance(part, list)), default=0
        )
        if most <= self._limits.max_items:
            return message
        words = f"{TOO_MANY} {most} items, and {self._limits.max_items} are allowed (max_items)"
        error = ErrorData(code=INTERNAL_ERROR, message=words)
        return JSONRPCError(jsonrpc="2.0", id=message.id, error=error)

    def _takes_another(self) -> bool:
        now = anyio.current_time()
        self._left = min(_BURST, self._left + (now - self._looked) * _PER_SECOND)
        self._looked = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
