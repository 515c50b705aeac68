"""Where skills come from (a protocol, skills in memory and in directories), and the tools that load them.

In directories, a skill is looked up among those that were found; its name is never made into a path. Each skill's own
directory is a Workspace, so nothing outside of it is ever read for the skill.
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

_HERE: Final = Path(".agents", "skills")
_LONGEST_PATH: Final = 512
_MOST_DEPTH: Final = 5
_MOST_FOLDERS: Final = 500
_SHOWN: Final = 200


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
    """A name as the model wrote it, unless it is very long or more than one line."""
    cut = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return cut if cut.isprintable() else repr(cut)


def _found(found: T | None, what: str, name: str) -> T:
    if found is not None:
        return found
    if what == "skill":
        raise SkillNotFoundError(f"skill not found: {shorten(name)}")
    raise SkillError(f"{what} not found: {shorten(name)}", hint="Use a path that the skill names.")


class MemorySkillStore:
    """Skills that a program makes itself, with their files."""

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
        return _found(self._skills.get(normal_name(name)), "skill", name)

    def load_supporting(self, name: str, path: str) -> SupportingFile:
        skill = self.load(name)
        content = _found(self._files.get(skill.name, {}).get(path), "supporting file", path)
        data = content.encode() if isinstance(content, str) else content
        return SupportingFile(skill=skill.name, path=path, data=data)


# --- in directories --------------------------------------------------------------------------------------------------


_MOST_SKILLS: Final = 200
_MOST_ENTRIES: Final = 2_000
"""Of one directory."""
_SKILL_BYTES: Final = 256 * 1024
"""Of one SKILL.md."""
_FILE_BYTES: Final = 1024 * 1024
"""Of one supporting file."""
_LISTED_FILES: Final = 100
"""Supporting files of one skill that are listed."""


def skill_directories(
    project: str | os.PathLike[str] | None = ".",
    *,
    home: str | os.PathLike[str] | None = None,
    also: Iterable[str | os.PathLike[str]] = (),
) -> tuple[str, ...]:
    """Where skills usually lie: the given directories, then the project's, then the user's. The first one wins.

    A project that was fetched from a stranger brings a stranger's skills; `project=None` leaves it out.
    """
    user = Path.home() if home is None else Path(home)
    own = () if project is None else (str(Path(project) / _HERE),)
    return (*(os.fspath(each) for each in also), *own, str(user / _HERE))


class _Home(Struct, frozen=True):
    """A directory with a SKILL.md."""

    root: str
    """Its real path."""
    own: str
    """The name of its SKILL.md."""

    @property
    def name(self) -> str:
        return os.path.basename(self.root)  # noqa: PTH119

    @property
    def location(self) -> str:
        return f"{self.root}/{self.own}"

    def read(self, path: str, most: int) -> bytes | None:
        """A regular file, read one byte further than allowed; None if it is none, or lies elsewhere."""
        try:
            with Workspace(self.root).reading(path) as (file, _), open(file, "rb", closefd=False) as opened:
                return opened.read(most + 1)
        except (ToolError, ConfigurationError, OSError):
            return None

    def others(self) -> Iterator[str]:
        """The paths of its other files, hidden ones and links left out."""
        for directory, folders, files in islice(os.walk(self.root), _MOST_FOLDERS):
            below = os.path.relpath(directory, self.root)
            prefix = "" if below == "." else f"{below}/"
            folders[:] = sorted(filter(_is_visible, folders)) if prefix.count("/") < _MOST_DEPTH else []
            for name in sorted(filter(_is_visible, files)):
                if prefix + name != self.own and not os.path.islink(f"{directory}/{name}"):  # noqa: PTH114
                    yield prefix + name


_Texts: TypeAlias = list[str]


class DirectorySkillStore:
    """Skills from directories, earlier ones first. Safe to share between threads.

    Every use reads what is there now. A directory that does not exist holds no skills. What was left out is in
    `problems`, with the reason.
    """

    def __init__(self, directories: Iterable[str | os.PathLike[str]]) -> None:
        self.directories: tuple[str, ...] = tuple(os.fspath(each) for each in directories)

    def list(self) -> tuple[SkillSummary, ...]:
        return tuple(skill.summary for _, skill in self._find_all()[0].values())

    def load(self, name: str) -> Skill:
        home, skill = self._find(name)
        return structs.replace(skill, files=tuple(islice(home.others(), _LISTED_FILES)))

    def load_supporting(self, name: str, path: str) -> SupportingFile:
        home, skill = self._find(name)
        inside = _path_inside(path)
        data = _found(home.read(inside, _FILE_BYTES) if inside else None, "supporting file", path)
        if len(data) > _FILE_BYTES:
            message = f"supporting file too large: {shorten(path)} has more than {_FILE_BYTES} bytes"
            raise SkillError(message, hint="Split it.")
        return SupportingFile(skill=skill.name, path=inside, data=data)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is left out of the directories, and why: a line each."""
        return tuple(self._find_all()[1])

    # --- finding ---

    def _find(self, name: str) -> tuple[_Home, Skill]:
        return _found(self._find_all()[0].get(normal_name(name)), "skill", name)

    def _find_all(self) -> tuple[dict[str, tuple[_Home, Skill]], _Texts]:
        """All skills by name, and what is wrong with them and with others."""
        found: dict[str, tuple[_Home, Skill]] = {}
        problems: _Texts = []
        # One directory may be given twice, or have two names.
        homes = {home.location: home for each in self.directories for home in self._homes(each, problems)}
        owners: dict[str, str] = {}
        """Whose directory has a name: nobody else may take it."""
        for home in homes.values():
            owners.setdefault(_folded(home.name), home.location)
        for home in homes.values():
            problems += self._take(home, found, owners)
        return found, problems

    def _homes(self, directory: str, problems: _Texts) -> Iterator[_Home]:
        root = os.path.realpath(directory)
        try:
            if own := _skill_file(root):
                yield _Home(root, own)
                return
            with os.scandir(root) as entries:
                names = [entry.name for entry in islice(entries, _MOST_ENTRIES + 1)]
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            problems.append(f"{shorten(directory)} cannot be looked at ({type(error).__name__})")
            return
        if len(names) > _MOST_ENTRIES:
            names.pop()
            problems.append(f"{shorten(root)} has more than {_MOST_ENTRIES} entries; the rest was not looked at")
        for name in sorted(name for name in names if not name.startswith(".")):
            home = os.path.realpath(f"{root}/{name}")
            own = _skill_file(home)
            if own and not is_safe_name(normal_name(name)):
                problems.append(f"{shorten(name)} cannot be the name of a skill")
            elif own and os.path.dirname(home) != root:  # noqa: PTH120
                problems.append(f"{shorten(name)} was left out: it lies elsewhere")
            elif own:
                yield _Home(home, own)

    def _take(self, home: _Home, found: dict[str, tuple[_Home, Skill]], owners: Mapping[str, str]) -> _Texts:
        label = shorten(home.name)
        if len(found) >= _MOST_SKILLS:
            return [f"{label} was left out: there are more than {_MOST_SKILLS} skills"]
        data = home.read(home.own, _SKILL_BYTES)
        if data is None:
            return [f"{label} was left out: its {home.own} is no file, cannot be read or lies elsewhere"]
        if len(data) > _SKILL_BYTES:
            return [f"{label} was left out: its {home.own} is too large: more than {_SKILL_BYTES} bytes"]
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
    """One spelling for names that a reader, or a model, takes for the same."""
    return normal_name(name).casefold()


