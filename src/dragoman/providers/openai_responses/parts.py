"""Output items and their parts while they grow, and small questions about their content.

Owns: what is remembered of an item between its beginning and its end.
Must not know: events (reply.py makes them).
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from .wire import items_of, members_of, text_of

__all__ = ["BETWEEN_THOUGHTS", "Item", "Part", "is_json", "same_json", "texts_of"]

BETWEEN_THOUGHTS: Final = "\n\n"


class Part:
    """A text, a thought or a call while it grows."""

    __slots__ = ("id", "index", "pieces", "started")

    def __init__(self, index: int, id: str) -> None:
        self.index = index
        self.id = id
        self.pieces: list[str] = []
        self.started = True


class Item:
    """An output item from when it was added until it is done."""

    __slots__ = ("added", "closed", "id", "kind", "part", "source", "texts")

    def __init__(self, kind: str, id: str, added: Raw) -> None:
        self.kind = kind
        self.id = id
        self.added = added
        """As it was when it was added: the best that is known of it until it is done."""
        self.closed = False
        self.texts: dict[int | None, Part] = {}
        """Of a message: its text parts by content index."""
        self.part: Part | None = None
        """The one block that it becomes; of a message, the place of its first, until that begins."""
        self.source: tuple[str, int] | None = None
        """Of reasoning: whether summaries or the thoughts themselves are read, and up to which one."""


def texts_of(parts: Raw | None) -> list[str]:
    """The texts in a list of summaries or thoughts, without empty ones."""
    texts = [text_of(members_of(part).get("text")) for part in items_of(parts)]
    return [text for text in texts if text]


def is_json(text: str) -> bool:
    """Whether a text is complete JSON; no arguments at all are complete too."""
    try:
        msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return False
    return True


def same_json(a: str, b: str) -> bool:
    """Whether two texts are the same JSON value."""
    try:
        return bool(msgspec.json.decode(a) == msgspec.json.decode(b))
    except msgspec.DecodeError:
        return False
