"""What a conversion changed: collected while it goes on, one line each.

Owns: Note and the list of them.
Must not know: why anything is changed.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from .words import Schema, shown

__all__ = ["NOT_STRICT", "Note", "Notes", "described", "joined"]

NOT_STRICT = "not strict: "
"""How a note begins that tells the caller not to send the schema as a strict one."""


class Note(Struct, frozen=True):
    """One change, at one place of the given schema."""

    at: str
    """JSON pointer; empty for the root."""
    text: str
    lossy: bool = False
    """What is sent allows values that the given schema does not: whoever gets the values must check them."""

    def __str__(self) -> str:
        return f"{self.at or '/'}: {self.text}"


class Notes:
    """Notes in the order in which they came up, each once."""

    def __init__(self) -> None:
        self._all: dict[Note, None] = {}

    def rewritten(self, at: str, text: str) -> None:
        """Said in other words, or narrowed: whatever fits what is sent fits the given schema."""
        self._all[Note(at, text)] = None

    def lost(self, at: str, text: str) -> None:
        """Not enforced any more."""
        self._all[Note(at, text, lossy=True)] = None

    def only_described(self, at: str, word: str, value: object) -> None:
        """A limit that the provider does not know; it stands in the description now."""
        self.lost(f"{at}/{word}", f"{shown(value)} is only in the description")

    def removed(self, at: str, word: str) -> None:
        """A word without meaning to values."""
        self.rewritten(f"{at}/{word}", "removed, the provider does not know it")

    def extend(self, notes: tuple[Note, ...]) -> None:
        """The notes of an earlier step."""
        self._all.update(dict.fromkeys(notes))

    @property
    def all(self) -> tuple[Note, ...]:
        """The notes so far."""
        return tuple(self._all)


def joined(*texts: object) -> str:
    """Descriptions one after the other, each once."""
    return " ".join(dict.fromkeys(text.strip() for text in texts if isinstance(text, str) and text.strip()))


def described(description: object, limits: Schema) -> str:
    """A description that also tells the model of limits that the provider does not enforce."""
    if not limits:
        return joined(description)
    return joined(description, f"Must also match the JSON Schema {msgspec.json.encode(limits).decode()}.")
