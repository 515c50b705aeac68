"""One JSON Schema document: what its references point at, and what is not quite JSON Schema put right.

Owns: references within the document (nothing is ever fetched), and a limit on how often they may be followed.
"""

from __future__ import annotations

import re
from typing import Final

from dragoman.errors import ToolDefinitionError

from .rules import JSON_TYPES, LIMITED_TYPE, META, Notes, Schema, is_array, is_object, kind_of, same, shorten

COMBINATORS: Final = frozenset(["$ref", "allOf", "anyOf", "oneOf"])
_MOST_WORK: Final = 12_000
"""How many schemas and properties may be looked at: references that double each other would keep us busy for ever."""
_PERCENT: Final = re.compile(rb"%([0-9a-fA-F]{2})")
_NO_NUMBERS: Final = frozenset(["pattern", "format", "contentEncoding", "contentMediaType", "uniqueItems"])
_LIMIT_NOTHING: Final[Schema] = {"minLength": 0, "minItems": 0, "minProperties": 0, "uniqueItems": False}


class TooLargeError(ToolDefinitionError):
    """A schema that grows beyond measure when its references are resolved."""


class Document:
    """One schema, and what its references point at."""

    def __init__(self, root: Schema) -> None:
        self.root: Schema = root
        self._left: int = _MOST_WORK

    def spend(self, work: int = 1) -> None:
        """So many more schemas are looked at."""
        self._left -= work
        if self._left < 0:
            message = "the schema grows beyond measure when its references are resolved"
            raise TooLargeError(message, hint="Give it fewer references to the same definitions.")

    def pointer(self, reference: str, at: str) -> str:
        """The JSON pointer that a reference means. Raises if it is to another document or to nothing."""
        base, _, fragment = reference.partition("#")
        if base and base != self.root.get("$id"):
            raise ToolDefinitionError(
                f"The schema refers to another document at {at or '/'}: {reference}. Nothing is fetched.",
                hint="Put the definition under $defs of the same schema and refer to it by #/$defs/...",
            )
        pointer = _PERCENT.sub(lambda match: bytes([int(match[1], 16)]), fragment.encode()).decode(errors="replace")
        if (pointer and not pointer.startswith("/")) or self.at(pointer) is None:
            message = f"The schema refers to nothing at {at or '/'}: there is no {reference}."
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
        """The pointer to what is no mere reference to something else."""
        seen = {pointer}
        while (reference := mere_reference(self.at(pointer))) is not None:
            pointer = self.pointer(reference, pointer)
            if pointer in seen:
                raise ToolDefinitionError(f"The schema refers to itself and to nothing else at {pointer or '/'}.")
            seen.add(pointer)
        return pointer


def mere_reference(schema: object) -> str | None:
    """What a schema refers to that says nothing else; None if it does not, or says more."""
    while is_object(schema) and len(said := [word for word in schema if word not in META]) == 1:
        inner = schema[said[0]]
        if said[0] == "$ref":
            return inner if isinstance(inner, str) else None
        schema = inner[0] if said[0] in COMBINATORS and is_array(inner) and len(inner) == 1 else None
    return None


def types_of(schema: Schema) -> list[str] | None:
    """The types that a schema names; None: any."""
    found = schema.get("type")
    return None if found is None else [str(kind) for kind in found] if is_array(found) else [str(found)]


# --- what is not quite JSON Schema, or of an older draft --------------------------------------------------------------


def put_right(schema: Schema, at: str, notes: Notes) -> Schema:
    """The schema in the words of today's JSON Schema, without limits that limit nothing."""
    found = dict(schema)
    if "type" in found:
        given = found["type"]
        words = [
            str(word).lower() for word in (given if is_array(given) else [given])
        ]  # Gemini writes them in capitals
        if given != [] and not all(word in JSON_TYPES for word in words):
            notes.lost(f"{at}/type", f"{shorten(given)} is no type, read as any")
            del found["type"]
        else:
            words += ["null"] if found.get("nullable") is True else []
            words = list(dict.fromkeys(word for word in words if word != "integer" or "number" not in words))
            found["type"] = words[0] if len(words) == 1 else words
    if "const" in found:
        found["enum"] = [found.pop("const")]
    if found.pop("nullable", None) is True and is_array(values := found.get("enum")) and None not in values:
        found["enum"] = [*values, None]
    if is_array(items := found.get("items")):  # how it was written before 2020-12
        found["prefixItems"] = items
        found.pop("items")
        if "additionalItems" in found:
            found["items"] = found["additionalItems"]
    found.pop("additionalItems", None)
    for word in ("minimum", "maximum"):
        if isinstance(exclusive := found.get(name := f"exclusive{word.title()}"), bool):  # draft 4 and OpenAPI 3.0
            del found[name]
            if exclusive and word in found:
                found[name] = found.pop(word)
    for word in [word for word in found if word in LIMITED_TYPE]:
        if same(found[word], _LIMIT_NOTHING.get(word)):
            del found[word]
        elif word not in _NO_NUMBERS and kind_of(found[word]) not in ("integer", "number"):
            notes.lost(f"{at}/{word}", f"{shorten(found.pop(word))} is no number, removed")
    return found
