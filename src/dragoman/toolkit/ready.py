"""The ready tools in one registry, of which only the wanted ones are built; and `now`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, available_timezones

from dragoman.errors import ConfigurationError, ToolExecutionError
from dragoman.tools import AnyTool, ToolRegistry, tool

from .bash import BashSettings, bash_tool
from .calculator import calculator_tool
from .fetch import FetchSettings, fetch_tool
from .files import edit_tool, read_tool, write_tool
from .responder import Responder, responder_tools
from .search import glob_tool, grep_tool
from .skills.store import SkillStore, skill_tools
from .workspace import Workspace


def toolkit(
    workspace: str | os.PathLike[str] | Workspace,
    *,
    only: Iterable[str] | None = None,
    responder: Responder | None = None,
    skills: SkillStore | None = None,
    bash: BashSettings | None = None,
    fetch: FetchSettings | None = None,
) -> ToolRegistry:
    """The ready tools for a directory: all of them, or `only` those that are named.

    `react_emoji` and `send_update` need a responder, `Skill` and `LoadSkillSupporting` a store of skills.
    """
    place = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    makers: dict[str, Callable[[], AnyTool]] = {
        "Read": lambda: read_tool(place),
        "Write": lambda: write_tool(place),
        "Edit": lambda: edit_tool(place),
        "Glob": lambda: glob_tool(place),
        "Grep": lambda: grep_tool(place),
        "Bash": lambda: bash_tool(place, settings=bash or BashSettings()),
        "Fetch": lambda: fetch_tool(settings=fetch or FetchSettings()),
        "calculator": calculator_tool,
        "now": now_tool,
    }
    if responder is not None:
        makers |= {
            "react_emoji": lambda: responder_tools(responder)[0],
            "send_update": lambda: responder_tools(responder)[1],
        }
    if skills is not None:
        makers |= {"Skill": lambda: skill_tools(skills)[0], "LoadSkillSupporting": lambda: skill_tools(skills)[1]}
    wanted = list(makers) if only is None else list(only)
    for name in wanted:
        if name not in makers:
            hint = f"There are: {', '.join(makers)}."
            raise ConfigurationError(f"There is no ready tool {name!r}.", hint=hint)
    return ToolRegistry([makers[name]() for name in wanted])


# --- now -------------------------------------------------------------------------------------------------------------


def now_tool(*, clock: Callable[[], float] = time.time) -> AnyTool:
    """The tool `now`. The clock gives seconds since 1970, as `time.time` does."""

    @tool(name="now", read_only=True, idempotent=True)
    def now(*, timezone: str = "UTC") -> str:
        """Tell the date and the time.

        Args:
            timezone: Where, as an IANA name such as Europe/Berlin or UTC.
        """
        name = timezone or "UTC"
        there = datetime.fromtimestamp(clock(), _zone(name))
        return f"{there.isoformat(timespec='seconds')} ({there:%A}, {name})"

    return now


def _zone(name: str) -> tzinfo:
    if name.upper() in ("UTC", "Z", "GMT"):  # even if the machine has no time zone data
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # unknown; a path; a directory
        if not available_timezones():  # as in slim images
            message = "this machine has no time zone data."
            hint = "Use UTC. For the others, install your system's package tzdata, or: pip install tzdata"
            raise ToolExecutionError(message, hint=hint) from None
        message = f"there is no time zone {name[:80]!r}."
        raise ToolExecutionError(message, hint="Use an IANA name such as Europe/Berlin, or UTC.") from None
