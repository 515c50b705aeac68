"""A conversation's log, open for reading.

Owns: finding records and their parts, and noticing that the log is not what it was.
Must not know: what the parts hold.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import Final, NamedTuple, Self

from dragoman._descriptors import Descriptor
from dragoman.errors import SnapshotCorruptError

from .frames import RECORD_BYTES, Record, record_from_bytes

__all__ = ["Located", "Log", "TornError", "read_at"]

_WINDOW: Final = 1 << 16
"""How much is read at once where records are small."""


class TornError(SnapshotCorruptError):
    """There is less than there should be."""


class Located(NamedTuple):
    """A record and where it begins."""

    record: Record
    offset: int


class Log:
    """An open log, as far as it counts; without a length, all of it."""

    __slots__ = ("_data", "_file", "_length", "_size", "_start")

    def __init__(self, file: Descriptor, length: int | None = None) -> None:
        self._file: Final = file
        self._size: Final = os.fstat(file.number).st_size
        self._length: Final = self._size if length is None else length
        self._start: int = 0
        self._data: bytes = b""

    def at(self, offset: int, size: int) -> bytes:
        """So many bytes from this place. Raises SnapshotCorruptError where there are fewer."""
        end = offset + size
        if not 0 <= offset <= end <= self._length:
            raise TornError("A record reaches beyond the end of the log: it is damaged.")
        if end > self._size:
            raise TornError("The log of the conversation is cut.")
        if offset < self._start or end > self._start + len(self._data):
            wanted = min(max(size, _WINDOW), self._length - offset)
            self._start, self._data = offset, read_at(self._file.number, wanted, offset)
            if len(self._data) < size:
                raise TornError("The log of the conversation is cut.")
        return self._data[offset - self._start : end - self._start]

    def records(self, start: int = 0, *, end: int | None = None) -> Iterator[Located]:
        """The records from this place to that one."""
        end = self._length if end is None else end
        before: Record | None = None
        while start < end:
            record = record_from_bytes(self.at(start, RECORD_BYTES))
            if before is not None and (record.before, record.position) != (before.digest, before.position + 1):
                raise SnapshotCorruptError(f"Record {record.position} of the log does not follow the one before it.")
            yield Located(record, start)
            before, start = record, start + record.size
        if start > end:
            raise SnapshotCorruptError("The records of the log do not meet: it is damaged.")

    def part(self, record: Record, offset: int, number: int) -> bytes:
        """One part of the record at this place: its summary, its body or its messages."""
        return self.at(offset + RECORD_BYTES + sum(record.sizes[:number]), record.sizes[number])

    def parts(self, record: Record, offset: int) -> tuple[bytes, bytes, bytes]:
        """All three."""
        return self.part(record, offset, 0), self.part(record, offset, 1), self.part(record, offset, 2)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read_at(fd: int, size: int, offset: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := os.pread(fd, size, offset)):
        parts.append(part)
        size, offset = size - len(part), offset + len(part)
    return b"".join(parts)
