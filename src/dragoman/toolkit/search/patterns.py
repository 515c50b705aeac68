"""Path patterns: `*`, `?`, `[...]`, `**` for any number of directories, `{a,b}` for alternatives.

Owns: reading and matching them, in time that no pattern can blow up.
Must not know: file systems.

Each part between slashes is matched by an expression that never goes back (`fnmatch` writes such ones); `**` is worked
out part by part. A name that begins with a dot is a name like any other.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

__all__ = ["PathPattern", "PatternError"]

MAX_LENGTH: Final = 1000
MAX_ALTERNATIVES: Final = 64

_Part: TypeAlias = Callable[[str], object] | None
"""Tells whether a name fits; None stands for `**`."""


class PatternError(ValueError):
    """The pattern cannot be used; the text says why."""


class PathPattern:
    """One pattern, compiled. A path fits if one of its alternatives fits all of it."""

    def __init__(self, pattern: str, *, braces: bool = True) -> None:
        if len(pattern) > MAX_LENGTH:
            message = f"the pattern is longer than {MAX_LENGTH} characters"
            raise PatternError(message)
        self._alternatives: list[list[_Part]] = [
            _compiled(each) for each in (_expanded(pattern) if braces else [pattern])
        ]

    def fits(self, path: str) -> bool:
        """Whether a path, relative and with slashes, fits."""
        names = path.split("/")
        return any(_fits(parts, names) for parts in self._alternatives)

    def may_hold(self, directory: str) -> bool:
        """Whether something below this directory can fit."""
        names = directory.split("/") if directory else []
        return any(_may_hold(parts, names) for parts in self._alternatives)


def _compiled(pattern: str) -> list[_Part]:
    parts: list[_Part] = []
    for part in pattern.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            message = "the pattern goes up with '..'"
            raise PatternError(message)
        if part != "**":
            parts.append(re.compile(fnmatch.translate(part)).match)
        elif not parts or parts[-1] is not None:  # `**/**` says no more than `**`
            parts.append(None)
    if not parts:
        message = "the pattern is empty"
        raise PatternError(message)
    return parts


def _fits(parts: Sequence[_Part], names: Sequence[str]) -> bool:
    """Go through the names and keep the positions in the pattern that fit so far."""
    positions = _onward(parts, {0})
    for name in names:
        reached: set[int] = set()
        for at in positions:
            if at == len(parts):
                continue
            part = parts[at]
            if part is None:
                reached |= {at, len(parts)} if at == len(parts) - 1 else {at}
            elif part(name):
                reached.add(at + 1)
        positions = _onward(parts, reached)
        if not positions:
            return False
    return len(parts) in positions


def _onward(parts: Sequence[_Part], positions: set[int]) -> set[int]:
    """The positions, and those behind a `**`, which may stand for nothing unless it is the last: `a/**` is not `a`."""
    return positions | {at + 1 for at in positions if at < len(parts) - 1 and parts[at] is None}


def _may_hold(parts: Sequence[_Part], names: Sequence[str]) -> bool:
    for part, name in zip(parts, names, strict=False):
        if part is None:
            return True
        if not part(name):
            return False
    return len(names) < len(parts)


def _expanded(pattern: str) -> list[str]:
    """The pattern without braces, once for each way through them."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        each = waiting.pop()
        opening, closing, commas = _braces(each)
        if not commas:
            done.append(each)
            continue
        bounds = [opening, *commas, closing]
        inner = [each[start + 1 : end] for start, end in pairwise(bounds)]
        waiting += [each[:opening] + part + each[closing + 1 :] for part in inner]
        if len(waiting) + len(done) > MAX_ALTERNATIVES:
            message = f"the pattern has more than {MAX_ALTERNATIVES} alternatives"
            raise PatternError(message)
    return done


def _braces(pattern: str) -> tuple[int, int, list[int]]:
    """Where the first pair of braces with a comma between them is, and where its own commas are."""
    opened: list[tuple[int, list[int]]] = []
    best: tuple[int, int, list[int]] = (0, 0, [])
    for at, character in enumerate(pattern):
        if character == "{":
            opened.append((at, []))
        elif character == "," and opened:
            opened[-1][1].append(at)
        elif character == "}" and opened:
            start, commas = opened.pop()
            if commas and (not best[2] or start < best[0]):
                best = (start, at, commas)
    return best
