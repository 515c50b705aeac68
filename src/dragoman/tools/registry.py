"""Sets of tools: the registry and the views on it, and tools of the moment, which a function returns.

A registry keeps its tools in a dict that is never changed, only replaced: readers take no lock and see the set either
before or after a change. Views follow the changes of the set below.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Never, TypeAlias, cast

from dragoman._checks import check_takes_run, of_unmade, refuse_unknown
from dragoman.conversation import ToolSpec
from dragoman.errors import ConfigurationError, ToolConflictError, ToolDefinitionError, ToolNotFoundError

from .definition import AnyTool, Tool

FIND_TOOLS: Final = "find_tools"
"""The tool that finds other tools: see search.py."""


class ToolSet:
    """Tools by name, read-only, in the order of registration."""

    by_name: Mapping[str, AnyTool]
    """The tools as they are now. The mapping is never changed, but replaced when something changes."""
    function: ToolsFunction | None = None
    """Returns the tools of each moment of a run; outside a run the set is empty."""
    own: frozenset[str] = frozenset()
    """Names of tools that the library added; they may be called whatever `allowed_tools` says."""

    def find(self, name: str) -> AnyTool | None:
        """The tool of that name, or None."""
        return self.by_name.get(name)

    def get(self, name: str) -> AnyTool:
        """The tool of that name; ToolNotFoundError names the nearest ones."""
        found = self.find(name)
        if found is None:
            raise not_found(name, self.by_name)
        return found

    def list(self) -> list[AnyTool]:
        """All tools, in order."""
        return list(self.by_name.values())

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The definitions that a model sees, in order."""
        return tuple([t.spec for t in self.by_name.values()])

    def __iter__(self) -> Iterator[AnyTool]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    @of_unmade
    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(self.by_name) or 'empty'}>"

    def filtered(self, keep: Callable[[AnyTool], bool] | Iterable[str]) -> ToolView:
        """A view of the tools that pass the test, or that have one of the names."""
        if isinstance(keep, str):
            raise ConfigurationError(f"{keep!r} is a string, not a list of names.", hint=f"Write filtered([{keep!r}]).")
        if not callable(keep):
            names = frozenset(keep)
            return ToolView(self, lambda t: t if t.name in names else None)
        return ToolView(self, lambda t: t if keep(t) else None)

    def prefixed(self, prefix: str) -> ToolView:
        """A view in which every name has this prefix."""
        return ToolView(self, lambda t: t.renamed(prefix + t.name))

    def renamed(self, names: Mapping[str, str]) -> ToolView:
        """A view in which these tools have other names: {old: new}."""
        changed = dict(names)
        return ToolView(self, lambda t: t.renamed(changed[t.name]) if t.name in changed else t)

    def clone(self) -> ToolRegistry:
        """A new registry with the same tools."""
        return ToolRegistry(self)

    def merge(self, *others: ToolSet) -> ToolRegistry:
        """A new registry with the tools of all; two different tools of one name are an error."""
        return ToolRegistry([each for tools in (self, *others) for each in tools])


class ToolRegistry(ToolSet):
    """Tools by name, safe to change and read from many threads at once."""

    def __init__(self, tools: Iterable[AnyTool | Callable[..., Any]] = (), **unknown: Never) -> None:
        refuse_unknown(unknown, ToolRegistry.__init__, "ToolRegistry")
        self._lock: threading.Lock = threading.Lock()
        self.by_name: Mapping[str, AnyTool] = {}
        for each in tools:
            self.register(each)

    def register(self, item: AnyTool | Callable[..., Any], *, replace: bool = False) -> AnyTool:
        """Add a tool, or a function as a tool. Another tool of the same name is an error unless replaced."""
        added = cast("AnyTool", item if isinstance(item, Tool) else Tool.from_function(item))
        if added.needs_self:
            message = f"{added.name!r} is a method of a class, not of an object."
            hint = "Register it from an object: registry.register(obj.method), or tools_of(obj)."
            raise ToolDefinitionError(message, tool_name=added.name, hint=hint)
        with self._lock:
            if not replace and self.by_name.get(added.name, added) is not added:
                raise _conflict(added.name)
            self.by_name = {**self.by_name, added.name: added}
        return added

    def unregister(self, name: str) -> AnyTool:
        """Remove a tool and return it."""
        with self._lock:
            if name not in self.by_name:
                raise not_found(name, self.by_name)
            removed = self.by_name[name]
            self.by_name = {key: value for key, value in self.by_name.items() if key != name}
        return removed


