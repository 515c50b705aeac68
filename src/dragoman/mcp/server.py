"""A set of tools as an MCP server.

Every call goes through the executor, as everywhere else. Clients are told when a list has changed.

Must not know: how bytes come and go (stdio.py, http.py), and who may come in.

By the specification an unknown tool is an error of the protocol, and everything else that goes wrong with a call, its
arguments included, is a result with `isError`, which the model reads.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakSet

import anyio
import anyio.to_thread
import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from dragoman._version import __version__
from dragoman.conversation import Media, ToolCall
from dragoman.errors import ConfigurationError, DragomanError
from dragoman.tools import AnyTool, AnyTools, Outcome, ToolConfig, ToolExecutor, ToolRun, compile_schema, is_object

from .catalogue import Catalogue, OfferList, Offers
from .content import to_content, to_structured
from .notices import ListName, Notices, ProgressRelay
from .progress import LISTENER
from .settings import ToolAbout

if TYPE_CHECKING:
    from dragoman.tools import PermissionCheck

_Context: TypeAlias = "ServerRequestContext[_Door, Any]"
_NO_TOOLS: Mapping[str, AnyTool] = {}

_REQUEST: ContextVar[ServerRequestContext[Any, Any] | None] = ContextVar("dragoman-mcp-request", default=None)


def current_request() -> ServerRequestContext[Any, Any] | None:
    """The SDK's context of the MCP request that the running tool answers; None where it was called another way.

    For what only MCP has, such as asking the client's user. A tool that uses it must also work without.
    """
    return _REQUEST.get()


class McpServer:
    """Tools for other programs, through one executor: its limits, permissions and log hold here as everywhere.

    Give an executor of your own, or what one is made of. `deps` is what the tools' contexts get. Budgets count over the
    life of this object, since MCP knows no runs; `max_parallel_tools` holds for all calls of one door together.
    `extend` gets every server of the SDK that is made, to add what is not there: `wire.add_request_handler(...)`.
    """

    def __init__(
        self,
        tools: AnyTools = (),
        *,
        name: str = "dragoman",
        version: str = __version__,
        instructions: str = "",
        config: ToolConfig | None = None,
        permission: PermissionCheck | None = None,
        executor: ToolExecutor | None = None,
        deps: object = None,
        about: Mapping[str, ToolAbout] | None = None,
        resources: Offers | None = None,
        prompts: Offers | None = None,
        watch_seconds: float = 0.5,
        extend: Callable[[Server[Any]], None] | None = None,
    ) -> None:
        if executor is not None and (config or permission or tools):
            message = "An executor was given together with what one is made of."
            raise ConfigurationError(message, hint="Give the executor alone; it has tools, limits and permissions.")
        self._owns_executor: bool = executor is None
        self.executor: ToolExecutor = executor or ToolExecutor(tools, config, permission=permission)
        self.name: str = name
        self.version: str = version
        self.instructions: str = instructions
        self._deps: object = deps
        self._about: Mapping[str, ToolAbout] = about or {}
        for each in self._about.values():
            if each.output_schema is not None:
                compile_schema(each.output_schema)  # an error belongs here, and not into the first request
        self.resources: OfferList | None = None if resources is None else OfferList("resources", resources)
        self.prompts: OfferList | None = None if prompts is None else OfferList("prompts", prompts)
        self._watch_seconds: float = watch_seconds
        self._extend: Callable[[Server[Any]], None] | None = extend
        self._counts: dict[str, int] = {}
        self._catalogue: Catalogue | None = None
        self._notices: WeakSet[Notices] = WeakSet()

    def sdk(self) -> Server[Any]:
        """A new server of the official SDK that serves these tools: for `mcp.Client(server.sdk())` and doors of your
        own. Each door needs one of its own.
        """
        notices = Notices(self.executor.tools, self._watch_seconds)
        self._notices.add(notices)
        wire = _Wire(self, notices)
        if self._extend is not None:
            self._extend(wire)
        return wire

    def changed(self, name: ListName) -> None:
        """Tell clients that `resources` or `prompts` have changed; from any thread. Changed tools are noticed."""
        for notices in list(self._notices):
            notices.changed(name)

    def close(self) -> None:
        """End the executor's threads, unless the executor was given."""
        if self._owns_executor:
            self.executor.close()

    def __enter__(self) -> McpServer:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # --- what a door asks for ---

    def catalogue(self) -> Catalogue:
        """The tools as they are now; raises MCPError if two have one name."""
        config = self.executor.config
        try:
            by_name = self.executor.tools.by_name if config.enabled else _NO_TOOLS
        except DragomanError as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from error
        catalogue = self._catalogue
        if catalogue is None or catalogue.source is not by_name:
            catalogue = self._catalogue = Catalogue(by_name, self._about)
        return catalogue

    async def call(self, name: str, arguments: Mapping[str, object] | None) -> tuple[ToolCall, Outcome]:
        """Carry out one call, on the running loop. A cancelled task cancels the tool."""
        text = msgspec.json.encode(arguments or {}).decode()
        call = ToolCall(f"mcp_{secrets.token_hex(8)}", name, text)
        run = ToolRun(deps=self._deps)
        run.counts = self._counts
        try:
            return call, await self.executor.aoutcome(call, run)
        except BaseException:
            run.cancel()  # for a plain function, which runs on in its thread and may look
            raise

    async def answer(self, call: ToolCall, outcome: Outcome, promised: Catalogue, version: str) -> types.CallToolResult:
        """What the client is told of a call; raises MCPError if there is no such tool."""
        result = outcome.result
        if outcome.error is not None and outcome.error.type == "not_found":
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {call.name}")
        if outcome.error is not None and isinstance(outcome.error.details, MCPError):
            raise outcome.error.details  # a tool that speaks of the protocol itself means the protocol
        try:
            if any(isinstance(part, Media) and part.path for part in result.content):
                content = await anyio.to_thread.run_sync(to_content, result.content)
            else:
                content = to_content(result.content)
        except (OSError, ValueError) as error:
            return _failed(f"the result of {call.name!r} cannot be sent: {error}")
        structured: object = to_structured(result)
        if version not in MODERN_PROTOCOL_VERSIONS and not is_object(structured):
            structured = None  # before 2026-07-28 only objects were allowed
        if not result.is_error and (broken := promised.broken_promise(result.name, structured)):
            return _failed(f"the result of {call.name!r} does not fit its output schema: {broken}")
        if structured is None:
            return types.CallToolResult(content=content, is_error=result.is_error)
        return types.CallToolResult(content=content, structured_content=structured, is_error=result.is_error)


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


