"""`Write`: a file of the workspace, all of it or nothing.

Owns: replacing a file in one step, with the mode it had.
Must not know: how a path is followed (workspace.py), what the text means.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import Final

from dragoman._descriptors import owned
from dragoman.errors import ToolValidationError
from dragoman.tools.context import ToolContext
from dragoman.tools.definition import AnyTool

from .defining import ready
from .workspace import Place, Workspace, failure, told

__all__ = ["MAX_WRITE_BYTES", "replace_file", "write_tool"]

MAX_WRITE_BYTES: Final = 16 * 1024 * 1024
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_tool(workspace: Workspace, *, max_bytes: int = MAX_WRITE_BYTES) -> AnyTool:
    """The tool `Write`."""

    @ready(name="Write", filled=["file_path"], idempotent=True)
    def write(context: ToolContext[object], file_path: str, content: str) -> str:
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
        with workspace.place(file_path, make_parents=True) as place, told(file_path):
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
    if before is not None:
        _check_replaceable(place, before)
    name = f".{place.name[:100]}.{secrets.token_hex(6)}.tmp"
    try:
        with owned(os.open, name, _NEW, 0o666, dir_fd=place.directory) as file:
            _fill(file.number, data, before)
        # A link that was put there in the meantime is replaced, not followed.
        os.replace(name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=place.directory)
        raise


def _check_replaceable(place: Place, before: os.stat_result) -> None:
    if not stat.S_ISREG(before.st_mode):
        kind = "a directory" if stat.S_ISDIR(before.st_mode) else "not a regular file"
        raise failure(place.path, f"it is {kind}")
    # Replacing needs the directory's permission only; a file that may not be written to shall stay as it is.
    if not os.access(place.name, os.W_OK, dir_fd=place.directory, effective_ids=os.access in os.supports_effective_ids):
        raise failure(place.path, "it is read-only")


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
