"""A server's list as tools, as far as they are usable.

Must not know: connections; it gets a function that makes the call.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

import mcp_types as types
import msgspec
from msgspec import Struct

from dragoman.conversation import ToolResult
from dragoman.errors import DragomanError, McpProtocolError, ToolDefinitionError, ToolExecutionError
from dragoman.tools import AnyTool, Checker, Tool, compile_schema

from .settings import ClientLimits, ServerOptions, ToolAbout

_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}").fullmatch

Call: TypeAlias = Callable[["Remote", dict[str, object]], Awaitable[ToolResult]]
"""Makes the call of a server's tool with these arguments."""


class ToolProblem(Struct, frozen=True, kw_only=True):
    """Something a server says of a tool that was not believed or not taken over."""

    server: str
    tool: str
    error: DragomanError
    usable: bool
    """Whether the tool is offered all the same, without the part that is wrong."""


class Remote:
    """The function of a tool that a server carries out."""

    def __init__(self, name: str, about: ToolAbout, checker: Checker | None, call: Call) -> None:
        self.name: str = name
        """By which the server knows it."""
        self.about: ToolAbout = about
        self._checker: Checker | None = checker
        self._call: Call = call

    async def __call__(self, /, **arguments: object) -> ToolResult:
        return await self._call(self, arguments)

    def checked(self, result: ToolResult, server: str) -> ToolResult:
        """The result, if it is what the server itself says it must be; raises ToolExecutionError."""
        if self._checker is None or result.is_error:
            return result
        what = "has no structured content"
        if result.structured is not None:
            problems = self._checker.problems(result.structured.value)
            if not problems:
                return result
            what = f"does not fit it: {problems[0]}"
        message = f"MCP server {server!r} promises an output schema for {self.name!r}, and the result {what}."
        raise ToolExecutionError(message, tool_name=self.name, details=McpProtocolError(message, server=server))


class Listed(Struct, frozen=True):
    """A server's tools, read. Never changed, but replaced as a whole."""

    tools: Mapping[str, AnyTool] = {}
    """By the names that the model uses."""
    problems: tuple[ToolProblem, ...] = ()
    said: Mapping[str, types.Tool] = {}
    """What the server says of each, by its own names."""


class ToolReader:
    """Reads the lists of one server."""

    def __init__(self, server: str, options: ServerOptions, call: Call) -> None:
        self._server: str = server
        own = options.prefix
        self._prefix: str = re.sub(r"[^A-Za-z0-9_-]", "_", server) + "_" if own is None else own
        self._options: ServerOptions = options
        self._limits: ClientLimits = options.limits
        self._call: Call = call
        self._problems: list[ToolProblem] = []

    def read(self, found: Iterable[types.Tool], known: Listed, *, truncated: bool) -> Listed:
        """What can be used of a list. A tool that is as it was keeps its identity."""
        tools: dict[str, AnyTool] = {}
        said: dict[str, types.Tool] = {}
        self._problems = []
        for each in found:
            name = each.name
            if _NAME(name) is None:
                self._report(name, f"{name[:60]!r} cannot be the name of a tool", usable=False)
            elif name in said:
                self._report(name, f"it lists {name!r} more than once; the first counts", usable=True)
            elif self._options.takes(name):
                said[name] = each
                ours = self._prefix + name
                try:
                    if ours in known.tools and known.said.get(name) == each:
                        tools[ours] = known.tools[ours]
                        self._problems += [problem for problem in known.problems if problem.tool == name]
                    else:
                        tools[ours] = self._tool(each)
                except ToolDefinitionError as error:
                    self._report(name, error, usable=False)
                except (RecursionError, ValueError, TypeError, OverflowError) as error:
                    self._report(name, f"{name!r} cannot be read: {type(error).__name__}", usable=False)
        if truncated:
            what = f"it lists more than {self._limits.max_tools} tools, or in circles; the rest is left out"
            self._report("", what, usable=False)
        return Listed(tools, tuple(self._problems), said)

    def _report(self, name: str, what: str | DragomanError, *, usable: bool) -> None:
        if isinstance(what, str):
            what = McpProtocolError(f"MCP server {self._server!r}: {what}.", server=self._server)
        self._problems.append(ToolProblem(server=self._server, tool=name[:128], error=what, usable=usable))

    def _tool(self, each: types.Tool) -> AnyTool:
        name, hints = each.name, each.annotations or types.ToolAnnotations()
        if each.execution is not None and each.execution.task_support == "required":
            message = f"{name!r} can only be called as a task, which outlives its request; that is not spoken here."
            raise ToolDefinitionError(message, hint="Ask those who make the server to offer plain calls as well.")
        self._check_size(each.input_schema, f"The schema of {name!r}")
        checker = self._checker(each)
        about = ToolAbout(
            title=_cut(each.title or hints.title or "", 200),
            output_schema=cast("dict[str, object]", each.output_schema) if checker is not None else None,
            destructive=hints.destructive_hint,
            open_world=hints.open_world_hint,
        )
        text = (each.description or "").encode("utf-8", "backslashreplace").decode()
        most = self._limits.max_description_chars
        if len(text) > most:
            self._report(name, f"the description of {name!r} has {len(text)} characters and was cut", usable=True)
        trusted = self._options.trust_annotations
        made: Tool[..., Any] = Tool.from_schema(
            Remote(name, about, checker, self._call),
            cast("dict[str, object]", each.input_schema),
            name=self._prefix + name,
            description=_cut(text, most),
            tags=("mcp", f"mcp:{self._server}"),
            read_only=trusted and bool(hints.read_only_hint),
            idempotent=trusted and bool(hints.idempotent_hint or hints.read_only_hint),
        )
        return made

    def _check_size(self, schema: object, what: str) -> None:
        size, limit = len(msgspec.json.encode(schema)), self._limits.max_schema_bytes
        if size > limit:
            raise ToolDefinitionError(f"{what} has {size} bytes; {limit} are allowed.", hint="Raise max_schema_bytes.")

    def _checker(self, each: types.Tool) -> Checker | None:
        """What results are checked with. A tool whose output schema is of no use is used without."""
        schema, name = each.output_schema, each.name
        if schema is None:
            return None
        try:
            self._check_size(schema, f"The output schema of {name!r}")
            return compile_schema(cast("dict[str, object]", schema))
        except (ToolDefinitionError, RecursionError, ValueError, TypeError) as error:
            what = f"the output schema of {name!r} cannot be read: {type(error).__name__}"
            self._report(name, error if isinstance(error, ToolDefinitionError) else what, usable=True)
        return None


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
