"""`Write` and `Edit`: a file of the workspace replaced, or one exact piece of its text, in one step.

A file that is edited keeps its encoding, its byte order mark and its line ends: where its lines end with CRLF and the
model writes LF, which is what it mostly does, LF is taken for CRLF.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from typing import Final

from dragoman._descriptors import owned
from dragoman.errors import ToolExecutionError, ToolValidationError
from dragoman.tools import AnyTool, ToolContext

from .base import ready
from .read import detect, is_binary
from .workspace import Place, Workspace, failure

MAX_WRITE_BYTES: Final = 16 * 1024 * 1024
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_tool(workspace: Workspace, *, max_bytes: int = MAX_WRITE_BYTES) -> AnyTool:
    """The tool `Write`."""

    @ready(name="Write", needs=["file_path"], idempotent=True)
    def write(context: ToolContext[object], *, file_path: str = "", content: str) -> str:
        """Write a file of the workspace; what was in it before is replaced. Missing directories are made.

        Args:
            file_path: The file, relative to the workspace or absolute.
            content: All that the file shall hold.
        """
        try:
            data = content.encode()
        except UnicodeEncodeError:
            message = "content has half a character (a lone surrogate), which no file can hold."
            raise ToolValidationError(message) from None
        if len(data) > max_bytes:
            raise failure(file_path, f"the content is too large ({len(data)} bytes, at most {max_bytes})")
        context.raise_if_cancelled()
        with workspace.place(file_path, make_parents=True) as place:
            if file_path.endswith("/"):
                raise failure(file_path, "it names a directory, not a file")
            before = place.status()
            replace_file(place, data, before)
            done = "replaced" if before else "created"
            return f"{done} {place.path} ({len(data)} bytes)"

    return write


def replace_file(place: Place, data: bytes, before: os.stat_result | None) -> None:
    """Put a file with this content where `before` is, in one step; at no time is there half a file.

    Raises OSError and ToolExecutionError.
    """
    if before is not None and not stat.S_ISREG(before.st_mode):
        kind = "a directory" if stat.S_ISDIR(before.st_mode) else "not a regular file"
        raise failure(place.path, f"it is {kind}")
    # Replacing needs the directory's permission only; a file that may not be written to shall stay as it is.
    effective = os.access in os.supports_effective_ids
    if before and not os.access(place.name, os.W_OK, dir_fd=place.directory, effective_ids=effective):
        raise failure(place.path, "it is read-only")
    name = f".{place.name[:100]}.{secrets.token_hex(6)}.tmp"
    mode = 0o666 if before is None else 0o600  # at no time can more people read it than the file that is replaced
    try:
        with owned(os.open, name, _NEW, mode, dir_fd=place.directory) as file:
            _fill(file.number, data, before)
        # A link that was put there in the meantime is replaced, not followed.
        os.replace(name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=place.directory)
        raise


def _fill(file: int, data: bytes, before: os.stat_result | None) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
    if before is not None:
        now = os.fstat(file)
        if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
            with suppress(PermissionError):  # somebody else's file becomes ours, as with any editor
                os.fchown(file, before.st_uid, before.st_gid)
        os.fchmod(file, before.st_mode & 0o777)  # new content must not inherit a set-user-id bit
    os.fsync(file)


# --- Edit ------------------------------------------------------------------------------------------------------------

_NAMED_LINES: Final = 10


def edit_tool(workspace: Workspace, *, max_bytes: int = MAX_WRITE_BYTES) -> AnyTool:
    """The tool `Edit`."""

    # Not to be repeated: the new text may hold the old one.
    @ready(name="Edit", needs=["file_path", "old_string"], retries=0)
    def edit(
        context: ToolContext[object],
        *,
        file_path: str = "",
        old_string: str = "",
        new_string: str,
        replace_all: bool = False,
    ) -> str:
        """Replace an exact piece of text in a file of the workspace.

        Args:
            file_path: The file, relative to the workspace or absolute.
            old_string: The text to replace, exactly as it stands in the file, blanks and line breaks included. It must
                occur only once, so give enough of the text around it.
            new_string: What to put there; empty to delete.
            replace_all: Replace every occurrence instead.
        """
        if old_string == new_string:
            raise ToolValidationError("old_string and new_string are the same; there is nothing to change.", hint="")
        with workspace.place(file_path) as place:
            before, data = _read_content(place, max_bytes)
            encoding = detect(data[:64], data)
            try:
                text = data[len(encoding.mark) :].decode(encoding.name)
                old, new, starts = _find(place, text, old_string, new_string, replace_all=replace_all)
                changed = encoding.mark + text.replace(old, new).encode(encoding.name)
            except UnicodeDecodeError:
                raise failure(file_path, f"it is not valid {encoding.name.upper()}") from None
            except UnicodeEncodeError as error:
                character = error.object[error.start]
                raise failure(file_path, f"its encoding ({encoding.name}) has no character {character!r}") from None
            if len(changed) > max_bytes:
                raise failure(file_path, f"it would become too large ({len(changed)} bytes, at most {max_bytes})")
            context.raise_if_cancelled()
            _check_unchanged(place, before)
            replace_file(place, changed, before)
            times = "1 occurrence" if len(starts) == 1 else f"{len(starts)} occurrences"
            return f"replaced {times} in {place.path} (line {_lines(text, starts)})"

    return edit


def _read_content(place: Place, max_bytes: int) -> tuple[os.stat_result, bytes]:
    with place.open_file() as file:
        before = os.fstat(file.number)
        if before.st_size > max_bytes:
            raise failure(place.path, f"it is too large to edit ({before.st_size} bytes, at most {max_bytes})")
        with open(file.number, "rb", closefd=False) as content:
            data = content.read(max_bytes + 1)
    if is_binary(data):
        raise failure(place.path, "it is not text but binary data")
    return before, data


def _find(place: Place, text: str, old: str, new: str, *, replace_all: bool) -> tuple[str, str, list[int]]:
    """What to replace by what, in the line ends of the file, and where it begins."""
    starts = _find_all(text, old)
    if not starts and "\r\n" in text and "\r" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        starts = _find_all(text, old)
    if not starts:
        hint = "Read the file again and copy the text exactly, blanks and line breaks included."
        if " ".join(old.split()) in " ".join(text.split()):
            hint = "It is there with other blanks or line breaks. Read the file again and copy the text exactly."
        raise ToolExecutionError(f"old_string was not found in {place.path!r}.", hint=hint)
    if len(starts) > 1 and not replace_all:
        raise ToolExecutionError(
            f"old_string is not unique: it occurs {len(starts)} times in {place.path!r} (line {_lines(text, starts)}).",
            hint="Give more of the text around it, or say replace_all=true.",
        )
    return old, new, starts


def _find_all(text: str, piece: str) -> list[int]:
    return [found.start() for found in re.finditer(re.escape(piece), text)]


def _check_unchanged(place: Place, before: os.stat_result) -> None:
    """Refuse if the file was written to since it was read; what somebody else wrote must not be lost."""
    now, fields = place.status(), ("st_dev", "st_ino", "st_size", "st_mtime_ns")
    if now is None or any(getattr(now, field) != getattr(before, field) for field in fields):
        raise failure(place.path, "it changed while it was being edited", hint="Read it again, then edit it.")


def _lines(text: str, starts: list[int]) -> str:
    """The numbers of the lines where these pieces begin."""
    lines = [str(text.count("\n", 0, start) + 1) for start in starts[:_NAMED_LINES]]
    return ", ".join([*lines, "…"] if len(starts) > _NAMED_LINES else lines)
