"""What the two kinds of processes share.

Owns: cutting output into lines of any length, the program's last words, and killing a process group.
Must not know: how bytes arrive.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from contextlib import suppress
from typing import Final

__all__ = ["LastWords", "Lines", "kill_group"]

_KEPT: Final = 4096


class Lines:
    """Bytes in any pieces become lines. There is no limit to a line: a result may be as long as it likes."""

    def __init__(self) -> None:
        self.whole: deque[bytes] = deque()
        self.size: int = 0
        """Bytes in whole lines."""
        self._open: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """The next bytes."""
        first, *others = data.split(b"\n")
        self._open.append(first)
        for piece in others:
            self._close()
            self._open.append(piece)

    def end(self) -> None:
        """There are no more bytes: what is left is a line too."""
        if any(self._open):
            self._close()

    def _close(self) -> None:
        line = b"".join(self._open)
        self._open.clear()
        if line.strip():
            self.whole.append(line)
            self.size += len(line)

    def take(self) -> bytes:
        """The next line."""
        line = self.whole.popleft()
        self.size -= len(line)
        return line


class LastWords:
    """The end of what a program wrote to its standard error."""

    def __init__(self) -> None:
        self._kept: bytes = b""

    def add(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-_KEPT:]

    @property
    def text(self) -> str:
        """The last lines, for a message."""
        lines = self._kept.decode("utf-8", "replace").strip().splitlines()
        return " / ".join([line.strip() for line in lines[-5:] if line.strip()])[-500:]


def kill_group(leader: int) -> None:
    """End a program and all that it has started in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
