"""Turns a server's list of tools into ours, and reports what cannot be used.

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
from dragoman.errors import DragomanError, McpProtocolError, ToolDefinitionError
from dragoman.tools import AnyTool, Checker, Tool, ToolContext, compile_schema

from .settings import ServerOptions, ToolAbout

_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}").fullmatch
_MAX_DESCRIPTION = 8_192
_MAX_TITLE = 200
_MAX_SCHEMA_BYTES = 65_536
"""For the schema of parameters and that of results, each."""

Call: TypeAlias = Callable[["Remote", dict[str, object], ToolContext[object] | None], Awaitable[ToolResult]]
"""Calls a server's tool with these arguments, in the context of a call of ours if there is one."""


class ToolProblem(Struct, frozen=True, kw_only=True):
    """A tool of a server that cannot be used, or not as the server declares it."""

    server: str
    tool: str
    error: DragomanError
    usable: bool
    """Whether the tool is offered, without the part that is wrong."""


class Remote:
    """The function of a server's tool."""

    def __init__(self, name: str, about: ToolAbout, checker: Checker | None, call: Call) -> None:
        self.name: str = name
        """The server's own name for it."""
        self.about: ToolAbout = about
        self._checker: Checker | None = checker
        self._call: Call = call

    async def __call__(self, context: ToolContext[object] | None = None, /, **arguments: object) -> ToolResult:
        return await self._call(self, arguments, context)

    def check_result(self, result: ToolResult) -> str:
        """What is wrong with a result by the server's own output schema; empty if nothing is."""
        if self._checker is None or result.is_error:
            return ""
        if result.structured is None:
            return "it has no structured content"
        return str(next(iter(self._checker.problems(result.structured.value)), ""))


class Listed(Struct, frozen=True):
    """A server's list of tools, as far as it can be used. Replaced as a whole when it changes."""

    tools: Mapping[str, AnyTool] = {}
    """By the names that the model uses."""
    problems: tuple[ToolProblem, ...] = ()
    declared: Mapping[str, types.Tool] = {}
    """The server's declarations, by its own names."""


class ToolReader:
    """Reads the lists of one server."""

    def __init__(self, server: str, identity: str, options: ServerOptions, call: Call) -> None:
        self._server: str = server
        self._identity: str = identity
        own = options.prefix
        self._prefix: str = re.sub(r"[^A-Za-z0-9_-]", "_", server) + "_" if own is None else own
        self._options: ServerOptions = options
        self._call: Call = call
        self._problems: list[ToolProblem] = []

    def read(self, found: Iterable[types.Tool], known: Listed, *, truncated: bool) -> Listed:
        """Read a list. A tool that has not changed since the `known` list stays the same object."""
        tools: dict[str, AnyTool] = {}
        declared: dict[str, types.Tool] = {}
        self._problems = []
        for each in found:
            name = each.name
            if _NAME(name) is None:
                self._report(name, f"{name[:60]!r} cannot be the name of a tool", usable=False)
            elif name in declared:
                self._report(name, f"it lists {name!r} more than once; the first one is used", usable=True)
            elif self._options.takes(name):
                declared[name] = each
                ours = self._prefix + name
                try:
                    if ours in known.tools and known.declared.get(name) == each:
                        tools[ours] = known.tools[ours]
                        self._problems += [problem for problem in known.problems if problem.tool == name]
                    else:
                        tools[ours] = self._tool(each)
                except ToolDefinitionError as error:
                    self._report(name, error, usable=False)
                except (RecursionError, ValueError, TypeError, OverflowError) as error:
                    self._report(name, f"{name!r} cannot be read: {type(error).__name__}", usable=False)
        if truncated:
            what = f"it lists more than {self._options.max_tools} tools, or in circles; the rest is left out"
            self._report("", what, usable=False)
        return Listed(tools, tuple(self._problems), declared)

    def _report(self, name: str, what: str | DragomanError, *, usable: bool) -> None:
        if isinstance(what, str):
            what = McpProtocolError(f"MCP server {self._server!r}: {what}.", server=self._server)
        self._problems.append(ToolProblem(server=self._server, tool=name[:128], error=what, usable=usable))

    def _tool(self, each: types.Tool) -> AnyTool:
        name, hints = each.name, each.annotations or types.ToolAnnotations()
        if each.execution is not None and each.execution.task_support == "required":
            message = f"{name!r} can only be called as a task, which outlives its request; that is not supported."
            raise ToolDefinitionError(message, hint="Ask the authors of the server to offer plain calls as well.")
        _check_size(each.input_schema, f"The schema of {name!r}")
        checker = self._checker(each)
        about = ToolAbout(
            title=_cut(each.title or hints.title or "", _MAX_TITLE),
            output_schema=cast("dict[str, object]", each.output_schema) if checker is not None else None,
            destructive=hints.destructive_hint,
            open_world=hints.open_world_hint,
        )
        text = (each.description or "").encode("utf-8", "backslashreplace").decode()
        if len(text) > _MAX_DESCRIPTION:
            self._report(name, f"the description of {name!r} has {len(text)} characters and was cut", usable=True)
        trusted = self._options.trust_annotations
        made: Tool[..., Any] = Tool.from_schema(
            Remote(name, about, checker, self._call),
            cast("dict[str, object]", each.input_schema),
            name=self._prefix + name,
            description=_cut(text, _MAX_DESCRIPTION),
            tags=("mcp", f"mcp:{self._server}"),
            # What a person allows is bound to it: another server's tool may have the same name, and say the same.
            version=self._identity,
            read_only=trusted and bool(hints.read_only_hint),
            idempotent=trusted and bool(hints.idempotent_hint or hints.read_only_hint),
        )
        return made

    def _checker(self, each: types.Tool) -> Checker | None:
        """What validates results. A tool with an unusable output schema is used without one."""
        schema, name = each.output_schema, each.name
        if schema is None:
            return None
        try:
            _check_size(schema, f"The output schema of {name!r}")
            return compile_schema(cast("dict[str, object]", schema))
        except (ToolDefinitionError, RecursionError, ValueError, TypeError) as error:
            what = f"the output schema of {name!r} cannot be read: {type(error).__name__}"
            self._report(name, error if isinstance(error, ToolDefinitionError) else what, usable=True)
        return None


def _check_size(schema: object, what: str) -> None:
    if (size := len(msgspec.json.encode(schema))) > _MAX_SCHEMA_BYTES:
        raise ToolDefinitionError(f"{what} has {size} bytes; {_MAX_SCHEMA_BYTES} are allowed.")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
