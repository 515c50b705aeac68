"""`dragoman tools`: what there is, what a model is told of it, and what a provider would say to it."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Final

from dragoman.cli.arguments import Command, Group, Parser

if TYPE_CHECKING:
    from contextlib import ExitStack

    from dragoman.cli.terminal import Terminal
    from dragoman.cli.tool_choice import ToolChoice
    from dragoman.tools.registry import ToolRegistry

__all__ = ["GROUP"]


def _chosen(names: list[str], terminal: Terminal, stack: ExitStack) -> tuple[ToolRegistry, ToolChoice]:
    from pathlib import Path

    from dragoman.chat.config import load_config
    from dragoman.cli.settings import mcp_servers, skill_settings
    from dragoman.cli.tool_choice import ALL, ToolChoice, ready_tools, skill_store

    loaded = load_config()
    here = Path.cwd()
    ready = ready_tools(here, terminal, skill_store(skill_settings(loaded), here))
    choice = ToolChoice(ready, mcp_servers(loaded), stack=stack, environ=os.environ, directory=here)
    return choice.tools(names or [ALL]), choice


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("tools", nargs="*", metavar="TOOL", help="as behind -T; by default all ready tools")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _list(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from contextlib import ExitStack

    from dragoman.chat.config import load_config
    from dragoman.cli.settings import mcp_servers
    from dragoman.cli.tables import print_json, print_table

    with ExitStack() as stack:
        found, _ = _chosen(arguments.tools, terminal, stack)
        if arguments.json:
            print_json(terminal, [_described(tool.name, tool.description, tool.options.read_only) for tool in found])
            return 0
        rows = [
            (tool.name, "reads" if tool.options.read_only else "changes", tool.description.split("\n")[0])
            for tool in found
        ]
        print_table(terminal, ("tool", "", "what it does"), rows)
    servers = () if arguments.tools else tuple(mcp_servers(load_config()))
    if servers:
        terminal.line(f"MCP servers of the configuration: {', '.join(servers)} (see dragoman mcp list)")
    return 0


def _described(name: str, description: str, read_only: bool) -> dict[str, object]:
    return {"name": name, "description": description, "read_only": read_only}


def _schema_arguments(parser: Parser) -> None:
    parser.add_argument("tool", help="as behind -T")


def _schema(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from contextlib import ExitStack

    from dragoman.cli.tables import print_json

    with ExitStack() as stack:
        found, _ = _chosen([arguments.tool], terminal, stack)
        schemas = [
            {"name": tool.name, "description": tool.description, "parameters": tool.spec.schema} for tool in found
        ]
        print_json(terminal, schemas[0] if len(schemas) == 1 else schemas)
    return 0


def _check_arguments(parser: Parser) -> None:
    parser.add_argument("tools", nargs="*", metavar="TOOL", help="as behind -T; by default all ready tools")
    parser.add_argument("-m", "--model", metavar="MODEL", help="by default the configured one")


def _check(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from contextlib import ExitStack

    from dragoman.chat.config import load_config
    from dragoman.providers.preflight import check

    with ExitStack() as stack:
        found, _ = _chosen(arguments.tools, terminal, stack)
        report = check(found, load_config(model=arguments.model).config.model_name)
        terminal.line(str(report))
    return 0 if report.ok else 1


GROUP: Final = Group(
    "tools",
    {
        "list": Command("List tools.", _list, _list_arguments, ("dragoman tools list",)),
        "schema": Command(
            "Show what a model is told of a tool.",
            _schema,
            _schema_arguments,
            ("dragoman tools schema Read",),
        ),
        "check": Command(
            "Say what a provider would refuse or rewrite of tools, without asking it.",
            _check,
            _check_arguments,
            ("dragoman tools check -m openai:gpt-5", "dragoman tools check Read Bash -m gemini:gemini-2.5-pro"),
        ),
    },
    default="list",
)
