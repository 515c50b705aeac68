"""`Grep`: the lines that fit a regular expression.

Owns: the tool, its caps, what counts as searchable, and how findings are shown.
Must not know: how an expression is tried (matcher.py) and how a tree is walked (walk.py).
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from dragoman._descriptors import owned
from dragoman.toolkit.defining import ready
from dragoman.toolkit.text import detect, is_binary
from dragoman.toolkit.workspace import Workspace, told
from dragoman.tools.context import ToolContext
from dragoman.tools.definition import AnyTool

from .glob import one_line, path_pattern
from .matcher import Matcher, TooSlowError
from .patterns import PathPattern
from .walk import Walk, ignore_files

__all__ = ["GrepLimits", "grep_tool"]

Mode: TypeAlias = Literal["content", "files", "count"]

_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_MAX_LINE: Final = 500
_MARGIN: Final = 0.2
"""Seconds before the tool's own time is over, in which what was found so far is still handed back."""


class GrepLimits(Struct, frozen=True, kw_only=True):
    """How far a search goes."""

    seconds: float = 20.0
    file_bytes: int = 4 * 1024 * 1024
    """Larger files are not searched."""
    lines: int = 200
    """Lines, or files, that are shown at most."""
    output_bytes: int = 64 * 1024


def grep_tool(workspace: Workspace, *, limits: GrepLimits = GrepLimits()) -> AnyTool:  # noqa: B008 -- frozen
    """The tool `Grep`."""

    @ready(name="Grep", filled=["pattern"], read_only=True, idempotent=True)
    def grep(  # noqa: PLR0917 -- a tool gets what the model gives, by position
        context: ToolContext[object],
        pattern: str,
        path: str = ".",
        glob: str = "",
        mode: Mode = "content",
        ignore_case: bool = False,
        context_lines: Annotated[int, Meta(ge=0, le=20)] = 0,
        include_ignored: bool = False,
    ) -> str:
        """Search the text of files with a regular expression in Python's syntax, line by line.

        Args:
            pattern: What a line must hold.
            path: The file or directory to search, relative to the workspace or absolute.
            glob: Search only files whose path below `path` fits, such as `*.py` (any directory) or `src/**/*.ts`.
            mode: `content` shows `path:line number:line`, `files` the paths only, `count` how many lines fit in each.
            ignore_case: Whether small and capital letters are the same.
            context_lines: How many lines to show before and after each that fits.
            include_ignored: Also search what .gitignore files leave out, and .git.
        """
        wanted = path_pattern(glob if "/" in glob else f"**/{glob}", "glob") if glob else None
        seconds = limits.seconds
        if context.remaining is not None:
            seconds = min(seconds, max(0.0, context.remaining - _MARGIN))
        search = _Search(limits, mode, context_lines)
        check = context.raise_if_cancelled
        with ExitStack() as stack:
            matcher = stack.enter_context(
                Matcher(pattern, ignore_case=ignore_case, deadline=time.monotonic() + seconds, check=check)
            )
            files = stack.enter_context(
                _files(workspace, path or ".", wanted, check, seconds, ignoring=not include_ignored)
            )
            try:
                for below, data in _contents(workspace, files, limits, search):
                    search.take(below, data, matcher)
                    if search.full:
                        break
            except TooSlowError:
                search.notes.append(
                    f"[Stopped after {seconds:.2g} seconds, in {search.at}. Use a simpler pattern, a path or a glob.]"
                )
            except _TooManyError:
                search.notes.append("[Not everything was searched: it is too much. Use a narrower path.]")
        return search.reply()

    return grep


class _TooManyError(Exception):
    """The walk has come to its limit."""


_Files: TypeAlias = Generator[tuple[int | None, str, str], None, None]


@contextmanager
def _files(
    workspace: Workspace,
    path: str,
    wanted: PathPattern | None,
    check: Callable[[], None],
    seconds: float,
    *,
    ignoring: bool,
) -> Generator[_Files, None, None]:
    """The files to search: (open directory or None, name or path, path below the workspace)."""
    with workspace.place(path) as place:
        with told(path):
            status = place.status()
        if status is None or not stat.S_ISDIR(status.st_mode):
            with closing(_one(place.path)) as files:
                yield files
            return
    with workspace.directory(path) as (directory, start):
        skip = len(start) + 1 if start else 0
        walk = Walk(
            directory,
            start,
            enter=lambda below: wanted is None or wanted.may_hold(below[skip:]),
            ignored=ignore_files(workspace, start) if ignoring else None,
            check=check,
            seconds=seconds,
        )
        with closing(_walked(walk, wanted, skip)) as files:
            yield files


