"""One server: connected, kept alive, asked.

Must not know: other servers, and colours; everything here runs on one event loop, that of its home.

A session of the SDK must be opened and closed by one and the same task, so each server has a task of its own, and calls
only borrow its session.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, TypeAlias, cast

import anyio
import anyio.to_thread
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
    ToolError,
    ToolExecutionError,
    ToolTimeoutError,
)
from dragoman.tools import LoopThread

from .calls import LISTENER
from .content import result_from_mcp
from .remote_tools import Listed, Remote, ToolReader
from .settings import AnyServer, ClientLimits, HttpServer, LocalServer, Question, StdioServer
from .transports import TOO_MANY, LastWords, child, guard, kill_all, web

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
_MAX_ROUNDS = 10
_ROUND_PAUSE = 0.1
_UNAUTHORIZED = frozenset({401, 403})
_SESSION_GONE = frozenset({"Session terminated", "Session not found"})


_Form: TypeAlias = Mapping[str, Any] | None
_Reply: TypeAlias = str | types.CreateMessageResult | None
Elicit: TypeAlias = Callable[[Question], Awaitable[_Form] | _Form]
Sample: TypeAlias = Callable[[types.CreateMessageRequestParams], Awaitable[_Reply] | _Reply]


@dataclass(eq=False)
class Home:
    """Where connections live, and what they share. The object that users hold may be forgotten, so it is not known."""

    environ: Mapping[str, str]
    elicit: Elicit | None
    sample: Sample | None
    loop: asyncio.AbstractEventLoop | None = None
    thread: LoopThread | None = None
    """Of a plain program, with the loop."""
    groups: set[int] = field(default_factory=set[int])
    """The process groups of servers that run, to be killed whatever happens."""
    connections: dict[str, Connection] = field(default_factory=dict[str, "Connection"])

    async def call(self, make: Callable[[], Coroutine[Any, Any, ToolResult]]) -> ToolResult:
        """Run it where the connections live, from any loop."""
        loop, thread = self.loop, self.thread
        if loop is None or loop.is_closed():
            raise ToolExecutionError("The MCP servers are closed.", hint="Keep them open while their tools are used.")
        if asyncio.get_running_loop() is loop:
            return await make()
        if thread is not None:
            return await asyncio.wrap_future(thread.submit(make))
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(make(), loop))

    def abandon(self) -> None:
        """For a program that ends, or forgets the servers, without closing them: nothing of them may be left."""
        loop, self.loop = self.loop, None
        thread, self.thread = self.thread, None
        if loop is not None and not loop.is_closed():
            for connection in self.connections.values():
                loop.call_soon_threadsafe(connection.stop)
        kill_all(self.groups)
        if thread is not None:
            thread.close()


class Connection:
    """A server and the way to it. `keep` is run by one task; everything else may be asked at any time."""

    def __init__(self, name: str, server: AnyServer, home: Home) -> None:
        self.name: str = name
        self.options = server.options
        self.listed: Listed = Listed()
        self.state: State = "connecting"
        self.error: McpError | None = None
        """Why it is not ready, or was not when it last died."""
        self.restarts: int = 0
        self._server: AnyServer = server
        self._home: Home = home
        self._reader: ToolReader = ToolReader(name, server.options, self.call)
        self._calls: set[anyio.CancelScope] = set()
        """Those under way, whose time stands still while a person is asked."""
        self._status: int = 0
        """That of the last answer over HTTP."""
        self._session: ClientSession | None = None
        self._scope: anyio.CancelScope = anyio.CancelScope()
        self._stopped: bool = False
        self._turn: asyncio.Event = asyncio.Event()
        self._wake: asyncio.Event = asyncio.Event()
        self._lost: str = ""
        self._stale: bool = False
        self._words: LastWords = LastWords(server)

    # --- the task ---

    def stop(self) -> None:
        """End the task; on its own loop. A server that is ready is taken leave of, but not for long."""
        self._stopped = True
        if self._session is None:
            self._scope.cancel()
        else:
            self._end("it was closed")
            self._scope.deadline = min(self._scope.deadline, anyio.current_time() + _FAREWELL)

    async def keep(self) -> None:
        """Connect, and stay connected until told to stop or given up."""
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
                    self._enter("failed")
                    return
                LOGGER.warning("MCP server %s: %s Starting it again.", self.name, error.message)
                self.restarts += 1
                self._enter("restarting")
                await anyio.sleep(min(self.options.restart_backoff * 2 ** min(deaths - 1, 30), _LONGEST_BACKOFF))
        self._enter("closed")

    async def _connect_once(self) -> McpError:
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
            return self._error(f"was not ready within {self.options.connect_timeout:g} seconds.")
        return self._error(f"is gone: {self._lost or 'it closed the connection'}.")

    def _client(self) -> Client:
        server = self._server
        if isinstance(server, LocalServer):
            make: object = getattr(server.server, "sdk", None)
            target: Any = make() if callable(make) else server.server
        elif isinstance(server, StdioServer):
            transport = child(server, self._home.environ, self._home.groups, self._words)
            target = guard(transport, self.options.limits, self._end)
        else:
            target = guard(web(server, self._hear), self.options.limits, self._end)
        return Client(
            target,
            mode=self.options.protocol,
            cache=None,
            message_handler=self._notice,
            elicitation_callback=self._home.elicit and self._on_elicitation,
            sampling_callback=self._home.sample and self._on_sampling,
            client_info=types.Implementation(name="dragoman", version=__version__),
        )

    async def _stay(self, client: Client) -> None:
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

    def _hear(self, status: int) -> None:
        self._status = status

    def _end(self, why: str) -> None:
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

    async def _refresh(self, client: Client) -> None:
        found: list[types.Tool] = []
        truncated = False
        if client.server_capabilities.tools is not None:
            found, truncated = await _fetch_tools(client.session, self.options.limits)
        self.listed = self._reader.read(found, self.listed, truncated=truncated)

    # --- calls ---

    async def call(self, remote: Remote, arguments: dict[str, object]) -> ToolResult:
        """Call a tool, from any loop; raises ToolError."""
        listener = LISTENER.get()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if listener is not None:
                listener(progress, total, message)

        return await self._home.call(lambda: self._call(remote, arguments, listener and on_progress))

    async def _call(self, remote: Remote, arguments: dict[str, object], on_progress: ProgressFnT | None) -> ToolResult:
        tool, limit = remote.name, self.options.call_timeout
        try:
            answer = await self._rounds(tool, arguments, on_progress)
        except TimeoutError:
            message = f"MCP server {self.name!r} did not answer the call of {tool!r} within {limit:g} seconds."
            raise ToolTimeoutError(message, tool_name=tool) from None
        except MCPError as error:
            raise self._call_error(tool, error) from error
        except ValidationError:
            what = f"answered the call of {tool!r} with something that is not MCP."
            raise _failed(tool, self._error(what, McpProtocolError)) from None
        return remote.checked(result_from_mcp(answer, self.options.limits.max_result_bytes), self.name)

    async def _rounds(
        self, tool: str, arguments: dict[str, object], on_progress: ProgressFnT | None
    ) -> types.CallToolResult:
        """Call a tool; again with the answers, as long as the server asks for more."""
        responses: types.InputResponses | None = None
        state: str | None = None
        for _ in range(_MAX_ROUNDS):
            params = types.CallToolRequestParams(
                name=tool, arguments=arguments, input_responses=responses, request_state=state
            )
            with anyio.fail_after(self.options.call_timeout) as scope:
                self._calls.add(scope)
                try:
                    session = await self._usable_session(tool)
                    call = types.CallToolRequest(params=params)
                    answer = await session.send_request(call, _RESULT, progress_callback=on_progress)
                finally:
                    self._calls.discard(scope)
            if isinstance(answer, types.CallToolResult):
                return answer
            state, responses = answer.request_state, {}
            for key, request in (answer.input_requests or {}).items():
                ctx = ClientRequestContext(session=session, request_id=key, meta=None)
                said = await session.dispatch_input_request(ctx, request)
                if isinstance(said, types.ErrorData):
                    message = f"MCP server {self.name!r} asked for input during the call of {tool!r}, and was declined."
                    hint = "Call another tool, or give it all it needs."
                    raise ToolExecutionError(message, tool_name=tool, hint=hint)
                responses[key] = said
            if not responses:
                await anyio.sleep(_ROUND_PAUSE)
        what = f"asked for input {_MAX_ROUNDS} times during the call of {tool!r}."
        raise _failed(tool, self._error(what, McpProtocolError))

    async def _usable_session(self, tool: str) -> ClientSession:
        """The session, once there is one; raises ToolExecutionError if there will be none."""
        while True:
            if self._session is not None and not self._lost:
                return self._session
            if self.state in ("failed", "closed"):
                raise _failed(tool, self.error or self._error("is closed."))
            await self._turn.wait()

    def _call_error(self, tool: str, error: MCPError) -> ToolError:
        if error.code == types.INVALID_REQUEST and error.message in _SESSION_GONE:
            self._end("it has forgotten the session")
        if error.code == types.HEADER_MISMATCH:
            self._mark_stale()  # the tool has changed
        if error.code == types.REQUEST_TIMEOUT:
            return ToolTimeoutError(f"MCP server {self.name!r}: the call of {tool!r} took too long.", tool_name=tool)
        if self._lost:
            cause = self._error(f"died during the call of {tool!r}: {self._lost}. Whether it took effect is not known.")
        elif error.message.startswith(TOO_MANY):
            cause = self._error(f"answered the call of {tool!r} with too much: {error.message}.", McpProtocolError)
        elif self._status in _UNAUTHORIZED:
            cause = self._unauthorized()
            return ToolExecutionError(str(cause), tool_name=tool, details=cause)
        else:
            why = f"{_shorten(error.message)} (code {error.code})"
            cause = McpError(f"MCP server {self.name!r}: the call of {tool!r} failed: {why}.", server=self.name)
        return _failed(tool, cause)

    # --- questions of the server ---

    async def _ask(self, function: Callable[[Any], object], question: object) -> object:
        """What the program's function says; meanwhile the time of calls stands still, since people take theirs."""
        began = anyio.current_time()
        waiting = {scope: scope.deadline for scope in self._calls if scope.deadline < math.inf}
        for scope in waiting:
            scope.deadline = math.inf
        try:
            said = await anyio.to_thread.run_sync(function, question, abandon_on_cancel=True)
            return await said if inspect.isawaitable(said) else said
        except Exception:
            LOGGER.exception("MCP server %s: its question could not be asked", self.name)
            return None
        finally:
            for scope, deadline in waiting.items():
                scope.deadline = deadline + anyio.current_time() - began

    async def _on_elicitation(self, context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert self._home.elicit is not None
        form = isinstance(params, types.ElicitRequestFormParams)
        schema = cast("dict[str, object]", params.requested_schema if form else {})
        url = "" if form else str(params.url)
        question = Question(server=self.name, message=params.message, schema=schema, url=url)
        said = await self._ask(self._home.elicit, question)
        if not isinstance(said, Mapping):
            return types.ElicitResult(action="decline")
        fields = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
        defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
        return types.ElicitResult(action="accept", content={**defaults, **said} if form else None)

    async def _on_sampling(
        self, context: object, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        assert self._home.sample is not None
        said = await self._ask(self._home.sample, params)
        if isinstance(said, str):
            return types.CreateMessageResult(role="assistant", content=types.TextContent(text=said), model="dragoman")
        if isinstance(said, types.CreateMessageResult):
            return said
        return types.ErrorData(code=types.INVALID_REQUEST, message="The request was declined.")

    # --- reasons ---

    def _reason(self, error: Exception) -> McpError:
        error = _innermost_error(error)
        if isinstance(error, McpError):
            error.server = error.server or self.name
            return error
        if isinstance(error, ValidationError):
            place = ".".join(map(str, error.errors(include_input=False, include_url=False)[0]["loc"]))
            return self._error(f"is not usable: what it sent is not MCP at {_shorten(place)}.", McpProtocolError)
        if self._status in _UNAUTHORIZED:
            return self._unauthorized()
        what = _shorten(str(error)) or type(error).__name__
        if isinstance(self._server, HttpServer):
            # The text of others may hold the address.
            what = what if isinstance(error, MCPError | OAuthFlowError) else type(error).__name__
        return self._error(f"cannot be used: {self._lost or what}.")

    def _unauthorized(self) -> McpError:
        error = self._error(f"does not let us in: it answered with HTTP {self._status}.")
        error.hint = "Give it a token in `headers`, or sign in with auth=oauth(url, store); see the page about MCP."
        return error

    def _error(self, what: str, kind: type[McpError] = McpConnectionError) -> McpError:
        words = f" Its last words: {self._words.text}" if self._words.text else ""
        return kind(f"MCP server {self.name!r} {what}{words}", server=self.name)


def _failed(tool: str, cause: McpError) -> ToolExecutionError:
    return ToolExecutionError(cause.message, tool_name=tool, details=cause)


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
