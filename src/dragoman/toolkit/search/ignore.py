"""What a search leaves out: version control's own directories, and what .gitignore files name.

Owns: the lines of .gitignore files and what they mean for a path.
Must not know: file systems; somebody else reads the files.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from .patterns import PathPattern, PatternError

__all__ = ["ALWAYS", "IgnoreFile", "is_ignored"]

ALWAYS: Final = frozenset({".git", ".hg", ".svn", ".jj"})
"""Directories that are never searched unless a search begins in one."""
_MAX_RULES: Final = 2000


class _Rule(Struct, frozen=True):
    pattern: PathPattern
    negated: bool
    directories_only: bool


class IgnoreFile:
    """The rules of one .gitignore file, for the directory that it lies in."""

    def __init__(self, directory: str, text: str) -> None:
        self.directory: str = directory
        self._rules: list[_Rule] = [rule for line in text.splitlines()[:_MAX_RULES] if (rule := _rule(line))]

    def says(self, path: str, *, is_directory: bool) -> bool | None:
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
    directories_only = line.endswith("/")
    body = line.rstrip("/")
    # A slash at the beginning or in the middle ties the pattern to this directory; otherwise it is for any depth.
    anchored = "/" in body
    body = body.lstrip("/")
    try:
        # Braces mean nothing special in these files.
        pattern = PathPattern(body if anchored else f"**/{body}", braces=False)
        return _Rule(pattern, negated, directories_only)
    except PatternError:
        return None


def is_ignored(files: list[IgnoreFile], path: str, *, is_directory: bool) -> bool:
    """What the .gitignore files from the root down say of a path; the deepest one that speaks of it decides."""
    for file in reversed(files):
        said = file.says(path, is_directory=is_directory)
        if said is not None:
            return said
    return False
