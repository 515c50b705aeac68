"""The door for a parent process: messages on standard input and output, one a line.

Whatever else in this process prints goes to standard error, since one stray
line would break the protocol; tools and their children find standard input empty.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import sys
import threading
from collections.abc import AsyncIterator, Generator
from typing import TYPE_CHECKING, Any, cast

from mcp.server.stdio import stdio_server

from dragoman.tools import AnyTools

from .server import McpServer, as_server

if TYPE_CHECKING:
    import anyio

MAX_LINE_BYTES = 64 * 1024 * 1024
_AHEAD = 64
"""How many lines are read ahead of those that are being served."""


class _Lines:
    """The lines of a file descriptor, read in a thread that nobody has to wait for.

    The SDK reads in a thread that must be waited for, so that Ctrl-C would only take effect at the next line.
    """

    def __init__(self, fd: int) -> None:
        self._fd: int = fd
        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._slots: queue.Queue[None] = queue.Queue()
        for _ in range(_AHEAD):
            self._slots.put(None)
        threading.Thread(target=self._read, name="dragoman-mcp-stdin", daemon=True).start()

    def __aiter__(self) -> AsyncIterator[str]:
        return self._each()

    async def _each(self) -> AsyncIterator[str]:
        while (line := await self._lines.get()) is not None:
            self._slots.put(None)
            yield line

    def _read(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended; so does this
            with contextlib.suppress(OSError), os.fdopen(self._fd, "rb", closefd=False) as file:
                while line := file.readline(MAX_LINE_BYTES):
                    self._slots.get()
                    self._loop.call_soon_threadsafe(self._lines.put_nowait, line.decode("utf-8", "replace"))
            self._loop.call_soon_threadsafe(self._lines.put_nowait, None)


@contextlib.contextmanager
def _own_input() -> Generator[int, None, None]:
    """Standard input for us alone; everybody else reads nothing."""
    private = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        yield private
    finally:
        # `private` stays open: the reading thread may still wait on it, and its number must not be given away.
        os.dup2(private, 0)


@contextlib.contextmanager
def _end_on_sigterm() -> Generator[None, None, None]:
    """Let SIGTERM end the task as Ctrl-C does, so that tools are cancelled and threads end."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    try:
        assert task is not None
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    except (NotImplementedError, RuntimeError, ValueError):  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def aserve_stdio(tools: AnyTools | McpServer) -> None:
    """Serve tools to the parent process until it closes our standard input."""
    with as_server(tools) as server, _own_input() as fd, _end_on_sigterm():
        wire = server.sdk()
        lines = cast("anyio.AsyncFile[str]", cast("Any", _Lines(fd)))
        async with stdio_server(stdin=lines) as (incoming, outgoing):
            # What was printed before and not flushed must not follow into the protocol either.
            sys.stdout.flush()
            with contextlib.redirect_stdout(sys.stderr):
                await wire.run(incoming, outgoing, wire.create_initialization_options())


def serve_stdio(tools: AnyTools | McpServer) -> None:
    """Serve tools to the parent process over standard input and output, until it closes our input or says SIGTERM."""
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(aserve_stdio(tools))
