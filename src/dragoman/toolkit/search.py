"""`Glob` and `Grep`: files by their paths, and lines by a regular expression."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Annotated, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Meta

from dragoman._decoding import decode_as
from dragoman._programs import start_python
from dragoman.errors import ToolError, ToolExecutionError, ToolValidationError
from dragoman.tools import AnyTool, ToolContext, tool

from .base import Deadline, Given, OutOfTimeError
from .files import detect, is_binary
from .walk import PathPattern, PatternError, Walk
from .workspace import Workspace

MAX_PATHS: Final = 1000
Mode: TypeAlias = Literal["content", "files", "count"]

_MAX_LINE: Final = 500
_MAX_OUTPUT: Final = 64 * 1024
_SECONDS: Final = 20.0
_MAX_FILE: Final = 4 * 1024 * 1024
"""Larger files are not searched."""
_MAX_LINES: Final = 200
"""Lines, or files, that Grep shows."""
_TOO_MUCH: Final = "[Not everything was searched: it is too much. Use a narrower path.]"


def _path_pattern(pattern: str, argument: str) -> PathPattern:
    try:
        return PathPattern(pattern)
    except PatternError as error:
        raise ToolValidationError(f"the argument {argument} cannot be used: {error}.") from None


def _one_line(path: str) -> str:
    """Escape a path with line breaks or other control characters."""
    return path if path.isprintable() else path.encode("unicode_escape").decode("ascii")


# --- Glob ------------------------------------------------------------------------------------------------------------


def glob_tool(workspace: Workspace, *, max_paths: int = MAX_PATHS) -> AnyTool:
    @tool(name="Glob", read_only=True, idempotent=True)
    def glob(context: ToolContext[object], *, pattern: Given, path: str = ".", include_ignored: bool = False) -> str:
        """Find files by a pattern for their paths, such as `**/*.py` or `src/{a,b}/*.ts`. One path a line, in order.

        Args:
            pattern: Matches the whole path below `path`: `*` and `?` within a name, `**` for any directories.
            path: The directory to search, relative to the workspace or absolute.
            include_ignored: Also look at what .gitignore files leave out, and into .git.
        """
        wanted = _path_pattern(pattern, "pattern")
        deadline = Deadline.of(context, _SECONDS)
        walk = Walk(workspace, path or ".", wanted, not include_ignored, deadline)
        found: list[str] = []
        size = 0
        for below, _ in walk.files():
            if len(found) == max_paths or size > _MAX_OUTPUT:
                found.append(f"[Cut after {len(found)} paths. To see others, use a narrower pattern or path.]")
                break
            found.append(_one_line(below))
            size += len(found[-1])
        return "\n".join([*(found or ["[No file matches.]"]), *([_TOO_MUCH] if walk.stopped else [])])

    return glob


# --- Grep ------------------------------------------------------------------------------------------------------------


def grep_tool(workspace: Workspace, *, seconds: float = _SECONDS) -> AnyTool:
    @tool(name="Grep", read_only=True, idempotent=True)
    def grep(
        context: ToolContext[object],
        *,
        pattern: Given,
        path: str = ".",
        glob: str = "",
        mode: Mode = "content",
        ignore_case: bool = False,
        context_lines: Annotated[int, Meta(ge=0, le=20)] = 0,
        include_ignored: bool = False,
    ) -> str:
        """Search the text of files with a regular expression in Python's syntax, line by line.

        Args:
            pattern: The expression to look for.
            path: The file or directory to search, relative to the workspace or absolute.
            glob: Search only files whose path below `path` matches, such as `*.py` (any directory) or `src/**/*.ts`.
            mode: `content` shows `path:line number:line`, `files` only paths, `count` the matches in each.
            ignore_case: Whether to ignore the case of letters.
            context_lines: How many lines to show before and after each match.
            include_ignored: Also search what .gitignore files leave out, and .git.
        """
        wanted = _path_pattern(glob if "/" in glob else f"**/{glob}", "glob") if glob else None
        deadline = Deadline.of(context, seconds)
        walk = Walk(workspace, path or ".", wanted, not include_ignored, deadline)
        search = _Search(mode, context_lines)
        try:
            with closing(Matcher(pattern, ignore_case=ignore_case, deadline=deadline)) as matcher:
                _search_files(workspace, walk, search, matcher)
        except OutOfTimeError:
            where = f", in {search.at}" if search.at else ""
            took = f"{deadline.seconds:.2g} seconds{where}"
            search.notes.append(f"[Stopped after {took}. Use a simpler pattern, a path or a glob.]")
        return search.reply()

    return grep


def _search_files(workspace: Workspace, walk: Walk, search: _Search, matcher: Matcher) -> None:
    with workspace.place(walk.path) as place:
        status = place.status()
    if status is None or not stat.S_ISDIR(status.st_mode):  # one file: an error of its own
        search.take(place.path, _read(workspace, place.path), matcher)
        return
    for path, is_link in walk.files():
        if is_link:
            continue
        try:
            data = _read(workspace, path)
        except ToolError:
            data = "not accessible"
        search.take(path, data, matcher)
        if search.full:
            return
    if walk.stopped:
        search.notes.append(_TOO_MUCH)


def _read(workspace: Workspace, path: str) -> bytes | str:
    with workspace.reading(path) as (file, _), open(file, "rb", closefd=False) as content:
        data = content.read(_MAX_FILE + 1)
    if len(data) > _MAX_FILE:
        return "too large"
    if is_binary(data):
        return "binary"
    encoding = detect(data[:64], data)
    body = data[len(encoding.mark) :]
    return body if encoding.name == "utf-8" else body.decode(encoding.name, "replace").encode("utf-8", "replace")


class _Search:
    def __init__(self, mode: Mode, context_lines: int) -> None:
        self._mode: Mode = mode
        self._context_lines: int = context_lines
        self._lines: list[str] = []
        self._shown: int = 0
        self._bytes: int = 0
        self._skipped: Counter[str] = Counter()
        self.notes: list[str] = []
        self.at: str = ""
        self.full: bool = False

    def take(self, path: str, data: bytes | str, matcher: Matcher) -> None:
        """Search the text of one file, or count why it cannot be searched."""
        self.at = _one_line(path)
        if isinstance(data, str):
            self._skipped[data] += 1
            return
        found = matcher.search(data)
        if isinstance(found, str):
            self.notes.append(f"[{self.at} could not be searched: {found}.]")
            return
        count, *lines = found
        if self._mode == "content":
            self._show_lines(data, lines)
        elif count:
            self._show([self.at if self._mode == "files" else f"{self.at}:{count}"])

    def _show_lines(self, data: bytes, numbers: list[int]) -> None:
        lines = data.decode("utf-8", "replace").split("\n") if numbers else []
        around, last, fits = self._context_lines, -1, set(numbers)
        for number in numbers:
            if self.full:
                return
            first = max(number - around, last + 1)
            apart = around and self._lines and (last < 0 or first > last + 1)
            group = ["--"] if apart else []
            for at in range(first, min(number + around, len(lines) - 1) + 1):
                sign = ":" if at in fits else "-"
                line = lines[at].removesuffix("\r")
                line = line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}… [{len(line)} characters]"
                group.append(f"{self.at}{sign}{at + 1}{sign}{line}")
                last = at
            self._show(group)

    def _show(self, lines: list[str]) -> None:
        if self._shown >= _MAX_LINES or self._bytes > _MAX_OUTPUT:
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
        counts = ", ".join(f"{count} {why}" for why, count in sorted(self._skipped.items()))
        unread = [f"[Not searched: {counts}.]"] if counts else []
        return "\n".join([*(self._lines or ["[No line matches.]"]), *self.notes, *unread])


# --- regular expressions ---------------------------------------------------------------------------------------------
# Some expressions take longer than the age of the universe for a short line, and block the whole process meanwhile. So
# match_worker.py runs them, in a process that can be killed.

_WORKER: Final = str(Path(__file__).with_name("match_worker.py"))
_NEEDED: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Some interpreters do not find their own library without these."""