class _Door:
    """What all connections of one door share; the SDK hands it to every handler."""

    def __init__(self, notices: Notices, parallel: int) -> None:
        self.notices: Notices = notices
        self.slots: anyio.Semaphore = anyio.Semaphore(parallel)


class _Wire(Server["_Door"]):
    """The SDK's server, whose handlers ask ours."""

    def __init__(self, ours: McpServer, notices: Notices) -> None:
        self._ours: McpServer = ours
        self._notices: Notices = notices
        resources, prompts = ours.resources, ours.prompts
        super().__init__(
            ours.name,
            version=ours.version,
            instructions=ours.instructions or None,
            lifespan=self._lifespan,
            get_tool_input_schema=lambda name: ours.catalogue().schema(name),
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=resources and resources.list_resources,
            on_list_resource_templates=resources and resources.list_templates,
            on_read_resource=resources and resources.read_resource,
            on_list_prompts=prompts and prompts.list_prompts,
            on_get_prompt=prompts and prompts.get_prompt,
            on_subscriptions_listen=ListenHandler(self._notices.bus),
        )
        self.add_notification_handler("notifications/initialized", types.NotificationParams, self._initialized)

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        # The SDK's HTTP door asks without options, and would then say that no list ever changes.
        noticed = NotificationOptions(tools_changed=True, resources_changed=True, prompts_changed=True)
        return super().create_initialization_options(
            notification_options or noticed, experimental_capabilities, extensions
        )

    @asynccontextmanager
    async def _lifespan(self, _server: object) -> AsyncGenerator[_Door, None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._notices.watch)
            yield _Door(self._notices, self._ours.executor.config.max_parallel_tools)
            tasks.cancel_scope.cancel()

    async def _initialized(self, ctx: _Context, _params: types.NotificationParams) -> None:
        ctx.lifespan_context.notices.add(ctx.session)

    async def _list_tools(self, _ctx: _Context, _params: object) -> types.ListToolsResult:
        allowed = self._ours.executor.config.allowed_tools
        tools = [tool for tool in self._ours.catalogue().tools if allowed is None or tool.name in allowed]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(self, ctx: _Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        promised = self._ours.catalogue()
        request = _REQUEST.set(ctx)
        try:
            async with ctx.lifespan_context.slots:
                call, outcome = await self._call_with_progress(ctx, params)
        finally:
            _REQUEST.reset(request)
        return await self._ours.answer(call, outcome, promised, ctx.protocol_version)

    async def _call_with_progress(self, ctx: _Context, params: types.CallToolRequestParams) -> tuple[ToolCall, Outcome]:
        # Whether the client has asked for progress only the SDK knows for sure; it drops what nobody asked for.
        relay = ProgressRelay(ctx.session.report_progress)
        listener = LISTENER.set(relay)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(relay.pump)
                call, outcome = await self._ours.call(params.name, params.arguments)
                relay.end()
        finally:
            LISTENER.reset(listener)
        return call, outcome  # pyright: ignore[reportPossiblyUnboundVariable] -- a task group swallows only its own cancelling


def as_server(tools: AnyTools | McpServer) -> McpServer:
    """A server as it is, or one made of tools."""
    return tools if isinstance(tools, McpServer) else McpServer(tools)
