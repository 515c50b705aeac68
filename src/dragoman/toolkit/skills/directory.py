"""Skills in directories.

Owns: finding them, the caps, and that nothing outside a skill's own directory is ever read for it.
Must not know: what the model is told.

A skill is looked up among those that were found; its name is never made into a path. Files are opened through a
Workspace, which says where the open file really lies: what has been checked is what is read.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from dragoman.errors import ConfigurationError, SkillError, ToolError
from dragoman.toolkit.workspace import Workspace

from .skill import Skill, SkillSummary, SupportingFile, is_safe_name, normal_name, read_skill
from .store import no_such_file, no_such_skill, shown, summary_of
from .validation import SKILL_FILES

__all__ = ["DirectorySkillStore", "SkillLimits", "skill_directories"]

_HERE: Final = os.path.join(".agents", "skills")  # noqa: PTH118 -- a part of a path, not a path
_LONGEST_PATH: Final = 512
_MOST_DEPTH: Final = 5
_MOST_FOLDERS: Final = 500


class SkillLimits(Struct, frozen=True, kw_only=True):
    """How much is taken in."""

    skills: int = 200
    """Skills in all; the rest is reported."""
    entries: int = 2_000
    """Entries of one directory that are looked at."""
    skill_bytes: int = 256 * 1024
    """Of one SKILL.md."""
    file_bytes: int = 1024 * 1024
    """Of one supporting file."""
    listed_files: int = 100
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


class _Entry(Struct, frozen=True):
    """A skill as it was found."""

    root: str
    folder: str
    """Below the root; empty if the root is the skill's own directory."""
    file: str
    skill: Skill


# Named here: inside the store, `list` is its method.
_Texts: TypeAlias = list[str]
_Candidates: TypeAlias = list[tuple[str, str, str]]
"""Root, folder, name of the file."""
_Stamp: TypeAlias = tuple[int, int, int, int]
_Looked: TypeAlias = dict[tuple[str, str], tuple[_Stamp, _Entry | str]]
"""By root and folder: the times of the file, and the skill, or why it cannot be used."""


class _Scan:
    """One look at all directories."""

    def __init__(self) -> None:
        self.found: dict[str, _Entry] = {}
        self.looked_at: _Looked = {}
        self.problems: list[str] = []


