"""How a tool tells how far it is: its report, and the way of the report to the client that asked.

A context variable carries the listener: it follows the call into worker threads and tasks, so plain and async tools
report alike, and where nobody listens a report costs next to nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Final, TypeAlias

ProgressListener: TypeAlias = Callable[[float, float | None, str | None], None]
"""Called with what is done, what there is to do, and a text; from any thread."""

LISTENER: ContextVar[ProgressListener | None] = ContextVar("dragoman-mcp-progress", default=None)


def report_progress(done: float, total: float | None = None, message: str | None = None) -> None:
    """Tell the program that called this tool over MCP how far it is; does nothing where nobody asked.

    `done` must grow from one report to the next; one that does not is left out.
    """
    listener = LISTENER.get()
    if listener is not None:
        listener(done, total, message)


_WAITING: Final = 64
"""How many reports may wait; of more, the oldest are left out: only the newest tells how far it is."""

_Report: TypeAlias = tuple[float, float | None, str | None]


class ProgressRelay:
    """Takes reports from any thread; `pump` sends them, on the event loop that it was made on."""

    def __init__(self, send: Callable[[float, float | None, str | None], Awaitable[None]]) -> None:
        self._send: Callable[[float, float | None, str | None], Awaitable[None]] = send
        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._waiting: deque[_Report] = deque(maxlen=_WAITING)
        self._wake: asyncio.Event = asyncio.Event()
        self._done: float = -math.inf
        self._ended: bool = False

    def __call__(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Take a report."""
        with suppress(RuntimeError):  # the loop was closed while an abandoned tool still ran
            self._loop.call_soon_threadsafe(self._put, (done, total, message))

    def _put(self, report: _Report) -> None:
        done, total, message = report
        # The protocol wants it to grow, and JSON knows no infinity.
        if self._ended or not (math.isfinite(done) and done > self._done):
            return
        self._done = done
        self._waiting.append((done, total if total is not None and math.isfinite(total) else None, message))
        self._wake.set()

    async def pump(self) -> None:
        """Send what comes, until the end has been said and all is sent."""
        while self._waiting or not self._ended:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._send(*self._waiting.popleft())

    def end(self) -> None:
        """Take no more: the tool is done."""
        self._ended = True
        self._wake.set()
