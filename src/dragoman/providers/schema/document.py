"""One JSON Schema document: what its references point at, and its combinators resolved.

Owns: references within the document (nothing is ever fetched); oddities put right; merging what holds at once, so that
a schema becomes alternatives without references, `allOf`, `anyOf` and `oneOf`; and a limit on how far it may grow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from typing import Final

from dragoman.errors import ToolDefinitionError

from .rules import (
    ANNOTATIONS,
    JSON_TYPES,
    LIMITED_TYPE,
    META,
    Notes,
    Schema,
    as_json,
    distinct,
    is_array,
    is_object,
    join_texts,
    kind_is_one_of,
    kind_of,
    same,
    shorten,
)

COMBINATORS: Final = frozenset(["$ref", "allOf", "anyOf", "oneOf"])
_MOST_ALTERNATIVES: Final = 64
"""Alternatives of alternatives multiply; beyond this many the second ones are left out."""
_MOST_WORK: Final = 12_000
"""How many schemas may be looked at and merged, long ones counting for several: references that double each other, or
lists that are merged again and again, would keep us busy for ever."""
_LONG: Final = 200
_PERCENT: Final = re.compile(rb"%([0-9a-fA-F]{2})")
_NO_NUMBERS: Final = frozenset(["pattern", "format", "contentEncoding", "contentMediaType", "uniqueItems"])
_LIMIT_NOTHING: Final[Schema] = {"minLength": 0, "minItems": 0, "minProperties": 0, "uniqueItems": False}


class TooLargeError(ToolDefinitionError):
    """A schema that grows beyond measure when its references are resolved."""


class Document:
    """One schema, and what its references point at."""

    def __init__(self, root: Schema, notes: Notes) -> None:
        self.root: Schema = root
        self._notes: Notes = notes
        self._left: int = _MOST_WORK

    def spend(self, *merged: Schema) -> None:
        """One more schema is looked at, and these came of it."""
        self._left -= 1 + sum([1 + len(as_json(schema)) // _LONG for schema in merged])
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

    def forms(
        self,
        schema: object,
        at: str,
        opened: Collection[str] = (),
        expanded: list[str] | None = None,
        notes: Notes | None = None,
    ) -> list[Schema]:
        """The schema as alternatives without references and combinators; none if nothing fits.

        What cannot be merged into one schema stays under its `allOf`. A reference to one of `opened` would lead in a
        circle and is left out; those that were followed are added to `expanded`.
        """
        self.spend()
        notes = notes or self._notes
        if isinstance(schema, bool):
            return [{}] if schema else []
        if not is_object(schema):
            raise ToolDefinitionError(f"{at} of the schema must be a schema, not {shorten(schema)}.")
        own = {word: value for word, value in schema.items() if word not in COMBINATORS and word not in META}
        found = [put_right(own, at, notes)]

        def add(others: list[Schema], where: str) -> None:
            nonlocal found
            if len(found) * len(others) > _MOST_ALTERNATIVES:
                notes.lost(where, f"{len(found) * len(others)} alternatives are too many, some are left out")
            else:
                merged = [merge(one, other) for one in found for other in others]
                self.spend(*merged)
                found = [both for both in merged if _possible(both)]

        if isinstance(reference := schema.get("$ref"), str):
            pointer = self.pointer(reference, at)
            if pointer in opened:
                notes.lost(at, "refers to a schema that contains it: merged without it")
            else:
                add(self.forms(self.at(pointer), pointer, (*opened, pointer), expanded, notes), at)
                if expanded is not None:
                    expanded.append(pointer)
        for word in ("allOf", "anyOf", "oneOf"):
            branches = schema.get(word)
            if not is_array(branches) or not branches:
                continue
            each = [self.forms(sub, f"{at}/{word}/{i}", opened, expanded, notes) for i, sub in enumerate(branches)]
            if word == "oneOf" and len(branches) > 1:
                notes.lost(f"{at}/oneOf", "written as anyOf: a value may fit more than one form")
            for others in each if word == "allOf" else [[form for forms in each for form in forms]]:
                add(others, f"{at}/{word}")
        return [form for form in found if _possible(form)]


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


def _possible(schema: Schema) -> bool:
    return schema.get("type") != [] and schema.get("enum") != []


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


# --- what holds at once -----------------------------------------------------------------------------------------------

_MEMBERS: Final = ("properties", "additionalProperties", "patternProperties")
_ITEMS: Final = ("items", "prefixItems")
_GROUPS: Final = (_MEMBERS, _ITEMS, ("if", "then", "else"), ("contains", "minContains", "maxContains"))
"""Keywords that mean something together only."""
_GROUPED: Final = frozenset(word for group in _GROUPS for word in group)


def merge(a: Schema, b: Schema) -> Schema:
    """What fits both of two schemas without combinators. What cannot be said in one schema stays under `allOf`."""
    if not a or not b:
        return dict(a or b)
    if b.keys() & {"unevaluatedProperties", "unevaluatedItems"}:  # which depend on what stands beside them
        return {**a, "allOf": [*_array(a.get("allOf")), b]}
    merged, beside = dict(a), Schema()
    for group in _GROUPS:
        of_a, of_b = ({word: one[word] for word in group if word in one} for one in (a, b))
        if of_b and not of_a:
            merged |= of_b
        elif of_b and not same(of_a, of_b):
            joined = _merge_members(of_a, of_b) if group is _MEMBERS else None
            if joined is None:
                beside |= of_b
            else:
                merged |= joined
    for word, value in b.items():
        if word in _GROUPED:
            continue
        if word not in merged:
            merged[word] = value
        elif not same(merged[word], value):
            both = _merge_words(word, merged[word], value)
            if both is not None:
                merged[word] = both
            elif word not in ANNOTATIONS:
                beside[word] = value
    if beside:
        merged["allOf"] = [*_array(merged.get("allOf")), beside]
    return merged


def _both(a: object, b: object) -> object:
    if a is True or b is True or same(a, b):
        return b if a is True else a
    if not is_object(a) or not is_object(b):
        return False
    if a.keys() & COMBINATORS or b.keys() & COMBINATORS:
        return {"allOf": [a, b]}
    merged = merge(put_right(a, "", Notes()), put_right(b, "", Notes()))
    return merged if _possible(merged) else False


def _merge_members(a: Schema, b: Schema) -> Schema | None:
    if "patternProperties" in a or "patternProperties" in b:
        return None
    others = [one.get("additionalProperties", True) for one in (a, b)]
    properties = [found if is_object(found := one.get("properties")) else {} for one in (a, b)]
    names = dict.fromkeys([*properties[0], *properties[1]])
    merged: Schema = {
        name: _both(properties[0].get(name, others[0]), properties[1].get(name, others[1])) for name in names
    }
    closed = _both(others[0], others[1])
    kept = {name: sub for name, sub in merged.items() if sub is not False or closed is not False}
    return {"properties": kept, **({} if closed is True else {"additionalProperties": closed})}


def _merge_words(word: str, a: object, b: object) -> object:
    if word == "description":
        return join_texts(a, b)
    if word == "type":
        return _merge_types(a, b)
    if word == "enum":
        return distinct(_array(a), among=_array(b))
    if word == "required":
        return list(dict.fromkeys([*_array(a), *_array(b)]))
    if word == "allOf":
        return [*_array(a), *_array(b)]
    if word not in LIMITED_TYPE or not isinstance(a, int | float) or not isinstance(b, int | float):
        return None
    if word == "multipleOf":
        return math.lcm(a, b) if isinstance(a, int) and isinstance(b, int) else None
    return min(a, b) if "max" in word.lower() else max(a, b)


def _merge_types(a: object, b: object) -> object:
    first, second = (types_of({"type": one}) or [] for one in (a, b))
    both = [kind for kind in JSON_TYPES if kind_is_one_of(kind, first) and kind_is_one_of(kind, second)]
    both = [kind for kind in both if kind != "integer" or "number" not in both]
    return both[0] if len(both) == 1 else both


def _array(value: object) -> Sequence[object]:
    return value if is_array(value) else []
