"""`dragoman tools`: what there is, what a model is told of it, and what a provider would say to it."""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from dragoman.chat import load_config
from dragoman.providers import check

from .arguments import Parser, add_json
from .output import print_json, print_rows
from .settings import read_settings
from .terminal import Terminal
from .tool_choice import ALL, READY, SKILLS, ToolChoice


def declare(parser: Parser) -> None:
    """The commands about tools."""
    parser.default = "list"
    listing = parser.add_command("list", _list, "List tools.", "dragoman tools list")
    add_json(listing)
    about = "Show what a model is told of a tool."
    schema = parser.add_command("schema", _show_schema, about, "dragoman tools schema Read")
    schema.add_argument("tool", help="as behind -T")
    about = "Say what a provider would refuse or rewrite of tools, without asking it."
    examples = ("dragoman tools check -m openai:gpt-5", "dragoman tools check Read Bash -m gemini:gemini-2.5-pro")
    checking = parser.add_command("check", _check, about, *examples)
    checking.add_argument("-m", "--model", metavar="MODEL", help="by default the configured one")
    for each in (listing, checking):
        each.add_argument("tools", nargs="*", metavar="TOOL", help="as behind -T; by default all ready tools")


def _list(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Ready tools are listed without building any of them; others have to be looked at."""
    settings = read_settings(load_config())
    if arguments.tools:
        with terminal.reserve_stdout(), ExitStack() as stack:
            rows = [
                (tool.name, "reads" if tool.options.read_only else "changes", tool.description.split("\n")[0])
                for tool in ToolChoice(settings, terminal, stack).build(arguments.tools)
            ]
    else:
        ready = {**READY, **(SKILLS if settings.skills.list() else {})}
        rows = [(name, effect, about) for name, (effect, about) in ready.items()]
    print_rows(terminal, ("name", "effect", "description"), rows, as_json=arguments.json)
    if not arguments.json and not arguments.tools and settings.servers:
        terminal.line(f"MCP servers of the configuration: {', '.join(settings.servers)} (see dragoman mcp list)")
    return 0


def _show_schema(arguments: argparse.Namespace, terminal: Terminal) -> int:
    with terminal.reserve_stdout(), ExitStack() as stack:
        found = ToolChoice(read_settings(load_config()), terminal, stack).build([arguments.tool])
        schemas = [
            {"name": each.name, "description": each.description, "parameters": each.spec.schema} for each in found
        ]
        print_json(terminal, schemas[0] if len(schemas) == 1 else schemas)
    return 0


def _check(arguments: argparse.Namespace, terminal: Terminal) -> int:
    loaded = load_config(model=arguments.model)
    with terminal.reserve_stdout(), ExitStack() as stack:
        found = ToolChoice(read_settings(loaded), terminal, stack).build(arguments.tools or [ALL])
        report = check(found, loaded.config.model_name)
        terminal.line(str(report))
    return 0 if report.ok else 1
