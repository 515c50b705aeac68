"""A set of tools as an MCP server.

Every call goes through the executor, as everywhere else. Clients are notified when a list changes.

Must not know: transports and access (doors.py).

By the specification an unknown tool is a protocol error; everything else that goes wrong with a call, invalid arguments
included, is a result with `isError`, which the model reads.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from weakref import WeakSet

import anyio
import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from dragoman._version import __version__
from dragoman.conversation import ToolCall, ToolResult
from dragoman.errors import ConfigurationError, DragomanError, ToolError
from dragoman.tools import (
    AnyTool,
    AnyTools,
    PendingApproval,
    ToolConfig,
    ToolExecutor,
    ToolRun,
    compile_schema,
    is_object,
)

from .asking import Asking, InputNeededError, answering
from .calls import LISTENER
from .catalogue import Catalogue, OfferList, Offers
from .content import to_content, to_structured
from .settings import ToolAbout

if TYPE_CHECKING:
    from dragoman.tools import PermissionCheck

ListName: TypeAlias = Literal["tools", "resources", "prompts"]

_Context: TypeAlias = "ServerRequestContext[anyio.Semaphore, Any]"
_NO_TOOLS: Mapping[str, AnyTool] = {}

MAX_SESSIONS: Final = 1_000
_MAX_REPORTS: Final = 64
"""Progress reports that may be queued; beyond them the oldest are dropped."""
_MAX_SUGGESTIONS: Final = 100
_MAX_SUBSCRIPTIONS: Final = 1_000
_NOTICE_SECONDS: Final = 5.0
"""How long one client may take to accept a notification."""


class McpServer:
    """Serves tools through one executor, whose limits, permissions and logs apply as everywhere.

    Give an executor, or `config` and `permission` for one. `deps` is passed to the tools' contexts. Budgets count over
    the life of this object, because MCP has no runs; `max_parallel_tools` applies to all calls of one door together.
    `extend` is called with every server of the SDK that is made, to add handlers: `wire.add_request_handler(...)`.
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
            message = "An executor was given together with tools, a config or a permission check."
            raise ConfigurationError(message, hint="Give the executor alone; it has all of these.")
        self._owns_executor: bool = executor is None
        self.executor: ToolExecutor = executor or ToolExecutor(tools, config, permission=permission)
        if self.executor.tools.function is not None:
            message = "A function that chooses tools needs a run, and MCP has none."
            raise ConfigurationError(message, hint="Give a ToolRegistry and change it: clients are notified.")
        self.name: str = name
        self.version: str = version
        self.instructions: str = instructions
        self.watch_seconds: float = watch_seconds
        self.deps: object = deps
        self._about: Mapping[str, ToolAbout] = about or {}
        for each in self._about.values():
            if each.output_schema is not None:
                compile_schema(each.output_schema)  # raises here rather than in the first request
        self.resources: OfferList | None = None if resources is None else OfferList(resources)
        self.prompts: OfferList | None = None if prompts is None else OfferList(prompts)
        self.state_security: RequestStateSecurity = RequestStateSecurity.ephemeral()
        """Seals the state that clients send back; several processes need `RequestStateSecurity(keys=…)`."""
        self._extend: Callable[[Server[Any]], None] | None = extend
        self.counts: dict[str, int] = {}
        """How often each tool was called, for budgets."""
        self._catalogue: Catalogue | None = None
        self._wires: WeakSet[_Wire] = WeakSet()

    def sdk(self) -> Server[Any]:
        """A new server of the official SDK for these tools: for `mcp.Client(server.sdk())`, or your own transport.

        Each transport needs one of its own.
        """
        wire = _Wire(self)
        self._wires.add(wire)
        if self._extend is not None:
            self._extend(wire)
        return wire

    def changed(self, name: ListName, uri: str = "") -> None:
        """Notify clients that `resources` or `prompts` have changed; from any thread. Changed tools are detected.

        With a `uri`, notify the subscribers of that resource.
        """
        for wire in list(self._wires):
            wire.notices.changed(name, uri)

    def close(self) -> None:
        """End the executor's threads, unless the executor was given."""
        if self._owns_executor:
            self.executor.close()

    def __enter__(self) -> McpServer:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def catalogue(self) -> Catalogue:
        """The current tools. Raises MCPError if two have the same name."""
        config = self.executor.config
        try:
            by_name = self.executor.tools.by_name if config.enabled else _NO_TOOLS
        except DragomanError as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from error
        catalogue = self._catalogue
        if catalogue is None or catalogue.source is not by_name:
            catalogue = self._catalogue = Catalogue(by_name, self._about)
        return catalogue


