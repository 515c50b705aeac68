"""Several servers, for sync and async programs, and their tools as one set.

On an event loop the connections live on that loop; in a sync program on a loop in a thread that the object owns. Their
tools work from anywhere: a call runs where the connection lives.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

import anyio
import msgspec
from msgspec import Struct

from dragoman.errors import ConfigurationError, McpConnectionError, McpError, ToolConflictError
from dragoman.tools import AnyTool, LoopThread, ToolSet

from .connection import Connection, Home, State
from .questions import Elicit, Sample
from .remote_tools import ToolProblem
from .settings import AnyServer, HttpServer, StdioServer, servers_from_json

_CLOSE_SECONDS = 15.0
"""More than the longest end of a server takes."""


class ServerStatus(Struct, frozen=True, kw_only=True):
    """The status of a server."""

    state: State
    tools: int
    restarts: int
    error: McpError | None


class _ToolsOf(ToolSet):
    """The current tools of servers. A name stays with the server that had it first: none can replace another's tool,
    even one that is gone, for which there may be rules."""

    def __init__(self, connections: Mapping[str, Connection]) -> None:
        self._connections: Mapping[str, Connection] = connections
        self._owners: dict[str, str] = {}
        # Replaced as a whole, so that threads never combine old sources with a new union.
        self._cached: tuple[list[Mapping[str, AnyTool]], dict[str, AnyTool], list[ToolProblem]] = ([], {}, [])

    def _union(self) -> tuple[list[Mapping[str, AnyTool]], dict[str, AnyTool], list[ToolProblem]]:
        sources = [connection.listed.tools for connection in self._connections.values()]
        cached = self._cached
        if len(cached[0]) == len(sources) and all(a is b for a, b in zip(cached[0], sources, strict=True)):
            return cached
        union: dict[str, AnyTool] = {}
        problems: list[ToolProblem] = []
        for server, source in zip(self._connections, sources, strict=True):
            for name, tool in source.items():
                owner = self._owners.setdefault(name, server)
                if owner == server:
                    union[name] = tool
                else:
                    message = f"The name {name!r} is taken by a tool of the MCP server {owner!r}."
                    error = ToolConflictError(message, hint="Give one of them another prefix.", tool_name=name)
                    problems.append(ToolProblem(server=server, tool=name, error=error, usable=False))
        self._cached = (sources, union, problems)
        return self._cached

    @property
    def by_name(self) -> Mapping[str, AnyTool]:  # pyright: ignore[reportIncompatibleVariableOverride] -- follows
        return self._union()[1]

    @property
    def conflicts(self) -> list[ToolProblem]:
        return self._union()[2]


class _Options(TypedDict, total=False):
    optional: bool
    elicit: Elicit | None
    sample: Sample | None


class McpServers:
    """MCP servers whose tools can be used like any others: `with McpServers(...) as servers:`, or `async with`.

    With `optional`, a server that cannot be connected is left out instead of raising; its status says why.

    A server may ask questions during a call. `elicit` gets a Question for the user and returns the answer, `sample` a
    request to a model (the SDK's) and returns its text; None, or no function at all, declines. Both may be sync or
    async.
    """

    def __init__(
        self,
        servers: Mapping[str, AnyServer],
        *,
        optional: bool = False,
        environ: Mapping[str, str] | None = None,
        elicit: Elicit | None = None,
        sample: Sample | None = None,
    ) -> None:
        self._servers: dict[str, AnyServer] = dict(servers)
        self._optional: bool = optional
        self._tasks: list[asyncio.Task[None]] = []
        self._home: Home = Home(os.environ if environ is None else environ, elicit, sample)
        self._connections: dict[str, Connection] = self._home.connections
        self._all: _ToolsOf = _ToolsOf(self._connections)
        weakref.finalize(self, self._home.abandon)

    @classmethod
    def from_json(
        cls,
        source: str | bytes | Path | Mapping[str, object],
        *,
        environ: Mapping[str, str] | None = None,
        **options: Unpack[_Options],
    ) -> McpServers:
        """The servers of a document with an `mcpServers` object: a path, JSON text, or the parsed form.

        `${NAME}` in it, and what children inherit, come from `environ`; None means that of this process.
        """
        if isinstance(source, Path):
            try:
                source = source.read_bytes()
            except OSError as error:
                message = f"The list of MCP servers cannot be read: {error.strerror}."
                raise ConfigurationError(message) from error
        servers = servers_from_json(source, os.environ if environ is None else environ)
        return cls(servers, environ=environ, **options)

    # --- what they offer ---

    @property
    def tools(self) -> ToolSet:
        """The tools of all servers, inside the `with` block. The set follows their changes."""
        if self._home.loop is None:
            message = "These MCP servers are not open, so there are no tools."
            hint = "Use them inside the block: `with McpServers(...) as servers:`, or `async with`."
            raise ConfigurationError(message, hint=hint)
        return self._all

    def __getitem__(self, name: str) -> ToolSet:
        """The tools of one server."""
        return _ToolsOf({name: self._connection(name)})

    def __iter__(self) -> Iterator[str]:
        return iter(self._servers)

    def __len__(self) -> int:
        return len(self._servers)

    def _connection(self, name: str) -> Connection:
        if name not in self._connections:
            message = f"There is no open MCP server {name!r}."
            raise ConfigurationError(message, hint=f"Known are: {', '.join(self._servers) or 'none'}.")
        return self._connections[name]

    @property
    def status(self) -> dict[str, ServerStatus]:
        """The status of each server."""
        return {
            name: ServerStatus(state=c.state, tools=len(c.listed.tools), restarts=c.restarts, error=c.error)
            for name, c in self._connections.items()
        }

    @property
    def problems(self) -> list[ToolProblem]:
        """The tools that cannot be used, or not as their server declares them."""
        return [each for c in self._connections.values() for each in c.listed.problems] + self._all.conflicts

    # --- opening and closing ---

    def __enter__(self) -> McpServers:
        self._begin()
        self._home.thread = thread = LoopThread()
        try:
            thread.submit(self._open).result()
        except BaseException:  # Ctrl-C included: what was started is ended
            self.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the servers and the thread, in a sync program. May be called more than once."""
        thread = self._home.thread
        if thread is None:
            return
        try:
            if thread.running:
                thread.submit(self._close).result(_CLOSE_SECONDS)
        finally:
            self._home.abandon()

    async def __aenter__(self) -> McpServers:
        self._begin()
        try:
            await self._open()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the servers, on the loop where they were opened. May be called more than once."""
        with anyio.CancelScope(shield=True):
            await self._close()

    def _begin(self) -> None:
        if self._connections:
            message = "These MCP servers have been opened before."
            raise ConfigurationError(message, hint="Make a new McpServers.")

    async def _open(self) -> None:
        self._home.loop = asyncio.get_running_loop()
        for name, server in self._servers.items():
            self._connections[name] = Connection(name, server, self._home)
        self._tasks = [asyncio.create_task(each.keep()) for each in self._connections.values()]
        for each in self._connections.values():
            await each.settled()
            if each.state == "failed" and not self._optional:
                raise each.error or McpConnectionError(f"MCP server {each.name!r} cannot be used.", server=each.name)

    async def _close(self) -> None:
        tasks, self._tasks = self._tasks, []
        for connection in self._connections.values():
            connection.stop()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
        for task in tasks:
            task.cancel()
        self._home.loop = None


def connect(server: AnyServer | str | Sequence[str], **options: Unpack[_Options]) -> McpServers:
    """One server: a URL, a command with its arguments, or a server with all settings. By default without a prefix."""
    if isinstance(server, str):
        server = HttpServer(server)
    elif isinstance(server, Sequence):
        server = StdioServer(server[0] if server else "", server[1:])
    if server.options.prefix is None:
        server = msgspec.structs.replace(server, options=msgspec.structs.replace(server.options, prefix=""))
    return McpServers({"mcp": server}, **options)
