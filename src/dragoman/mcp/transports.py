"""Transports to a server: a child process or HTTP; and the guard against garbage and floods from any server.

Owns: the child process, its environment, and its end: no process, grandchild or pipe is left behind. The SDK's own
transport buffers a line of any length, and passes on our standard error.
Must not know: what the messages mean.
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

from dragoman._programs import named_program, search_path
from dragoman.errors import McpConnectionError

from .settings import HttpServer, StdioServer, reveal

_Incoming: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]
_Into: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]
Streams: TypeAlias = tuple[_Incoming, MemoryObjectSendStream[SessionMessage]]
"""What comes from a server, and what goes to it."""

# --- a child process -------------------------------------------------------------------------------------------------

_INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""Variables that every program gets; none of them holds a secret."""
_READ: Final = 64 * 1024
_LARGE: Final = 1024 * 1024
_QUEUED: Final = 64
_ENVELOPE: Final = b'"jsonrpc"'
"""In every message, and not in anything else that a program prints."""
_GRACE: Final = 1.0
"""Seconds to exit after its input was closed, and again after SIGTERM."""
_REAP: Final = 2.0
_POLL: Final = 0.01
_MAX_TAIL: Final = 4_096
_MIN_SECRET: Final = 4
"""Shorter values are no secrets, and removing them would garble the text."""


class StderrTail:
    """The end of a program's standard error, without the secrets that it was given."""

    def __init__(self, server: object) -> None:
        self._kept: bytes = b""
        given = reveal(server.env).values() if isinstance(server, StdioServer) else ()
        self._secrets: list[str] = [each for each in given if len(each) >= _MIN_SECRET]

    def add(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-_MAX_TAIL:]

    @property
    def text(self) -> str:
        text = self._kept.decode("utf-8", "replace")
        for secret in self._secrets:
            text = text.replace(secret, "…")
        lines = text.strip().splitlines()
        return " / ".join(line.strip() for line in lines[-5:] if line.strip())[-500:]


def kill_all(groups: set[int]) -> None:
    """Kill process groups at the end of the program, when nothing can be awaited any more."""
    while groups:
        _signal(groups.pop(), signal.SIGKILL)


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


