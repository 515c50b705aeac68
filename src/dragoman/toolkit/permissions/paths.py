"""Path patterns against the paths of a call.

Owns: what a path means (resolved against the workspace, `..` and symbolic links included), and matching it.
Must not know: which arguments are paths.

A pattern without `*`, `?` or `[` means a file or everything below a directory; `**` stands for any number of
directories. To allow, the place where a path really ends must match. To deny, it is enough that the path as it is
written, or the place where it ends, or a directory above either, matches.
"""

from __future__ import annotations

import os
import re
import unicodedata
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from msgspec import Struct

from dragoman.errors import ConfigurationError

from .match import Match

__all__ = ["PathPattern", "Place", "Places", "Surroundings", "compile_path", "place_of"]

Parts: TypeAlias = tuple[str, ...]

_GLOB: Final = re.compile(r"[*?\[]")
_LONGEST: Final = 4_096
_ELSEWHERE: Final = re.compile(r"[A-Za-z][\w+.-]*:[/\\]|\\\\")
"""An address, a drive or a share: not a path as it is meant here."""


class Surroundings(Struct, frozen=True):
    """Where relative paths begin."""

    workspace: str
    """As it was given, made absolute."""
    real: str
    """The same with links resolved, once: nobody can move the workspace by changing a link later."""
    home: str

    @staticmethod
    def of(workspace: str | os.PathLike[str], home: str | os.PathLike[str] | None = None) -> Surroundings:
        given: str = os.path.abspath(workspace)  # noqa: PTH100 -- resolve() would lose this spelling
        return Surroundings(given, os.path.realpath(given), os.fspath(home or os.path.expanduser("~")))  # noqa: PTH111 -- the text is kept as text


class Place(Struct, frozen=True):
    """What a path means."""

    real: tuple[Parts, ...]
    """Where it ends, by every way of reading it."""
    touched: frozenset[Parts]
    """The same and the path as it is written, in one spelling for all that some file system takes for the same."""
    is_directory: bool = False


def place_of(text: str, around: Surroundings) -> Place | None:
    """What a path means; None if it cannot be told."""
    if not text or len(text) > _LONGEST or "\0" in text or _ELSEWHERE.match(text):
        return None
    spellings = [text]
    if text.startswith("~"):  # some programs take this for the home directory, others for a name
        spellings.append(around.home + text[1:] if text[:2] in ("~", "~/") else os.path.expanduser(text))  # noqa: PTH111
    try:
        return _place(spellings, around)
    except (OSError, ValueError):  # a chain of links without end, half a surrogate pair
        return None


def _place(spellings: list[str], around: Surroundings) -> Place:
    written: set[str] = set()
    real: set[str] = set()
    for spelling in spellings:
        joined = os.path.join(around.real, spelling)  # noqa: PTH118 -- Path would drop a trailing part silently
        plain = os.path.normpath(joined)
        written |= {plain, os.path.normpath(os.path.join(around.workspace, spelling))}  # noqa: PTH118
        # `link/../x` ends beside the link's target, unless a program tidies the text up first.
        real |= {_real(joined), _real(plain)}
    is_directory = any(os.path.isdir(each) for each in real)  # noqa: PTH112
    ends = tuple(map(parts_of, sorted(real)))
    return Place(ends, frozenset(map(_folded, (*ends, *map(parts_of, written)))), is_directory)


def _real(path: str) -> str:
    """Where a path ends, links resolved; its last parts need not exist."""
    try:
        return os.path.realpath(path, strict=True)
    except (FileNotFoundError, NotADirectoryError):
        return os.path.realpath(path)
    # Any other error means that it cannot be told: without `strict`, Python would stop looking there and not say so.


class Places:
    """What the paths of one call mean. Each is looked up once, however many rules ask."""

    def __init__(self, around: Surroundings) -> None:
        self.around: Surroundings = around
        self._known: dict[str, Place | None] = {}
        self._bases: dict[Parts, frozenset[Parts]] = {}

    def of(self, path: str) -> Place | None:
        """What a path means; None if it cannot be told."""
        if path not in self._known:
            self._known[path] = place_of(path, self.around)
        return self._known[path]

    def spellings(self, base: Parts) -> frozenset[Parts]:
        """The fixed part of a pattern as it is written, and with links resolved as they are now."""
        if base not in self._bases:
            resolved = parts_of(os.path.realpath("/" + "/".join(base)))
            self._bases[base] = frozenset({_folded(base), _folded(resolved)})
        return self._bases[base]


