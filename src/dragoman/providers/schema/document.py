"""A JSON Schema document: its references, and the notes on what a conversion changed.

References stay within the document, nothing is ever fetched, and a budget limits how often they are followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from dragoman.errors import ToolDefinitionError
from dragoman.tools import is_array, is_object

_T = TypeVar("_T")
Schema: TypeAlias = dict[str, object]
META: Final = frozenset(["$anchor", "$comment", "$dynamicAnchor", "$id", "$schema", "$vocabulary", "id"])
"""Keywords about the document, not about values."""
COMBINATORS: Final = frozenset(["$ref", "allOf", "anyOf", "oneOf"])
_PERCENT: Final = re.compile(rb"%([0-9a-fA-F]{2})")
_BUDGET: Final = 12_000
"""How many schemas and properties may be visited: references that double each other would never end."""


class Note(Struct, frozen=True):
    """One change, at one place of the given schema."""

    at: str
    """JSON pointer; empty for the root."""
    text: str
    lossy: bool = False
    """The schema that is sent allows values that the given one does not, so the receiver must validate them."""

    def __str__(self) -> str:
        return f"{self.at or '/'}: {self.text}"


def only_described(at: str, keyword: str, value: object) -> Note:
    """The note for a constraint that the provider does not know and that moved into the description."""
    return Note(f"{at}/{keyword}", f"{shorten(value)} is only in the description", lossy=True)


class TooLargeError(ToolDefinitionError):
    """A schema that grows without bounds when its references are resolved."""


class Document:
    """One schema, and what its references point to."""

    def __init__(self, root: Schema) -> None:
        self.root: Schema = root
        self._budget: int = _BUDGET

    def spend(self, count: int = 1) -> None:
        """Count the visit of so many schemas and properties."""
        self._budget -= count
        if self._budget < 0:
            message = "The schema is too large with its references resolved."
            raise TooLargeError(message, hint="Give it fewer references to the same definitions.")

    def pointer(self, reference: str) -> str:
        """The JSON pointer of a reference. Raises if it leads to another document or to nothing."""
        base, _, fragment = reference.partition("#")
        if base and base != self.root.get("$id"):
            raise ToolDefinitionError(
                f"The schema refers to another document: {reference}. Nothing is fetched.",
                hint="Put the definition under $defs of the same schema and refer to it by #/$defs/...",
            )
        pointer = _PERCENT.sub(lambda match: bytes([int(match[1], 16)]), fragment.encode()).decode(errors="replace")
        if (pointer and not pointer.startswith("/")) or self.at(pointer) is None:
            message = f"The schema refers to nothing: there is no {reference}."
            raise ToolDefinitionError(message, hint="Add the definition under $defs, and refer to it by #/$defs/...")
        return pointer

    def at(self, pointer: str) -> object:
        """The schema at a pointer; None if there is none."""
        place: object = self.root
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if is_object(place):
                place = place.get(name)
            elif is_array(place) and name.isdecimal() and int(name) < len(place):
                place = place[int(name)]
            else:
                return None
        return place if is_object(place) or isinstance(place, bool) else None

    def follow(self, pointer: str) -> str:
        """The pointer to the first schema that is more than a reference to another one."""
        seen = {pointer}
        while (reference := _only_reference(self.at(pointer))) is not None:
            pointer = self.pointer(reference)
            if pointer in seen:
                raise ToolDefinitionError(f"The schema only refers to itself at {pointer or '/'}.")
            seen.add(pointer)
        return pointer


def _only_reference(schema: object) -> str | None:
    """The reference that is all a schema says, also inside of combinators; None if it says more or something else."""
    while is_object(schema) and len(words := [word for word in schema if word not in META]) == 1:
        inner = schema[words[0]]
        if words[0] == "$ref":
            return inner if isinstance(inner, str) else None
        schema = inner[0] if words[0] in COMBINATORS and is_array(inner) and len(inner) == 1 else None
    return None


def properties_of(schema: Schema) -> Schema:
    return found if is_object(found := schema.get("properties")) else {}


def required_of(schema: Schema) -> list[str]:
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if is_array(names) else []


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def shorten(value: object) -> str:
    """The value as JSON, cut to a length that fits a note."""
    text = as_json(value)
    return text if len(text) <= 60 else text[:59] + "…"


def escape(name: str) -> str:
    """A name as a step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def join_texts(*texts: object) -> str:
    return " ".join(dict.fromkeys(text.strip() for text in texts if isinstance(text, str) and text.strip()))


def distinct(values: Iterable[_T]) -> list[_T]:
    """The values, each once. Compared as JSON: to Python 1 equals True."""
    return list({msgspec.json.encode(value, order="sorted"): value for value in values}.values())
