"""The frames of a stream (`application/vnd.amazon.eventstream`): binary, each with two checksums.

4 bytes  length of the frame      4 bytes  length of its headers      4 bytes  checksum of these eight
headers: a byte of length, the name, a byte of type, the value        the payload
4 bytes  checksum of all before it
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from dragoman.errors import ProtocolError

EXCEPTION: Final = "exception:"
"""The prefix of the name of a frame that is an error."""

_PRELUDE: Final = Struct(">III")
_CHECKSUM: Final = Struct(">I")
_MOST_BYTES: Final = 24 * 1024 * 1024
"""Of one frame, as in Amazon's own clients."""
_SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a value by its type; bytes (6) and strings (7) have a length of their own."""


class BinaryEvents:
    """Splits a stream of bytes into events. A frame counts when it is complete and both checksums match."""

    __slots__ = ("_kept", "_needed")

    def __init__(self) -> None:
        self._kept: bytearray = bytearray()
        self._needed: int = _PRELUDE.size
        """How many bytes must be there before more can be read."""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The events that these bytes complete, each as (name, payload), up to a damaged one."""
        self._kept += data
        if len(self._kept) < self._needed:
            return
        whole, start, self._needed = bytes(self._kept), 0, _PRELUDE.size
        try:
            while len(whole) - start >= _PRELUDE.size:
                total, headers, checksum = _PRELUDE.unpack_from(whole, start)
                if crc32(whole[start : start + 8]) != checksum or not headers + 16 <= total <= _MOST_BYTES:
                    raise _damaged("the beginning of a frame")
                if len(whole) - start < total:
                    self._needed = total
                    break
                frame = whole[start : start + total]
                if crc32(frame[:-4]) != _CHECKSUM.unpack_from(frame, total - 4)[0]:
                    raise _damaged("a frame")
                start += total
                yield _read(frame[12 : 12 + headers], frame[12 + headers : -4])
        finally:
            del self._kept[:start]

    def finish(self) -> Iterator[tuple[bytes, bytes]]:
        """The bytes have ended: nothing may be left."""
        if self._kept:
            raise ProtocolError("The stream ended in the middle of a frame.")
        yield from ()


def _read(headers: bytes, payload: bytes) -> tuple[bytes, bytes]:
    try:
        said = dict(_texts(headers))
    except IndexError:
        raise _damaged("the headers of a frame") from None
    kind = said.get(b":message-type", b"event")
    if kind == b"exception":
        return EXCEPTION.encode() + said.get(b":exception-type", b""), payload
    if kind == b"error":
        text = said.get(b":error-message", b"").decode(errors="replace")
        return EXCEPTION.encode() + said.get(b":error-code", b""), msgspec.json.encode({"message": text})
    return said.get(b":event-type", b""), payload


def _texts(headers: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The headers that are strings."""
    at, end = 0, len(headers)
    while at < end:
        value = at + 2 + headers[at]
        name, kind = headers[at + 1 : value - 1], headers[value - 1]
        if kind in (6, 7):
            value += 2
            at = value + (headers[value - 2] << 8 | headers[value - 1])
        else:
            at = value + _SIZES.get(kind, end)
        if at > end:
            raise IndexError
        if kind == 7:
            yield name, headers[value:at]


def _damaged(what: str) -> ProtocolError:
    return ProtocolError(f"The stream is damaged: the checksum of {what} does not match.")
