"""`dragoman mcp`: serve tools to other programs; list and call tools of MCP servers."""

from __future__ import annotations

import argparse
import mimetypes
import re
from collections.abc import Awaitable
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

from dragoman.chat import load_config
from dragoman.conversation import Media, ToolCall
from dragoman.mcp import McpServer, serve_http, serve_stdio
from dragoman.toolkit import PermissionChecker
from dragoman.tools import AnyTool, Ask, Decision, ToolContext, ToolExecutor, not_found

from .arguments import APPROVE, Parser, add_json
from .output import print_list
from .session import Approver
from .settings import read_settings
from .terminal import Terminal
from .tools import ALL, ToolChoice


def declare_mcp(parser: Parser) -> None:
    about = "Serve tools to another program, under the rules of [permissions]."
    examples = ("dragoman mcp serve -T Read -T Grep", "dragoman mcp serve --http 8765")
    serve = parser.add_command("serve", _serve, about, *examples)
    tools = "as for dragoman; by default all ready-made tools"
    serve.add_argument("-T", "--tool", dest="tools", action="append", metavar="TOOL", help=tools)
    where = "serve on this port of this machine instead of standard input"
    serve.add_argument("--http", type=int, metavar="PORT", help=where)
    approve = "what to do with calls no rule allows: ask the other program's user (the default), run them, or refuse"
    serve.add_argument("--approve", choices=APPROVE, default="ask", help=approve)
    listing = parser.add_command("list", _list, "List the tools of MCP servers.", "dragoman mcp list")
    listing.add_argument("server", nargs="?", help="one of the configuration; by default all")
    add_json(listing)
    example = 'dragoman mcp call files read_file \'{"path": "notes.txt"}\''
    call = parser.add_command("call", _call, "Call a tool of an MCP server.", example)
    call.add_argument("server", help="one of the configuration")
    call.add_argument("tool", help="with or without the server's prefix")
    call.add_argument("arguments", nargs="?", default="{}", help="a JSON object ({})")


def _serve(arguments: argparse.Namespace, terminal: Terminal) -> None:
    settings = read_settings(load_config())
    checker = PermissionChecker(settings.policy, workspace=settings.directory, door="mcp")
    approver = Approver(arguments.approve, terminal, checker)

    def check(call: ToolCall, tool: AnyTool, context: ToolContext[object]) -> Decision | Awaitable[Decision]:
        decision = approver.decide(call, tool, context)
        hint = "allow it in [permissions], or serve with --approve auto"
        return Ask(f"{decision.reason}; {hint}") if isinstance(decision, Ask) else decision

    with ExitStack() as stack:
        tools = ToolChoice(settings, terminal, stack).build(arguments.tools or [ALL])
        server = McpServer(tools, permission=check)
        if arguments.http is None:
            serve_stdio(server)
        else:
            terminal.say(f"Serving {len(tools)} tools at http://127.0.0.1:{arguments.http}/mcp (stop with Ctrl-C).")
            serve_http(server, port=arguments.http)


def _list(arguments: argparse.Namespace, terminal: Terminal) -> int:
    settings = read_settings(load_config())
    if not settings.servers:
        terminal.say("The configuration has no MCP servers. Write [mcp.servers.NAME] with a command or a url into it.")
        return 0
    with settings.open_servers(*filter(None, [arguments.server]), optional=True) as servers:
        failed = {name: status.error for name, status in servers.status.items() if status.error is not None}
        for name, error in failed.items():
            terminal.say(f"dragoman: {name}: {error}", "yellow")
        for problem in servers.problems:
            terminal.note(f"dragoman: {problem}", "yellow")
        rows = [
            {"server": name, "tool": tool.name, "description": tool.description.split("\n")[0]}
            for name in servers.status
            if name not in failed
            for tool in servers[name]
        ]
    print_list(terminal, rows, dict, as_json=arguments.json, otherwise="There are no tools.")
    return 1 if failed else 0


def _call(arguments: argparse.Namespace, terminal: Terminal) -> int:
    with read_settings(load_config()).open_servers(arguments.server) as servers:
        names = (arguments.tool, f"{arguments.server}_{arguments.tool}")
        name = next((name for name in names if name in servers.tools), None)
        if name is None:
            raise not_found(arguments.tool, servers.tools.by_name)
        with ToolExecutor(servers.tools) as executor:
            result = executor.execute(ToolCall("call", name, arguments.arguments))
    if result.is_error:
        terminal.say(f"dragoman: {result.text}", "red")
        return 1
    if result.text or not result.content:
        terminal.line(result.text)
    for media in [block for block in result.content if isinstance(block, Media)]:
        terminal.say(f"It also returned {media.mime_type}{_save(media, arguments.tool)}")
    return 0


def _save(media: Media, tool: str) -> str:
    """Write media to a new file in the working directory; returns the rest of the sentence about it."""
    stem, suffix = re.sub(r"[^\w-]", "_", tool), mimetypes.guess_extension(media.mime_type) or ""
    for number in count(1) if media.data is not None else ():
        with suppress(FileExistsError), Path(f"{stem}-{number}{suffix}").open("xb") as file:
            file.write(media.data or b"")
            return f", written to {file.name} ({len(media.data or b''):,} bytes)."
    return f": {media.url or media.path}"