def _one(path: str) -> _Files:
    yield None, path, path


def _walked(walk: Walk, wanted: PathPattern | None, skip: int) -> _Files:
    with closing(walk.files()) as files:
        for directory, name, below in files:
            if wanted is None or wanted.fits(below[skip:]):
                yield directory, name, below
    if walk.stopped:
        raise _TooManyError


def _contents(
    workspace: Workspace, files: _Files, limits: GrepLimits, search: _Search
) -> Generator[tuple[str, bytes], None, None]:
    """Each file with its text in UTF-8. What is not text, too large or not accessible is counted."""
    for directory, name, below in files:
        search.at = one_line(below)
        if directory is None:  # the one file that was asked for: say what is wrong with it
            with workspace.reading(name) as (file, _), told(name):
                data = _read(file, limits.file_bytes)
        else:
            data = _opened(directory, name, limits.file_bytes)
        if isinstance(data, bytes):
            yield below, data
        elif data:
            search.skipped[data] = search.skipped.get(data, 0) + 1


def _opened(directory: int, name: str, limit: int) -> bytes | str:
    """The text of a file below the directory that is searched, or why not; a link is nothing to speak of."""
    try:
        file = owned(os.open, name, _FILE, dir_fd=directory)
    except OSError as error:
        return "" if error.errno == errno.ELOOP else "not accessible"
    with file:
        try:
            return _read(file.number, limit) if stat.S_ISREG(os.fstat(file.number).st_mode) else ""
        except OSError:
            return "not accessible"


def _read(file: int, limit: int) -> bytes | str:
    """The text of a file in UTF-8, or why it is not searched."""
    if os.fstat(file).st_size > limit:
        return "too large"
    data = b""
    while len(data) <= limit and (piece := os.read(file, limit + 1 - len(data))):
        data += piece
    if len(data) > limit:
        return "too large"
    if is_binary(data):
        return "binary"
    encoding = detect(data[:64], data)
    body = data[len(encoding.mark) :]
    return body if encoding.name == "utf-8" else body.decode(encoding.name, "replace").encode("utf-8", "replace")


class _Search:
    """What was found so far."""

    def __init__(self, limits: GrepLimits, mode: Mode, context_lines: int) -> None:
        self._limits: GrepLimits = limits
        self._mode: Mode = mode
        self._context_lines: int = context_lines
        self._lines: list[str] = []
        self._shown: int = 0
        self._bytes: int = 0
        self.notes: list[str] = []
        self.skipped: dict[str, int] = {}
        self.at: str = ""
        self.full: bool = False

    def take(self, path: str, data: bytes, matcher: Matcher) -> None:
        """Search one file."""
        left = self._limits.lines - self._shown
        found = matcher.search(data, left + 1 if self._mode == "content" else 1)
        if found.failed:
            self.notes.append(f"[{self.at} could not be searched: {found.failed}.]")
        elif self._mode == "content":
            self._show_lines(path, data, found.lines)
        elif found.count:
            shown = one_line(path)
            self._show([shown if self._mode == "files" else f"{shown}:{found.count}"])

    def _show_lines(self, path: str, data: bytes, numbers: list[int]) -> None:
        if not numbers:
            return
        lines = data.decode("utf-8", "replace").split("\n")
        shown, around = one_line(path), self._context_lines
        last, fits = -1, set(numbers)
        for number in numbers:
            if self.full:
                return
            first = max(number - around, last + 1)
            apart = around and self._lines and (last < 0 or first > last + 1)
            group = ["--"] if apart else []
            for at in range(first, min(number + around, len(lines) - 1) + 1):
                sign = ":" if at in fits else "-"
                group.append(f"{shown}{sign}{at + 1}{sign}{_narrow(lines[at].removesuffix(chr(13)))}")
                last = at
            self._show(group)

    def _show(self, lines: list[str]) -> None:
        if self._shown >= self._limits.lines or self._bytes > self._limits.output_bytes:
            self.full = True
            what = "lines" if self._mode == "content" else "files"
            self.notes.append(
                f"[Cut after {self._shown} {what}. To see others, use a path, a glob or another pattern.]"
            )
            return
        self._shown += 1
        self._bytes += sum(len(line) + 1 for line in lines)
        self._lines += lines

    def reply(self) -> str:
        """What the model reads."""
        notes = list(self.notes)
        if self.skipped:
            counts = ", ".join(f"{count} {why}" for why, count in sorted(self.skipped.items()))
            notes.append(f"[Not searched: {counts}.]")
        return "\n".join([*(self._lines or ["[No line fits.]"]), *notes])


def _narrow(line: str) -> str:
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}… [{len(line)} characters]"
