"""`Read`, `Write` and `Edit`, and the encodings of files.

A file is replaced atomically. An edited one keeps its encoding, byte order mark and line endings: if its lines end with
CRLF and the model writes LF, as models do, LF is taken for CRLF.
"""

from __future__ import annotations

import codecs
import os
import re
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import IO, Annotated, Final

from msgspec import Meta, Struct

from dragoman._descriptors import owned
from dragoman.conversation import Media
from dragoman.errors import ToolExecutionError, ToolValidationError
from dragoman.tools import AnyTool, ToolContext, tool

from .base import Given
from .workspace import Place, Workspace, failure

MAX_READ_BYTES: Final = 64 * 1024
MAX_IMAGE_BYTES: Final = 3_500_000
"""Providers take images up to about 5 MB in base64, which is a third longer."""
MAX_WRITE_BYTES: Final = 16 * 1024 * 1024
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK: Final = 256 * 1024
_MAX_RECODED: Final = 16 * 1024 * 1024


def read_tool(workspace: Workspace, *, max_bytes: int = MAX_READ_BYTES) -> AnyTool:
    @tool(name="Read", read_only=True, idempotent=True)
    def read(
        context: ToolContext[object],
        *,
        file_path: Given,
        offset: Annotated[int, Meta(ge=1)] = 1,
        limit: Annotated[int, Meta(ge=1)] | None = None,
        byte_offset: Annotated[int, Meta(ge=0)] = 0,
    ) -> str | Media:
        """Read a file of the workspace. Text is returned as it is, an image as an image.

        A long file is cut; the last line of the result then says how to read on.

        Args:
            file_path: The file, relative to the workspace or absolute.
            offset: The line to start with; the first is 1.
            limit: How many lines to read.
            byte_offset: Start this many bytes into the file, for lines that are too long for one call. Lines are
                counted from there.
        """
        part = _Part(offset, limit, byte_offset, max_bytes)
        with workspace.reading(file_path) as (file, path):
            return _read(open(file, "rb", closefd=False), path, part, context.raise_if_cancelled)

    return read


class _Part(Struct, frozen=True):
    offset: int
    limit: int | None
    byte_offset: int
    max_bytes: int


def _read(content: IO[bytes], path: str, part: _Part, check: Callable[[], None]) -> str | Media:
    size = os.fstat(content.fileno()).st_size
    start = content.read(SAMPLE)
    content.seek(0)
    if kind := image_type(start):
        data = content.read(MAX_IMAGE_BYTES + 1)
        if len(data) > MAX_IMAGE_BYTES:
            raise failure(path, f"the image is too large ({size} bytes, at most {MAX_IMAGE_BYTES})")
        return Media.from_bytes(data, kind, name=path.rpartition("/")[2])
    if is_binary(start):
        raise failure(path, f"it is not text but binary data ({size} bytes)")
    encoding = encoding_of_mark(start)
    if encoding is not None and encoding.name != "utf-8":  # recode all of it
        data = content.read(_MAX_RECODED + 1)
        if len(data) > _MAX_RECODED:
            raise failure(path, f"it is too large for a file in {encoding.name.upper()} (at most {_MAX_RECODED} bytes)")
        recoded = data[len(encoding.mark) :].decode(encoding.name, "replace").encode("utf-8", "replace")
        content, size, encoding = BytesIO(recoded), len(recoded), None
    mark = len(encoding.mark) if encoding else 0
    if part.byte_offset > max(size, mark):
        raise failure(path, f"byte_offset={part.byte_offset} is past its end ({size} bytes)")
    content.seek(max(part.byte_offset, mark))
    lines_before = part.offset - 1
    while lines_before and (piece := content.readline(_CHUNK)):
        check()
        lines_before -= piece.endswith(b"\n")
    if part.offset > 1 and content.tell() >= size:
        raise failure(path, f"it has no line {part.offset}", hint="Read it without an offset, or with a smaller one.")
    return _text(content, size, part)


