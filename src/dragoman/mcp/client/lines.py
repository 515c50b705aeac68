"""Bytes into lines, with an end to every line.

Owns: splitting, and what is still known of a line that was too long.
Must not know: processes.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Struct

__all__ = ["LineSplitter", "TooLong", "id_of"]

_KEPT: Final = 512
_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*,').match
_LAST = re.compile(rb',\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$').search


class TooLong(Struct, frozen=True):
    """What was kept of a line: its size, where it began and where it ended."""

    size: int
    head: bytes
    tail: bytes


def id_of(head: bytes, tail: bytes) -> int | str | None:
    """The id of a message that cannot be read as a whole. Writers of JSON-RPC put it first or last."""
    found = _FIRST(head[:_KEPT]) or _LAST(tail[-_KEPT:])
    try:
        return None if found is None else msgspec.json.decode(found[1], type=int | str)
    except msgspec.DecodeError:
        return None


class LineSplitter:
    """Feed it bytes; it gives whole lines, without their ends."""

    def __init__(self, limit: int) -> None:
        self._limit: int = limit
        self._pieces: list[bytes] = []
        self._size: int = 0
        self._long: bytes | None = None
        """The beginning of a line that has become too long; the rest of it is passed over."""
        self._tail: bytes = b""

    @property
    def endless(self) -> bool:
        """Whether the line has become so long that nobody should wait for its end."""
        return self._size > 8 * self._limit

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """The lines that end in this piece."""
        lines: list[bytes | TooLong] = []
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            lines.append(self._line())
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._long is not None:
            self._long += piece[: _KEPT - len(self._long)]
            self._tail = (self._tail + piece[-_KEPT:])[-_KEPT:]
            return
        self._pieces.append(piece)
        if self._size > self._limit:
            whole = b"".join(self._pieces)
            self._pieces, self._long, self._tail = [], whole[:_KEPT], whole[-_KEPT:]

    def _line(self) -> bytes | TooLong:
        size, self._size = self._size, 0
        if self._long is not None:
            line = TooLong(size, self._long, self._tail)
            self._long, self._tail = None, b""
            return line
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
