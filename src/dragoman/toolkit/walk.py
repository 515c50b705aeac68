"""The files below a directory: path patterns, .gitignore files, and a walk through open directories only.

Patterns and .gitignore files are strangers' texts, so they are matched in time that none of them can blow up: each part
between slashes by `fnmatch`, whose expressions never go back, `**` part by part. Directories are
opened from the one above and links are not followed, so that a tree that changes meanwhile cannot lead outside.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final

from msgspec import Struct

from dragoman._descriptors import Descriptor, owned
from dragoman.errors import ToolError

from .base import Deadline, OutOfTimeError
from .workspace import Workspace, is_system, readable_errors

MAX_LENGTH: Final = 1000
MAX_ALTERNATIVES: Final = 64


class PatternError(ValueError):
    """The pattern cannot be used; the text says why."""


class PathPattern:
    """A pattern of `*`, `?`, `[...]`, `**` for any number of directories and `{a,b}` for alternatives.

    A path fits if one of the alternatives fits all of it. A name that begins with a dot is a name like any other.
    """

    def __init__(self, pattern: str, *, braces: bool = True) -> None:
        if len(pattern) > MAX_LENGTH:
            raise PatternError(f"the pattern is longer than {MAX_LENGTH} characters")
        self._alternatives: list[list[str]] = [_split(each) for each in (_expand(pattern) if braces else [pattern])]

    def fits(self, path: str) -> bool:
        """Whether a path, relative and with slashes, fits."""
        names = path.split("/")
        return any(len(parts) in match_parts(parts, names)[-1] for parts in self._alternatives)

    def may_hold(self, directory: str) -> bool:
        """Whether something below this directory can fit."""
        names = directory.split("/") if directory else []
        return any(match_parts(parts, names)[-1] - {len(parts)} for parts in self._alternatives)


def match_parts(pattern: Sequence[str], names: Sequence[str]) -> list[set[int]]:
    """How many parts of the pattern can be used up by no name, by the first one, by the first two …

    `**` is used up by any number of names, also by none. The time is bounded by the product of both lengths.
    """
    reached = _skip_stars(pattern, {0})
    found = [reached]
    for name in names:
        following: set[int] = set()
        for at in reached - {len(pattern)}:
            if pattern[at] == "**":
                following.add(at)
            elif _matcher(pattern[at])(name):
                following.add(at + 1)
        reached = _skip_stars(pattern, following)
        found.append(reached)
    return found


@lru_cache(maxsize=8192)  # fnmatch keeps 256 in some versions, and a .gitignore file may well have more
def _matcher(part: str) -> Callable[[str], object]:
    return re.compile(fnmatch.translate(part)).match


def _skip_stars(pattern: Sequence[str], reached: set[int]) -> set[int]:
    """The positions, and those behind a `**` that stands for nothing."""
    for start in sorted(reached):
        at = start
        while at < len(pattern) and pattern[at] == "**":
            at += 1
            reached.add(at)
    return reached


def _split(pattern: str) -> list[str]:
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise PatternError("the pattern goes up with '..'")
    if not parts:
        raise PatternError("the pattern is empty")
    return [*parts, "*"] if parts[-1] == "**" else parts  # `a/**` is all that is in `a`, and not `a` itself


_BRACES: Final = re.compile(r"\{([^{},]*,[^{}]*)\}")


def _expand(pattern: str) -> list[str]:
    """The pattern without braces, once for each way through them. Braces without a comma are letters."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        each = waiting.pop()
        if inner := _BRACES.search(each):
            waiting += [each[: inner.start()] + choice + each[inner.end() :] for choice in inner[1].split(",")]
        else:
            done.append(each)
        if len(waiting) + len(done) > MAX_ALTERNATIVES:
            raise PatternError(f"the pattern has more than {MAX_ALTERNATIVES} alternatives")
    return done


# --- .gitignore files ------------------------------------------------------------------------------------------------

_ALWAYS_IGNORED: Final = frozenset({".git", ".hg", ".svn", ".jj"})
"""Directories that are never searched unless a search begins in one."""
_MAX_RULES: Final = 2000
_MAX_IGNORE_BYTES: Final = 256 * 1024


class _Rule(Struct, frozen=True):
    pattern: PathPattern
    negated: bool
    directories_only: bool


class IgnoreFile:
    """The rules of one .gitignore file, for the directory that it lies in."""

    def __init__(self, directory: str, text: str) -> None:
        self.directory: str = directory
        self._rules: list[_Rule] = [rule for line in text.splitlines()[:_MAX_RULES] if (rule := _rule(line))]

    def ignores(self, path: str, *, is_directory: bool) -> bool | None:
        """Whether the path is ignored; None if no rule speaks of it. The last rule that does wins."""
        if self.directory:
            path = path[len(self.directory) + 1 :]
        for rule in reversed(self._rules):
            if (is_directory or not rule.directories_only) and rule.pattern.fits(path):
                return not rule.negated
        return None


