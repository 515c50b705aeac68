"""Stores of skills (the protocol, in memory, in directories), and the prompt and tools that use them.

A skill's name is looked up among those found; it is never made into a path. Each skill's directory is a Workspace, so
nothing outside of it is read for the skill.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

from msgspec import Struct, structs

from dragoman.errors import ConfigurationError, SkillError, SkillNotFoundError, ToolError, ToolExecutionError
from dragoman.toolkit.base import Given
from dragoman.toolkit.workspace import Workspace
from dragoman.tools import AnyTool, tool

from .skill import SKILL_FILES, Skill, SkillSummary, SupportingFile, is_safe_name, normal_name, read_skill

T = TypeVar("T")

_DIRECTORY: Final = Path(".agents", "skills")
_MAX_PATH: Final = 512
_MAX_SHOWN: Final = 200


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


def shorten(text: str) -> str:
    """Cut and escape a name that a model or a file contains, for a message."""
    cut = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
    return cut if cut.isprintable() else repr(cut)


def _skill_or_raise(skill: T | None, name: str) -> T:
    if skill is None:
        raise SkillNotFoundError(f"skill not found: {shorten(name)}")
    return skill


def _file_or_raise(data: T | None, path: str) -> T:
    if data is None:
        raise SkillError(f"supporting file not found: {shorten(path)}", hint="Use a path that the skill names.")
    return data


class MemorySkillStore:
    """Skills that a program creates itself, with their files."""

    def __init__(self, skills: Iterable[Skill], files: dict[str, dict[str, bytes | str]] | None = None) -> None:
        self._files: dict[str, dict[str, bytes | str]] = files or {}
        self._skills: dict[str, Skill] = {}
        for skill in skills:
            if not is_safe_name(skill.name):
                hint = "Use lower-case letters, digits and hyphens."
                raise SkillError(f"{skill.name!r} cannot be the name of a skill.", hint=hint)
            if any(_folded(each) == _folded(skill.name) for each in self._skills):
                raise SkillError(f"There are two skills of the name {skill.name!r}.", hint="Rename one of them.")
            named = structs.replace(skill, files=skill.files or tuple(self._files.get(skill.name, ())))
            self._skills[normal_name(skill.name)] = named

    def list(self) -> tuple[SkillSummary, ...]:
        return tuple(skill.summary for skill in self._skills.values())

    def load(self, name: str) -> Skill:
        return _skill_or_raise(self._skills.get(normal_name(name)), name)

    def load_supporting(self, name: str, path: str) -> SupportingFile:
        skill = self.load(name)
        content = _file_or_raise(self._files.get(skill.name, {}).get(path), path)
        data = content.encode() if isinstance(content, str) else content
        return SupportingFile(skill=skill.name, path=path, data=data)


# --- in directories --------------------------------------------------------------------------------------------------


_MAX_SKILLS: Final = 200
_MAX_ENTRIES: Final = 2_000
"""In one directory of skills."""
_MAX_SKILL_BYTES: Final = 256 * 1024
_MAX_FILE_BYTES: Final = 1024 * 1024
_MAX_LISTED: Final = 100
"""Supporting files of one skill that are listed."""
_MAX_FOLDERS: Final = 500
"""Folders of one skill that are searched for them."""


def skill_directories(
    project: str | os.PathLike[str] | None = ".",
    *,
    home: str | os.PathLike[str] | None = None,
    also: Iterable[str | os.PathLike[str]] = (),
) -> tuple[str, ...]:
    """The usual places of skills: the given directories, then the project's, then the user's. The first one wins.

    An untrusted project brings untrusted skills; `project=None` leaves it out.
    """
    user = Path.home() if home is None else Path(home)
    own = () if project is None else (str(Path(project) / _DIRECTORY),)
    return (*(os.fspath(each) for each in also), *own, str(user / _DIRECTORY))


class _Home(Struct, frozen=True):
    """The directory of a skill."""

    root: str
    """Its real path."""
    own: str
    """The name of its SKILL.md, which may be skill.md."""

    @property
    def name(self) -> str:
        return os.path.basename(self.root)  # noqa: PTH119

    @property
    def location(self) -> str:
        return f"{self.root}/{self.own}"

    def read(self, path: str, most: int) -> bytes | None:
        """Read a regular file, at most one byte more than `most`; None if it is not one, or is outside."""
        try:
            with Workspace(self.root).reading(path) as (file, _), open(file, "rb", closefd=False) as opened:
                return opened.read(most + 1)
        except (ToolError, ConfigurationError, OSError):
            return None

    def others(self) -> Iterator[str]:
        """The paths of its supporting files, without hidden ones and links."""
        for directory, folders, files in islice(os.walk(self.root), _MAX_FOLDERS):
            below = os.path.relpath(directory, self.root)
            prefix = "" if below == "." else f"{below}/"
            folders[:] = sorted(filter(_is_visible, folders))
            for name in sorted(filter(_is_visible, files)):
                if prefix + name != self.own and not os.path.islink(f"{directory}/{name}"):  # noqa: PTH114
                    yield prefix + name


_Texts: TypeAlias = list[str]


class DirectorySkillStore:
    """Skills from directories, earlier ones first. Safe to share between threads.

    Every use reads the files as they are now. A directory that does not exist holds no skills. `problems` says what
    was left out, and why.
    """

    def __init__(self, directories: Iterable[str | os.PathLike[str]]) -> None:
        self.directories: tuple[str, ...] = tuple(os.fspath(each) for each in directories)

    def list(self) -> tuple[SkillSummary, ...]:
        return tuple(skill.summary for _, skill in self._find_all()[0].values())

    def load(self, name: str) -> Skill:
        home, skill = self._find(name)
        return structs.replace(skill, files=tuple(islice(home.others(), _MAX_LISTED)))

    def load_supporting(self, name: str, path: str) -> SupportingFile:
        home, skill = self._find(name)
        inside = _path_inside(path)
        data = _file_or_raise(home.read(inside, _MAX_FILE_BYTES) if inside else None, path)
        if len(data) > _MAX_FILE_BYTES:
            message = f"supporting file too large: {shorten(path)} has more than {_MAX_FILE_BYTES} bytes"
            raise SkillError(message, hint="Split it.")
        return SupportingFile(skill=skill.name, path=inside, data=data)

    @property
    def problems(self) -> tuple[str, ...]:
        """What was left out and why, and the warnings about other skills: a line each."""
        return tuple(self._find_all()[1])

    # --- finding ---

    def _find(self, name: str) -> tuple[_Home, Skill]:
        return _skill_or_raise(self._find_all()[0].get(normal_name(name)), name)

    def _find_all(self) -> tuple[dict[str, tuple[_Home, Skill]], _Texts]:
        """All skills by name, and the problems."""
        found: dict[str, tuple[_Home, Skill]] = {}
        problems: _Texts = []
        # One directory may be given twice, or have two names.
        homes = {home.location: home for each in self.directories for home in self._homes(each, problems)}
        owners: dict[str, str] = {}
        """The first skill whose directory has a name; no other may declare that name."""
        for home in homes.values():
            owners.setdefault(_folded(home.name), home.location)
        for home in homes.values():
            problems += self._add(home, found, owners)
        return found, problems

    def _homes(self, directory: str, problems: _Texts) -> Iterator[_Home]:
        root = os.path.realpath(directory)
        try:
            if own := _skill_file(root):
                yield _Home(root, own)
                return
            with os.scandir(root) as entries:
                names = [entry.name for entry in islice(entries, _MAX_ENTRIES + 1)]
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            problems.append(f"{shorten(directory)} cannot be listed ({type(error).__name__})")
            return
        if len(names) > _MAX_ENTRIES:
            names.pop()
            problems.append(f"{shorten(root)} has more than {_MAX_ENTRIES} entries; the rest was not read")
        for name in sorted(name for name in names if not name.startswith(".")):
            home = os.path.realpath(f"{root}/{name}")
            own = _skill_file(home)
            if own and not is_safe_name(normal_name(name)):
                problems.append(f"{shorten(name)} cannot be the name of a skill")
            elif own and os.path.dirname(home) != root:  # noqa: PTH120
                problems.append(f"{shorten(name)} was left out: it is a link to another place")
            elif own:
                yield _Home(home, own)

    def _add(self, home: _Home, found: dict[str, tuple[_Home, Skill]], owners: Mapping[str, str]) -> _Texts:
        label = shorten(home.name)
        if len(found) >= _MAX_SKILLS:
            return [f"{label} was left out: there are more than {_MAX_SKILLS} skills"]
        data = home.read(home.own, _MAX_SKILL_BYTES)
        if data is None:
            return [f"{label} was left out: its {home.own} is not a file, cannot be read, or is outside"]
        if len(data) > _MAX_SKILL_BYTES:
            return [f"{label} was left out: its {home.own} is too large: more than {_MAX_SKILL_BYTES} bytes"]
        text = data.decode("utf-8", "replace")
        skill = read_skill(text, folder=home.name, location=home.location)
        if not is_safe_name(skill.name):
            return [f"{label} was left out: neither its name nor the directory's can be used"]
        taken = [each.location for _, each in found.values() if _folded(each.name) == _folded(skill.name)]
        first = next(iter(taken), owners.get(_folded(skill.name), home.location))
        if first != home.location:
            its, other = shorten(home.location), shorten(first)
            return [f"{label} was left out: the name {skill.name!r} of {its} is that of {other}"]
        if text.encode("utf-8", "replace") != data:
            skill = structs.replace(skill, warnings=(*skill.warnings, "it is not UTF-8"))
        found[skill.name] = (home, skill)
        return [f"{label}: {warning}" for warning in skill.warnings]


def _folded(name: str) -> str:
    """One spelling for all names that look the same."""
    return normal_name(name).casefold()


def _skill_file(directory: str) -> str:
    """The name of the SKILL.md in a directory, empty if it has none."""
    return next((name for name in SKILL_FILES if os.path.lexists(f"{directory}/{name}")), "")


def _path_inside(path: str) -> str:
    """Normalize a path inside a skill; empty if it cannot be one."""
    if len(path) > _MAX_PATH or not path.isprintable() or re.search(r"[\\:]", path) or path.startswith("/"):
        return ""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return "/".join(parts) if all(map(_is_visible, parts)) else ""


def _is_visible(name: str) -> bool:
    """Whether a file name is an ordinary one; hidden files may be repositories or secrets."""
    return not name.startswith((".", "~")) and name.isprintable()


# --- the prompt and the tools ----------------------------------------------------------------------------------------

_MAX_PROMPT: Final = 20_000
"""Characters."""
_INTRODUCTION: Final = (
    "Skills are instructions for certain tasks. Before you begin a task that one of these describes, load it with the "
    "tool Skill, and the files that it refers to with LoadSkillSupporting. Their authors wrote the descriptions."
)


def skills_prompt(store: SkillStore) -> str:
    """The list of skills for a system prompt; empty if there are none. Its end says how many did not fit."""
    skills = store.list()
    if not skills:
        return ""
    lines = ["<available_skills>"]
    length, left_out = len(_INTRODUCTION) + 40, 0
    for skill in skills:
        line = f'<skill name="{_harmless(skill.name)}">{_harmless(skill.description[:1024])}</skill>'
        if length + len(line) > _MAX_PROMPT:
            left_out += 1
            continue
        lines.append(line)
        length += len(line) + 1
    if left_out:
        lines.append(f"<left_out>{left_out}</left_out>")
    return "\n".join([_INTRODUCTION, *lines, "</available_skills>"])


def _harmless(text: str) -> str:
    """The text on one line, escaped, without invisible characters."""
    one_line = " ".join(text.split())
    return html.escape("".join([letter if letter.isprintable() else " " for letter in one_line]))


def skill_tools(store: SkillStore) -> list[AnyTool]:
    """The tools `Skill` and `LoadSkillSupporting`, for the skills of this store."""

    @tool(name="Skill", read_only=True, idempotent=True)
    def skill(*, name: Given) -> str:
        """Load the instructions of a skill. Do this before you begin a task that its description fits.

        Args:
            name: The skill's name, from the list of available skills.
        """
        try:
            found = store.load(name)
        except SkillError as error:
            raise ToolExecutionError(error.message) from error
        body = found.body or "[The skill has no instructions.]"
        if not found.files:
            return body
        listed = "\n".join(f"- {path}" for path in found.files)
        return f"{body}\n\n[Files of this skill, to be loaded with LoadSkillSupporting:]\n{listed}"

    @tool(name="LoadSkillSupporting", read_only=True, idempotent=True)
    def load_skill_supporting(*, name: Given, path: Given) -> str:
        """Load a file that belongs to a skill, such as references/guide.md.

        Args:
            name: The skill's name.
            path: The file, relative to the skill's directory.
        """
        try:
            file = store.load_supporting(name, path)
        except SkillError as error:
            raise ToolExecutionError(error.message) from error
        if (text := file.text) is None:
            raise ToolExecutionError(f"supporting file is not text: {shorten(path)} ({len(file.data)} bytes)")
        return text

    return [skill, load_skill_supporting]
