"""How far a download has got: the value that is told, and a bar for terminals."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import Final, Literal, TextIO, TypeAlias

from msgspec import Struct

Phase: TypeAlias = Literal["waiting", "checking", "fetching", "done", "stopped"]


class Progress(Struct, frozen=True, kw_only=True):
    """Where a download stands."""

    model: str
    phase: Phase
    """Another program is fetching it; what is here is checked; it is being fetched; it is there; it will not be."""
    done: int
    """Bytes that are here."""
    total: int


OnProgress: TypeAlias = Callable[[Progress], None]

_WORDS: Final[dict[str, str]] = {
    "waiting": "another program is fetching",
    "checking": "checking",
    "fetching": "fetching",
    "done": "ready:",
    "stopped": "stopped, what is here is kept:",
}
_WIDTH: Final = 28


class ProgressBar:
    """Writes one line that changes, at most ten times a second."""

    def __init__(
        self,
        stream: TextIO,
        *,
        clock: Callable[[], float] = time.monotonic,
        columns: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
    ) -> None:
        self._stream: TextIO = stream
        self._clock: Callable[[], float] = clock
        self._columns: Callable[[], int] = columns
        self._last: float = float("-inf")
        self._longest: int = 0

    def __call__(self, progress: Progress) -> None:
        """Show it, unless something was shown a moment ago."""
        now, done = self._clock(), progress.phase in ("done", "stopped")
        if now - self._last < 0.1 and not done:
            return
        if done and not self._longest:
            return  # it was there already, or failed at once: nothing to say
        self._last = now
        sizes = f"{progress.done / 1e6:.0f}/{progress.total / 1e6:.0f} MB"
        what = f"{_WORDS[progress.phase]} {progress.model}"
        room = self._columns() - 1  # a line that is full would become two
        width = max(0, min(_WIDTH, room - len(what) - len(sizes) - 2))
        filled = round(min(1.0, progress.done / max(1, progress.total)) * width)
        line = f"{what} {'█' * filled}{'░' * (width - filled)} {sizes}"[:room]
        try:
            self._stream.write(f"\r{line.ljust(self._longest)}" + ("\n" if done else ""))
            self._stream.flush()
        except UnicodeEncodeError:  # a terminal that knows no such letters
            self._stream.write(f"\r{progress.model} {sizes}" + ("\n" if done else ""))
        self._longest = 0 if done else max(self._longest, len(line))


def bar_if_terminal(stream: TextIO | None = None) -> OnProgress | None:
    """A bar on stderr if somebody is there to see it; otherwise None."""
    stream = sys.stderr if stream is None else stream
    return ProgressBar(stream) if stream is not None and stream.isatty() else None