@asynccontextmanager
async def child(
    server: StdioServer, environ: Mapping[str, str], groups: set[int], tail: StderrTail
) -> AsyncGenerator[Streams, None]:
    """Start the program, and yield its streams. While it runs, its process group is in `groups`."""
    # Old shells would run a value that looks like a function.
    inherited = {name: environ[name] for name in _INHERITED if not environ.get(name, "()").startswith("()")}
    environment = {**inherited, "PATH": search_path(environ), **reveal(server.env)}
    process: asyncio.subprocess.Process | None = None
    try:
        with anyio.CancelScope(shield=True):  # a cancellation halfway would leave the process behind
            process = await asyncio.create_subprocess_exec(
                named_program(server.command, environment),
                *server.args,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
                cwd=server.cwd,
                start_new_session=True,
                limit=server.options.max_message_bytes,
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
            tasks.start_soon(_keep_tail, process.stderr, tail)
            try:
                yield incoming, outgoing
            finally:
                with anyio.CancelScope(shield=True):
                    incoming.close()  # the reader stops delivering and drains, so the program is not blocked
                    outgoing.close()
                    process.stdin.close()
                    await _end(process)
                tasks.cancel_scope.cancel()
    finally:
        for stream in (into, incoming, outgoing, out_of):
            stream.close()
        # Its own children must not outlive it.
        _signal(process.pid, signal.SIGKILL)
        groups.discard(process.pid)
        _close_pipes(process)


async def _read(stdout: asyncio.StreamReader, into: _Into) -> None:
    """Deliver its messages until it ends; then drain, so that it is not blocked at its end."""
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with into:
            while line := await _line(stdout):
                await into.send(_message(line))
    with suppress(OSError):
        while await stdout.read(_READ):
            pass


async def _line(stdout: asyncio.StreamReader) -> bytes:
    try:
        return await stdout.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError:
        return _ENVELOPE  # stands for a message that is too large to read


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        if len(line) < _LARGE:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        # For many small items this needs a sixth of the memory of pydantic's own parser.
        return SessionMessage(jsonrpc_message_adapter.validate_python(msgspec.json.decode(line), by_name=False))
    except (ValueError, RecursionError) as error:
        return _UnreadableMessageError() if _ENVELOPE in line else error


async def _write(stdin: asyncio.StreamWriter, out_of: MemoryObjectReceiveStream[SessionMessage], into: _Into) -> None:
    try:
        async for message in out_of:
            stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()
    except OSError:
        into.close()  # it no longer reads, so it will not answer either


async def _keep_tail(stderr: asyncio.StreamReader, tail: StderrTail) -> None:
    with suppress(OSError):
        while data := await stderr.read(_READ):
            tail.add(data)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Wait for its exit, now that its input is closed; then SIGTERM; then SIGKILL."""
    for number, patience in ((None, _GRACE), (signal.SIGTERM, _GRACE), (signal.SIGKILL, _REAP)):
        if number is not None:
            _signal(process.pid, number)
        # Not `process.wait()`: that also waits for the pipes, which the program's children may hold open.
        deadline = anyio.current_time() + patience
        while anyio.current_time() < deadline:
            if process.returncode is not None:
                return
            await anyio.sleep(_POLL)


def _close_pipes(process: asyncio.subprocess.Process) -> None:
    """Close our ends of the pipes; asyncio has no public way while a grandchild holds the other ends."""
    transport: object = getattr(process, "_transport", None)
    if not isinstance(transport, asyncio.SubprocessTransport):
        return
    with suppress(ProcessLookupError, PermissionError):
        transport.close()
    popen: object = transport.get_extra_info("subprocess")
    if isinstance(popen, subprocess.Popen) and popen.returncode is None:
        # The event loop was stopped and will not reap it. It was killed, so this returns at once.
        with suppress(subprocess.TimeoutExpired):
            popen.wait(_REAP)


# --- HTTP ------------------------------------------------------------------------------------------------------------


class _Capped(httpx2.AsyncByteStream):
    """A body that may have only so many bytes."""

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int) -> None:
        self._inner: httpx2.AsyncByteStream = inner
        self._limit: int = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._limit
        async for chunk in self._inner:
            left -= len(chunk)
            if left < 0:
                message = f"the response is larger than the {self._limit} bytes that are allowed"
                raise httpx2.StreamError(message)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def web(server: HttpServer, on_status: Callable[[int], None]) -> AsyncGenerator[Streams, None]:
    """Yield the streams to and from the URL. `on_status` is called with the status of every response."""
    limit = server.options.max_message_bytes

    async def cap(response: httpx2.Response) -> None:
        on_status(response.status_code)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            # It was not requested, and a few compressed bytes can stand for any number.
            message = "the response is compressed, although that was not requested"
            raise httpx2.StreamError(message)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _Capped(cast("httpx2.AsyncByteStream", response.stream), limit)

    headers = {"accept-encoding": "identity", **reveal(server.headers)}
    # No read timeout: an idle event stream is normal, and each request has its own deadline.
    timeout = httpx2.Timeout(server.options.connect_timeout, read=None)
    async with (
        httpx2.AsyncClient(
            headers=headers, timeout=timeout, event_hooks={"response": [cap]}, auth=server.auth
        ) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=limit) as streams,
    ):
        yield cast("Streams", streams)


# --- the guard -------------------------------------------------------------------------------------------------------

_MAX_ITEMS: Final = 10_000
"""In one list of a message: parts of a result, tools of a page. A parsed item takes a hundred times its size."""
_BURST: Final = 1_000
"""How many notifications and requests are accepted at once …"""
_PER_SECOND: Final = 100
"""… and how many per second from then on. What comes faster is dropped."""
_MAX_DROPPED: Final = 10_000
"""How many are dropped before the connection is closed; a message that is not MCP counts as ten."""


class _UnreadableMessageError(Exception):
    """A message without a readable id: a call may wait for it forever."""


@asynccontextmanager
async def guard(
    transport: AbstractAsyncContextManager[Streams], max_bytes: int, on_end: Callable[[str], None]
) -> AsyncGenerator[Streams, None]:
    """Wrap a transport so that garbage and floods end it. `on_end` is called with the reason."""
    async with transport as (incoming, outgoing), anyio.create_task_group() as tasks:
        into, guarded = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        with into, guarded:
            tasks.start_soon(_Guard(max_bytes).pump, incoming, into, on_end)
            try:
                yield guarded, outgoing
            finally:
                tasks.cancel_scope.cancel()


class _Guard:
    """Drops garbage, limits the rate of notifications, and counts what it drops."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes: int = max_bytes
        self._left: float = _BURST
        self._refilled: float = anyio.current_time()
        self._dropped: int = 0
        self._problem: str = ""
        """Why the connection is closed."""

    async def pump(self, incoming: _Incoming, into: _Into, on_end: Callable[[str], None]) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream):
            async for item in incoming:
                if self._admits(item):
                    await into.send(item)
                if self._problem:
                    break
        on_end(self._problem or "it closed the connection")
        into.close()

    def _admits(self, item: SessionMessage | Exception) -> bool:
        if isinstance(item, _UnreadableMessageError):
            self._problem = f"it sent a message that cannot be read, or has more than {self._max_bytes} bytes"
            return False
        if isinstance(item, Exception):
            return self._drop("messages that are not MCP", 10)  # the session could only log it
        if isinstance(item.message, JSONRPCResponse):
            item.message = _limit_items(item.message)
        # The server's own requests count as well: each is a task of ours until the server has read our answer.
        if not isinstance(item.message, JSONRPCNotification | JSONRPCRequest) or self._is_within_rate():
            return True
        return self._drop("notifications or requests")

    def _drop(self, what: str, count: int = 1) -> bool:
        self._dropped += count
        if self._dropped > _MAX_DROPPED:
            self._problem = f"it sent {what} without end"
        return False

    def _is_within_rate(self) -> bool:
        now = anyio.current_time()
        self._left = min(_BURST, self._left + (now - self._refilled) * _PER_SECOND)
        self._refilled = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _limit_items(message: JSONRPCResponse) -> JSONRPCResponse | JSONRPCError:
    """The response, or an error in its place if one of its lists is too long."""
    lists = [cast("list[object]", part) for part in message.result.values() if isinstance(part, list)]
    most = max(map(len, lists), default=0)
    if most <= _MAX_ITEMS:
        return message
    error = ErrorData(code=INTERNAL_ERROR, message=f"it sent {most} items, and {_MAX_ITEMS} are allowed")
    return JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
