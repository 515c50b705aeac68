"""A skill: instructions that a model loads when it needs them.

The format is that of the open Agent Skills specification. What comes from elsewhere is often not quite right, so
`read_skill` forgives, and warns of all that the specification would not accept.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from dragoman.errors import ConfigurationError

if TYPE_CHECKING:
    from .front_matter import FrontMatter, Value

SKILL_FILES: Final = ("SKILL.md", "skill.md")
"""The names of a skill's own file, the better one first."""

_MOST_KEYS: Final = 64
_LONGEST_VALUE: Final = 2_000
_LONGEST: Final = {"name": 64, "description": 1024, "license": 256 * 1024, "compatibility": 500}
"""Texts, and how many characters of each the specification allows; of a license, as many as a SKILL.md may have."""


class SkillSummary(Struct, frozen=True, kw_only=True):
    """What is known of a skill before it is loaded."""

    name: str
    description: str
    more: dict[str, str] = {}
    """What else its front matter says, as texts: license, compatibility, metadata. Tools that its author would like to
    be allowed are here as well; nothing grants them but the policy."""
    location: str = ""
    """Where it was found, for people."""
    warnings: tuple[str, ...] = ()
    """What is odd about it."""


class Skill(SkillSummary, frozen=True, kw_only=True):
    """A skill with its instructions."""

    body: str
    files: tuple[str, ...] = ()
    """Its other files, which can be loaded as well; the first ones if there are many."""

    @property
    def summary(self) -> SkillSummary:
        return SkillSummary(**{name: getattr(self, name) for name in SkillSummary.__struct_fields__})


class SupportingFile(Struct, frozen=True, kw_only=True):
    """A file that belongs to a skill."""

    skill: str
    path: str
    data: bytes

    @property
    def text(self) -> str | None:
        try:
            text = self.data.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None
        return None if "\0" in text else text


def normal_name(name: str) -> str:
    return unicodedata.normalize("NFKC", name.strip())


def is_safe_name(name: str) -> bool:
    """Whether this can be the name of a skill here: one visible word or phrase that is no path and no way around."""
    return (
        0 < len(name) <= _LONGEST["name"]
        and name.isprintable()
        and name == name.strip()
        and not name.startswith((".", "~", "-"))
        and re.search(r"""[/\\:<>"|?*\0]""", name) is None
    )


def _front_matter(text: str) -> FrontMatter:
    try:
        from .front_matter import read_front_matter
    except ImportError as error:
        message = "Skills are read with PyYAML, which is not installed."
        raise ConfigurationError(message, hint="Install it: pip install 'dragoman[skills]'.") from error
    return read_front_matter(text)


def read_skill(text: str, *, folder: str, location: str = "") -> Skill:
    """A skill from the text of its SKILL.md, whatever that is; a name that cannot be used is that of the folder."""
    front = _front_matter(text)
    values, warnings = front.values, _problems(front, folder)
    declared = values.get("name", "")
    name = normal_name(declared) if isinstance(declared, str) else ""
    if not is_safe_name(name):
        warnings.append("the name of the directory is taken")
        name = normal_name(folder)
    description = _as_text(values.get("description", "")).strip()
    if not description:
        warnings.append("the first line of the text is taken for the description")
        lines = (line.strip().lstrip("#").strip() for line in front.body.split("\n"))
        description = next((line for line in lines if line), "")
    if len(description) > _LONGEST["description"]:
        description = description[: _LONGEST["description"] - 1] + "…"
    others = [(key, _as_text(value)) for key, value in values.items() if key not in ("name", "description")]
    return Skill(
        name=name,
        description=description,
        more=dict(others[:_MOST_KEYS]),
        location=location,
        warnings=tuple(warnings),
        body=front.body,
    )


def _as_text(value: Value) -> str:
    """Any value as a text: somebody has written a list where a text belongs."""
    if isinstance(value, dict):
        value = [f"{key}: {item}" for key, item in value.items()]
    return (value if isinstance(value, str) else ", ".join(value))[:_LONGEST_VALUE]


# --- what the specification says -------------------------------------------------------------------------------------


def _problems(front: FrontMatter, folder: str) -> list[str]:
    """All that is wrong with a SKILL.md that lies in a folder of this name."""
    values, problems = front.values, list(front.problems)
    if unknown := sorted(values.keys() - _LONGEST.keys() - {"metadata", "allowed-tools"}):
        problems.append(f"unknown keys: {', '.join(unknown)}")
    for key, longest in _LONGEST.items():
        value, is_needed = values.get(key), key in ("name", "description")
        if value is None:
            problems += [f"{key} is missing"] if is_needed else []
        elif not isinstance(value, str) or (is_needed and not value.strip()):
            problems.append(f"{key} must be a text{', and not an empty one' if is_needed else ''}")
        else:
            text = normal_name(value) if key == "name" else value
            problems += [f"{key} has {len(text)} characters; {longest} are allowed"] if len(text) > longest else []
            problems += _problems_of_name(text, folder) if key == "name" else []
    if not isinstance(values.get("metadata", ""), dict) and values.get("metadata"):
        problems.append("metadata must be a map of texts")
    if isinstance(values.get("allowed-tools"), dict):
        problems.append("allowed-tools must be a text or a list of texts")
    return problems


def _problems_of_name(name: str, folder: str) -> list[str]:
    found = {
        "name must be in lower case": name != name.lower(),
        "name must not begin or end with a hyphen": name != name.strip("-"),
        "name must not have two hyphens in a row": "--" in name,
        "name may have letters, digits and hyphens only": not name.replace("-", "a").isalnum(),
        "name is not that of the directory": name != unicodedata.normalize("NFKC", folder),
    }
    return [problem for problem, is_so in found.items() if is_so]