class DirectorySkillStore:
    """Skills from directories, earlier ones first. Safe to share between threads.

    Every use looks at the times of the files, which costs a few system calls, and reads again what has changed. A
    directory that does not exist holds no skills. What was left out, and why, is in `problems`.
    """

    def __init__(self, directories: Iterable[str | os.PathLike[str]], *, limits: SkillLimits | None = None) -> None:
        self.directories: tuple[str, ...] = tuple(os.fspath(each) for each in directories)
        self.limits: SkillLimits = limits or SkillLimits()
        self._lock: threading.Lock = threading.Lock()
        self._read: _Looked = {}
        self._problems: tuple[str, ...] = ()

    # --- the store ---

    def list(self) -> tuple[SkillSummary, ...]:
        """All skills, in the order in which they were found."""
        return tuple(summary_of(entry.skill) for entry in self._found().values())

    def load(self, name: str) -> Skill:
        """The skill of that name with its instructions, and a list of its other files."""
        entry = self._entry(name)
        return msgspec.structs.replace(entry.skill, files=self._files_of(entry))

    def load_supporting(self, name: str, path: str) -> SupportingFile:
        """One of the skill's other files. The path is relative to the skill's directory and stays in it."""
        entry = self._entry(name)
        parts = _parts(path)
        if parts is None:
            raise no_such_file(path)
        most = self.limits.file_bytes
        data = self._content(entry.root, entry.folder, "/".join(parts), most)
        if data is None:
            raise no_such_file(path)
        if len(data) > most:
            message = f"supporting file too large: {shown(path)} has more than {most} bytes"
            raise SkillError(message, hint="Split it, or raise the limit of the store.")
        return SupportingFile(skill=entry.skill.name, path="/".join(parts), data=data)

    @property
    def problems(self) -> tuple[str, ...]:
        """What was left out when the directories were last looked at, and why: a line each."""
        self._found()
        return self._problems

    # --- finding ---

    def _entry(self, name: str) -> _Entry:
        wanted = normal_name(name)
        entry = self._found().get(wanted) if is_safe_name(wanted) else None
        if entry is None:
            raise no_such_skill(name)
        return entry

    def _found(self) -> dict[str, _Entry]:
        with self._lock:
            scan = _Scan()
            for directory in self.directories:
                for root, folder, file in self._candidates(directory, scan.problems):
                    self._take(scan, root, folder, file)
            self._read = scan.looked_at  # what is gone is forgotten
            self._problems = tuple(scan.problems)
            return scan.found

    def _candidates(self, directory: str, problems: _Texts) -> _Candidates:
        """Where a SKILL.md lies: (root, folder, name of the file)."""
        root = os.path.realpath(directory)
        try:
            own = _skill_file(root)
            if own:
                return [(root, "", own)]
            names = _names_in(root, self.limits.entries, problems)
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            problems.append(f"{shown(directory)} cannot be looked at ({type(error).__name__})")
            return []
        found: _Candidates = []
        for name in names:
            file = _skill_file(os.path.join(root, name))  # noqa: PTH118
            if file and not is_safe_name(normal_name(name)):
                problems.append(f"{shown(name)} cannot be the name of a skill")
            elif file:
                found.append((root, name, file))
        return found

    def _take(self, scan: _Scan, root: str, folder: str, file: str) -> None:
        if (root, folder) in scan.looked_at:  # one directory, given twice
            return
        label = shown(folder or os.path.basename(root))  # noqa: PTH119
        if len(scan.found) >= self.limits.skills:
            scan.problems.append(f"{label} was left out: there are more than {self.limits.skills} skills")
            return
        scan.looked_at[root, folder] = self._read_again(root, folder, file)
        entry = scan.looked_at[root, folder][1]
        if isinstance(entry, str):
            scan.problems.append(f"{label} was left out: {entry}")
            return
        first = scan.found.setdefault(entry.skill.name, entry)
        if first is entry:
            scan.problems += [f"{label}: {warning}" for warning in entry.skill.warnings]
        else:
            taken = f"{shown(first.skill.location)} has the name {entry.skill.name!r} already"
            scan.problems.append(f"{label} was left out: {taken}")

    def _read_again(self, root: str, folder: str, file: str) -> tuple[_Stamp, _Entry | str]:
        """The skill, from memory if its file has not changed; a text says why it cannot be used."""
        path = os.path.join(root, folder, file)  # noqa: PTH118
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError as error:
            return (0, 0, 0, 0), f"it cannot be read ({type(error).__name__})"
        stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        known = self._read.get((root, folder))
        if known is not None and known[0] == stamp:
            return known
        most = self.limits.skill_bytes
        data = self._content(root, folder, file, most)
        if data is None:
            return stamp, f"its {file} is no file, cannot be read or lies elsewhere"
        if len(data) > most:
            return stamp, f"its {file} is too large: more than {most} bytes"
        text = data.decode("utf-8", "replace")
        name = folder or os.path.basename(root)  # noqa: PTH119
        skill = read_skill(text, folder=name, location=path)
        if "\ufffd" in text and not _is_utf8(data):
            skill = msgspec.structs.replace(skill, warnings=(*skill.warnings, "it is not UTF-8"))
        if not is_safe_name(skill.name):
            return stamp, "neither its name nor the directory's can be used"
        return stamp, _Entry(root, folder, file, skill)

    # --- files ---

    def _content(self, root: str, folder: str, path: str, most: int) -> bytes | None:
        """A regular file inside the skill's own directory, read one byte further than allowed; None if it is none."""
        try:
            workspace = Workspace(root)
            home = ""
            if folder:
                with workspace.directory(folder) as (_, home):
                    pass
            with workspace.reading(f"{folder}/{path}" if folder else path) as (file, really):
                return None if home and not really.startswith(f"{home}/") else _up_to(file, most + 1)
        except (ToolError, ConfigurationError, OSError):
            return None

    def _files_of(self, entry: _Entry) -> tuple[str, ...]:
        """The skill's other files, hidden ones and links left out."""
        top = os.path.join(entry.root, entry.folder)  # noqa: PTH118
        found: _Texts = []
        for directory, folders, files in islice(os.walk(top), _MOST_FOLDERS):
            below = os.path.relpath(directory, top)
            prefix = "" if below == "." else f"{below.replace(os.sep, '/')}/"
            folders[:] = (
                sorted(name for name in folders if _is_visible(name)) if prefix.count("/") < _MOST_DEPTH else []
            )
            for name in sorted(files):
                if _is_visible(name) and not (not prefix and name == entry.file):
                    link = os.path.islink(os.path.join(directory, name))  # noqa: PTH114, PTH118
                    found += [] if link else [prefix + name]
            if len(found) >= self.limits.listed_files:
                break
        return tuple(found[: self.limits.listed_files])


def _names_in(root: str, most: int, problems: list[str]) -> list[str]:
    with os.scandir(root) as entries:
        names: list[str] = []
        for entry in entries:
            if len(names) >= most:
                problems.append(f"{shown(root)} has more than {most} entries; the rest was not looked at")
                break
            names.append(entry.name)
    return sorted(name for name in names if not name.startswith("."))


def _skill_file(directory: str) -> str:
    """The name of the SKILL.md in a directory, empty if it has none."""
    return next((name for name in SKILL_FILES if os.path.lexists(os.path.join(directory, name))), "")  # noqa: PTH118


def _parts(path: str) -> list[str] | None:
    """The parts of a path inside a skill; None if it is no such path, whatever it may lead to."""
    if len(path) > _LONGEST_PATH or not path.isprintable() or re.search(r"[\\:]", path) or path.startswith("/"):
        return None
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return parts if parts and all(_is_visible(part) for part in parts) else None


def _is_visible(name: str) -> bool:
    """Whether this is an ordinary name: hidden files are where repositories and secrets are kept; `..` is no name."""
    return not name.startswith((".", "~")) and name.isprintable()


def _up_to(file: int, most: int) -> bytes:
    pieces: list[bytes] = []
    while most > 0 and (piece := os.read(file, min(most, 1 << 16))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