def _text(content: IO[bytes], size: int, part: _Part) -> str:
    position = content.tell()
    data = content.read(part.max_bytes + 4)
    encoding = detect(b"", data)
    shown = data if len(data) <= part.max_bytes else clip(data[: part.max_bytes], encoding)
    lines = list(BytesIO(shown))  # which splits at newlines only
    if part.limit is not None:
        lines = lines[: part.limit]
    if len(shown) < len(data) and len(lines) > 1 and not lines[-1].endswith(b"\n"):
        lines.pop()  # rather a line less than half a line
    shown = b"".join(lines)
    text = shown.decode(encoding.name, "replace")
    note = "[This file is not UTF-8; it was read as Latin-1.]\n" if encoding is LATIN else ""
    if len(shown) == len(data):
        return f"{note}{text}" or "[The file is empty.]"
    end, last = position + len(shown), part.offset + len(lines) - 1
    if not text.endswith("\n"):
        where = f"Cut within line {part.offset}, after byte {end} of {size}."
        return f"{note}{text}\n[{where} To read on, call Read with byte_offset={end}.]"
    again = f"offset={last + 1}{f', byte_offset={part.byte_offset}' if part.byte_offset else ''}"
    where = f"Lines {part.offset} to {last} are shown, {size - end} bytes follow."
    return f"{note}{text}[{where} To read on, call Read with {again}.]"


# --- Write -----------------------------------------------------------------------------------------------------------


def write_tool(workspace: Workspace, *, max_bytes: int = MAX_WRITE_BYTES) -> AnyTool:
    @tool(name="Write", idempotent=True)
    def write(context: ToolContext[object], *, file_path: Given, content: str) -> str:
        """Write a file of the workspace; what was in it before is replaced. Missing directories are made.

        Args:
            file_path: The file, relative to the workspace or absolute.
            content: The whole new content of the file.
        """
        try:
            data = content.encode()
        except UnicodeEncodeError:
            message = "content has a lone surrogate (half a character), which no file can hold."
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
    """Replace the file atomically, or create it if `before` is None. Raises OSError and ToolExecutionError."""
    if before is not None and not stat.S_ISREG(before.st_mode):
        kind = "a directory" if stat.S_ISDIR(before.st_mode) else "not a regular file"
        raise failure(place.path, f"it is {kind}")
    # Replacing needs only the directory's permission, but a read-only file must stay as it is.
    effective = os.access in os.supports_effective_ids
    if before and not os.access(place.name, os.W_OK, dir_fd=place.directory, effective_ids=effective):
        raise failure(place.path, "it is read-only")
    name = f".{place.name[:100]}.{secrets.token_hex(6)}.tmp"
    mode = 0o666 if before is None else 0o600  # never readable for more people than the old file
    try:
        with owned(os.open, name, _NEW, mode, dir_fd=place.directory) as file:
            _fill(file.number, data, before)
        # A link that was created meanwhile is replaced, not followed.
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
            with suppress(PermissionError):  # the owner changes, as with any editor
                os.fchown(file, before.st_uid, before.st_gid)
        os.fchmod(file, before.st_mode & 0o777)  # new content must not inherit a set-user-id bit
    os.fsync(file)


# --- Edit ------------------------------------------------------------------------------------------------------------

_NAMED_LINES: Final = 10


