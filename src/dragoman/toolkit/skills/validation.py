"""Is this a good skill, by the letter of the specification?

Owns: the rules of the open Agent Skills specification, and the words for what breaks them.
Must not know: stores. Reading a skill forgives what is found here.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .front_matter import read_front_matter
from .skill import LONGEST_COMPATIBILITY, LONGEST_DESCRIPTION, LONGEST_NAME
from .yaml_subset import Value

__all__ = ["SKILL_FILES", "find_skill_file", "skill_problems", "validate_skill"]

SKILL_FILES: Final = ("SKILL.md", "skill.md")
"""The names of a skill's own file, the better one first."""

_MOST_BYTES: Final = 4 * 1024 * 1024


def validate_skill(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """All that is wrong with the skill in a directory, a line each; nothing if it is good."""
    directory = Path(path)
    if directory.name.lower() == "skill.md" and directory.is_file():
        directory = directory.parent
    if not directory.exists():
        return ("the path does not exist",)
    if not directory.is_dir():
        return ("the path is not a directory",)
    file = find_skill_file(directory)
    if file is None:
        return ("there is no SKILL.md",)
    try:
        with file.open("rb") as opened:
            raw = opened.read(_MOST_BYTES + 1)
        text = raw.decode("utf-8")
    except OSError as error:
        return (f"{file.name} cannot be read: {error.strerror or type(error).__name__}",)
    except UnicodeDecodeError:
        return (f"{file.name} is not UTF-8",)
    if len(raw) > _MOST_BYTES:
        return (f"{file.name} is larger than {_MOST_BYTES} bytes",)
    return skill_problems(text, folder=directory.resolve().name)


def find_skill_file(directory: Path) -> Path | None:
    """The SKILL.md of a directory; `skill.md` will do."""
    return next((file for name in SKILL_FILES if (file := directory / name).is_file()), None)


def skill_problems(text: str, *, folder: str) -> tuple[str, ...]:
    """All that is wrong with the text of a SKILL.md that lies in a folder of this name."""
    front = read_front_matter(text)
    if front.fatal:
        return (front.fatal,)
    problems = [*front.problems, *(f"{each}, which checkers refuse" for each in front.style)]
    unknown = sorted(key for key in front.values if key not in _FIELDS)
    if unknown:
        problems.append(f"unknown keys: {', '.join(unknown)}")
    for key, check in _FIELDS.items():
        if key in front.values:
            problems += check(front.values[key], folder)
        elif key in ("name", "description"):
            problems.append(f"{key} is missing")
    return tuple(problems)


def _name(value: Value, folder: str) -> list[str]:
    if not isinstance(value, str) or not value.strip():
        return ["name must be a text, and not an empty one"]
    name = unicodedata.normalize("NFKC", value.strip())
    problems: list[str] = []
    if len(name) > LONGEST_NAME:
        problems.append(f"name has {len(name)} characters; {LONGEST_NAME} are allowed")
    if name != name.lower():
        problems.append("name must be in lower case")
    if name.startswith("-") or name.endswith("-"):
        problems.append("name must not begin or end with a hyphen")
    if "--" in name:
        problems.append("name must not have two hyphens in a row")
    if not all(letter.isalnum() or letter == "-" for letter in name):
        problems.append("name may have letters, digits and hyphens only")
    if name != unicodedata.normalize("NFKC", folder):
        problems.append("name is not that of the directory")
    return problems


def _description(value: Value, _folder: str) -> list[str]:
    if not isinstance(value, str) or not value.strip():
        return ["description must be a text, and not an empty one"]
    if len(value) > LONGEST_DESCRIPTION:
        return [f"description has {len(value)} characters; {LONGEST_DESCRIPTION} are allowed"]
    return []


def _compatibility(value: Value, _folder: str) -> list[str]:
    if not isinstance(value, str):
        return ["compatibility must be a text"]
    if len(value) > LONGEST_COMPATIBILITY:
        return [f"compatibility has {len(value)} characters; {LONGEST_COMPATIBILITY} are allowed"]
    return []


def _license(value: Value, _folder: str) -> list[str]:
    return [] if isinstance(value, str) else ["license must be a text"]


def _metadata(value: Value, _folder: str) -> list[str]:
    return [] if isinstance(value, dict) or value == "" else ["metadata must be a map of texts"]


def _allowed_tools(value: Value, _folder: str) -> list[str]:
    return ["allowed-tools must be a text or a list of texts"] if isinstance(value, dict) else []


_FIELDS: Final[dict[str, Callable[[Value, str], list[str]]]] = {
    "name": _name,
    "description": _description,
    "license": _license,
    "compatibility": _compatibility,
    "metadata": _metadata,
    "allowed-tools": _allowed_tools,
}
