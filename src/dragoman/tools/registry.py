"""Sets of tools: the registry, and views on it; and tools of the moment, which a function gives.

A registry keeps its tools in a dict that is never changed, only replaced: readers take no lock and see either the set
before a change or the set after it. Views compute theirs from the one below and follow its changes.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, Never, TypeAlias, cast

from dragoman._checks import check_takes_run, refuse_unknown
from dragoman.conversation import ToolSpec
from dragoman.errors import ConfigurationError, ToolConflictError, ToolDefinitionError, ToolNotFoundError

from .definition import AnyTool, Tool

OnConflict: TypeAlias = Literal["error", "keep", "replace"]

FIND_TOOLS: Final = "find_tools"
"""The tool that finds others, where there are many: see search.py."""


class ToolSet:
    """Tools by name, to read from. The order is that of registration and never changes by itself."""

    by_name: Mapping[str, AnyTool]
    """All tools as they are now: never changed, but replaced as a whole when something changes."""
    function: ToolsFunction | None = None
    """What gives the tools of each moment of a run; without a run there are none then."""
    own: frozenset[str] = frozenset()
    """Names of tools that the library put there itself; they may be called whatever else is allowed."""

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
        """What a model is told about each tool, in order."""
        return tuple([t.spec for t in self.by_name.values()])

    def __iter__(self) -> Iterator[AnyTool]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(self.by_name) or 'empty'}>"

    def filtered(self, keep: Callable[[AnyTool], bool] | Iterable[str]) -> ToolView:
        """A view of the tools that pass the test, or that have one of the names."""
        if isinstance(keep, str):
            raise ConfigurationError(f"{keep!r} is one name and not several.", hint=f"Say filtered([{keep!r}]).")
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
        """A registry of its own with the same tools."""
        return ToolRegistry(self)

    def merge(self, *others: ToolSet, on_conflict: OnConflict = "error") -> ToolRegistry:
        """A new registry with the tools of all; two different tools of one name are an error unless said otherwise."""
        merged = dict(self.by_name)
        for other in others:
            for name, candidate in other.by_name.items():
                if merged.get(name, candidate) is candidate or on_conflict == "replace":
                    merged[name] = candidate
                elif on_conflict == "error":
                    raise _conflict(name)
        return ToolRegistry(merged.values())


class ToolRegistry(ToolSet):
    """Tools by name, safe to change and to read from many threads at once."""

    def __init__(self, tools: Iterable[AnyTool | Callable[..., Any]] = (), **unknown: Never) -> None:
        refuse_unknown(unknown, ToolRegistry.__init__, "ToolRegistry")
        self._lock: threading.Lock = threading.Lock()
        self.by_name: Mapping[str, AnyTool] = {}
        for each in tools:
            self.register(each)

    def register(self, item: AnyTool | Callable[..., Any], *, replace: bool = False) -> AnyTool:
        """Add a tool, or a function that becomes one. Another tool of the same name is an error unless replaced."""
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
        """Take a tool out, and return it."""
        with self._lock:
            if name not in self.by_name:
                raise not_found(name, self.by_name)
            removed = self.by_name[name]
            self.by_name = {key: value for key, value in self.by_name.items() if key != name}
        return removed


class ToolView(ToolSet):
    """A set of tools as seen through a filter or under other names; it follows the changes of the set below."""

    def __init__(self, below: ToolSet, see: Callable[[AnyTool], AnyTool | None]) -> None:
        self._below: ToolSet = below
        self._see: Callable[[AnyTool], AnyTool | None] = see
        # One pair, replaced as a whole: a reader never combines an old source with a new view.
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
"""Gives the tools of the moment; it is asked with the RunContext before each call of the model."""
AnyTools: TypeAlias = SomeTools | ToolsFunction
"""Whatever a caller may give where tools are wanted: tools, or a function of the moment that gives them."""

_MOST_SETS: Final = 64
_ONE_TOOL: Final = "For a single tool say tools=[…]; a function of the moment takes the RunContext, and gives tools."


class MomentTools(ToolSet):
    """Tools that a function gives for each moment of a run."""

    by_name: Mapping[str, AnyTool] = {}

    def __init__(self, function: ToolsFunction) -> None:
        self.function = function
        # As long as the function gives the same ones they are the same set, with all that was worked out for it.
        self._made: dict[tuple[object, ...], tuple[SomeTools, ToolSet]] = {}

    def take(self, given: object) -> ToolSet:
        """What the function gave, as a set."""
        if isinstance(given, ToolSet):
            return given
        if isinstance(given, str) or not isinstance(given, Iterable):
            message = f"A function that gives the tools of the moment gave back a {type(given).__name__}."
            raise ConfigurationError(message, hint=_ONE_TOOL)
        if isinstance(given, Mapping):
            tools = dict(cast("Mapping[str, _ToolLike]", given))
            key = (*tools, *map(id, tools.values()))
        else:
            tools = list(cast("Iterable[_ToolLike]", given))
            key = tuple(map(id, tools))
        known = self._made.get(key)
        if known is None:
            if len(self._made) >= _MOST_SETS:
                self._made.clear()
            known = self._made[key] = (tools, as_tool_set(tools))  # with them, so that nothing else gets their ids
        return known[1]


def as_tool_set(tools: AnyTools) -> ToolSet:
    """The tools as a set; a set is taken as it is, anything else becomes one."""
    if isinstance(tools, ToolSet):
        return tools
    if isinstance(tools, Mapping):
        return ToolRegistry([_named(each, name) for name, each in cast("Mapping[str, _ToolLike]", tools).items()])
    if isinstance(tools, Tool):
        raise ConfigurationError("A tool was given where several are wanted.", hint=_ONE_TOOL)
    if callable(tools):
        check_takes_run(tools, "tools", _ONE_TOOL)
        return MomentTools(tools)
    return ToolRegistry(tools)


def _named(item: _ToolLike, name: str) -> AnyTool:
    found = cast("AnyTool", item if isinstance(item, Tool) else Tool.from_function(item, name=name))
    return found if found.name == name else found.renamed(name)


def not_found(name: str, offered: Iterable[str]) -> ToolNotFoundError:
    """The error for a name that is not there, with the nearest ones that are."""
    from difflib import get_close_matches  # needed only where something is wrong

    names = list(offered)
    nearest = get_close_matches(name, names, n=3, cutoff=0.65) or names[:10]
    hint = f"Did you mean {' or '.join(map(repr, nearest))}?" if nearest else "No tools are available."
    return ToolNotFoundError(f"tool {name!r} not found.", tool_name=name, hint=hint)


def _conflict(name: str) -> ToolConflictError:
    return ToolConflictError(f"There are two different tools named {name!r}.", tool_name=name)