def edit_tool(workspace: Workspace, *, max_bytes: int = MAX_WRITE_BYTES) -> AnyTool:
    # Never retried: the new text may contain the old one.
    @tool(name="Edit", retries=0)
    def edit(
        context: ToolContext[object],
        *,
        file_path: Given,
        old_string: Given,
        new_string: str,
        replace_all: bool = False,
    ) -> str:
        """Replace an exact piece of text in a file of the workspace.

        Args:
            file_path: The file, relative to the workspace or absolute.
            old_string: The text to replace, exactly as it is in the file, whitespace included. It must occur only
                once, so include enough of the text around it.
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
    """The old and new text in the line endings of the file, and the positions of the old one."""
    starts = _find_all(text, old)
    if not starts and "\r\n" in text and "\r" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        starts = _find_all(text, old)
    if not starts:
        hint = "Read the file again and copy the text exactly, whitespace included."
        if " ".join(old.split()) in " ".join(text.split()):
            hint = "It is there with different whitespace. Read the file again and copy the text exactly."
        raise ToolExecutionError(f"old_string was not found in {place.path!r}.", hint=hint)
    if len(starts) > 1 and not replace_all:
        raise ToolExecutionError(
            f"old_string is not unique: it occurs {len(starts)} times in {place.path!r} (line {_lines(text, starts)}).",
            hint="Include more of the text around it, or use replace_all=true.",
        )
    return old, new, starts


def _find_all(text: str, piece: str) -> list[int]:
    return [found.start() for found in re.finditer(re.escape(piece), text)]


def _check_unchanged(place: Place, before: os.stat_result) -> None:
    """Raise if the file was changed since it was read, so that nobody else's change is lost."""
    now, fields = place.status(), ("st_dev", "st_ino", "st_size", "st_mtime_ns")
    if now is None or any(getattr(now, field) != getattr(before, field) for field in fields):
        raise failure(place.path, "it changed while it was being edited", hint="Read it again, then edit it.")


def _lines(text: str, starts: list[int]) -> str:
    lines = [str(text.count("\n", 0, start) + 1) for start in starts[:_NAMED_LINES]]
    return ", ".join([*lines, "…"] if len(starts) > _NAMED_LINES else lines)


# --- encodings -------------------------------------------------------------------------------------------------------

SAMPLE: Final = 8192
"""Bytes at the beginning by which the kind of a file is detected."""


class Encoding(Struct, frozen=True):
    """An encoding with its byte order mark."""

    name: str
    mark: bytes = b""


UTF8: Final = Encoding("utf-8")
_CONTINUING: Final = bytes(range(0x80, 0xC0))
LATIN: Final = Encoding("latin-1")
"""For everything that is not UTF-8: each byte is a character, and is written back as the same byte."""

# UTF-32 first, because the mark of UTF-16 is a prefix of one of its marks.
_MARKS: Final = (
    Encoding("utf-8", codecs.BOM_UTF8),
    Encoding("utf-32-le", codecs.BOM_UTF32_LE),
    Encoding("utf-32-be", codecs.BOM_UTF32_BE),
    Encoding("utf-16-le", codecs.BOM_UTF16_LE),
    Encoding("utf-16-be", codecs.BOM_UTF16_BE),
)
_IMAGES: Final = (
    (re.compile(rb"\x89PNG\r\n\x1a\n").match, "image/png"),
    (re.compile(rb"\xff\xd8\xff").match, "image/jpeg"),
    (re.compile(rb"GIF8[79]a").match, "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL).match, "image/webp"),
)


def image_type(start: bytes) -> str | None:
    """The media type of an image that models can see, by its first bytes."""
    return next((kind for matches, kind in _IMAGES if matches(start)), None)


def encoding_of_mark(start: bytes) -> Encoding | None:
    """The encoding of the byte order mark, if there is one."""
    return next((each for each in _MARKS if start.startswith(each.mark)), None)


def is_binary(start: bytes) -> bool:
    return encoding_of_mark(start) is None and b"\0" in start[:SAMPLE]


def detect(start: bytes, data: bytes) -> Encoding:
    """The encoding of `data`, a part of a file that begins with `start`. May be cut within a character."""
    if marked := encoding_of_mark(start):
        return marked
    try:
        codecs.getincrementaldecoder("utf-8")().decode(skip_rest_of_character(data))
    except UnicodeDecodeError:
        return LATIN
    return UTF8


def skip_rest_of_character(data: bytes) -> bytes:
    """Drop the rest of a character that begins before these bytes."""
    return data[:3].lstrip(_CONTINUING) + data[3:]


def clip(data: bytes, encoding: Encoding) -> bytes:
    """Drop an incomplete character at the end."""
    decoder = codecs.getincrementaldecoder(encoding.name)("replace")
    decoder.decode(data)
    pending = decoder.getstate()[0]
    return data[: len(data) - len(pending)]
