"""Where skills come from.

Owns: SkillStore, which anybody may implement.
Must not know: files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from dragoman.errors import SkillError, SkillNotFoundError

from .skill import Skill, SkillSummary, SupportingFile, is_safe_name, normal_name

__all__ = ["MemorySkillStore", "SkillStore", "no_such_skill"]

_SHOWN = 100


class SkillStore(Protocol):
    """Skills by name. All methods may be called from any thread."""

    def list(self) -> tuple[SkillSummary, ...]:
        """All skills, in a stable order."""
        ...

    def load(self, name: str) -> Skill:
        """The skill of that name with its instructions. Raises SkillNotFoundError, or SkillError."""
        ...

    def load_supporting(self, name: str, path: str) -> SupportingFile:
        """One of the skill's other files. Raises SkillNotFoundError, or SkillError."""
        ...


class MemorySkillStore:
    """Skills that a program makes itself, with their files."""

    def __init__(self, skills: Iterable[Skill], files: dict[str, dict[str, bytes | str]] | None = None) -> None:
        self._files: dict[str, dict[str, bytes | str]] = files or {}
        self._skills: dict[str, Skill] = {}
        for skill in skills:
            if not is_safe_name(skill.name):
                message = f"{skill.name!r} cannot be the name of a skill."
                raise SkillError(message, hint="Use lower-case letters, digits and hyphens.")
            named = msgspec.structs.replace(skill, files=skill.files or tuple(self._files.get(skill.name, ())))
            self._skills[normal_name(skill.name)] = named

    def list(self) -> tuple[SkillSummary, ...]:
        return tuple(summary_of(skill) for skill in self._skills.values())

    def load(self, name: str) -> Skill:
        found = self._skills.get(normal_name(name))
        if found is None:
            raise no_such_skill(name)
        return found

    def load_supporting(self, name: str, path: str) -> SupportingFile:
        skill = self.load(name)
        content = self._files.get(skill.name, {}).get(path)
        if content is None:
            raise no_such_file(path)
        data = content.encode() if isinstance(content, str) else content
        return SupportingFile(skill=skill.name, path=path, data=data)


def summary_of(skill: Skill) -> SkillSummary:
    """What a list shows of a skill."""
    fields = {name: getattr(skill, name) for name in SkillSummary.__struct_fields__}
    return SkillSummary(**fields)


def no_such_skill(name: str) -> SkillNotFoundError:
    """The error for a name that is not there, or that cannot be one."""
    return SkillNotFoundError(f"skill not found: {shown(name)}")


def no_such_file(path: str) -> SkillError:
    """The error for a file that is not there, or is none of the skill's business."""
    return SkillError(f"supporting file not found: {shown(path)}", hint="Use a path that the skill names.")


def shown(text: str) -> str:
    """A name as the model wrote it, unless it is very long or more than one line."""
    cut = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return cut if cut.isprintable() else repr(cut)
