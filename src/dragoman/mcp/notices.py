"""What clients are told unasked: how far a call is, and that a list has changed."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, Literal, TypeAlias

import anyio
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)

from dragoman.errors import DragomanError
from dragoman.tools import ToolSet

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


# --- lists -----------------------------------------------------------------------------------------------------------

MAX_SESSIONS: Final = 1_000
ListName: TypeAlias = Literal["tools", "resources", "prompts"]

_EVENTS: Mapping[ListName, Callable[[], ServerEvent]] = {
    "tools": ToolsListChanged,
    "resources": ResourcesListChanged,
    "prompts": PromptsListChanged,
}
_SEND: Mapping[ListName, Callable[[ServerSession], Awaitable[None]]] = {
    "tools": ServerSession.send_tool_list_changed,
    "resources": ServerSession.send_resource_list_changed,
    "prompts": ServerSession.send_prompt_list_changed,
}
_PATIENCE = 5.0
"""How long one client may take to accept a notice."""


class Notices:
    """Tells the clients of one door that a list has changed.

    Up to 2025-11-25 every connection is told, from 2026-07-28 on those that opened a stream to hear it. A set of tools
    replaces its mapping when it changes and calls nobody, so it is looked at now and then: one comparison of identity.
    """

    def __init__(self, tools: ToolSet, seconds: float) -> None:
        self.bus: InMemorySubscriptionBus = InMemorySubscriptionBus()
        self._tools: ToolSet = tools
        self._seconds: float = seconds
        self._sessions: deque[ServerSession] = deque(maxlen=MAX_SESSIONS)
        self._lock: threading.Lock = threading.Lock()
        self._named: set[ListName] = set()

    def add(self, session: ServerSession) -> None:
        """From now on, tell this one. What goes to a client that has left is dropped by the SDK."""
        self._sessions.append(session)

    def changed(self, name: ListName) -> None:
        """Say so at the next look; from any thread."""
        with self._lock:
            self._named.add(name)

    async def watch(self) -> None:
        """Look and tell, until cancelled."""
        known = self._now()
        while True:
            await anyio.sleep(self._seconds)
            now = self._now()
            with self._lock:
                names, self._named = self._named, set()
            if now is not known:
                names.add("tools")
                known = now
            for name in sorted(names):
                await self._tell(name)

    def _now(self) -> object:
        try:
            return self._tools.by_name
        except DragomanError:  # two tools of one name, for the moment; whoever lists them is told
            return None

    async def _tell(self, name: ListName) -> None:
        await self.bus.publish(_EVENTS[name]())
        async with anyio.create_task_group() as tasks:
            for session in self._sessions:
                tasks.start_soon(self._send, session, name)

    async def _send(self, session: ServerSession, name: ListName) -> None:
        with anyio.move_on_after(_PATIENCE):
            await _SEND[name](session)
