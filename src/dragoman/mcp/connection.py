"""One server: connected, kept alive, asked.

Must not know: other servers, and colours; everything here runs on one event loop, which `anywhere` leads to.

A session of the SDK must be opened and closed by one and the same task, so each server has a task of its own, and calls
only borrow its session.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from itertools import count
from typing import Any, Literal, TypeAlias, cast

import anyio
import mcp_types as types
from mcp.client import Client, ClientSession, IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from dragoman._version import __version__
from dragoman.conversation import ToolResult
from dragoman.errors import (
    McpConnectionError,
    McpError,
    McpProtocolError,
    ToolError,
    ToolExecutionError,
    ToolTimeoutError,
)

from .child import LastWords, Processes, child
from .content import result_from_mcp
from .progress import LISTENER, ProgressListener
from .remote_tools import Remote, ToolProblem, ToolReader, Trust
from .settings import AnyServer, ClientLimits, HttpServer, LocalServer, StdioServer
from .web import guard, web

State: TypeAlias = Literal["connecting", "ready", "restarting", "failed", "closed"]

LOGGER = logging.getLogger("dragoman.mcp")
_RESULT: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_REFRESH_PAUSE = 0.2
"""Seconds between two looks at a list that its server keeps announcing as changed."""
_LONGEST_BACKOFF = 30.0
_STABLE = 60.0
"""After so many seconds without dying a server's restarts are forgotten."""
_FAREWELL = 2.0
"""Seconds to end a session properly, and a program."""
_SHOWN = 500
_SESSION_GONE = frozenset({"Session terminated", "Session not found"})


Elsewhere: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, ToolResult]]], Awaitable[ToolResult]]
"""Runs a coroutine on the loop of the connections, whichever thread or loop asks."""


