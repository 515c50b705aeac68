"""The variables that a command gets: those on a list, and those that the program names. Nothing else is inherited.

Owns: the list.
Must not know: commands.

A list of what may pass, because no list of what must not can be complete: a key may be in a variable of any name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["INHERITED", "TOKEN_VARIABLE", "environment"]

INHERITED: Final = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"}
    | {f"LC_{kind}" for kind in ("ALL", "COLLATE", "CTYPE", "MESSAGES", "MONETARY", "NUMERIC", "TIME")}
)
_FIXED: Final = {
    # Nobody looks at a terminal: no colours, no pages to turn, no questions.
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}
TOKEN_VARIABLE: Final = "DRAGOMAN_SHELL"  # noqa: S105 -- no secret, a mark
"""Marks the processes of a command, so that all of them can be found."""


def environment(
    token: str,
    *,
    names: Iterable[str] = (),
    values: Mapping[str, str] | None = None,
    source: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The variables of a command: inherited ones, those named, and those given, the latter first in rank."""
    source = os.environ if source is None else source
    passed = {name: source[name] for name in (*sorted(INHERITED), *names) if name in source}
    outer = source.get(TOKEN_VARIABLE)  # a command may itself run a program that runs commands
    return {
        "PATH": os.defpath,
        **_FIXED,
        **passed,
        **(values or {}),
        TOKEN_VARIABLE: f"{outer}:{token}" if outer else token,
    }
