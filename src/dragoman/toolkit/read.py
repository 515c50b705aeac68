"""`Read`: a file of the workspace, or a part of it; and how the bytes of a file become text."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable
from io import BytesIO
from itertools import islice
from typing import IO, Annotated, Final

from msgspec import Meta, Struct

from dragoman.conversation import Media
from dragoman.errors import ToolExecutionError
from dragoman.tools import AnyTool, ToolContext

from .base import ready
from .workspace import Workspace, failure

MAX_READ_BYTES: Final = 64 * 1024
MAX_IMAGE_BYTES: Final = 3_500_000
"""Providers take images up to about 5 MB in base64, which is a third longer."""
_CHUNK: Final = 256 * 1024
_MAX_RECODED: Final = 16 * 1024 * 1024
_SEARCHED: Final = 1024 * 1024 * 1024
"""How far a line is looked for."""


def read_tool(workspace: Workspace, *, max_bytes: int = MAX_READ_BYTES) -> AnyTool:
    """The tool `Read`."""

    @ready(name="Read", needs=["file_path"], read_only=True, idempotent=True)
    def read(
        context: ToolContext[object],
        *,
        file_path: str = "",
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
    if encoding is not None and encoding.name != "utf-8":  # read as if it were UTF-8, all of it
        data = content.read(_MAX_RECODED + 1)
        if len(data) > _MAX_RECODED:
            raise failure(path, f"it is too large for a file in {encoding.name.upper()} (at most {_MAX_RECODED} bytes)")
        recoded = data[len(encoding.mark) :].decode(encoding.name, "replace").encode("utf-8", "replace")
        content, size, encoding = BytesIO(recoded), len(recoded), None
    mark = len(encoding.mark) if encoding else 0
    if part.byte_offset > max(size, mark):
        raise failure(path, f"byte_offset={part.byte_offset} is behind its end ({size} bytes)")
    content.seek(max(part.byte_offset, mark))
    _skip_lines(content, part.offset - 1, check)
    if part.offset > 1 and content.tell() >= size:
        raise failure(path, f"it has no line {part.offset}", hint="Read it without an offset, or with a smaller one.")
    return _text(content, size, part)


def _skip_lines(content: IO[bytes], count: int, check: Callable[[], None]) -> None:
    """Go behind so many lines, or to the end."""
    last = content.tell() + _SEARCHED
    while count and (piece := content.read(_CHUNK)):
        check()
        inside = min(count, piece.count(b"\n"))
        count -= inside
        if not count:
            ends = [found.end() for found in islice(re.finditer(b"\n", piece), inside)]
            content.seek(ends[-1] - len(piece), os.SEEK_CUR)
        elif content.tell() > last:
            hint = f"Read on with byte_offset={content.tell()}; lines are counted from there."
            raise ToolExecutionError(f"that line is more than {_SEARCHED} bytes away.", hint=hint)


def _text(content: IO[bytes], size: int, part: _Part) -> str:
    position = content.tell()
    data = content.read(part.max_bytes + 4)
    encoding = detect(b"", data)
    shown = data if len(data) <= part.max_bytes else clip(data[: part.max_bytes], encoding)
    lines = list(BytesIO(shown))  # which takes only a newline for the end of a line
    if part.limit is not None:
        lines = lines[: part.limit]
    if len(shown) < len(data) and len(lines) > 1 and not lines[-1].endswith(b"\n"):
        lines.pop()  # better a few lines less than half a line
    shown = b"".join(lines)
    text = shown.decode(encoding.name, "replace")
    note = "[This file is not UTF-8; it was read as Latin-1.]\n" if encoding is LATIN else ""
    if len(shown) == len(data):
        return f"{note}{text}" or "[The file is empty.]"
    mark = _mark(size, position + len(shown), part, len(lines) if shown.endswith(b"\n") else 0)
    return f"{note}{text}{'' if text.endswith(chr(10)) else chr(10)}{mark}"


def _mark(size: int, end: int, part: _Part, lines: int) -> str:
    """What was left out, and how to read on. `lines` are shown whole; none if the cut is within a line."""
    if not lines:
        return (
            f"[Cut within line {part.offset}, after byte {end} of {size}. "
            f"To read on, call Read with byte_offset={end}.]"
        )
    last = part.offset + lines - 1
    start_again = f", byte_offset={part.byte_offset}" if part.byte_offset else ""
    return (
        f"[Lines {part.offset} to {last} are shown, {size - end} bytes follow. "
        f"To read on, call Read with offset={last + 1}{start_again}.]"
    )


# --- bytes as text: which encoding a file has, whether it is text at all, cutting between characters ------------------

SAMPLE: Final = 8192
"""How many bytes from the beginning tell what a file is."""


class Encoding(Struct, frozen=True):
    """How the text of a file is written down."""

    name: str
    mark: bytes = b""
    """The byte order mark at the beginning."""


UTF8: Final = Encoding("utf-8")
LATIN: Final = Encoding("latin-1")
"""What is not UTF-8 is read as this: every byte is a character, and comes back as the same byte."""

# The marks of UTF-32 first: that of UTF-16 is how one of them begins.
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
    """The type of an image that models can look at, by its first bytes; names may lie."""
    return next((kind for matches, kind in _IMAGES if matches(start)), None)


def encoding_of_mark(start: bytes) -> Encoding | None:
    """The encoding that a byte order mark announces."""
    return next((each for each in _MARKS if start.startswith(each.mark)), None)


def is_binary(start: bytes) -> bool:
    """Whether these first bytes are not text."""
    return encoding_of_mark(start) is None and b"\0" in start[:SAMPLE]


def detect(start: bytes, data: bytes) -> Encoding:
    """The encoding of `data`, a part of a file whose first bytes are `start`. What is no whole character may be cut."""
    if found := encoding_of_mark(start):
        return found
    try:
        codecs.getincrementaldecoder("utf-8")().decode(_skip_rest_of_character(data))
    except UnicodeDecodeError:
        return LATIN
    return UTF8


def _skip_rest_of_character(data: bytes) -> bytes:
    """Without the rest of a character that begins before these bytes."""
    at = 0
    while at < min(3, len(data)) and data[at] & 0xC0 == 0x80:
        at += 1
    return data[at:]


def clip(data: bytes, encoding: Encoding) -> bytes:
    """Without a character at the end that is not complete."""
    decoder = codecs.getincrementaldecoder(encoding.name)("replace")
    decoder.decode(data)
    pending = decoder.getstate()[0]
    return data[: len(data) - len(pending)]
