"""Telling clients that a list has changed.

Owns: noticing it, and both ways of saying it: to every connection (up to 2025-11-25), and on the streams that clients
opened to hear it (from 2026-07-28 on).
Must not know: what is on the lists.

A set of tools replaces its mapping when it changes and calls nobody, so it is looked at now and then: one comparison of
identity.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias
from weakref import WeakSet

import anyio
from mcp.server.connection import Connection
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)

from dragoman.errors import DragomanError
from dragoman.tools.registry import ToolSet

__all__ = ["ListName", "Notices"]

ListName: TypeAlias = Literal["tools", "resources", "prompts"]

_EVENTS: Mapping[ListName, Callable[[], ServerEvent]] = {
    "tools": ToolsListChanged,
    "resources": ResourcesListChanged,
    "prompts": PromptsListChanged,
}
_SEND: Mapping[ListName, str] = {
    "tools": "send_tool_list_changed",
    "resources": "send_resource_list_changed",
    "prompts": "send_prompt_list_changed",
}
_PATIENCE = 5.0
"""How long one client may take to accept a notice; the others do not wait longer for it."""


class Notices:
    """Tells the clients of one door."""

    def __init__(self, tools: ToolSet, seconds: float) -> None:
        self.bus: InMemorySubscriptionBus = InMemorySubscriptionBus()
        self._tools: ToolSet = tools
        self._seconds: float = seconds
        self._connections: WeakSet[Connection] = WeakSet()
        self._lock: threading.Lock = threading.Lock()
        self._named: set[ListName] = set()

    def add(self, connection: Connection) -> None:
        """From now on, tell this one."""
        self._connections.add(connection)

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
        for connection in list(self._connections):
            if connection.initialized.is_set():
                with anyio.move_on_after(_PATIENCE):
                    await getattr(connection, _SEND[name])()
