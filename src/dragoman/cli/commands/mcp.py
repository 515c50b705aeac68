"""`dragoman mcp`: our tools for other programs, and other programs' tools here."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Final

from dragoman.cli.arguments import Command, Group, Parser, UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.cli.terminal import Terminal
    from dragoman.toolkit.permissions import PermissionChecker
    from dragoman.tools.permission import PermissionCheck

__all__ = ["GROUP"]


def _servers(name: str | None = None) -> Mapping[str, Mapping[str, object]]:
    """The servers of the configuration, or the one of that name."""
    from dragoman.chat.config import load_config
    from dragoman.cli.settings import mcp_servers

    found = mcp_servers(load_config())
    if name is None:
        return found
    if name not in found:
        near = nearest(name, found)
        hint = f"Did you mean {near}?" if near else f"Write [mcp.servers.{name}] into the configuration."
        raise UsageError(f"The configuration has no MCP server {name!r}.", hint=hint)
    return {name: found[name]}


# --- serve ------------------------------------------------------------------------------------------------------------


def _serve_arguments(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "-T",
        "--tool",
        dest="tools",
        action="append",
        metavar="TOOL",
        help="as for dragoman; by default all ready tools",
    )
    add("--http", type=int, metavar="PORT", help="serve on this port of this machine instead of standard input")
    add("--approve", choices=("auto", "deny"), default="deny", help="calls that no rule allows (deny)")


def _serve(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from contextlib import ExitStack
    from pathlib import Path

    from dragoman.chat.config import load_config
    from dragoman.cli.settings import mcp_servers, policy, skill_settings
    from dragoman.cli.tool_choice import ALL, ToolChoice, ready_tools, skill_store
    from dragoman.mcp import serve_http, serve_stdio
    from dragoman.toolkit.permissions import PermissionChecker

    loaded, here = load_config(), Path.cwd()
    with ExitStack() as stack:
        ready = ready_tools(here, terminal, skill_store(skill_settings(loaded), here))
        choice = ToolChoice(ready, mcp_servers(loaded), stack=stack, environ=os.environ, directory=here)
        tools = choice.tools(arguments.tools or [ALL])
        checker = PermissionChecker(policy(loaded), workspace=here, door="mcp")
        permission = _answering(checker, allow=arguments.approve == "auto")
        if arguments.http is None:
            serve_stdio(tools, permission=permission)
            return 0
        terminal.say(f"Serving {len(tools)} tools at http://127.0.0.1:{arguments.http}/mcp (stop with Ctrl-C).")
        serve_http(tools, port=arguments.http, permission=permission)
    return 0


def _answering(checker: PermissionChecker, *, allow: bool) -> PermissionCheck:
    """The rules, with an answer to what they would ask a person: here is nobody to be asked."""
    from dragoman.conversation import ToolCall
    from dragoman.tools.definition import AnyTool
    from dragoman.tools.permission import Allow, Ask, Decision, Deny
    from dragoman.tools.run import ToolContext

    def check(call: ToolCall, tool: AnyTool, context: ToolContext[object]) -> Decision:
        decision = checker(call, tool, context)
        assert isinstance(decision, Allow | Ask | Deny)  # without a responder nobody is waited for
        if not isinstance(decision, Ask):
            return decision
        return Allow() if allow else Deny(f"{decision.reason}; allow it in [permissions], or serve with --approve auto")

    return check


# --- other programs' tools --------------------------------------------------------------------------------------------


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("server", nargs="?", help="one of the configuration; by default all")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _list(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.cli.tables import print_json, print_table
    from dragoman.mcp import McpServers

    entries = _servers(arguments.server)
    if not entries:
        terminal.say("The configuration has no MCP servers. Write [mcp.servers.NAME] with a command or a url into it.")
        return 0
    rows: list[tuple[str, str, str]] = []
    failed = 0
    with McpServers.from_json({"mcpServers": dict(entries)}, optional=True, environ=os.environ) as servers:
        for name, status in servers.status.items():
            if status.error is not None:
                failed += 1
                terminal.say(f"dragoman: {name}: {status.error}", "yellow")
                continue
            rows += [(name, tool.name, tool.description.split("\n")[0]) for tool in servers[name]]
        for problem in servers.problems:
            terminal.note(f"dragoman: {problem}", "yellow")
    if arguments.json:
        keys = ("server", "tool", "description")
        print_json(terminal, [dict(zip(keys, row, strict=True)) for row in rows])
    else:
        print_table(terminal, ("server", "tool", "what it does"), rows)
    return 1 if failed else 0


def _call_arguments(parser: Parser) -> None:
    parser.add_argument("server", help="one of the configuration")
    parser.add_argument("tool", help="with or without the server's prefix")
    parser.add_argument("arguments", nargs="?", default="{}", help="a JSON object ({})")


def _call(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.conversation import ToolCall
    from dragoman.mcp import McpServers
    from dragoman.tools.executor import ToolExecutor
    from dragoman.tools.registry import not_found

    entries = _servers(arguments.server)
    with McpServers.from_json({"mcpServers": dict(entries)}, environ=os.environ) as servers:
        tools = servers.tools
        name: str = arguments.tool
        if name not in tools:
            name = f"{arguments.server}_{arguments.tool}"
        if name not in tools:
            raise not_found(arguments.tool, tools.by_name)
        with ToolExecutor(tools) as executor:
            result = executor.execute(ToolCall("call", name, arguments.arguments))
    if result.is_error:
        terminal.say(f"dragoman: {result.text}", "red")
        return 1
    terminal.line(result.text)
    return 0


GROUP: Final = Group(
    "mcp",
    {
        "serve": Command(
            "Serve tools to another program, under the rules of [permissions].",
            _serve,
            _serve_arguments,
            ("dragoman mcp serve -T Read -T Grep", "dragoman mcp serve --http 8765"),
        ),
        "list": Command("List the tools of MCP servers.", _list, _list_arguments, ("dragoman mcp list",)),
        "call": Command(
            "Call a tool of an MCP server.",
            _call,
            _call_arguments,
            ('dragoman mcp call files read_file \'{"path": "notes.txt"}\'',),
        ),
    },
)