class Connection:
    """A server and the way to it. `keep` is run by one task; everything else may be asked at any time."""

    def __init__(
        self,
        name: str,
        server: AnyServer,
        *,
        environ: Mapping[str, str],
        processes: Processes,
        pins: Mapping[str, str] | None,
        anywhere: Elsewhere,
    ) -> None:
        self.name: str = name
        self.options = server.options
        self.trust: Trust = Trust(name, server.options.trust, pins)
        self.state: State = "connecting"
        self.error: McpError | None = None
        """Why it is not ready, or was not when it last died."""
        self.restarts: int = 0
        self.truncated: bool = False
        self._reader: ToolReader = ToolReader(name, self.prefix, server.options, self.call)
        self._server: AnyServer = server
        self._environ: Mapping[str, str] = environ
        self._processes: Processes = processes
        self._anywhere: Elsewhere = anywhere
        self._session: ClientSession | None = None
        self._scope: anyio.CancelScope | None = None
        self._stopped: bool = False
        self._turn: asyncio.Event = asyncio.Event()
        self._wake: asyncio.Event = asyncio.Event()
        self._lost: str = ""
        self._stale: bool = False
        self._words: LastWords = LastWords(server)

    @property
    def prefix(self) -> str:
        """What is put before the names of the tools."""
        own = self.options.prefix
        return re.sub(r"[^A-Za-z0-9_-]", "_", self.name) + "_" if own is None else own

    @property
    def problems(self) -> tuple[ToolProblem, ...]:
        """What was not believed or not taken over."""
        found = self.trust.listed.problems
        if not self.truncated:
            return found
        message = (
            f"MCP server {self.name!r} lists more than {self.options.limits.max_tools} tools; the rest is left out."
        )
        error = McpProtocolError(message, server=self.name)
        return (*found, ToolProblem(server=self.name, tool="", error=error, usable=False))

    # --- the task ---

    async def keep(self) -> None:
        """Connect, and stay connected until told to stop or given up."""
        with anyio.CancelScope() as self._scope:
            if not self._stopped:
                await self._keep()
        if self.state != "failed":
            self._enter("closed")

    def stop(self) -> None:
        """End the task; on its own loop. A server that is ready is taken leave of, but not for long."""
        self._stopped = True
        if self._scope is not None and self._session is not None:
            self._end("it was closed")
            self._scope.deadline = min(self._scope.deadline, anyio.current_time() + _FAREWELL)
        elif self._scope is not None:
            self._scope.cancel()

    async def _keep(self) -> None:
        deaths = 0
        while True:
            began = anyio.current_time()
            error = await self._connect_once()
            was_ready = self.restarts > 0 or self._session is not None
            self._session = None
            if self._stopped:
                return
            self.error = error
            if anyio.current_time() - began > _STABLE:
                deaths = 0
            deaths += 1
            if not was_ready or deaths > self.options.max_restarts:
                self._enter("failed")
                return
            LOGGER.warning("MCP server %s: %s Starting it again.", self.name, error.message)
            self.restarts += 1
            self._enter("restarting")
            await anyio.sleep(min(self.options.restart_backoff * 2 ** min(deaths - 1, 30), _LONGEST_BACKOFF))

    async def _connect_once(self) -> McpError:
        """Connect once and stay so; returns why it is over."""
        self._lost, self._stale, self._words = "", False, LastWords(self._server)
        self._wake.clear()
        ready = False
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + self.options.connect_timeout) as scope:
                async with self._client() as client:
                    await self._refresh(client)
                    scope.deadline = math.inf
                    ready = True
                    self._session, self.error = client.session, None
                    self._enter("ready")
                    await self._stay(client)
        except Exception as error:  # noqa: BLE001 -- whatever the SDK and the server make of each other is the reason
            return self._reason(error)
        if scope.cancelled_caught and not ready:
            message = f"MCP server {self.name!r} was not ready within {self.options.connect_timeout:g} seconds."
            return McpConnectionError(self._with_words(message), server=self.name)
        message = f"MCP server {self.name!r} is gone: {self._lost or 'it closed the connection'}."
        return McpConnectionError(self._with_words(message), server=self.name)

    def _client(self) -> Client:
        return Client(
            self._target(),
            mode=self.options.protocol,
            cache=None,
            message_handler=self._notice,
            client_info=types.Implementation(name="dragoman", version=__version__),
        )

    def _target(self) -> Any:
        """What the SDK connects to."""
        server, limits = self._server, self.options.limits
        if isinstance(server, LocalServer):
            make: object = getattr(server.server, "sdk", None)
            return make() if callable(make) else server.server
        if isinstance(server, StdioServer):
            transport = child(server, self._environ, limits, self._processes, self._words)
        else:
            transport = web(server, self.options)
        return guard(transport, limits, self._end)

    async def _stay(self, client: Client) -> None:
        """Take over changes until the connection is lost."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._subscribe, client)
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._lost:
                    break
                if self._stale:
                    self._stale = False
                    await self._refresh_again(client)
                    await anyio.sleep(_REFRESH_PAUSE)
            tasks.cancel_scope.cancel()

    def _end(self, why: str) -> None:
        """No more will come from the server; the first reason counts."""
        self._lost = self._lost or why
        self._wake.set()

    def _enter(self, state: State) -> None:
        self.state = state
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()

    async def settled(self) -> None:
        """Wait until it is known whether the server can be used."""
        while self.state in ("connecting", "restarting"):
            await self._turn.wait()

    # --- lists ---

    async def _notice(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._mark_stale()

    def _mark_stale(self) -> None:
        self._stale = True
        self._wake.set()

    async def _subscribe(self, client: Client) -> None:
        """From 2026-07-28 on, notices of changes come only where they were asked for."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        for attempt in count():
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    if attempt:
                        self._mark_stale()  # something may have been missed
                    async for _ in changes:
                        self._mark_stale()
            except Exception as error:  # noqa: BLE001 -- then there are no notices, which is no reason to stop
                LOGGER.debug("MCP server %s: no notices of changes: %s", self.name, error)
            await anyio.sleep(min(2.0 ** min(attempt, 10), _LONGEST_BACKOFF))

    async def _refresh_again(self, client: Client) -> None:
        try:
            with anyio.fail_after(self.options.connect_timeout):
                await self._refresh(client)
        except (MCPError, ValidationError, TimeoutError) as error:
            LOGGER.warning("MCP server %s: its new list of tools cannot be had: %s", self.name, type(error).__name__)

    async def _refresh(self, client: Client) -> None:
        found: list[types.Tool] = []
        self.truncated = False
        if client.server_capabilities.tools is not None:
            found, self.truncated = await _fetch_tools(client.session, self.options.limits)
        self.trust.take(self._reader.read(found, self.trust.listed))

    # --- calls ---

    async def call(self, remote: Remote, arguments: dict[str, object]) -> ToolResult:
        """Call a tool, from any loop; raises ToolError."""
        listener = LISTENER.get()
        return await self._anywhere(lambda: self._call(remote, arguments, listener))

    async def _call(
        self, remote: Remote, arguments: dict[str, object], listener: ProgressListener | None
    ) -> ToolResult:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if listener is not None:
                listener(progress, total, message)

        params = types.CallToolRequestParams(name=remote.name, arguments=arguments)
        limit = self.options.call_timeout
        try:
            with anyio.fail_after(limit):
                session = await self._usable_session(remote.name)
                answer = await session.send_request(
                    types.CallToolRequest(params=params),
                    _RESULT,
                    progress_callback=None if listener is None else on_progress,
                )
        except TimeoutError:
            message = f"MCP server {self.name!r} did not answer the call of {remote.name!r} within {limit:g} seconds."
            raise ToolTimeoutError(message, tool_name=remote.name) from None
        except MCPError as error:
            raise self._call_error(remote.name, error) from error
        except ValidationError:
            message = f"MCP server {self.name!r} answered the call of {remote.name!r} with something that is not MCP."
            details = McpProtocolError(message, server=self.name)
            raise ToolExecutionError(message, tool_name=remote.name, details=details) from None
        if isinstance(answer, types.InputRequiredResult):
            message = f"MCP server {self.name!r} asked for input during the call of {remote.name!r}, and was declined."
            raise ToolExecutionError(message, tool_name=remote.name, hint="Call another tool, or give it all it needs.")
        return remote.checked(result_from_mcp(answer, self.options.limits.max_result_bytes), self.name)

    async def _usable_session(self, tool: str) -> ClientSession:
        """The session, once there is one; raises ToolExecutionError if there will be none."""
        while True:
            if self._session is not None and not self._lost:
                return self._session
            if self.state in ("failed", "closed"):
                why = self.error or McpConnectionError(f"MCP server {self.name!r} is closed.", server=self.name)
                raise ToolExecutionError(why.message, tool_name=tool, details=why) from why
            await self._turn.wait()

    def _call_error(self, tool: str, error: MCPError) -> ToolError:
        if error.code == types.INVALID_REQUEST and error.message in _SESSION_GONE:
            self._end("it has forgotten the session")
        if self._lost:
            what = f"MCP server {self.name!r} died during the call of {tool!r}: {self._lost}."
            message = f"{what} Whether it took effect is not known."
            cause = McpConnectionError(self._with_words(message), server=self.name)
            return ToolExecutionError(cause.message, tool_name=tool, details=cause)
        if error.code == types.REQUEST_TIMEOUT:
            return ToolTimeoutError(f"MCP server {self.name!r}: the call of {tool!r} took too long.", tool_name=tool)
        text = _shorten(error.message)
        message = f"MCP server {self.name!r}: the call of {tool!r} failed: {text} (code {error.code})."
        return ToolExecutionError(message, tool_name=tool, details=McpError(message, server=self.name))

    # --- reasons ---

    def _reason(self, error: Exception) -> McpError:
        error = _innermost_error(error)
        if isinstance(error, McpError):
            error.server = error.server or self.name
            return error
        if isinstance(error, ValidationError):
            place = ".".join(map(str, error.errors(include_input=False, include_url=False)[0]["loc"]))
            message = f"MCP server {self.name!r} is not usable: what it sent is not MCP at {_shorten(place)}."
            return McpProtocolError(self._with_words(message), server=self.name)
        what = _shorten(str(error)) or type(error).__name__
        if isinstance(self._server, HttpServer):
            what = type(error).__name__ if not isinstance(error, MCPError) else what  # the text may hold the address
        message = f"MCP server {self.name!r} cannot be used: {self._lost or what}."
        return McpConnectionError(self._with_words(message), server=self.name)

    def _with_words(self, message: str) -> str:
        words = self._words.text
        return f"{message} Its last words: {words}" if words else message


def _innermost_error(error: Exception) -> Exception:
    """The first error of groups in groups, which say nothing by themselves."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error


def _shorten(text: str) -> str:
    """A stranger's text, in one line of a length that fits a message."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * _SHOWN]).split())
    return flat if len(flat) <= _SHOWN else flat[: _SHOWN - 1] + "…"


async def _fetch_tools(session: ClientSession, limits: ClientLimits) -> tuple[list[types.Tool], bool]:
    """The tools that a server lists, page by page, and whether that was too many."""
    found: list[types.Tool] = []
    seen: set[str] = set()
    cursor: str | None = None
    while True:
        params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
        page = await session.list_tools(params=params)
        found += page.tools
        cursor = page.next_cursor
        if len(found) > limits.max_tools:
            return found[: limits.max_tools], True
        if cursor is None:
            return found, False
        if cursor in seen or not page.tools:
            return found, True  # it leads in circles
        seen.add(cursor)
