"""Listing the files below a directory: path patterns, .gitignore files, and the walk.

Patterns and .gitignore files are untrusted, so matching takes bounded time: each part between slashes by `fnmatch`,
whose expressions do not backtrack, `**` part by part. The Workspace opens all directories and .gitignore files, so a
tree that changes meanwhile cannot lead outside.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final

from msgspec import Struct, field

from dragoman.errors import ToolError

from .base import Deadline, OutOfTimeError
from .workspace import Workspace

MAX_LENGTH: Final = 1000
MAX_ALTERNATIVES: Final = 64


class PatternError(ValueError):
    """The pattern cannot be used; the message says why."""


class PathPattern:
    """A pattern of `*`, `?`, `[...]`, `**` for any number of directories and `{a,b}` for alternatives.

    It matches the whole path. A leading dot is not special.
    """

    def __init__(self, pattern: str, *, braces: bool = True) -> None:
        if len(pattern) > MAX_LENGTH:
            raise PatternError(f"the pattern is longer than {MAX_LENGTH} characters")
        self._alternatives: list[list[str]] = [_split(each) for each in (_expand(pattern) if braces else [pattern])]

    def matches(self, path: str) -> bool:
        """Whether a relative path matches."""
        names = path.split("/")
        return any(len(parts) in match_parts(parts, names)[-1] for parts in self._alternatives)

    def may_match_below(self, directory: str) -> bool:
        """Whether something below this directory can match."""
        names = directory.split("/") if directory else []
        return any(match_parts(parts, names)[-1] - {len(parts)} for parts in self._alternatives)


def match_parts(pattern: Sequence[str], names: Sequence[str]) -> list[set[int]]:
    """For no name, the first one, the first two …: how many parts of the pattern these names can match.

    `**` matches any number of names. The time is bounded by the product of both lengths.
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


@lru_cache(maxsize=8192)  # the cache of fnmatch holds only 256 in some versions of Python
def _matcher(part: str) -> Callable[[str], object]:
    return re.compile(fnmatch.translate(part)).match


def _skip_stars(pattern: Sequence[str], reached: set[int]) -> set[int]:
    """Add the positions after a `**`, which may match nothing."""
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
    return [*parts, "*"] if parts[-1] == "**" else parts  # `a/**` is everything in `a`, but not `a` itself


_BRACES: Final = re.compile(r"\{([^{},]*,[^{}]*)\}")


def _expand(pattern: str) -> list[str]:
    """Expand braces to alternatives. Braces without a comma are literal."""
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
"""Directories that are searched only if a search starts there."""
_MAX_RULES: Final = 2000
_MAX_IGNORE_BYTES: Final = 256 * 1024


class IgnoreRule(Struct, frozen=True):
    """One line of a .gitignore file."""

    prefix: str
    """The directory of the file, which its paths are relative to."""
    pattern: PathPattern
    negated: bool
    directories_only: bool


def ignore_rules(directory: str, text: str) -> list[IgnoreRule]:
    rules: list[IgnoreRule] = []
    for line in text.splitlines()[:_MAX_RULES]:
        if not line.strip() or line.startswith("#"):
            continue
        plain = line.rstrip().removeprefix("!").removeprefix("\\")
        body = plain.rstrip("/")
        # A slash at the beginning or in the middle anchors the pattern to this directory; otherwise any depth matches.
        pattern = body.lstrip("/") if "/" in body else f"**/{body}"
        with suppress(PatternError):
            compiled = PathPattern(pattern, braces=False)
            prefix = f"{directory}/" if directory else ""
            rules.append(IgnoreRule(prefix, compiled, line.startswith("!"), plain.endswith("/")))
    return rules


def is_ignored(rules: Sequence[IgnoreRule], path: str, *, is_directory: bool) -> bool:
    """Whether the rules from the root down ignore a path: the last one that matches decides."""
    for rule in reversed(rules):
        if (is_directory or not rule.directories_only) and rule.pattern.matches(path[len(rule.prefix) :]):
            return not rule.negated
    return False


# --- the walk --------------------------------------------------------------------------------------------------------

MAX_ENTRIES: Final = 200_000
_MAX_DEPTH: Final = 100


class Walk(Struct):
    """One walk below a directory, in the order of names."""

    workspace: Workspace
    path: str
    wanted: PathPattern | None
    """For the paths below `path`; None for all."""
    ignoring: bool
    """Whether to apply .gitignore files."""
    deadline: Deadline
    stopped: bool = False
    """Whether a limit was reached."""
    skip: int = 0
    left: int = field(default_factory=lambda: MAX_ENTRIES)

    def files(self) -> Generator[tuple[str, bool], None, None]:
        """The path of each file, relative to the workspace, and whether it is a link."""
        with self.workspace.directory(self.path) as (_, start):
            self.skip = len(start) + 1 if start else 0
        ignored: list[IgnoreRule] = []
        parts = start.split("/") if start else []
        for depth in range(len(parts)):
            ignored += self._ignore_rules("/".join(parts[:depth]))
        yield from self._inside(start, ignored, 0)

    def _inside(self, path: str, ignored: list[IgnoreRule], depth: int) -> Generator[tuple[str, bool], None, None]:
        entries = self._entries(path)
        if ".gitignore" in entries:
            ignored = [*ignored, *self._ignore_rules(path)]
        for name, kind in entries.items():
            if self._is_over():
                return
            below = f"{path}/{name}" if path else name
            is_directory = kind == "directory"
            if self.ignoring and is_directory and name in _ALWAYS_IGNORED:
                continue
            if is_ignored(ignored, below, is_directory=is_directory):
                continue
            wanted, path_below = self.wanted, below[self.skip :]
            if not is_directory:
                if wanted is None or wanted.matches(path_below):
                    yield below, kind == "link"
            elif depth < _MAX_DEPTH and (wanted is None or wanted.may_match_below(path_below)):
                yield from self._inside(below, ignored, depth + 1)

    def _ignore_rules(self, directory: str) -> list[IgnoreRule]:
        if self.ignoring:
            with suppress(ToolError), self.workspace.reading(f"{directory or '.'}/.gitignore") as (file, _):
                text = os.pread(file, _MAX_IGNORE_BYTES, 0).decode("utf-8", "replace")
                return ignore_rules(directory, text)
        return []

    def _entries(self, path: str) -> dict[str, str]:
        """The sorted names in a directory, and the kind of each; none if it cannot be opened."""
        found: dict[str, str] = {}
        with (
            suppress(ToolError, PermissionError),
            self.workspace.directory(path) as (directory, _),
            os.scandir(directory) as entries,
        ):
            for entry in entries:
                self.left -= 1
                if self.left < 0 or self._is_over():
                    self.stopped = True
                    break
                with suppress(OSError):
                    if entry.is_symlink():
                        found[entry.name] = "link"
                    elif entry.is_dir(follow_symlinks=False):
                        found[entry.name] = "directory"
                    elif entry.is_file(follow_symlinks=False):
                        found[entry.name] = "file"
        return dict(sorted(found.items()))

    def _is_over(self) -> bool:
        """Whether the time is over. Raises if the call was cancelled."""
        try:
            self.deadline.check()
        except OutOfTimeError:
            self.stopped = True
        return self.stopped