class PathPattern(Struct, frozen=True):
    """A pattern, compiled: a fixed part, and what follows it with `*`, `?`, `[…]` and `**`."""

    base: Parts
    """As it is written, made absolute."""
    allowed_base: Parts
    """The same, resolved when the rules were made, for rules that allow."""
    rest: Parts
    """Empty: the base itself and everything below it."""

    def covers(self, place: Place | None) -> bool:
        """Whether the path certainly ends at a place that this means: for rules that allow."""
        return place is not None and bool(place.real) and all(map(self._is_at, place.real))

    def _is_at(self, parts: Parts) -> bool:
        depth = len(self.allowed_base)
        if parts[:depth] != self.allowed_base:
            return False
        return not self.rest or _progress(self.rest, parts[depth:])[-1] == len(self.rest)

    def touches(self, place: Place | None, places: Places) -> Match:
        """Whether the path may lead to, or through, what this means: for rules that deny or ask."""
        if place is None:
            return Match.MAYBE
        found = Match.NO
        for base in places.spellings(self.base):
            for parts in place.touched:
                found = max(found, self._touched(base, parts, is_directory=place.is_directory))
        return found

    def _touched(self, base: Parts, parts: Parts, *, is_directory: bool) -> Match:
        above = parts == base[: len(parts)] and len(parts) < len(base)
        if above or parts[: len(base)] != base:
            return Match.MAYBE if above and is_directory else Match.NO
        rest = _folded(self.rest)
        progress = _progress(rest, parts[len(base) :])
        if len(rest) in progress:  # the path, or a directory above it
            return Match.YES
        return Match.MAYBE if is_directory and progress[-1] >= 0 else Match.NO


def compile_path(pattern: str, around: Surroundings) -> PathPattern:
    """The pattern, or ConfigurationError if it is none."""
    if not pattern.strip() or "\0" in pattern:
        message = f"The path pattern {pattern!r} means nothing."
        raise ConfigurationError(
            message, hint="Give a path such as 'src' or '~/notes', or a pattern such as '**/*.md'."
        )
    start, text = around.workspace, pattern
    if pattern == "~" or pattern.startswith("~/"):
        start, text = around.home, pattern[2:]
    fixed, rest = _divided(os.path.normpath(text) if text else "")
    # Joined only now: a directory may have brackets in its name and is no pattern for that.
    base = parts_of(os.path.normpath(os.path.join(start, fixed)))  # noqa: PTH118
    inside = parts_of(around.workspace)
    if base[: len(inside)] == inside:
        # A link inside the workspace is not followed here: whoever can make one must not choose what is allowed.
        allowed = (*parts_of(around.real), *base[len(inside) :])
    else:
        allowed = parts_of(os.path.realpath("/" + "/".join(base)))
    return PathPattern(base, allowed, rest)


def _divided(pattern: str) -> tuple[str, Parts]:
    """The fixed part of a pattern, and the parts from the first one with a `*`, `?` or `[`."""
    parts = pattern.split("/")
    count = next((index for index, part in enumerate(parts) if _GLOB.search(part)), len(parts))
    fixed = "/".join(parts[:count])
    return fixed or ("/" if pattern.startswith("/") else ""), tuple(part for part in parts[count:] if part)


def parts_of(path: str) -> Parts:
    return tuple(part for part in path.replace(os.sep, "/").split("/") if part not in ("", "."))


def _folded(parts: Parts) -> Parts:
    # Some file systems take .ENV for .env, and one way of writing é for the other.
    return tuple(unicodedata.normalize("NFC", part).casefold() for part in parts)


def _progress(pattern: Parts, parts: Parts) -> list[int]:
    """How far the pattern is used up by nothing, by the first part, by the first two …; -1 if it does not fit.

    The furthest way counts; where the pattern can be used up, its length does.
    """
    reached = _closed(pattern, {0})
    furthest = [max(reached)]
    for part in parts:
        reached = _stepped(pattern, reached, part)
        furthest.append(max(reached, default=-1))
    return furthest


def _stepped(pattern: Parts, reached: set[int], part: str) -> set[int]:
    following: set[int] = set()
    for position in reached:
        if position < len(pattern):
            if pattern[position] == "**":
                following.add(position)
            elif fnmatchcase(part, pattern[position]):
                following.add(position + 1)
    return _closed(pattern, following)


def _closed(pattern: Parts, reached: set[int]) -> set[int]:
    """With `**` matched by nothing as well."""
    for position in sorted(reached):
        while position < len(pattern) and pattern[position] == "**":
            position += 1  # noqa: PLW2901 -- walks on from where it is
            reached.add(position)
    return reached
