"""A server that is a program of ours to start and to end.

Owns: its process, the environment it gets, and that nothing of it is left when it has ended: not itself, not its
children, not a pipe. The SDK's own transport for this buffers a line of any length and hands on our standard error.
Must not know: what is said to it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from dragoman.engines import Secret
from dragoman.errors import McpConnectionError

from .settings import ClientLimits, StdioServer
from .web import Streams, UnreadableMessageError

SAFE_VARIABLES: Final = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
)
"""What every program may know of ours: where things are and how to write, and nothing that could be a secret."""

_READ: Final = 64 * 1024
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


def environment(server: StdioServer, environ: Mapping[str, str]) -> dict[str, str]:
    """What the program gets: the safe variables of ours, and what its entry names."""
    inherited = {
        # A value that begins like a function would be run by old shells.
        name: environ[name]
        for name in SAFE_VARIABLES
        if name in environ and not environ[name].startswith("()")
    }
    named = {name: value.reveal() if isinstance(value, Secret) else value for name, value in server.env.items()}
    return {**inherited, **named}


class LastWords:
    """The end of what a program wrote to its standard error, without the secrets that it was given."""

    def __init__(self, server: object) -> None:
        self._kept: bytes = b""
        given = server.env.values() if isinstance(server, StdioServer) else ()
        self._secrets: list[str] = [each.reveal() if isinstance(each, Secret) else each for each in given]

    def add(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-_KEPT_WORDS:]

    @property
    def text(self) -> str:
        """The last lines, for a message."""
        words = self._kept.decode("utf-8", "replace")
        for secret in self._secrets:
            if len(secret) >= _SHORTEST_SECRET:
                words = words.replace(secret, "…")
        lines = words.strip().splitlines()
        return " / ".join(line.strip() for line in lines[-5:] if line.strip())[-500:]


class Processes:
    """The process groups that are ours and alive, to be killed whatever happens."""

    def __init__(self) -> None:
        self.groups: set[int] = set()

    def kill_all(self) -> None:
        """For the end of the program, when nothing can be waited for any more."""
        for group in list(self.groups):
            _signal(group, signal.SIGKILL)
        self.groups.clear()


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


@asynccontextmanager
async def child(
    server: StdioServer,
    environ: Mapping[str, str],
    limits: ClientLimits,
    processes: Processes,
    words: LastWords,
) -> AsyncGenerator[Streams, None]:
    """Start the program; its streams of messages. It has ended when this is left."""
    process: asyncio.subprocess.Process | None = None
    try:
        with anyio.CancelScope(shield=True):  # it takes no time, and half a process would be left behind
            process = await asyncio.create_subprocess_exec(
                server.command,
                *server.args,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment(server, environ),
                cwd=server.cwd,
                start_new_session=True,
                limit=limits.max_message_bytes,
            )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        message = f"The command {server.command!r} cannot be started: {reason}."
        raise McpConnectionError(message) from error
    assert process is not None
    processes.groups.add(process.pid)
    # From here to the task group nothing is awaited: a cancellation in between would leave the process behind.
    into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, out_of = anyio.create_memory_object_stream[SessionMessage](_QUEUED)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, process, into)
            tasks.start_soon(_write, process, out_of, into)
            tasks.start_soon(_listen, process, words)
            try:
                yield incoming, outgoing
            finally:
                with anyio.CancelScope(shield=True):
                    incoming.close()  # so that the reader no longer waits to deliver, and the program can write on
                    outgoing.close()
                    await _end(process)
                tasks.cancel_scope.cancel()
    finally:
        for stream in (into, incoming, outgoing, out_of):
            stream.close()
        # What it has started itself must not outlive it.
        _signal(process.pid, signal.SIGKILL)
        processes.groups.discard(process.pid)
        _close_pipes(process)


async def _read(process: asyncio.subprocess.Process, into: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    """Hand on what it says, until it ends, or says something that somebody may wait for and nobody can read."""
    stdout = process.stdout
    assert stdout is not None
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
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return UnreadableMessageError() if _ENVELOPE in line else error


async def _write(
    process: asyncio.subprocess.Process,
    out_of: MemoryObjectReceiveStream[SessionMessage],
    into: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    stdin = process.stdin
    assert stdin is not None
    try:
        async for message in out_of:
            stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()
    except OSError:
        into.close()  # it no longer listens, so it will not answer either


async def _listen(process: asyncio.subprocess.Process, words: LastWords) -> None:
    stderr = process.stderr
    assert stderr is not None
    with suppress(OSError):
        while data := await stderr.read(_READ):
            words.add(data)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close its input and wait; then ask; then make it."""
    stdin = process.stdin
    assert stdin is not None
    stdin.close()
    for number, patience in ((None, _GRACE), (signal.SIGTERM, _GRACE), (signal.SIGKILL, _REAP)):
        if number is not None:
            _signal(process.pid, number)
        if await _has_ended(process, patience):
            return


async def _has_ended(process: asyncio.subprocess.Process, patience: float) -> bool:
    # Not `process.wait()`: that also waits for the ends of the pipes, which the program's children may hold.
    deadline = anyio.current_time() + patience
    while process.returncode is None:
        if anyio.current_time() >= deadline:
            return False
        await anyio.sleep(_POLL)
    return True


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
