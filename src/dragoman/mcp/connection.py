"""The connection to one server: connect, restart, list tools, call them.

Must not know: other servers, and sync or async callers; everything here runs on one event loop, that of its home.

A session of the SDK must be opened and closed by the same task, so each server has a task of its own, and calls borrow
its session.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, TypeAlias, cast

import anyio
import mcp_types as types
from mcp.client import Client, ClientSession, IncomingMessage
from mcp.client.auth import OAuthFlowError
from mcp.client.context import ClientRequestContext
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from dragoman._version import __version__
from dragoman.conversation import ToolResult
from dragoman.errors import (
    McpConnectionError,
    McpError,
    McpProtocolError,
    ToolExecutionError,
    ToolTimeoutError,
)
from dragoman.tools import LoopThread, ToolContext

from .calls import LISTENER
from .content import result_from_mcp
from .questions import Call, Elicit, Questions, Sample
from .reading import Parcels, TooMuchError
from .remote_tools import Listed, Remote, ToolReader
from .settings import AnyServer, HttpServer, LocalServer, StdioServer, identity_of
from .transports import StderrTail, child, guard, kill_all
from .web import web

State: TypeAlias = Literal["connecting", "ready", "restarting", "failed", "closed"]

LOGGER = logging.getLogger("dragoman.mcp")
_RESULT: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_REFRESH_PAUSE = 0.2
"""Seconds between two readings of a list that its server keeps announcing as changed."""
BACKOFF = 0.5
"""Seconds before the first restart, doubled for each further one."""
_MAX_BACKOFF = 30.0
_STABLE = 60.0
"""A server that has run for so many seconds has its number of restarts reset."""
_CLOSE_SECONDS = 2.0
"""To end a session properly, and a program."""
_MAX_SHOWN = 500
_MAX_ROUNDS = 10
_ROUND_PAUSE = 0.1
_UNAUTHORIZED = frozenset({401, 403})
_SESSION_GONE = frozenset({"Session terminated", "Session not found"})


@dataclass(eq=False)
class Home:
    """The event loop of the connections, and what they share. Has no reference to the McpServers, to let it go."""

    environ: Mapping[str, str]
    elicit: Elicit | None
    sample: Sample | None
    loop: asyncio.AbstractEventLoop | None = None
    thread: LoopThread | None = None
    """Runs the loop in a sync program."""
    groups: set[int] = field(default_factory=set[int])
    """The process groups of running servers."""
    connections: dict[str, Connection] = field(default_factory=dict[str, "Connection"])
    has_warned: bool = False
    """Whether a call after the end was logged: the model reads the error, but cannot mend the program."""

    async def call(self, make: Callable[[], Coroutine[Any, Any, ToolResult]]) -> ToolResult:
        """Run a call on the loop of the connections, from any loop."""
        loop, thread = self.loop, self.thread
        if loop is None or loop.is_closed():
            hint = "Keep them open while their tools are used."
            if not self.has_warned:
                self.has_warned = True
                LOGGER.warning("A tool was called after its MCP servers were closed. %s", hint)
            raise ToolExecutionError("The MCP servers are closed.", hint=hint)
        if asyncio.get_running_loop() is loop:
            return await make()
        if thread is not None:
            return await asyncio.wrap_future(thread.submit(make))
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(make(), loop))

    def abandon(self) -> None:
        """Kill the servers of a program that ends, or drops the McpServers, without closing them."""
        loop, self.loop = self.loop, None
        thread, self.thread = self.thread, None
        if loop is not None and not loop.is_closed():
            for connection in self.connections.values():
                loop.call_soon_threadsafe(connection.stop)
        kill_all(self.groups)
        if thread is not None:
            thread.close()


class Connection:
    """A server and the connection to it. One task runs `keep`."""

    def __init__(self, name: str, server: AnyServer, home: Home) -> None:
        self.name: str = name
        self.options = server.options
        self.listed: Listed = Listed()
        self.state: State = "connecting"
        self.error: McpError | None = None
        """Why it is not ready, or why it died."""
        self.restarts: int = 0
        self._server: AnyServer = server
        self._home: Home = home
        self._reader: ToolReader = ToolReader(name, identity_of(name, server), server.options, self.call)
        self._questions: Questions = Questions(name, server.options.max_questions, home.elicit, home.sample)
        self._status: int = 0
        """The HTTP status of the last response."""
        self._session: ClientSession | None = None
        self._scope: anyio.CancelScope = anyio.CancelScope()
        self._stopped: bool = False
        self._state_changed: asyncio.Event = asyncio.Event()
        self._wake: asyncio.Event = asyncio.Event()
        self._lost: str = ""
        self._stale: bool = False
        self._stderr: StderrTail = StderrTail(server)

    # --- the task ---

    def stop(self) -> None:
        """End the task; on its own loop. The session of a server that is ready is closed first."""
        self._stopped = True
        if self._session is None:
            self._scope.cancel()
        else:
            self._disconnect("it was closed")
            self._scope.deadline = min(self._scope.deadline, anyio.current_time() + _CLOSE_SECONDS)

    async def keep(self) -> None:
        """Connect, and reconnect until stopped or given up."""
        deaths = 0
        with self._scope:
            while not self._stopped:
                began = anyio.current_time()
                error = await self._connect_once()
                was_ready = self.restarts > 0 or self._session is not None
                self._session = None
                if self._stopped:
                    break
                self.error = error
                deaths = 1 if anyio.current_time() - began > _STABLE else deaths + 1
                if not was_ready or deaths > self.options.max_restarts:
                    self._set_state("failed")
                    return
                LOGGER.warning("MCP server %s: %s Starting it again.", self.name, error.message)
                self.restarts += 1
                self._set_state("restarting")
                await anyio.sleep(min(BACKOFF * 2 ** min(deaths - 1, 30), _MAX_BACKOFF))
        self._set_state("closed")

    async def _connect_once(self) -> McpError:
        self._lost, self._stale, self._stderr = "", False, StderrTail(self._server)
        self._wake.clear()
        ready = False
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + self.options.connect_timeout) as scope:
                async with self._client() as client:
                    await self._refresh(client)
                    scope.deadline = math.inf
                    ready = True
                    self._session, self.error = client.session, None
                    self._set_state("ready")
                    await self._follow_changes(client)
        except Exception as error:  # noqa: BLE001 -- of the SDK, the transport or the server
            return self._explain(error)
        if scope.cancelled_caught and not ready:
            return self._error(f"was not ready within {self.options.connect_timeout:g} seconds.")
        return self._error(f"is gone: {self._lost or 'it closed the connection'}.")

    def _client(self) -> Client:
        server = self._server
        if isinstance(server, LocalServer):
            make: object = getattr(server.server, "sdk", None)
            target: Any = make() if callable(make) else server.server
        elif isinstance(server, StdioServer):
            transport = child(server, self._home.environ, self._home.groups, self._stderr)
            target = guard(transport, Parcels(self.options.max_message_bytes), self._disconnect)
        else:
            parcels = Parcels(self.options.max_message_bytes)
            target = guard(web(server, self._set_status, parcels), parcels, self._disconnect)
        return Client(
            target,
            mode=self.options.protocol,
            cache=None,
            message_handler=self._on_message,
            elicitation_callback=self._questions.on_elicitation,
            sampling_callback=self._questions.on_sampling,
            client_info=types.Implementation(name="dragoman", version=__version__),
        )

    async def _follow_changes(self, client: Client) -> None:
        """Refresh the list when it has changed, until the connection is lost."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._subscribe, client)
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._lost:
                    break
                if self._stale:
                    self._stale = False
                    try:
                        with anyio.fail_after(self.options.connect_timeout):
                            await self._refresh(client)
                    except (MCPError, ValidationError, TimeoutError) as error:
                        why = type(error).__name__
                        LOGGER.warning("MCP server %s: its new list of tools cannot be read: %s", self.name, why)
                    await anyio.sleep(_REFRESH_PAUSE)
            tasks.cancel_scope.cancel()

    def _set_status(self, status: int) -> None:
        self._status = status

    def _disconnect(self, why: str) -> None:
        self._lost = self._lost or why
        self._wake.set()

    def _set_state(self, state: State) -> None:
        self.state = state
        changed, self._state_changed = self._state_changed, asyncio.Event()
        changed.set()

    async def settled(self) -> None:
        """Wait until the server is ready, failed or closed."""
        while self.state in ("connecting", "restarting"):
            await self._state_changed.wait()

    # --- lists ---

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._mark_stale()

    def _mark_stale(self) -> None:
        self._stale = True
        self._wake.set()

    async def _subscribe(self, client: Client) -> None:
        """Since 2026-07-28, servers announce changes only to those who subscribe."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        for attempt in count():
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    if attempt:
                        self._mark_stale()  # it may have missed a change
                    async for _ in changes:
                        self._mark_stale()
            except Exception as error:  # noqa: BLE001 -- the server works without it
                LOGGER.debug("MCP server %s: cannot subscribe to changes: %s", self.name, error)
            await anyio.sleep(min(2.0 ** min(attempt, 10), _MAX_BACKOFF))

    async def _refresh(self, client: Client) -> None:
        found: list[types.Tool] = []
        truncated = False
        if client.server_capabilities.tools is not None:
            found, truncated = await _fetch_tools(client.session, self.options.max_tools)
        self.listed = self._reader.read(found, self.listed, truncated=truncated)

    # --- calls ---

    async def call(
        self, remote: Remote, arguments: dict[str, object], context: ToolContext[object] | None
    ) -> ToolResult:
        """Call a tool, from any loop; raises ToolError."""
        listener = LISTENER.get()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if listener is not None:
                listener(progress, total, message)

        return await self._home.call(lambda: self._call(remote, arguments, listener and on_progress, context))

    async def _call(
        self,
        remote: Remote,
        arguments: dict[str, object],
        on_progress: ProgressFnT | None,
        context: ToolContext[object] | None,
    ) -> ToolResult:
        tool, limit = remote.name, self.options.call_timeout
        try:
            with self._questions.during(context) as call:
                answer = await self._rounds(tool, arguments, on_progress, call)
        except TimeoutError:
            message = f"MCP server {self.name!r} did not answer the call of {tool!r} within {limit:g} seconds."
            raise ToolTimeoutError(message, tool_name=tool) from None
        except MCPError as error:
            raise self._call_error(tool, error) from error
        except ValidationError:
            what = f"answered the call of {tool!r} with something that is not MCP."
            raise _failed(tool, self._error(what, McpProtocolError)) from None
        result = result_from_mcp(answer, self.options.max_result_bytes)
        if problem := remote.check_result(result):
            what = f"broke its own output schema for {tool!r}: {problem}."
            raise _failed(tool, self._error(what, McpProtocolError))
        return result

    async def _rounds(
        self, tool: str, arguments: dict[str, object], on_progress: ProgressFnT | None, under_way: Call
    ) -> types.CallToolResult:
        """Call a tool, and repeat the call with answers as long as the server asks questions."""
        responses: types.InputResponses | None = None
        state: str | None = None
        for _ in range(_MAX_ROUNDS):
            params = types.CallToolRequestParams(
                name=tool, arguments=arguments, input_responses=responses, request_state=state
            )
            with anyio.fail_after(self.options.call_timeout) as under_way.clock:
                session = await self._usable_session(tool)
                call = types.CallToolRequest(params=params)
                answer = await session.send_request(call, _RESULT, progress_callback=on_progress)
            under_way.clock = None
            if isinstance(answer, types.CallToolResult):
                return answer
            state, responses = answer.request_state, {}
            for key, request in (answer.input_requests or {}).items():
                ctx = ClientRequestContext(session=session, request_id=key, meta=None)
                response = await session.dispatch_input_request(ctx, request)
                if isinstance(response, types.ErrorData):
                    what = f"MCP server {self.name!r} asked for input during the call of {tool!r}"
                    message = f"{what}, and was declined: {response.message}"
                    hint = "Call another tool, or give it all it needs."
                    raise ToolExecutionError(message, tool_name=tool, hint=hint)
                responses[key] = response
            if not responses:
                await anyio.sleep(_ROUND_PAUSE)
        what = f"asked for input {_MAX_ROUNDS} times during the call of {tool!r}."
        raise _failed(tool, self._error(what, McpProtocolError))

    async def _usable_session(self, tool: str) -> ClientSession:
        """Wait for the session. Raises ToolExecutionError if the server failed or was closed."""
        while True:
            if self._session is not None and not self._lost:
                return self._session
            if self.state in ("failed", "closed"):
                raise _failed(tool, self.error or self._error("is closed."))
            await self._state_changed.wait()

    def _call_error(self, tool: str, error: MCPError) -> ToolExecutionError:
        if error.code == types.INVALID_REQUEST and error.message in _SESSION_GONE:
            self._disconnect("it has forgotten the session")
        if error.code == types.HEADER_MISMATCH:
            self._mark_stale()  # the tool has changed
        if self._lost:
            what = f"died during the call of {tool!r}: {self._lost}. Whether the call took effect is not known."
            cause = self._error(what)
        elif self._status in _UNAUTHORIZED:
            cause = self._unauthorized()
        else:
            why = f"{_shorten(error.message)} (code {error.code})"
            cause = McpError(f"MCP server {self.name!r}: the call of {tool!r} failed: {why}.", server=self.name)
        return _failed(tool, cause)

    # --- errors ---

    def _explain(self, error: Exception) -> McpError:
        """The error of a connection that could not be opened."""
        error = _innermost_error(error)
        if isinstance(error, McpError):
            error.server = error.server or self.name
            return error
        if isinstance(error, ValidationError):
            place = ".".join(map(str, error.errors(include_input=False, include_url=False)[0]["loc"]))
            return self._error(f"is not usable: what it sent is not MCP at {_shorten(place)}.", McpProtocolError)
        if self._status in _UNAUTHORIZED:
            return self._unauthorized()
        # After the first line, the SDK's errors repeat what they could not read, which may be a token.
        what = _shorten(str(error).partition("\n")[0]) or type(error).__name__
        if isinstance(self._server, HttpServer):
            # Other messages may contain the URL.
            what = what if isinstance(error, MCPError | OAuthFlowError | TooMuchError) else type(error).__name__
        return self._error(f"cannot be used: {self._lost or what}.")

    def _unauthorized(self) -> McpError:
        error = self._error(f"refused access: it answered with HTTP {self._status}.")
        error.hint = "Give it a token in `headers`, or sign in with auth=oauth(url, store); see the page about MCP."
        return error

    def _error(self, what: str, kind: type[McpError] = McpConnectionError) -> McpError:
        output = f" Its last output: {self._stderr.text}" if self._stderr.text else ""
        return kind(f"MCP server {self.name!r} {what}{output}", server=self.name)


def _failed(tool: str, cause: McpError) -> ToolExecutionError:
    return ToolExecutionError(cause.message, tool_name=tool, details=cause)


def _innermost_error(error: Exception) -> Exception:
    """The first error inside exception groups."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error


def _shorten(text: str) -> str:
    """A server's text as one line, cut for a message."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * _MAX_SHOWN]).split())
    return flat if len(flat) <= _MAX_SHOWN else flat[: _MAX_SHOWN - 1] + "…"


async def _fetch_tools(session: ClientSession, most: int) -> tuple[list[types.Tool], bool]:
    """Fetch the list of tools, page by page; also whether it was cut."""
    found: list[types.Tool] = []
    seen: set[str] = set()
    cursor: str | None = None
    while True:
        params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
        page = await session.list_tools(params=params)
        found += page.tools
        cursor = page.next_cursor
        if len(found) > most:
            return found[:most], True
        if cursor is None:
            return found, False
        if cursor in seen or not page.tools:
            return found, True  # it leads in circles
        seen.add(cursor)
