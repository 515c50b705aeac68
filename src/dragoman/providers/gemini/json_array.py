"""The elements of a JSON array, from bytes in any pieces.

Owns: the framing of `streamGenerateContent` without `alt=sse`: one array whose elements are the chunks.
Must not know: what an element means, or whether it is valid JSON; that is for its reader.
"""

from __future__ import annotations

import re

from dragoman.errors import ProtocolError

__all__ = ["ArrayStream"]

_MAX_ELEMENT_BYTES = 64 * 1024 * 1024
_TOKEN = re.compile(rb'["{}\[\]]')
_STRING_END = re.compile(rb'["\\]')


class ArrayStream:
    """Splits a JSON array of objects into its elements."""

    __slots__ = ("_at", "_buffer", "_depth", "_escape", "_in_string", "_start", "complete")

    def __init__(self) -> None:
        self._buffer: bytes = b""
        self._at: int = 0
        """How far the buffer has been looked through."""
        self._start: int = 0
        """Where the element under way begins in the buffer."""
        self._depth: int = 0
        self._in_string: bool = False
        self._escape: bool = False
        """The last byte was a backslash in a string: the next one is part of the string whatever it is."""
        self.complete: bool = False
        """Whether the closing bracket has come."""

    def feed(self, data: bytes) -> list[bytes]:
        """The elements that these bytes complete. What comes behind the array is passed over."""
        if self.complete:
            return []
        self._buffer += data
        elements: list[bytes] = []
        while not self.complete and (place := self._next_token()) is not None:
            self._token(self._buffer[place : place + 1], place, elements)
        # What is not part of an element under way is separators: they need not be kept.
        keep_from = self._start if self._depth > 1 else self._at
        self._buffer = self._buffer[keep_from:]
        self._at -= keep_from
        self._start = 0
        if len(self._buffer) > _MAX_ELEMENT_BYTES:
            message = f"A single element of the stream is longer than {_MAX_ELEMENT_BYTES} bytes."
            raise ProtocolError(message)
        return elements

    def _next_token(self) -> int | None:
        """Where the next bracket or brace outside of strings is; None if the buffer ends before one."""
        while True:
            if self._in_string and not self._skip_string():
                return None
            found = _TOKEN.search(self._buffer, self._at)
            if found is None:
                self._at = len(self._buffer)
                return None
            self._at = found.end()
            if found[0] != b'"':
                return found.start()
            self._in_string = True

    def _skip_string(self) -> bool:
        """Move behind the end of the string; False if the buffer ends before it."""
        while self._at < len(self._buffer):
            if self._escape:
                self._escape = False
                self._at += 1
                continue
            found = _STRING_END.search(self._buffer, self._at)
            if found is None:
                break
            self._at = found.end()
            if found[0] == b'"':
                self._in_string = False
                return True
            self._escape = True
        self._at = len(self._buffer)
        return False

    def _token(self, token: bytes, place: int, elements: list[bytes]) -> None:
        if token in b"{[":
            if self._depth == 1:
                self._start = place
            self._depth += 1
            return
        self._depth -= 1
        if self._depth == 1:
            elements.append(self._buffer[self._start : self._at])
        elif self._depth == 0:
            self.complete = True
