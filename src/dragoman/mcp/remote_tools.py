"""A server's list as tools: which of them are usable, which version of each was approved, and which are offered.

A server may change what a tool says of itself after somebody has looked at it: text that goes to the model, and a
schema that asks for other data. A fingerprint covers all that was looked at.

Must not know: connections; it gets a function that makes the call.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, NoReturn, TypeAlias, cast

import mcp_types as types
import msgspec
from msgspec import Struct

from dragoman.conversation import ToolResult
from dragoman.errors import (
    ConfigurationError,
    DragomanError,
    McpProtocolError,
    ToolDefinitionError,
    ToolDeniedError,
    ToolExecutionError,
)
from dragoman.tools import AnyTool, Checker, Tool, compile_schema

from .settings import ClientLimits, ServerOptions, ToolAbout, ToolChange

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
    """A server's tools, read."""

    tools: dict[str, AnyTool]
    """By the server's own names."""
    prints: dict[str, str]
    problems: tuple[ToolProblem, ...]


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
        prints: dict[str, str] = {}
        self._problems = []
        for each in found:
            name = each.name
            if _NAME(name) is None:
                self._report(name, f"{name[:60]!r} cannot be the name of a tool", usable=False)
            elif name in prints:
                self._report(name, f"it lists {name!r} more than once; the first counts", usable=True)
            elif self._options.takes(name):
                prints[name] = ""  # also where it has no fingerprint: it is there, and has not been approved
                try:
                    prints[name] = _fingerprint(each)
                    if name in known.tools and known.prints.get(name) == prints[name]:
                        tools[name] = known.tools[name]
                        self._problems += [problem for problem in known.problems if problem.tool == name]
                    else:
                        tools[name] = self._tool(each)
                except ToolDefinitionError as error:
                    self._report(name, error, usable=False)
                except (RecursionError, ValueError, TypeError, OverflowError) as error:
                    self._report(name, f"{name!r} cannot be read: {type(error).__name__}", usable=False)
        if truncated:
            what = f"it lists more than {self._limits.max_tools} tools, or in circles; the rest is left out"
            self._report("", what, usable=False)
        return Listed(tools, prints, tuple(self._problems))

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
        text, most = (
            (each.description or "").encode("utf-8", "backslashreplace").decode(),
            self._limits.max_description_chars,
        )
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


# --- what was approved -----------------------------------------------------------------------------------------------


def _fingerprint(tool: types.Tool) -> str:
    """A hash of all that a server says of a tool, the same for the same content in another order."""
    said = tool.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"meta", "icons"})
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()


def _refused(server: str, remote: Remote) -> Remote:
    """The function of a tool that has changed since it was approved."""

    async def refuse(remote: Remote, _arguments: object) -> NoReturn:
        message = f"the tool {remote.name!r} of MCP server {server!r} has changed since it was approved."
        hint = f"A person must look at the change and approve it: approve({server!r}, {remote.name!r})."
        raise ToolDeniedError(message, tool_name=remote.name, hint=hint)

    return Remote(remote.name, remote.about, None, refuse)


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
        self.listed: Listed = Listed({}, {}, ())
        """The server's last list."""
        self.offered: Mapping[str, AnyTool] = {}
        """By the names the model uses. Never changed, but replaced as a whole."""
        self.changes: tuple[ToolChange, ...] = ()

    @property
    def pins(self) -> dict[str, str]:
        """What is approved now; under `follow`, what is used now."""
        with self._lock:
            return dict(self.listed.prints if self._mode == "follow" or self._approved is None else self._approved)

    def take(self, listed: Listed) -> None:
        with self._lock:
            self.listed = listed
            if self._approved is None:
                self._approved = dict(listed.prints)
            self._decide()

    def approve(self, tool: str | None = None) -> None:
        """Take what the server says now, of one tool or of all, as approved."""
        with self._lock:
            prints = self.listed.prints
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
        listed, approved = self.listed, self._approved or {}
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
                refused = _refused(self._server, before.function)
                tools[before.name] = msgspec.structs.replace(before, function=refused)
        if self._mode == "pinned":
            gone = [name for name in approved if name not in listed.prints]
            seen = {name: self._seen[name].spec for name in gone if name in self._seen}
            changes += [ToolChange(server=self._server, tool=n, kind="removed", before=seen.get(n)) for n in gone]
        self.changes = tuple(changes)
        self.offered = tools