def as_server(tools: AnyTools | McpServer) -> McpServer:
    return tools if isinstance(tools, McpServer) else McpServer(tools)


def _to_mcp(result: ToolResult, catalogue: Catalogue, version: str) -> types.CallToolResult:
    content, is_error = to_content(result.content), result.is_error  # the executor has read its files
    structured: object = to_structured(result)
    if version not in MODERN_PROTOCOL_VERSIONS and not is_object(structured):
        structured = None  # before 2026-07-28 only objects were allowed
    if not is_error and (problem := catalogue.check_output(result.name, structured)):
        text = f"the result of {result.name!r} does not fit its output schema: {problem}"
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
    if structured is None:
        return types.CallToolResult(content=content, is_error=is_error)
    return types.CallToolResult(content=content, structured_content=structured, is_error=is_error)


class _Wire(Server[anyio.Semaphore]):
    """The SDK's server with our handlers. Its lifespan context limits the calls that run at once."""

    def __init__(self, ours: McpServer) -> None:
        self._ours: McpServer = ours
        self.notices: _Notices = _Notices(ours)
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
            on_subscribe_resource=resources and self._subscribe,
            on_unsubscribe_resource=resources and self._unsubscribe,
            on_list_prompts=prompts and prompts.list_prompts,
            on_get_prompt=prompts and prompts.get_prompt,
            on_completion=self._complete if resources or prompts else None,
            on_subscriptions_listen=ListenHandler(self.notices.bus),
        )
        self.middleware.append(RequestStateBoundary(ours.state_security, default_audience=ours.name))
        self.add_notification_handler("notifications/initialized", types.NotificationParams, self._initialized)

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        # The SDK's HTTP app passes no options, which would declare that no list ever changes.
        noticed = NotificationOptions(tools_changed=True, resources_changed=True, prompts_changed=True)
        return super().create_initialization_options(
            notification_options or noticed, experimental_capabilities, extensions
        )

    @asynccontextmanager
    async def _lifespan(self, _server: object) -> AsyncGenerator[anyio.Semaphore, None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.notices.watch)
            yield anyio.Semaphore(self._ours.executor.config.max_parallel_tools)
            tasks.cancel_scope.cancel()

    async def _initialized(self, ctx: _Context, _params: types.NotificationParams) -> None:
        self.notices.add(ctx.session)

    async def _list_tools(self, _ctx: _Context, _params: object) -> types.ListToolsResult:
        allowed = self._ours.executor.config.allowed_tools
        tools = [tool for tool in self._ours.catalogue().tools if allowed is None or tool.name in allowed]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(
        self, ctx: _Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        ours, catalogue = self._ours, self._ours.catalogue()

        async def call(asking: Asking) -> types.CallToolResult:
            text = msgspec.json.encode(params.arguments or {}).decode()
            call = ToolCall(f"mcp_{secrets.token_hex(8)}", params.name, text)
            approval = asking.approval(call)
            run = ToolRun(deps=ours.deps, approvals=[] if approval is None else [approval])
            run.counts = ours.counts
            run.meant = (*run.meant, MCPError)
            try:
                # The SDK drops progress that the client did not ask for.
                async with ctx.lifespan_context, _sending_progress(ctx.session.report_progress):
                    outcome = await ours.executor.aoutcome(call, run)
            except BaseException:  # cancelled: a sync function runs on in its thread, and can look at the run
                run.cancel()
                raise
            if outcome.error is not None:
                self._raise_error(outcome.error, asking)
            return _to_mcp(outcome.result, catalogue, ctx.protocol_version)

        return await answering(ctx, params, call)

    def _raise_error(self, error: ToolError, asking: Asking) -> None:
        """Raise what is not a result: a question to the client (InputNeededError), or a protocol error."""
        if isinstance(error, InputNeededError):
            name, counts = error.tool_name, self._ours.counts
            counts[name] = max(0, counts.get(name, 0) - 1)  # it is one call, in however many rounds
            raise error
        if isinstance(error.details, PendingApproval):
            asking.ask_approval(error.details)
        if error.type == "not_found":
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {error.tool_name}")
        if isinstance(error.details, MCPError):
            raise error.details  # the tool raised a protocol error itself

    async def _subscribe(self, ctx: _Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        self.notices.uris_of(ctx.session).add(str(params.uri))
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: _Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self.notices.uris_of(ctx.session).discard(str(params.uri))
        return types.EmptyResult()

    async def _complete(self, _ctx: _Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        asks_prompt = isinstance(params.ref, types.PromptReference)
        offers = self._ours.prompts if asks_prompt else self._ours.resources
        name = params.ref.name if isinstance(params.ref, types.PromptReference) else params.ref.uri
        found = [] if offers is None else await offers.complete(name, params.argument.name, params.argument.value)
        shown = types.Completion(
            values=found[:_MAX_SUGGESTIONS], total=len(found), has_more=len(found) > _MAX_SUGGESTIONS
        )
        return types.CompleteResult(completion=shown)


# --- notifications: progress, and changes of a list ------------------------------------------------------------------


@asynccontextmanager
async def _sending_progress(
    send: Callable[[float, float | None, str | None], Awaitable[None]],
) -> AsyncGenerator[None, None]:
    """Send what tools report from any thread inside the block, in order; all of it before the block ends."""
    into, reports = anyio.create_memory_object_stream[tuple[float, float | None, str | None]](_MAX_REPORTS)
    loop, furthest = asyncio.get_running_loop(), -math.inf

    def put(done: float, total: float | None, message: str | None) -> None:
        nonlocal furthest
        # It must grow by the protocol, and JSON has no infinity.
        if not (math.isfinite(done) and done > furthest):
            return
        furthest = done
        with suppress(anyio.ClosedResourceError):  # an abandoned tool still runs
            if into.statistics().current_buffer_used == _MAX_REPORTS:
                reports.receive_nowait()
            into.send_nowait((done, total if total is not None and math.isfinite(total) else None, message))

    def listener(done: float, total: float | None, message: str | None) -> None:
        with suppress(RuntimeError):  # the loop was closed while an abandoned tool still ran
            loop.call_soon_threadsafe(put, done, total, message)

    async def pump() -> None:
        async for report in reports:
            await send(*report)

    token = LISTENER.set(listener)
    try:
        with into, reports:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pump)
                yield
                into.close()
    finally:
        LISTENER.reset(token)


_NOTICES: Mapping[ListName, tuple[Callable[[], ServerEvent], Callable[[ServerSession], Awaitable[None]]]] = {
    "tools": (ToolsListChanged, ServerSession.send_tool_list_changed),
    "resources": (ResourcesListChanged, ServerSession.send_resource_list_changed),
    "prompts": (PromptsListChanged, ServerSession.send_prompt_list_changed),
}


class _Notices:
    """Notifies the clients of one door that a list or a resource has changed.

    Up to 2025-11-25 every connection is notified, since 2026-07-28 those that opened a stream for it. A set of tools
    replaces its mapping when it changes and has no callback, so it is polled: one comparison of identity.
    """

    def __init__(self, server: McpServer) -> None:
        self.bus: InMemorySubscriptionBus = InMemorySubscriptionBus()
        self._clients: deque[tuple[ServerSession, set[str]]] = deque(maxlen=MAX_SESSIONS)
        """Each with the resources that it subscribed to. The SDK drops what is sent to a client that has left."""
        self._server: McpServer = server
        self._lock: threading.Lock = threading.Lock()
        self._changes: set[tuple[ListName, str]] = set()

    def add(self, session: ServerSession) -> None:
        self._clients.append((session, set()))

    def uris_of(self, session: ServerSession) -> set[str]:
        """The subscriptions of a client. Each of its requests has its own session, but the same parameters."""
        for known, uris in self._clients:
            if known.client_params is session.client_params and len(uris) < _MAX_SUBSCRIPTIONS:
                return uris
        raise MCPError(types.INVALID_REQUEST, f"A client that is initialized may subscribe {_MAX_SUBSCRIPTIONS} times")

    def changed(self, name: ListName, uri: str) -> None:
        """Notify at the next poll; from any thread."""
        with self._lock:
            self._changes.add((name, uri))

    async def watch(self) -> None:
        known = self._now()
        while True:
            await anyio.sleep(self._server.watch_seconds)
            now = self._now()
            with self._lock:
                changes, self._changes = self._changes, set()
            if now is not known:
                changes.add(("tools", ""))
                known = now
            for name, uri in sorted(changes):
                await self._notify(name, uri)

    def _now(self) -> object:
        try:
            return self._server.executor.tools.by_name
        except DragomanError:  # two tools of one name; clients get the error when they list them
            return None

    async def _notify(self, name: ListName, uri: str) -> None:
        make, send = _NOTICES[name]

        async def notify(session: ServerSession) -> None:
            with anyio.move_on_after(_NOTICE_SECONDS):
                await (session.send_resource_updated(uri) if uri else send(session))

        await self.bus.publish(ResourceUpdated(uri) if uri else make())
        async with anyio.create_task_group() as tasks:
            for session, uris in self._clients:
                if not uri or uri in uris:
                    tasks.start_soon(notify, session)
