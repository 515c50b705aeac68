"""The tools of `-T`: a ready-made tool, all of them, a function, the tools of a file, or an MCP server.

Also the commands `dragoman tools` and `dragoman skills`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

from msgspec import Struct, structs

from dragoman.chat import load_config
from dragoman.errors import DragomanError
from dragoman.providers import check
from dragoman.toolkit import CallbackResponder, DirectorySkillStore, SkillSummary, toolkit
from dragoman.tools import AnyTool, Tool, ToolRegistry, ToolSet

from .arguments import Parser, UsageError, add_json, expand_path, suggest
from .output import print_json, print_list
from .settings import Settings, clean_model, read_settings
from .terminal import Terminal

ALL: Final = "toolkit"
"""Stands for all ready-made tools."""
_ONLY_SPEAK: Final = ("react_emoji", "send_update")
READY: Final = ("Read", "Write", "Edit", "Glob", "Grep", "Bash", "Fetch", "calculator", "now", *_ONLY_SPEAK)
_SKILLS: Final = ("Skill", "LoadSkillSupporting")


class ToolChoice(Struct):
    """Finds tools by name. MCP servers stay open as long as the stack."""

    _settings: Settings
    _terminal: Terminal
    _stack: ExitStack
    _opened: dict[str, ToolSet] = {}
    _ready: dict[str, AnyTool] = {}

    def build(self, names: Iterable[str]) -> ToolRegistry:
        """The tools of these names, each once; two different tools of one name are an error."""
        found = ToolRegistry()
        for name in names:
            found = found.merge(self._build(name.strip()))
        return found

    def _build(self, name: str) -> ToolSet:
        ready = {each.lower(): each for each in (*READY, *_SKILLS)}
        if name == ALL:
            return self._build_ready([*READY, *(_SKILLS if self._settings.skills.list() else ())])
        if name.lower() in ready:
            return self._build_ready([ready[name.lower()]])
        servers = self._settings.servers
        if name.startswith("mcp:") or name in servers:
            name = name.removeprefix("mcp:")
            if name not in self._opened:
                self._opened[name] = self._stack.enter_context(self._settings.open_servers(name)).tools
            return self._opened[name]
        if name.endswith(".py"):
            return _list_tools(load_module(name, self._settings.directory), name)
        place, colon, function = name.rpartition(":")
        if colon:
            return _find_function(load_module(place, self._settings.directory), function, name)
        hint = suggest(name, [*ready.values(), *servers, ALL])
        raise UsageError(f"There is no tool {name!r}.", hint=f"{hint} See dragoman tools list.".lstrip())

    def _build_ready(self, names: list[str]) -> ToolRegistry:
        """Ready-made tools that write to this terminal. Those that do nothing else need no approval."""
        say = self._terminal.say
        responder = CallbackResponder(reaction=lambda emoji: say(f"[{emoji}]"), update=lambda text: say(f"> {text}"))
        missing = [name for name in names if name not in self._ready]
        skills = self._settings.skills if set(missing) & set(_SKILLS) else None
        if skills is not None and not skills.list():
            raise UsageError("There are no skills to load.", hint="See dragoman skills list.")
        for each in toolkit(self._settings.directory, only=missing, responder=responder, skills=skills):
            asks = each.name not in _ONLY_SPEAK
            options = each.options if asks else structs.replace(each.options, read_only=True)
            self._ready[each.name] = structs.replace(each, options=options)
        return ToolRegistry([self._ready[name] for name in names])


def load_module(place: str, directory: Path) -> ModuleType:
    """Import a .py file, or a module, which may be in this directory."""
    try:
        if place.endswith(".py"):
            return _run_file(directory / expand_path(place))
        if str(directory) not in sys.path:
            sys.path.append(str(directory))  # the last: nothing there replaces what is installed
        return importlib.import_module(place)
    except DragomanError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{place}.".startswith(f"{error.name}."):
            raise UsageError(f"There is no module {error.name!r}.", hint="Check its name.") from None
        message = f"{place} cannot be loaded: {type(error).__name__}: {error}."
        raise UsageError(message, hint="Run it with Python first; --debug shows where it fails.") from error


def _run_file(path: Path) -> ModuleType:
    name = f"dragoman_tools_{path.stem}_{abs(hash(path.resolve()))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"There is no file {str(path)!r}.", hint="Check the name after -T.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where its type hints are resolved
    spec.loader.exec_module(module)
    return module


def _list_tools(module: ModuleType, name: str) -> ToolRegistry:
    """The tools of a file, or, if it has none, its public functions."""
    public = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    tools = [cast("AnyTool", value) for value in public.values() if isinstance(value, Tool)]
    if tools:
        return ToolRegistry(tools)
    functions: list[Callable[..., Any]] = [
        value for value in public.values() if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    if not functions:
        raise UsageError(f"{name} has no tools and no functions.", hint="Define a function, or use @dragoman.tool.")
    return ToolRegistry(functions)


def _find_function(module: ModuleType, function: str, name: str) -> ToolRegistry:
    found: object = getattr(module, function, None)
    if not (isinstance(found, Tool) or callable(found)):
        public = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        hint = suggest(function, public, "Check the name after the colon.")
        raise UsageError(f"{name} is not a function.", hint=hint)
    return ToolRegistry([cast("AnyTool", found)])


# --- the commands -----------------------------------------------------------------------------------------------------


def declare_tools(parser: Parser) -> None:
    parser.default = "list"
    listing = parser.add_command("list", _list, "List tools.", "dragoman tools list")
    add_json(listing)
    about = "Show what a model is told about a tool."
    schema = parser.add_command("schema", _show_schema, about, "dragoman tools schema Read")
    schema.add_argument("tool", help="as for -T")
    about = "Show what a provider would refuse or rewrite, without asking it."
    examples = ("dragoman tools check -m openai:gpt-5", "dragoman tools check Read Bash -m gemini:gemini-2.5-pro")
    checking = parser.add_command("check", _check, about, *examples)
    checking.add_argument("-m", "--model", metavar="MODEL", help="by default the configured one")
    for each in (listing, checking):
        each.add_argument("tools", nargs="*", metavar="TOOL", help="as for -T; by default all ready-made tools")


def _list(arguments: argparse.Namespace, terminal: Terminal) -> None:
    settings = read_settings(load_config())
    with _built(arguments.tools or [ALL], settings, terminal) as found:
        rows = [
            {
                "name": each.name,
                "effect": "reads" if each.options.read_only else "changes",
                "description": each.description.split("\n")[0],
            }
            for each in found
        ]
    print_list(terminal, rows, dict, as_json=arguments.json)
    if not arguments.json and not arguments.tools and settings.servers:
        terminal.line(f"MCP servers of the configuration: {', '.join(settings.servers)} (see dragoman mcp list)")


def _show_schema(arguments: argparse.Namespace, terminal: Terminal) -> None:
    with _built([arguments.tool], read_settings(load_config()), terminal) as found:
        schemas = [
            {"name": each.name, "description": each.description, "parameters": each.spec.schema} for each in found
        ]
        print_json(terminal, schemas[0] if len(schemas) == 1 else schemas)


def _check(arguments: argparse.Namespace, terminal: Terminal) -> int:
    loaded = load_config(model=arguments.model and clean_model(arguments.model))
    with _built(arguments.tools or [ALL], read_settings(loaded), terminal) as found:
        report = check(found, loaded.config.model_name)
        terminal.line(str(report))
    return 0 if report.ok else 1


@contextmanager
def _built(names: Iterable[str], settings: Settings, terminal: Terminal) -> Generator[ToolRegistry]:
    with terminal.reserve_stdout(), ExitStack() as stack:
        yield ToolChoice(settings, terminal, stack).build(names)


def declare_skills(parser: Parser) -> None:
    parser.default = "list"
    add_json(parser.add_command("list", _list_skills, "List the skills that can be loaded.", "dragoman skills list"))
    example = "dragoman skills validate ~/.agents/skills/pdf"
    validate = parser.add_command("validate", _validate_skills, "Check skills for errors.", example)
    validate.add_argument(
        "paths", nargs="+", metavar="DIRECTORY", help="a skill's directory or SKILL.md, or a directory of skills"
    )


def _list_skills(arguments: argparse.Namespace, terminal: Terminal) -> None:
    store = read_settings(load_config()).skills
    otherwise = f"There are no skills. Looked in: {', '.join(store.directories)}"
    print_list(terminal, store.list(), _show_skill, as_json=arguments.json, otherwise=otherwise)
    for problem in store.problems:
        terminal.say(f"dragoman: {problem}", "yellow")


def _show_skill(skill: SkillSummary) -> dict[str, object]:
    return {"skill": skill.name, "where": skill.location, "what for": skill.description}


def _validate_skills(arguments: argparse.Namespace, terminal: Terminal) -> int:
    wrong = 0
    for path in arguments.paths:
        place = expand_path(path)
        store = DirectorySkillStore([place.parent if place.name.lower() == "skill.md" else place])
        problems = store.problems or (() if store.list() else ("there is no SKILL.md",))
        wrong += bool(problems)
        terminal.line("\n  ".join([f"{path}: {'invalid' if problems else 'valid'}", *problems]))
    return 1 if wrong else 0
