"""A skill: instructions that a model loads when it needs them.

The format is that of the open Agent Skills specification. Many skills do not follow it exactly, so `read_skill` is
lenient, and warns of what the specification does not allow.
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

_MAX_LENGTH: Final = {"name": 64, "description": 1024, "compatibility": 500}
_KEYS: Final = {*_MAX_LENGTH, "license", "metadata", "allowed-tools"}
"""The keys of the specification."""


class SkillSummary(Struct, frozen=True, kw_only=True):
    """What is known of a skill before it is loaded."""

    name: str
    description: str
    more: dict[str, str] = {}
    """The other keys of its front matter, as texts: license, compatibility, metadata. Its author's `allowed-tools` are
    here too; they grant nothing."""
    location: str = ""
    """The path of its SKILL.md, for people."""
    warnings: tuple[str, ...] = ()
    """Where it differs from the specification."""


class Skill(SkillSummary, frozen=True, kw_only=True):
    """A skill with its instructions."""

    body: str
    files: tuple[str, ...] = ()
    """The paths of its supporting files; the first ones if there are many."""

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
    """Whether a skill can have this name here: printable, and not a path."""
    return (
        0 < len(name) <= _MAX_LENGTH["name"]
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
    """Read any text as a SKILL.md. A name that cannot be used is replaced with that of the folder."""
    front = _front_matter(text)
    values, warnings = front.values, _problems(front, folder)
    name = normal_name(_as_text(values.get("name", "")))
    if not is_safe_name(name):
        warnings.append("the name of the directory is used")
        name = normal_name(folder)
    description, longest = _as_text(values.get("description", "")).strip(), _MAX_LENGTH["description"]
    if not description:
        warnings.append("the first line of the text is used as the description")
        lines = (line.strip().lstrip("#").strip() for line in front.body.split("\n"))
        description = next((line for line in lines if line), "")
    if len(description) > longest:
        description = description[: longest - 1] + "…"
    return Skill(
        name=name,
        description=description,
        more={key: _as_text(value) for key, value in values.items() if key not in ("name", "description")},
        location=location,
        warnings=tuple(warnings),
        body=front.body,
    )


def _as_text(value: Value) -> str:
    if isinstance(value, dict):
        value = [f"{key}: {item}" for key, item in value.items()]
    return value if isinstance(value, str) else ", ".join(value)


def _problems(front: FrontMatter, folder: str) -> list[str]:
    """List what the specification does not allow in the SKILL.md of a folder."""
    values, problems = front.values, list(front.problems)
    if unknown := sorted(values.keys() - _KEYS):
        problems.append(f"unknown keys: {', '.join(unknown)}")
    for key, longest in _MAX_LENGTH.items():
        value, is_required = values.get(key), key != "compatibility"
        if value is None:
            problems += [f"{key} is missing"] if is_required else []
        elif not isinstance(value, str) or (is_required and not value.strip()):
            problems.append(f"{key} must be a text{' that is not empty' if is_required else ''}")
        elif len(value) > longest:
            problems.append(f"{key} has {len(value)} characters; {longest} are allowed")
    name = values.get("name")
    if not isinstance(name, str) or not name.strip():
        return problems
    name = normal_name(name)
    rules = {
        "name must be in lower case": name == name.lower(),
        "name must not begin or end with a hyphen": name == name.strip("-"),
        "name must not have two hyphens in a row": "--" not in name,
        "name may have letters, digits and hyphens only": name.replace("-", "a").isalnum(),
        "name is not that of the directory": name == unicodedata.normalize("NFKC", folder),
    }
    return problems + [problem for problem, is_met in rules.items() if not is_met]