class ToolView(ToolSet):
    """A set of tools through a filter or under other names; it follows the changes of the set below."""

    def __init__(self, below: ToolSet, see: Callable[[AnyTool], AnyTool | None]) -> None:
        self._below: ToolSet = below
        self._see: Callable[[AnyTool], AnyTool | None] = see
        # One pair, replaced as a whole, so that a reader never combines an old source with a new view.
        self._cached: tuple[Mapping[str, AnyTool], Mapping[str, AnyTool]] | None = None

    @property
    def by_name(self) -> Mapping[str, AnyTool]:  # pyright: ignore[reportIncompatibleVariableOverride] -- computed here
        source = self._below.by_name
        cached = self._cached
        if cached is not None and cached[0] is source:
            return cached[1]
        seen: dict[str, AnyTool] = {}
        for below in source.values():
            above = self._see(below)
            if above is None:
                continue
            if above.name in seen:
                raise _conflict(above.name)
            seen[above.name] = above
        self._cached = (source, seen)
        return seen


_ToolLike: TypeAlias = AnyTool | Callable[..., Any]
SomeTools: TypeAlias = ToolSet | Mapping[str, _ToolLike] | Iterable[_ToolLike]
"""A registry or view, or tools and functions, by name or not."""
ToolsFunction: TypeAlias = Callable[[Any], SomeTools | Awaitable[SomeTools]]
"""Returns the tools of the moment; it is called with the RunContext before each model call."""
AnyTools: TypeAlias = SomeTools | ToolsFunction
"""What a caller may pass as tools: tools, or a function that returns the tools of the moment."""

_ONE_TOOL: Final = "For a single tool write tools=[…]; a function of the moment takes the RunContext and returns tools."


class MomentTools(ToolSet):
    """Tools that a function returns for each moment of a run."""

    by_name: Mapping[str, AnyTool] = {}

    def __init__(self, function: ToolsFunction) -> None:
        self.function = function
        # As long as the function returns the same tools they are the same set, with everything cached for it.
        self._latest: tuple[SomeTools, ToolSet] = ((), ToolRegistry())

    def take(self, given: object) -> ToolSet:
        """The function's return value as a set."""
        if isinstance(given, ToolSet):
            return given
        if isinstance(given, str) or not isinstance(given, Iterable):
            message = f"A function that returns the tools of the moment returned a {type(given).__name__}."
            raise ConfigurationError(message, hint=_ONE_TOOL)
        is_mapping = isinstance(given, Mapping)
        tools = dict(cast("Mapping[str, _ToolLike]", given)) if is_mapping else list(cast("Iterable[_ToolLike]", given))
        before, known = self._latest
        if tools != before:
            known = as_tool_set(tools)
            self._latest = (tools, known)
        return known


def as_tool_set(tools: AnyTools) -> ToolSet:
    """The tools as a set; a set is returned as it is."""
    if isinstance(tools, ToolSet):
        return tools
    if isinstance(tools, Mapping):
        return ToolRegistry([_named(each, name) for name, each in cast("Mapping[str, _ToolLike]", tools).items()])
    if isinstance(tools, Tool):
        raise ConfigurationError("A single tool was passed as tools.", hint=_ONE_TOOL)
    if callable(tools):
        check_takes_run(tools, "tools", _ONE_TOOL)
        return MomentTools(tools)
    return ToolRegistry(tools)


def _named(item: _ToolLike, name: str) -> AnyTool:
    found = cast("AnyTool", item if isinstance(item, Tool) else Tool.from_function(item, name=name))
    return found if found.name == name else found.renamed(name)


def not_found(name: str, offered: Iterable[str]) -> ToolNotFoundError:
    """The error for an unknown name, with the nearest known ones."""
    from difflib import get_close_matches  # slow to load, and needed for errors only

    names = list(offered)
    nearest = get_close_matches(name, names, n=3, cutoff=0.65) or names[:10]
    hint = f"Did you mean {' or '.join(map(repr, nearest))}?" if nearest else "No tools are available."
    return ToolNotFoundError(f"tool {name!r} not found.", tool_name=name, hint=hint)


def _conflict(name: str) -> ToolConflictError:
    return ToolConflictError(f"There are two different tools named {name!r}.", tool_name=name)