class Matcher:
    """One expression in a child process; close it after use. Raises OutOfTimeError once the time is over."""

    def __init__(self, pattern: str, *, ignore_case: bool, deadline: Deadline) -> None:
        self._deadline: Deadline = deadline
        if not sys.executable:
            message = "regular expressions need a Python interpreter to run in, and this program does not name one."
            raise ToolExecutionError(message, hint="Set sys.executable to one.")
        try:
            # It gets nothing of our environment, no open files, and no signals of our terminal.
            self._child: subprocess.Popen[bytes] = start_python(
                _WORKER,
                environment={name: os.environ[name] for name in _NEEDED if name in os.environ},
                packages=False,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                apart=True,
            )
        except OSError as error:
            raise ToolExecutionError(f"the search could not be started: {error.strerror or error}.") from error
        self._requests: IO[bytes] = cast("IO[bytes]", self._child.stdin)
        self._replies: IO[bytes] = cast("IO[bytes]", self._child.stdout)
        try:
            seconds = max(0.001, deadline.at - time.monotonic())  # then the child ends itself
            problem = self._ask({"pattern": pattern, "ignore_case": ignore_case, "seconds": seconds})
            if isinstance(problem, str):
                raise ToolValidationError(f"the argument pattern is not a regular expression: {problem[:300]}.")
        except BaseException:
            self.close()
            raise

    def search(self, text: bytes) -> list[int] | str:
        """How many lines match, and the numbers of the first ones, from 0; or why the text cannot be searched."""
        self._deadline.check()
        return self._ask(len(text), text)

    def close(self) -> None:
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()
        with suppress(BrokenPipeError):
            self._requests.close()
        self._replies.close()

    def _ask(self, request: object, text: bytes = b"") -> list[int] | str:
        # This needs no timeout of its own: it ends when the child does.
        with self._deadline.context.stop.waking(self._child.kill), suppress(BrokenPipeError):
            self._requests.write(msgspec.json.encode(request) + b"\n" + text)
            self._requests.flush()
            if line := self._replies.readline():
                return decode_as(line, list[int] | str)
        self._deadline.check()
        message = "the search died; the pattern may need too much memory."
        raise ToolExecutionError(message, hint="Use a simpler pattern.")
