"""The front matter of a SKILL.md: where it begins and ends, and what it says.

Owns: dividing the text, and taking what can be taken from front matter that is odd.
Must not know: what a good skill is (validation.py), and files.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from .yaml_subset import Value, read_yaml

__all__ = ["FrontMatter", "read_front_matter"]

_KEY: Final = re.compile(r"[A-Za-z][\w-]*[ \t]*:(?:[ \t]|$)")


class FrontMatter(Struct, frozen=True):
    """A text with front matter, divided."""

    values: dict[str, Value]
    body: str
    problems: tuple[str, ...] = ()
    style: tuple[str, ...] = ()
    """What is YAML, but refused by the strict dialect that checkers of skills use."""
    fatal: str = ""
    """Why there is no front matter that a checker would accept."""


def read_front_matter(text: str) -> FrontMatter:
    """Divide a text. Never raises: what is odd is reported and read as far as it goes."""
    problems: list[str] = []
    if text.startswith("\ufeff"):
        text = text[1:]
        problems.append("line 1: there is a byte order mark")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[0].rstrip() != "---":
        return FrontMatter(
            {}, text.strip(), (*problems, "line 1: the first line is not '---'"), fatal="no front matter"
        )
    end = next((number for number, line in enumerate(lines[1:], start=1) if line.rstrip() == "---"), None)
    fatal = ""
    if end is None:
        # Somebody forgot the second line of dashes: what looks like keys, up to the first empty line.
        end = next((number for number, line in enumerate(lines[1:], start=1) if not _is_front(line)), len(lines))
        body = "\n".join(lines[end:]).strip()
        fatal = "the front matter is not closed with '---'"
        problems.append(f"line {end + 1}: {fatal}")
    else:
        body = "\n".join(lines[end + 1 :]).strip()
    parsed = read_yaml("\n".join(lines[1:end]), first_line=2)
    return FrontMatter(parsed.values, body, (*problems, *parsed.problems), parsed.style, fatal)


def _is_front(line: str) -> bool:
    return bool(_KEY.match(line)) or (line[:1] in (" ", "\t") and bool(line.strip()))
