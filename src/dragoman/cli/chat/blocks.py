"""Which part of a growing Markdown text is complete.

Owns: cutting the text into blocks that can be shown for good while the rest is still coming.
Must not know: how Markdown is rendered.

A block ends with an empty line outside of a fenced code block. Rendering the whole text again for every piece would
cost more the longer the answer is, and a terminal cannot take back what has scrolled away.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["Blocks"]

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


class Blocks:
    """A text that grows. `feed` gives the blocks that have become complete; `rest` is what is not."""

    def __init__(self) -> None:
        self._done: str = ""
        """Whole lines of the block that is still open."""
        self._line: str = ""
        self._fence: str = ""
        """The mark that closes the code block we are in."""

    @property
    def rest(self) -> str:
        """What has come and belongs to no complete block."""
        return self._done + self._line

    def feed(self, text: str) -> list[str]:
        """Take in a piece, and give the blocks that it completes."""
        blocks: list[str] = []
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._take(line)
            if not line.strip() and not self._fence and self._done.strip():
                blocks.append(self._done)
                self._done = ""
        return blocks

    def end(self) -> str:
        """The last block."""
        rest, self._done, self._line, self._fence = self.rest, "", "", ""
        return rest

    def _take(self, line: str) -> None:
        self._done += f"{line}\n"
        found = _FENCE.fullmatch(line)
        if found is None:
            return
        mark, behind = found[1], found[2]
        if not self._fence:
            if mark[0] == "~" or "`" not in behind:
                self._fence = mark
        elif mark.startswith(self._fence) and not behind.strip():
            self._fence = ""
