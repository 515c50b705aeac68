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

    __slots__ = ("_buffer", "_carriage_return", "_started")

    def __init__(self) -> None:
        self._buffer: bytes = b""
        self._carriage_return: bool = False
        """The last byte was a CR that ended a line; an LF right after it belongs to it."""
        self._started: bool = False

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The events that these bytes complete, each as (name, data); the name is empty where none is given."""
        if not self._started:
            data = self._begin(data)
        if b"\r" in data or self._carriage_return:
            data = self._with_plain_newlines(data)
        buffer = self._buffer + data if self._buffer else data
        if b"\n\n" not in buffer:
            self._keep(buffer)
            return []
        *frames, rest = buffer.split(b"\n\n")
        self._keep(rest)
        events: list[tuple[bytes, bytes]] = []
        for frame in frames:
            if frame.startswith(b"data: ") and b"\n" not in frame:  # nearly all of them
                events.append((b"", frame[6:]))
            elif (event := _parsed(frame)) is not None:
                events.append(event)
        return events

    def finish(self) -> list[tuple[bytes, bytes]]:
        """The event at the very end, if its closing blank line never came."""
        frame, self._buffer = self._buffer, b""
        event = _parsed(frame)
        return [] if event is None else [event]

    def _begin(self, data: bytes) -> bytes:
        """Take a byte-order mark away; wait until there are enough bytes to tell."""
        data = self._buffer + data
        self._buffer = b""
        if len(data) < len(_BOM) and _BOM.startswith(data):
            self._buffer = data
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
        if len(rest) > _MAX_EVENT_BYTES:
            message = f"A single event of the stream is longer than {_MAX_EVENT_BYTES} bytes."
            raise ProtocolError(message)
        self._buffer = rest


def _parsed(frame: bytes) -> tuple[bytes, bytes] | None:
    """The name and data of one event; None if it has no data."""
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
