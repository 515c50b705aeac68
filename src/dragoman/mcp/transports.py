"""A server that is a child process; and the guard against garbage and floods from any server.

Owns: the child process, its environment, and its end: no process, grandchild or pipe is left behind. The SDK's own
transport buffers a line of any length, and passes on our standard error.
Must not know: what the messages mean.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import Context
from typing import Final, Self, TypeAlias, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
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

from .reading import LARGE, Parcels, TooMuchError, lines_of, parsed
from .settings import StdioServer, reveal

_Incoming: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]
_Into: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]
_Outgoing: TypeAlias = MemoryObjectSendStream[SessionMessage]
Streams: TypeAlias = tuple[_Incoming, _Outgoing]
"""What comes from a server, and what goes to it."""

# --- a child process -------------------------------------------------------------------------------------------------

_INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""Variables that every program gets; none of them holds a secret."""
_READ: Final = 64 * 1024
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
                limit=_READ,
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
            tasks.start_soon(_read, process.stdout, into, server.options.max_message_bytes)
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


async def _read(stdout: asyncio.StreamReader, into: _Into, most: int) -> None:
    """Deliver its messages until it ends; then drain, so that it is not blocked at its end."""
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with into:
            try:
                async for line in lines_of(_pieces(stdout), most):
                    await into.send(_message(line, most))
            except TooMuchError:
                await into.send(_UnreadableMessageError())
    with suppress(OSError):
        while await stdout.read(_READ):
            pass


async def _pieces(stdout: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    while piece := await stdout.read(_READ):
        yield piece


def _message(line: bytes, most: int) -> SessionMessage | Exception:
    try:
        if len(line) < LARGE:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        return SessionMessage(jsonrpc_message_adapter.validate_python(parsed(line, most), by_name=False))
    except (ValueError, RecursionError, TooMuchError) as error:
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


# --- the guard -------------------------------------------------------------------------------------------------------

_MAX_ITEMS: Final = 10_000
"""In one list of a message: parts of a result, tools of a page. A parsed item takes a hundred times its size."""
_BURST: Final = 1_000
"""How many notifications and requests are accepted at once …"""
_PER_SECOND: Final = 100
"""… and how many per second from then on. What comes faster is dropped."""
_MAX_NAME: Final = 1_024
_LEAST_SIZE: Final = 64
"""Bytes that any value of a message takes in memory."""
_MAX_DROPPED: Final = 10_000
"""How many are dropped before the connection is closed; a message that is not MCP counts as ten."""


class _UnreadableMessageError(Exception):
    """A message without a readable id: a call may wait for it forever."""


@asynccontextmanager
async def guard(
    transport: AbstractAsyncContextManager[Streams], parcels: Parcels, on_end: Callable[[str], None]
) -> AsyncGenerator[Streams, None]:
    """Wrap a transport so that garbage and floods end it. `on_end` is called with the reason."""
    async with transport as (incoming, outgoing):
        guarded = _Guarded(incoming, parcels, on_end)
        yield cast("Streams", (guarded, _Answers(outgoing, guarded)))


class _Wrapper:
    """A stream of the SDK, wrapped."""

    def __init__(self, inner: _Incoming | _Outgoing) -> None:
        self._inner: _Incoming | _Outgoing = inner

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


class _Guarded(_Wrapper):
    """What comes from a server, without garbage, floods and what is too large."""

    def __init__(self, incoming: _Incoming, parcels: Parcels, on_end: Callable[[str], None]) -> None:
        super().__init__(incoming)
        self._incoming: _Incoming = incoming
        self._parcels: Parcels = parcels
        self._on_end: Callable[[str], None] = on_end
        self._left: float = _BURST
        self._refilled: float = anyio.current_time()
        self._dropped: int = 0
        self._open: dict[str | int, int] = {}
        """The server's requests that have not been answered, and how large they are: each is a task of ours."""
        self._last: JSONRPCResponse | None = None
        """Delivered just now."""
        self._problem: str = ""
        """Why the connection is closed."""

    @property
    def last_context(self) -> Context | None:
        """The context in which the SDK's transport received the last message: over HTTP, that of the call."""
        return getattr(self._incoming, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage | Exception:
        """The next message. Raises EndOfStream."""
        if self._last is not None:
            self._last.result = {}  # the SDK keeps a message until the next one is there, for which there must be room
            self._last = None
        while not self._problem:
            try:
                item = await self._incoming.receive()
            except (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream):
                self._problem = "it closed the connection"
                break
            if self._admits(item):
                if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
                    self._last = item.message
                return item
        self._on_end(self._problem)
        raise anyio.EndOfStream

    def answered(self, message: JSONRPCResponse | JSONRPCError) -> None:
        """A request of the server has been answered."""
        if message.id is not None:
            self._open.pop(message.id, None)

    def _admits(self, item: SessionMessage | Exception) -> bool:
        most = self._parcels.most
        if isinstance(item, _UnreadableMessageError):
            self._problem = f"it sent a message that cannot be read, or has more than {most} bytes"
            return False
        if isinstance(item, Exception):
            return self._drop("messages that are not MCP", 10)  # the session could only log it
        self._parcels.deliver(item.message)
        match item.message:
            case JSONRPCResponse() as message:
                item.message = _limit_items(message)
                return True
            case JSONRPCError():
                return True
            case JSONRPCNotification(method=method, params=params):
                if method == "notifications/cancelled" and params:
                    self._open.pop(cast("str | int", params.get("requestId")), None)
            case JSONRPCRequest(id=number, method=method, params=params):
                size = _size_of(params)
                name = len(method) + len(str(number))  # in our answer
                if number in self._open or name > _MAX_NAME or sum(self._open.values()) + size > most:
                    return self._drop("requests without reading our answers")
                self._open[number] = size
        return self._is_within_rate() or self._drop("notifications or requests")

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


def _size_of(value: object) -> int:
    """About how many bytes a value of a message takes."""
    size, rest = 0, [value]
    while rest:
        each = rest.pop()
        size += _LEAST_SIZE
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, dict):
            rest += [*cast("dict[object, object]", each), *cast("dict[object, object]", each).values()]
        elif isinstance(each, list):
            rest += cast("list[object]", each)
    return size


class _Answers(_Wrapper):
    """What goes to a server."""

    def __init__(self, outgoing: _Outgoing, guarded: _Guarded) -> None:
        super().__init__(outgoing)
        self._outgoing: _Outgoing = outgoing
        self._guarded: _Guarded = guarded

    async def send(self, item: SessionMessage) -> None:
        await self._outgoing.send(item)
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._guarded.answered(item.message)


def _limit_items(message: JSONRPCResponse) -> JSONRPCResponse | JSONRPCError:
    """The response, or an error in its place if one of its lists is too long."""
    lists = [cast("list[object]", part) for part in message.result.values() if isinstance(part, list)]
    most = max(map(len, lists), default=0)
    if most <= _MAX_ITEMS:
        return message
    error = ErrorData(code=INTERNAL_ERROR, message=f"it sent {most} items, and {_MAX_ITEMS} are allowed")
    return JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
