"""Bytes as text: which encoding a file has, whether it is text at all, and cutting between characters."""

from __future__ import annotations

import codecs
import re
from typing import Final

from msgspec import Struct

SAMPLE: Final = 8192
"""How many bytes from the beginning tell what a file is."""


class Encoding(Struct, frozen=True):
    """How the text of a file is written down."""

    name: str
    mark: bytes = b""
    """The byte order mark at the beginning."""
    unit: int = 1
    """Bytes of the smallest character."""

    @property
    def newline(self) -> bytes:
        return "\n".encode(self.name)


UTF8: Final = Encoding("utf-8")
LATIN: Final = Encoding("latin-1")
"""What is not UTF-8 is read as this: every byte is a character, and comes back as the same byte."""

# The marks of UTF-32 first: that of UTF-16 is how one of them begins.
_MARKS: Final = (
    Encoding("utf-8", codecs.BOM_UTF8),
    Encoding("utf-32-le", codecs.BOM_UTF32_LE, 4),
    Encoding("utf-32-be", codecs.BOM_UTF32_BE, 4),
    Encoding("utf-16-le", codecs.BOM_UTF16_LE, 2),
    Encoding("utf-16-be", codecs.BOM_UTF16_BE, 2),
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
