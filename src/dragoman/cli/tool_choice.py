"""Which tools are meant.

Owns: from `-T` to tools: a ready tool, all of them, a function of a module, the tools of a file, an MCP server.
Must not know: what the tools do, and who may call them.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

from msgspec import structs

from dragoman.errors import DragomanError
from dragoman.toolkit import CallbackResponder, toolkit
from dragoman.toolkit.skills import DirectorySkillStore, SkillStore, skill_directories
from dragoman.tools.definition import AnyTool, Tool
from dragoman.tools.registry import ToolRegistry, ToolSet

from .arguments import UsageError, nearest
from .paths import user_path
from .settings import SkillSettings
from .terminal import Terminal

__all__ = ["ALL", "ToolChoice", "ready_tools", "skill_store"]

ALL: Final = "toolkit"
"""Stands for all ready tools."""
_MCP: Final = "mcp:"
_ONLY_SPEAK: Final = ("react_emoji", "send_update")


def skill_store(settings: SkillSettings, directory: Path) -> DirectorySkillStore:
    """The skills that may be loaded."""
    also = [user_path(name) for name in settings.directories]
    return DirectorySkillStore(skill_directories(directory if settings.project else None, also=also))


def ready_tools(directory: Path, terminal: Terminal, skills: SkillStore | None = None) -> ToolRegistry:
    """All ready tools for a directory, with the terminal as the person on the other side.

    Two of them do nothing but write to this terminal: nobody needs to be asked about that.
    """
    responder = CallbackResponder(
        reaction=lambda emoji: terminal.say(f"[{emoji}]"), update=lambda text: terminal.say(f"> {text}")
    )
    offered = toolkit(directory, responder=responder, skills=skills if skills is not None and skills.list() else None)
    return ToolRegistry([_harmless(each) if each.name in _ONLY_SPEAK else each for each in offered])


def _harmless(tool: AnyTool) -> AnyTool:
    return structs.replace(tool, options=structs.replace(tool.options, read_only=True))


class ToolChoice:
    """Finds tools by what the user calls them. MCP servers stay open as long as `stack` does."""

    def __init__(
        self,
        ready: ToolRegistry,
        servers: Mapping[str, Mapping[str, object]],
        *,
        stack: ExitStack,
        environ: Mapping[str, str],
        directory: Path,
    ) -> None:
        self._ready: ToolRegistry = ready
        self._servers: Mapping[str, Mapping[str, object]] = servers
        self._stack: ExitStack = stack
        self._environ: Mapping[str, str] = environ
        self._directory: Path = directory
        self._opened: dict[str, ToolSet] = {}

    def tools(self, names: Iterable[str]) -> ToolRegistry:
        """The tools that are meant, each once; two different ones of one name are an error."""
        found = ToolRegistry()
        for name in names:
            found = found.merge(self._meant(name.strip()))
        return found

    def _meant(self, name: str) -> ToolSet:
        if name == ALL:
            return self._ready
        ready = {each.name.lower(): each for each in self._ready}
        if name.lower() in ready:
            return ToolRegistry([ready[name.lower()]])
        if name.startswith(_MCP) or name in self._servers:
            return self._server(name.removeprefix(_MCP))
        path, colon, function = name.rpartition(":")
        if name.endswith(".py"):
            return _of_module(_run_file(self._directory / user_path(name)), name)
        if colon and path.endswith(".py"):
            return _one(_run_file(self._directory / user_path(path)), function, name)
        if colon:
            return _one(self._imported(path), function, name)
        if name in ("Skill", "LoadSkillSupporting"):
            raise UsageError("There are no skills that could be loaded.", hint="See dragoman skills list.")
        near = nearest(name, [*(each.name for each in self._ready), *self._servers, ALL])
        hint = f"Did you mean {near}? " if near else ""
        raise UsageError(f"There is no tool {name!r}.", hint=f"{hint}See dragoman tools list.")

    def _server(self, name: str) -> ToolSet:
        if name not in self._servers:
            near = nearest(name, self._servers)
            hint = f"Did you mean {near}?" if near else f"Write [mcp.servers.{name}] into the configuration."
            raise UsageError(f"The configuration has no MCP server {name!r}.", hint=hint)
        if name not in self._opened:
            from dragoman.mcp import McpServers

            servers = McpServers.from_json({"mcpServers": {name: self._servers[name]}}, environ=self._environ)
            self._opened[name] = self._stack.enter_context(servers).tools
        return self._opened[name]

    def _imported(self, module: str) -> ModuleType:
        """A module, also one that lies in the working directory."""
        here = str(self._directory)
        if here not in sys.path:
            sys.path.insert(0, here)
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise UsageError(
                f"There is no module {error.name or module!r}.", hint="Check the name behind -T."
            ) from None
        except Exception as error:
            raise _broken(module, error) from error


def _run_file(path: Path) -> ModuleType:
    name = f"dragoman_tools_{path.stem}_{abs(hash(path.resolve()))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"There is no file {str(path)!r}.", hint="Check the name behind -T.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where the hints of its functions are looked up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _broken(path.name, error) from error
    return module


def _broken(what: str, error: Exception) -> DragomanError:
    if isinstance(error, DragomanError):
        return error
    message = f"{what} cannot be loaded: {type(error).__name__}: {error}."
    return UsageError(message, hint="Run it with Python first; --debug shows where it fails.")


def _of_module(module: ModuleType, name: str) -> ToolRegistry:
    """What a file offers: its tools, or, where it has none, its public functions."""
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


def _one(module: ModuleType, function: str, name: str) -> ToolRegistry:
    found: object = getattr(module, function, None)
    if not (isinstance(found, Tool) or callable(found)):
        near = nearest(function, [key for key, value in vars(module).items() if callable(value) and key[0] != "_"])
        hint = f"Did you mean {near}?" if near else "Check the name behind the colon."
        raise UsageError(f"{name} names no function.", hint=hint)
    return ToolRegistry([cast("AnyTool", found)])
