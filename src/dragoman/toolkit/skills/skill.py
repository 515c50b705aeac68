"""A skill: instructions that a model loads when it needs them.

Owns: the values, and reading one from the text of a SKILL.md, leniently.
Must not know: files and directories.

The format is that of the open Agent Skills specification. What comes from elsewhere is often not quite right, so
reading forgives and warns; validation.py does not.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from msgspec import Struct

from .front_matter import FrontMatter, read_front_matter
from .yaml_subset import Value

__all__ = ["Skill", "SkillSummary", "SupportingFile", "is_safe_name", "normal_name", "read_skill"]

LONGEST_NAME: Final = 64
LONGEST_DESCRIPTION: Final = 1024
LONGEST_COMPATIBILITY: Final = 500
_MOST_METADATA: Final = 64
_LONGEST_VALUE: Final = 2_000


class SkillSummary(Struct, frozen=True, kw_only=True):
    """What is known of a skill before it is loaded."""

    name: str
    description: str
    license: str = ""
    compatibility: str = ""
    """What it needs: programs, network access, a certain product."""
    allowed_tools: tuple[str, ...] = ()
    """Tools that its author would like to be allowed. Nothing here grants them: that is for the policy."""
    metadata: dict[str, str] = {}
    location: str = ""
    """Where it was found, for people."""
    warnings: tuple[str, ...] = ()
    """What is odd about it."""


class Skill(SkillSummary, frozen=True, kw_only=True):
    """A skill with its instructions."""

    body: str
    files: tuple[str, ...] = ()
    """Its other files, which can be loaded as well; the first ones if there are many."""


class SupportingFile(Struct, frozen=True, kw_only=True):
    """A file that belongs to a skill."""

    skill: str
    path: str
    data: bytes

    @property
    def text(self) -> str | None:
        """The content as text; None if it is none."""
        try:
            text = self.data.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None
        return None if "\0" in text else text


def normal_name(name: str) -> str:
    """One spelling for names that look the same."""
    return unicodedata.normalize("NFKC", name.strip())


def is_safe_name(name: str) -> bool:
    """Whether this can be the name of a skill here: one visible word or phrase that is no path and no way around."""
    return (
        0 < len(name) <= LONGEST_NAME
        and name.isprintable()
        and name == name.strip()
        and not name.startswith((".", "~", "-"))
        and re.search(r"""[/\\:<>"|?*\0]""", name) is None
    )


def read_skill(text: str, *, folder: str, location: str = "") -> Skill:
    """A skill from the text of its SKILL.md. Never raises; a name that cannot be used is that of the folder."""
    front = read_front_matter(text)
    warnings = list(front.problems)
    name = _name(front.values.get("name"), folder, warnings)
    metadata = front.values.get("metadata", {})
    return Skill(
        name=name,
        description=_description(front, warnings),
        license=_text(front.values.get("license", "")),
        compatibility=_text(front.values.get("compatibility", ""))[:LONGEST_COMPATIBILITY],
        allowed_tools=_tools(front.values.get("allowed-tools", "")),
        metadata=_metadata(metadata) if isinstance(metadata, dict) else {},
        location=location,
        warnings=tuple(warnings),
        body=front.body,
    )


def _name(value: Value | None, folder: str, warnings: list[str]) -> str:
    declared = normal_name(value) if isinstance(value, str) else ""
    directory = normal_name(folder)
    if not declared:
        warnings.append("there is no name; the directory's is taken")
        return directory
    if not is_safe_name(declared):
        warnings.append("the name cannot be used; the directory's is taken")
        return directory
    if declared != directory:
        warnings.append("the name is not that of the directory")
    return declared


def _description(front: FrontMatter, warnings: list[str]) -> str:
    value = front.values.get("description", "")
    text = _text(value).strip()
    if not text:
        warnings.append("there is no description; the first line of the text is taken")
        lines = (line.strip().lstrip("#").strip() for line in front.body.split("\n"))
        text = next((line for line in lines if line), "")
    if len(text) > LONGEST_DESCRIPTION:
        warnings.append(f"the description has more than {LONGEST_DESCRIPTION} characters and is cut")
        text = text[: LONGEST_DESCRIPTION - 1] + "…"
    return text


def _text(value: Value) -> str:
    """Any value as a text: somebody has written a list where a text belongs."""
    if isinstance(value, dict):
        value = [f"{key}: {item}" for key, item in value.items()]
    text = value if isinstance(value, str) else ", ".join(value)
    return text[:_LONGEST_VALUE]


def _tools(value: Value) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(value)
    # Blanks inside brackets belong to the pattern: `Bash(git status:*) Read`.
    return tuple(re.findall(r"[^\s,(]+(?:\([^)]*\))?", value)) if isinstance(value, str) else ()


def _metadata(value: dict[str, str]) -> dict[str, str]:
    return {key: text[:_LONGEST_VALUE] for key, text in list(value.items())[:_MOST_METADATA]}
