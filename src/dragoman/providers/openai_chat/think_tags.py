"""Reasoning that stands in the text, between tags, as some servers send it.

Owns: taking `<think>…</think>` off the start of a text that comes in pieces. Only for servers whose profile says so:
elsewhere a text that begins with this tag is a text.
Must not know: events.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CLOSE", "OPEN", "ThinkTags"]

OPEN: Final = "<think>"
CLOSE: Final = "</think>"


class ThinkTags:
    """Splits the start of a text; `done` says that the rest of it is plain."""

    __slots__ = ("_behind", "_held", "_inside", "done")

    def __init__(self) -> None:
        self._held: str = ""
        """What may be the beginning of a tag."""
        self._inside: bool = False
        self._behind: bool = False
        """Behind the closing tag, where line breaks belong to neither."""
        self.done: bool = False

    def split(self, piece: str) -> tuple[str, str]:
        """The reasoning and the text in this piece."""
        held = self._held + piece
        self._held = ""
        if not self._inside:
            start = held.lstrip()
            if OPEN.startswith(start) and start != OPEN:
                self._held = held
                return "", ""
            if not start.startswith(OPEN):
                self.done = True
                return "", held
            self._inside = True
            held = start[len(OPEN) :]
        thought, closed, text = ("", CLOSE, held) if self._behind else held.partition(CLOSE)
        if closed:
            text = text.lstrip("\n")
            self._behind, self.done = True, bool(text)
            return thought, text
        self._held = _beginning_of_tag(thought)
        return thought[: len(thought) - len(self._held)], ""

    def rest(self) -> tuple[str, str]:
        """What was held back, now that nothing follows."""
        held, self._held = self._held, ""
        return (held, "") if self._inside else ("", held)


def _beginning_of_tag(text: str) -> str:
    """The longest end of the text with which the closing tag may begin."""
    for length in range(min(len(text), len(CLOSE) - 1), 0, -1):
        if text.endswith(CLOSE[:length]):
            return text[-length:]
    return ""
