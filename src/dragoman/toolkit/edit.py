"""`Edit`: one exact piece of text in a file replaced by another.

Owns: finding the piece, refusing what is ambiguous, and showing what changed.
Must not know: how a file is replaced (write.py).

A file keeps its encoding, its byte order mark and its line ends: where its lines end with CRLF and the model writes LF,
which is what it mostly does, LF is taken for CRLF.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec import Struct

from dragoman.errors import ToolExecutionError, ToolValidationError
from dragoman.tools.context import ToolContext
from dragoman.tools.definition import AnyTool

from .defining import ready
from .text import Encoding, detect, is_binary
from .workspace import Place, Workspace, failure, told
from .write import MAX_WRITE_BYTES, replace_file

__all__ = ["edit_tool"]

_CONTEXT_LINES: Final = 3
_SHOWN_CHANGES: Final = 3
_SHOWN_LINES: Final = 40
_SHOWN_WIDTH: Final = 300
_NAMED_LINES: Final = 10


def edit_tool(workspace: Workspace, *, max_bytes: int = MAX_WRITE_BYTES) -> AnyTool:
    """The tool `Edit`."""

    # Not to be repeated: the new text may hold the old one.
    @ready(name="Edit", filled=["file_path", "old_string"], retries=0)
    def edit(
        context: ToolContext[object], file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> str:
        """Replace an exact piece of text in a file of the workspace. Returns what changed, as a short diff.

        Args:
            file_path: The file, relative to the workspace or absolute.
            old_string: The text to replace, exactly as it stands in the file, blanks and line breaks included. It must
                occur only once, so give enough of the text around it.
            new_string: What to put there; empty to delete.
            replace_all: Replace every occurrence instead.
        """
        if old_string == new_string:
            raise ToolValidationError("old_string and new_string are the same; there is nothing to change.", hint="")
        with workspace.place(file_path) as place, told(file_path):
            before, data = _content(place, max_bytes)
            encoding = detect(data[:64], data)
            text = _decoded(place, data, encoding)
            change = _change(place, text, old_string, new_string, replace_all=replace_all)
            new = encoding.mark + _encoded(place, change.applied(text), encoding)
            if len(new) > max_bytes:
                raise failure(file_path, f"it would become too large ({len(new)} bytes, at most {max_bytes})")
            context.raise_if_cancelled()
            _check_unchanged(place, before)
            replace_file(place, new, before)
            return f"replaced {_times(len(change.starts))} in {place.path}\n{_diff(text, change)}"

    return edit


class _Change(Struct, frozen=True):
    old: str
    new: str
    starts: list[int]

    def applied(self, text: str) -> str:
        pieces: list[str] = []
        end = 0
        for start in self.starts:
            pieces += [text[end:start], self.new]
            end = start + len(self.old)
        return "".join([*pieces, text[end:]])


def _content(place: Place, max_bytes: int) -> tuple[os.stat_result, bytes]:
    with place.open_file() as file:
        before = os.fstat(file.number)
        if before.st_size > max_bytes:
            raise failure(place.path, f"it is too large to edit ({before.st_size} bytes, at most {max_bytes})")
        with open(file.number, "rb", closefd=False) as content:
            data = content.read(max_bytes + 1)
    if is_binary(data):
        raise failure(place.path, "it is not text but binary data")
    return before, data


def _decoded(place: Place, data: bytes, encoding: Encoding) -> str:
    try:
        return encoding.decode(data[len(encoding.mark) :])
    except UnicodeDecodeError:
        raise failure(place.path, f"it is not valid {encoding.name.upper()}") from None


def _encoded(place: Place, text: str, encoding: Encoding) -> bytes:
    try:
        return encoding.encode(text)
    except UnicodeEncodeError as error:
        character = text[error.start]
        raise failure(place.path, f"its encoding ({encoding.name}) has no character {character!r}") from None


def _change(place: Place, text: str, old: str, new: str, *, replace_all: bool) -> _Change:
    starts = _occurrences(text, old)
    if not starts and "\r\n" in text and "\r" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        starts = _occurrences(text, old)
    if not starts:
        hint = "Read the file again and copy the text exactly, blanks and line breaks included."
        if " ".join(old.split()) in " ".join(text.split()):
            hint = "It is there with other blanks or line breaks. Read the file again and copy the text exactly."
        raise ToolExecutionError(f"old_string was not found in {place.path!r}.", hint=hint)
    if len(starts) > 1 and not replace_all:
        lines = [str(text.count("\n", 0, start) + 1) for start in starts[:_NAMED_LINES]]
        where = ", ".join(lines) + (", …" if len(starts) > _NAMED_LINES else "")
        raise ToolExecutionError(
            f"old_string is not unique: it occurs {len(starts)} times in {place.path!r} (lines {where}).",
            hint="Give more of the text around it, or say replace_all=true.",
        )
    return _Change(old, new, starts)


def _occurrences(text: str, piece: str) -> list[int]:
    starts: list[int] = []
    at = text.find(piece)
    while at >= 0:
        starts.append(at)
        at = text.find(piece, at + len(piece))
    return starts


def _check_unchanged(place: Place, before: os.stat_result) -> None:
    """Refuse if the file was written to since it was read; what somebody else wrote must not be lost."""
    now = place.status()
    same = now is not None and all(
        getattr(now, field) == getattr(before, field) for field in ("st_dev", "st_ino", "st_size", "st_mtime_ns")
    )
    if not same:
        raise failure(place.path, "it changed while it was being edited", hint="Read it again, then edit it.")


# --- what changed ----------------------------------------------------------------------------------------------------


def _times(count: int) -> str:
    return "1 occurrence" if count == 1 else f"{count} occurrences"


def _diff(text: str, change: _Change) -> str:
    hunks = [_hunk(text, start, change) for start in change.starts[:_SHOWN_CHANGES]]
    left = len(change.starts) - _SHOWN_CHANGES
    return "\n".join(hunks) + (f"\n… and {left} more" if left > 0 else "")


def _hunk(text: str, start: int, change: _Change) -> str:
    """One change with the lines around it. Made from the place that is known: comparing two files takes too long."""
    end = start + len(change.old)
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", end)
    last = len(text) if last < 0 else last
    head, tail = text[first:start], text[end:last]
    above = text[:first].splitlines()[-_CONTEXT_LINES:] if first else []
    below = text[last + 1 :].split("\n", _CONTEXT_LINES)[:_CONTEXT_LINES] if last < len(text) else []
    if below and not below[-1]:
        below.pop()
    lines = [f"@@ line {text.count(chr(10), 0, first) + 1} @@", *_marked(" ", above)]
    lines += _marked("-", f"{head}{change.old}{tail}".split("\n"))
    lines += _marked("+", f"{head}{change.new}{tail}".split("\n"))
    lines += _marked(" ", below)
    return "\n".join(lines)


def _marked(sign: str, lines: list[str]) -> list[str]:
    shown = [f"{sign}{_narrow(line.removesuffix(chr(13)))}" for line in lines[:_SHOWN_LINES]]
    return [*shown, f"{sign}… {len(lines) - _SHOWN_LINES} more lines"] if len(lines) > _SHOWN_LINES else shown


def _narrow(line: str) -> str:
    return line if len(line) <= _SHOWN_WIDTH else f"{line[:_SHOWN_WIDTH]}…"
