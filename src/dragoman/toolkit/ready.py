"""The ready tools in one registry. Only those that are wanted are built."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from dragoman.errors import ConfigurationError
from dragoman.tools.definition import AnyTool
from dragoman.tools.registry import ToolRegistry

from .bash import BashSettings, bash_tool
from .calculator import calculator_tool
from .fetch import FetchSettings, fetch_tool
from .now import now_tool
from .read import read_tool
from .responder import Responder, react_emoji_tool, send_update_tool
from .search import GrepLimits, glob_tool, grep_tool
from .skills import SkillStore, load_skill_supporting_tool, skill_tool
from .workspace import Workspace
from .write import edit_tool, write_tool


def toolkit(
    workspace: str | os.PathLike[str] | Workspace,
    *,
    only: Iterable[str] | None = None,
    responder: Responder | None = None,
    skills: SkillStore | None = None,
    bash: BashSettings | None = None,
    fetch: FetchSettings | None = None,
    grep: GrepLimits | None = None,
) -> ToolRegistry:
    """The ready tools for a directory: all of them, or `only` those that are named.

    `react_emoji` and `send_update` need a responder, `Skill` and `LoadSkillSupporting` a store of skills; without these
    they are not offered.
    """
    place = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    makers: dict[str, Callable[[], AnyTool]] = {
        "Read": lambda: read_tool(place),
        "Write": lambda: write_tool(place),
        "Edit": lambda: edit_tool(place),
        "Glob": lambda: glob_tool(place),
        "Grep": lambda: grep_tool(place, limits=grep or GrepLimits()),
        "Bash": lambda: bash_tool(place, settings=bash or BashSettings()),
        "Fetch": lambda: fetch_tool(settings=fetch or FetchSettings()),
        "calculator": calculator_tool,
        "now": now_tool,
    }
    if responder is not None:
        makers["react_emoji"] = lambda: react_emoji_tool(responder)
        makers["send_update"] = lambda: send_update_tool(responder)
    if skills is not None:
        makers["Skill"] = lambda: skill_tool(skills)
        makers["LoadSkillSupporting"] = lambda: load_skill_supporting_tool(skills)
    wanted = list(makers) if only is None else list(only)
    for name in wanted:
        if name not in makers:
            hint = f"There are: {', '.join(makers)}."
            raise ConfigurationError(f"There is no ready tool {name!r}.", hint=hint)
    return ToolRegistry([makers[name]() for name in wanted])