def _rule(line: str) -> _Rule | None:
    if not line.strip() or line.startswith("#"):
        return None
    line = line.rstrip()
    negated = line.startswith("!")
    line = line.removeprefix("!").removeprefix("\\")
    body = line.rstrip("/")
    # A slash at the beginning or in the middle ties the pattern to this directory; otherwise it is for any depth.
    pattern = body.lstrip("/") if "/" in body else f"**/{body}"
    try:
        return _Rule(PathPattern(pattern, braces=False), negated, directories_only=line.endswith("/"))
    except PatternError:
        return None


def is_ignored(files: Sequence[IgnoreFile], path: str, *, is_directory: bool) -> bool:
    """What the .gitignore files from the root down say of a path; the deepest one that speaks of it decides."""
    for file in reversed(files):
        found = file.ignores(path, is_directory=is_directory)
        if found is not None:
            return found
    return False


def _ignore_files_above(workspace: Workspace, path: str) -> list[IgnoreFile]:
    """The .gitignore files in the directories above a path, from the root down."""
    parts = path.split("/") if path else []
    found: list[IgnoreFile] = []
    for depth in range(len(parts)):
        above = "/".join(parts[:depth])
        with suppress(ToolError), workspace.reading(f"{above}/.gitignore" if above else ".gitignore") as (file, _):
            found.append(IgnoreFile(above, os.pread(file, _MAX_IGNORE_BYTES, 0).decode("utf-8", "replace")))
    return found


# --- the walk --------------------------------------------------------------------------------------------------------

MAX_ENTRIES: Final = 200_000
_MAX_DEPTH: Final = 100
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Walk:
    """One walk below a directory, in the order of names. `stopped` says if a limit was reached.

    A link to a file is reported as a name, and resolved with all checks by whoever opens it.
    """

    def __init__(
        self, workspace: Workspace, path: str, *, wanted: PathPattern | None, ignoring: bool, deadline: Deadline
    ) -> None:
        self._workspace: Workspace = workspace
        self.path: str = path
        self._wanted: PathPattern | None = wanted
        """For the paths below `path`; None for all."""
        self._ignoring: bool = ignoring
        """Whether what .gitignore files name is left out."""
        self._deadline: Deadline = deadline
        self._skip: int = 0
        self._left: int = MAX_ENTRIES
        self.stopped: bool = False

    def files(self) -> Generator[tuple[int, str, str], None, None]:
        """Each file as (open directory, name, path). The directory is open until the next is asked for; close it."""
        with self._workspace.directory(self.path) as (directory, start), readable_errors(self.path):
            self._skip = len(start) + 1 if start else 0
            ignored = _ignore_files_above(self._workspace, start) if self._ignoring else None
            yield from self._inside(owned(os.dup, directory), start, ignored, 0)

    def _inside(
        self, opened: Descriptor, path: str, ignored: list[IgnoreFile] | None, depth: int
    ) -> Generator[tuple[int, str, str], None, None]:
        """Everything in an open directory, which is closed at the end."""
        with opened:
            directory = opened.number
            entries = self._entries(directory)
            if ignored is not None and ".gitignore" in entries:
                ignored = [*ignored, IgnoreFile(path, _content(directory, ".gitignore"))]
            for name, is_directory in entries.items():
                if self._is_over():
                    return
                below = f"{path}/{name}" if path else name
                if ignored is not None and (
                    (is_directory and name in _ALWAYS_IGNORED) or is_ignored(ignored, below, is_directory=is_directory)
                ):
                    continue
                wanted, path_below = self._wanted, below[self._skip :]
                if not is_directory:
                    if wanted is None or wanted.fits(path_below):
                        yield directory, name, below
                elif depth < _MAX_DEPTH and (wanted is None or wanted.may_hold(path_below)):
                    inner = _open_directory(directory, name)
                    if inner is not None:
                        yield from self._inside(inner, below, ignored, depth + 1)

    def _entries(self, directory: int) -> dict[str, bool]:
        """The names in a directory, in order, and whether each is one itself."""
        found: dict[str, bool] = {}
        with suppress(PermissionError), os.scandir(directory) as entries:
            for entry in entries:
                self._left -= 1
                if self._left < 0 or self._is_over():
                    self.stopped = True
                    break
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        found[entry.name] = True
                    elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
                        found[entry.name] = False
        return dict(sorted(found.items()))

    def _is_over(self) -> bool:
        """Whether the time is over. Raises if nobody waits any more."""
        try:
            self._deadline.check()
        except OutOfTimeError:
            self.stopped = True
        return self.stopped


def _open_directory(directory: int, name: str) -> Descriptor | None:
    """A directory in another one, open; None if it is gone, not ours, a link by now, or the system's."""
    try:
        inner = owned(os.open, name, _DIRECTORY, dir_fd=directory)
    except OSError:
        return None
    if not is_system(os.fstat(inner.number)):
        return inner
    inner.close()
    return None


def _content(directory: int, name: str) -> str:
    with suppress(OSError), owned(os.open, name, _FILE, dir_fd=directory) as file:
        if stat.S_ISREG(os.fstat(file.number).st_mode):
            return os.read(file.number, _MAX_IGNORE_BYTES).decode("utf-8", "replace")
    return ""
