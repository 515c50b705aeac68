"""All ready tools in one registry.

Owns: which tools there are, and in which order they are offered.
Must not know: what any of them does.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dragoman.tools.definition import AnyTool
from dragoman.tools.registry import ToolRegistry

from .bash.tool import BashSettings, bash_tool
from .calculator.tool import calculator_tool
from .edit import edit_tool
from .fetch.tool import FetchSettings, fetch_tool
from .now import now_tool
from .read import read_tool
from .responder import Responder
from .search.glob import glob_tool
from .search.grep import GrepLimits, grep_tool
from .updates import react_emoji_tool, send_update_tool
from .workspace import Workspace
from .write import write_tool

if TYPE_CHECKING:
    from .skills import SkillStore

__all__ = ["toolkit"]


def toolkit(
    workspace: str | os.PathLike[str] | Workspace,
    *,
    responder: Responder | None = None,
    skills: SkillStore | None = None,
    bash: BashSettings | None = None,
    fetch: FetchSettings | None = None,
    grep: GrepLimits | None = None,
) -> ToolRegistry:
    """The ready tools for a directory.

    `react_emoji` and `send_update` need a responder, `Skill` and `LoadSkillSupporting` a store of skills; without these
    they are not offered. To offer fewer tools: `toolkit(...).filtered(["Read", "Grep"])`.
    """
    place = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    tools: list[AnyTool] = [
        read_tool(place),
        write_tool(place),
        edit_tool(place),
        glob_tool(place),
        grep_tool(place, limits=grep or GrepLimits()),
        bash_tool(place, settings=bash or BashSettings()),
        fetch_tool(settings=fetch or FetchSettings()),
        calculator_tool(),
        now_tool(),
    ]
    if responder is not None:
        tools += [react_emoji_tool(responder), send_update_tool(responder)]
    if skills is not None:
        from .skills import skill_tools

        tools += skill_tools(skills)
    return ToolRegistry(tools)
