"""Tools that only note what was asked of them, and short ways to rules, calls and decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from dragoman.conversation import ToolCall
from dragoman.toolkit import PermissionChecker, PermissionPolicy, Rule
from dragoman.tools import AnyTool, Tool, tool

E = TypeVar("E")
C = TypeVar("C")

ran: list[tuple[str, str]] = []
"""What the tools were really called with."""


@tool(name="Bash")
def bash(command: str, cwd: str = ".", env: dict[str, str] | None = None) -> str:
    ran.append(("Bash", command))
    return "done"


@tool(name="Read", read_only=True)
def read(file_path: str) -> str:
    ran.append(("Read", file_path))
    return "text"


@tool(name="Write")
def write(file_path: str, content: str = "") -> str:
    ran.append(("Write", file_path))
    return "written"


@tool(name="Fetch", read_only=True)
def fetch(url: str) -> str:
    ran.append(("Fetch", url))
    return "page"


@tool(read_only=True)
def look(anything: str = "", count: int = 1) -> str:
    ran.append(("look", anything))
    return "seen"


def remote(description: str = "Runs a query.", **properties: object) -> AnyTool:
    """A tool of a server, of which only a schema is known."""
    schema: dict[str, object] = {"type": "object", "properties": {"query": {}, "path": {}, **properties}}
    return Tool.from_schema(lambda **_: "ran", schema, name="db.run", description=description)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]


TOOLS: list[AnyTool] = [bash, read, write, fetch, look]
BY_NAME = {each.name: each for each in TOOLS}


def call(tool_name: str, call_id: str = "1", /, **arguments: object) -> ToolCall:
    return ToolCall(call_id, tool_name, json.dumps(arguments))


def allow(tool: str | tuple[str, ...] = "*", **conditions: object) -> Rule:
    return Rule(action="allow", tool=tool, **conditions)  # type: ignore[arg-type]


def deny(tool: str | tuple[str, ...] = "*", **conditions: object) -> Rule:
    return Rule(action="deny", tool=tool, **conditions)  # type: ignore[arg-type]


def ask(tool: str = "*", **conditions: object) -> Rule:
    return Rule(action="ask", tool=tool, **conditions)  # type: ignore[arg-type]


def decision(
    rules: list[Rule], made: ToolCall, workspace: Path | str = ".", default: Literal["allow", "ask", "deny"] = "ask"
) -> str:
    """What the rules say of a call to one of the tools above."""
    checker = PermissionChecker(PermissionPolicy(rules=tuple(rules), default=default), workspace=workspace)
    return checker.judge(made, BY_NAME.get(made.name)).action


def pairs(table: Mapping[E, Sequence[C]]) -> list[tuple[E, C]]:
    """What is expected and a case, from a table of what is expected of which cases."""
    return [(expected, case) for expected, cases in table.items() for case in cases]
