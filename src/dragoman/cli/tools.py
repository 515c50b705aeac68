"""`dragoman tools`: what there is, what a model is told of it, and what a provider would say to it."""

from __future__ import annotations

import argparse
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from dragoman.chat import LoadedConfig, load_config
from dragoman.providers import check
from dragoman.tools import ToolRegistry

from .arguments import Parser, add_json
from .output import print_json, print_table
from .settings import find_directory, open_skills, read_servers
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


@contextmanager
def _build(loaded: LoadedConfig, names: list[str], terminal: Terminal) -> Generator[ToolRegistry]:
    with ExitStack() as stack:
        yield ToolChoice(loaded, find_directory(), terminal, stack).build(names)


def _list(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Ready tools are listed without building any of them; others have to be looked at."""
    loaded = load_config()
    if arguments.tools:
        with _build(loaded, arguments.tools, terminal) as found:
            rows = [
                (tool.name, "reads" if tool.options.read_only else "changes", tool.description.split("\n")[0])
                for tool in found
            ]
    else:
        ready = {**READY, **(SKILLS if open_skills(loaded, find_directory()).list() else {})}
        rows = [(name, effect, about) for name, (effect, about) in ready.items()]
    if arguments.json:
        print_json(terminal, [dict(zip(("name", "effect", "description"), row, strict=True)) for row in rows])
        return 0
    print_table(terminal, ("tool", "", "what it does"), rows)
    if not arguments.tools and (servers := read_servers(loaded)):
        terminal.line(f"MCP servers of the configuration: {', '.join(servers)} (see dragoman mcp list)")
    return 0


def _show_schema(arguments: argparse.Namespace, terminal: Terminal) -> int:
    with _build(load_config(), [arguments.tool], terminal) as found:
        schemas = [
            {"name": each.name, "description": each.description, "parameters": each.spec.schema} for each in found
        ]
        print_json(terminal, schemas[0] if len(schemas) == 1 else schemas)
    return 0


def _check(arguments: argparse.Namespace, terminal: Terminal) -> int:
    loaded = load_config(model=arguments.model)
    with _build(loaded, arguments.tools or [ALL], terminal) as found:
        report = check(found, loaded.config.model_name)
        terminal.line(str(report))
    return 0 if report.ok else 1
