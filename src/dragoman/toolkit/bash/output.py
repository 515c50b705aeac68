"""The output of a command, of which the beginning and the end are kept.

Owns: taking in any amount of bytes with bounded memory, and the mark between the two parts.
Must not know: where the bytes come from.
"""

from __future__ import annotations

from dragoman.toolkit.text import UTF8, clipped

__all__ = ["Output"]


class Output:
    """One stream. Half of the limit is for the beginning, half for the end, where results and errors mostly are."""

    def __init__(self, limit: int) -> None:
        self._half: int = max(1, limit // 2)
        self._head: bytearray = bytearray()
        self._tail: bytearray = bytearray()
        self.total: int = 0
        """How many bytes came in all."""

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 4 * self._half:
            del self._tail[: -self._half]

    @property
    def text(self) -> str:
        """What is kept, with a mark where something is missing."""
        left_out = self.total - len(self._head) - min(len(self._tail), self._half)
        if left_out <= 0:
            return _readable(bytes(self._head + self._tail))
        head = clipped(bytes(self._head), UTF8)
        tail = bytes(self._tail[-self._half :])
        while tail and tail[0] & 0xC0 == 0x80 and len(tail) > self._half - 4:  # the rest of a character
            tail = tail[1:]
        left_out = self.total - len(head) - len(tail)
        mark = f"[… {left_out} bytes left out of {self.total}; to see them, write the output to a file and read that …]"
        return f"{_readable(head)}\n{mark}\n{_readable(tail)}"


def _readable(data: bytes) -> str:
    # NUL is valid text, but databases and terminals choke on it.
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")