def _skill_file(directory: str) -> str:
    """The name of the SKILL.md in a directory, empty if it has none."""
    return next((name for name in SKILL_FILES if os.path.lexists(f"{directory}/{name}")), "")


def _path_inside(path: str) -> str:
    """A path inside a skill, tidied up; empty if it is no such path, whatever it may lead to."""
    if len(path) > _LONGEST_PATH or not path.isprintable() or re.search(r"[\\:]", path) or path.startswith("/"):
        return ""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return "/".join(parts) if all(map(_is_visible, parts)) else ""


def _is_visible(name: str) -> bool:
    """Whether this is an ordinary name: hidden files are where repositories and secrets are kept; `..` is no name."""
    return not name.startswith((".", "~")) and name.isprintable()


# --- what the model is told of skills, and the tools that load them --------------------------------------------------

_INTRODUCTION: Final = (
    "Skills are instructions for certain tasks. Before you begin a task that one of these describes, load it with the "
    "tool Skill, and the files that it refers to with LoadSkillSupporting. Their authors wrote the descriptions."
)


def skills_prompt(store: SkillStore, *, max_characters: int = 20_000) -> str:
    """The list of skills for a system prompt; empty if there are none. What does not fit is counted at its end."""
    skills = store.list()
    if not skills:
        return ""
    lines = ["<available_skills>"]
    length, left_out = len(_INTRODUCTION) + 40, 0
    for skill in skills:
        line = f'<skill name="{_harmless(skill.name)}">{_harmless(skill.description[:1024])}</skill>'
        if length + len(line) > max_characters:
            left_out += 1
            continue
        lines.append(line)
        length += len(line) + 1
    if left_out:
        lines.append(f"<left_out>{left_out}</left_out>")
    return "\n".join([_INTRODUCTION, *lines, "</available_skills>"])


def _harmless(text: str) -> str:
    """The text on one line, without tags, and without letters that nobody sees."""
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
