"""Server-sent events, from bytes in any pieces.

Owns: the framing: lines ended by LF, CRLF or CR, even across pieces; comments; several `data` lines; a byte-order mark;
an event whose closing blank line never came.
Must not know: what the data of an event means.
"""

from __future__ import annotations

from dragoman.errors import ProtocolError

__all__ = ["EventStream"]

_MAX_EVENT_BYTES = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class EventStream:
    """Splits a stream of bytes into events."""

    __slots__ = ("_carriage_return", "_kept", "_kept_bytes", "_started")

    def __init__(self) -> None:
        self._kept: list[bytes] = []
        """The beginning of an event whose end has not come yet. In pieces: joining them each time would take a time
        that grows with the square of their number."""
        self._kept_bytes: int = 0
        self._carriage_return: bool = False
        """The last byte was a CR that ended a line; an LF right after it belongs to it."""
        self._started: bool = False

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The events that these bytes complete, each as (name, data); the name is empty where none is given."""
        if not self._started:
            data = self._begin(data)
        if b"\r" in data or self._carriage_return:
            data = self._with_plain_newlines(data)
        kept = self._kept
        if b"\n\n" not in data and not (kept and data.startswith(b"\n") and kept[-1].endswith(b"\n")):
            if data:
                self._keep(data)
            return []
        if kept:
            kept.append(data)
            data = b"".join(kept)
            kept.clear()
            self._kept_bytes = 0
        *frames, rest = data.split(b"\n\n")
        if rest:
            self._keep(rest)
        return [event for frame in frames if (event := _parsed(frame)) is not None]

    def finish(self) -> list[tuple[bytes, bytes]]:
        """The event at the very end, if its closing blank line never came."""
        frame = b"".join(self._kept)
        self._kept.clear()
        event = _parsed(frame)
        return [] if event is None else [event]

    def _begin(self, data: bytes) -> bytes:
        """Take a byte-order mark away; wait until there are enough bytes to tell."""
        data = b"".join([*self._kept, data])
        self._kept.clear()
        if len(data) < len(_BOM) and _BOM.startswith(data):
            self._kept.append(data)
            return b""
        self._started = True
        return data.removeprefix(_BOM)

    def _with_plain_newlines(self, data: bytes) -> bytes:
        if self._carriage_return and data.startswith(b"\n"):
            data = data[1:]
            self._carriage_return = False
        if data:
            self._carriage_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, rest: bytes) -> None:
        self._kept_bytes += len(rest)
        if self._kept_bytes > _MAX_EVENT_BYTES:
            message = f"A single event of the stream is longer than {_MAX_EVENT_BYTES} bytes."
            raise ProtocolError(message)
        self._kept.append(rest)


def _parsed(frame: bytes) -> tuple[bytes, bytes] | None:
    """The name and data of one event; None if it has no data."""
    # Nearly all events are one line of data, or a name and a line of data.
    if frame.startswith(b"data: "):
        if b"\n" not in frame:
            return b"", frame[6:]
    elif frame.startswith(b"event: "):
        name, _, line = frame.partition(b"\n")
        if line.startswith(b"data: ") and b"\n" not in line:
            return name[7:], line[6:]
    return _parsed_by_lines(frame)


def _parsed_by_lines(frame: bytes) -> tuple[bytes, bytes] | None:
    name = b""
    lines: list[bytes] = []
    for line in frame.split(b"\n"):
        field, colon, value = line.partition(b":")
        if colon and value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            lines.append(value)
        elif field == b"event":
            name = value
    return (name, b"\n".join(lines)) if lines else None
