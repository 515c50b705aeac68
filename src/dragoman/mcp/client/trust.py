"""Which of a server's tools are offered, given what was approved.

Owns: the decision, and the tool that refuses because it has changed.
Must not know: connections.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Literal, NoReturn

import msgspec

from dragoman.errors import ConfigurationError, ToolDeniedError
from dragoman.tools.definition import AnyTool

from .pins import ToolChange
from .tools import Listed, Remote

__all__ = ["Trust"]


class _Refused:
    """The function of a tool that has changed since it was approved."""

    def __init__(self, server: str, remote: Remote) -> None:
        self._server: str = server
        self._name: str = remote.name
        self.about: object = remote.about

    async def __call__(self, /, **_arguments: object) -> NoReturn:
        message = f"the tool {self._name!r} of MCP server {self._server!r} has changed since it was approved."
        hint = f"A person must look at the change and approve it: approve({self._server!r}, {self._name!r})."
        raise ToolDeniedError(message, tool_name=self._name, hint=hint)


class Trust:
    """The tools of one server, under `follow` or `pinned`. Safe to ask from any thread."""

    def __init__(self, server: str, mode: Literal["follow", "pinned"], pins: Mapping[str, str] | None) -> None:
        self._server: str = server
        self._mode: Literal["follow", "pinned"] = mode
        self._lock: threading.Lock = threading.Lock()
        self._approved: dict[str, str] | None = None if pins is None else dict(pins)
        """None until something was approved: then the first list is what people looked at."""
        self._seen: dict[str, AnyTool] = {}
        """Approved tools as they were, so that the model goes on reading what was approved."""
        self._listed: Listed = Listed({}, {}, ())
        self.offered: Mapping[str, AnyTool] = {}
        """By the names the model uses. Never changed, but replaced as a whole."""
        self.changes: tuple[ToolChange, ...] = ()

    @property
    def listed(self) -> Listed:
        """The server's last list."""
        return self._listed

    @property
    def pins(self) -> dict[str, str]:
        """What is approved now; under `follow`, what is used now."""
        with self._lock:
            return dict(self._listed.prints if self._mode == "follow" or self._approved is None else self._approved)

    def take(self, listed: Listed) -> None:
        """The server has a new list."""
        with self._lock:
            self._listed = listed
            if self._approved is None:
                self._approved = dict(listed.prints)
            self._decide()

    def approve(self, tool: str | None = None) -> None:
        """Take what the server says now, of one tool or of all, as approved."""
        with self._lock:
            prints = self._listed.prints
            approved = self._approved or {}
            if tool is None:
                self._approved = dict(prints)
            elif tool in prints or tool in approved:
                kept = {name: mark for name, mark in approved.items() if name != tool}
                self._approved = {**kept, tool: prints[tool]} if tool in prints else kept
            else:
                message = f"MCP server {self._server!r} has no tool {tool!r}."
                raise ConfigurationError(message, hint="Use the server's own name of the tool, without prefix.")
            self._decide()

    def _decide(self) -> None:
        listed, approved = self._listed, self._approved or {}
        tools: dict[str, AnyTool] = {}
        changes: list[ToolChange] = []
        for name, mark in listed.prints.items():
            now = listed.tools.get(name)
            if self._mode == "follow" or approved.get(name) == mark:
                if now is not None:
                    tools[now.name] = self._seen[name] = now
                continue
            before = self._seen.get(name) if name in approved else None
            changes.append(
                ToolChange(
                    server=self._server,
                    tool=name,
                    kind="changed" if name in approved else "added",
                    before=None if before is None else before.spec,
                    after=None if now is None else now.spec,
                )
            )
            if before is not None and isinstance(before.function, Remote):
                refused = _Refused(self._server, before.function)
                tools[before.name] = msgspec.structs.replace(before, function=refused)
        if self._mode == "pinned":
            gone = [name for name in approved if name not in listed.prints]
            seen = {name: self._seen[name].spec for name in gone if name in self._seen}
            changes += [ToolChange(server=self._server, tool=n, kind="removed", before=seen.get(n)) for n in gone]
        self.changes = tuple(changes)
        self.offered = tools
