"""Words for types, as they are found in schemas in the wild.

Owns: which JSON Schema type a word from another language means.
Must not know: what to do with it (normalise.py).
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["JSON_TYPES", "Meaning", "meaning_of"]

JSON_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")

_WORDS = {
    "array": "array arraylist collection frozenset hashset iterable linkedlist list sequence set tuple vector",
    "boolean": "bool boolean logical",
    "integer": "bigint biginteger byte int int16 int32 int64 int8 integer long short uint uint16 uint32 uint64 uint8",
    "null": "nil none nonetype null undefined void",
    "number": "bigdecimal decimal double float float32 float64 num number numeric real",
    "object": "dict dictionary hash hashmap json jsonobject map mapping object record struct",
    "string": "char character str string text varchar",
    "": "any mixed unknown variant",
}
_MEANINGS = {word: meaning for meaning, words in _WORDS.items() for word in words.split()} | {"": "", "*": ""}

# list[str], List<String>, ArrayList<Integer>; string[]
_GENERIC = re.compile(r"(?P<outer>\w+)\s*(?:\[(?P<square>.+)\]|<(?P<angle>.+)>)")
_SUFFIXED = re.compile(r"(?P<item>.+)\[\s*\]")


class Meaning(NamedTuple):
    """What a word says: a type, `""` for any type, and the type of the items if it names one."""

    type: str
    items: str = ""


def meaning_of(word: str) -> Meaning | None:
    """What a word means; None if nobody knows."""
    plain = word.strip().rpartition(".")[2].lower()  # typing.List, java.lang.String
    if plain in _MEANINGS:
        return Meaning(_MEANINGS[plain])
    text = word.strip()
    if (match := _SUFFIXED.fullmatch(text)) is not None:
        return Meaning("array", match["item"])
    if (match := _GENERIC.fullmatch(text)) is not None:
        outer = _MEANINGS.get(match["outer"].lower())
        inner = match["square"] or match["angle"]
        if outer == "array":
            return Meaning("array", inner if "," not in inner else "")
        if outer == "object":
            return Meaning("object")
    return None
