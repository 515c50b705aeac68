"""How the claude program is run.

Owns: ClaudeSettings, and finding the program.
Must not know: what is said to it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from dragoman.conversation import ToolCall
from dragoman.errors import ConfigurationError
from dragoman.tools.permission import Allow, Ask, Deny

__all__ = ["ClaudeSettings", "OwnToolPermission", "found_program"]

OwnToolPermission: TypeAlias = "Callable[[ToolCall], Allow | Deny | Ask | Awaitable[Allow | Deny | Ask]]"
"""Decides about one use of the program's own tools; with a PermissionChecker: `checker.check`."""

_NAME: Final = "claude"
_HOW_TO_GET: Final = (
    "Install it with `npm install -g @anthropic-ai/claude-code`, start it once to log in, and see that it is on the "
    "PATH; or say where it is: ClaudeSettings(program='/…/claude')."
)


class ClaudeSettings(Struct, frozen=True, kw_only=True):
    """How the program is run. By default it is kept to itself: no settings of the user's, no tools but ours."""

    program: str | None = None
    """Its path; None: looked for with `find_program`."""
    find_program: Callable[[str], str | None] | None = None
    """How it is found by name; None: on the PATH, as shutil.which does."""
    directory: str | None = None
    """Where it works, and under which it keeps its sessions; None: the current directory."""
    own_tools: tuple[str, ...] = ()
    """Tools of the program itself that the model may use, such as "Bash" or "Read"."""
    permission: OwnToolPermission | None = None
    """Decides about each use of those that the program asks about; None: all are refused."""
    own_prompt: bool = False
    """Keep the program's own system prompt, and put the conversation's behind it."""
    setting_sources: tuple[str, ...] = ()
    """Which settings it reads: "user", "project", "local"."""
    keep_sessions: bool = False
    """Let the program keep its sessions on disk, so that a later process can go on with one (`--resume`)."""
    environment: Mapping[str, str] = {}
    """Further variables for it; they win over ours."""
    arguments: tuple[str, ...] = ()
    """Further arguments for it, behind ours."""
    start_seconds: float = 60.0
    """How long it may take until it says its first word."""
    idle_programs: int = 4
    """How many programs that wait for the next turn of their conversations are kept; the oldest is ended first."""


def found_program(settings: ClaudeSettings) -> str:
    """The path of the program."""
    if os.name != "posix":
        message = "claude-local needs Linux, macOS or another POSIX system."
        raise ConfigurationError(message, hint="Use the API instead: anthropic:claude-sonnet-4-5.")
    if settings.program is not None:
        if os.path.isfile(settings.program) and os.access(settings.program, os.X_OK):  # noqa: PTH113 -- a text, not a path
            return settings.program
        message = f"There is no program {settings.program!r} that could be run."
        raise ConfigurationError(message, hint=_HOW_TO_GET)
    find = settings.find_program or shutil.which
    found = find(_NAME)
    if found is None:
        message = "The program `claude` was not found on this machine."
        raise ConfigurationError(message, hint=_HOW_TO_GET)
    return found
