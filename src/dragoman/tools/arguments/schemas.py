"""The shape of JSON Schema: which keywords hold schemas, and where.

Owns: walking over a schema without mistaking data (a `default` that looks like a schema) for a schema, and `$defs`.
Must not know: what the schemas are for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, cast

__all__ = ["Definitions", "Schema", "described", "mapped", "subschemas", "without_titles"]

Schema: TypeAlias = dict[str, object]

HOLDS_ONE = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
HOLDS_LIST = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
HOLDS_MAP = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})

_PREFIX = "#/$defs/"
_ANNOTATIONS = frozenset({"$comment", "$ref", "default", "deprecated", "description", "examples"})


def subschemas(schema: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every direct subschema with the steps that lead to it."""
    for keyword, value in schema.items():
        if keyword in HOLDS_MAP and isinstance(value, Mapping):
            for name, sub in cast("Mapping[str, object]", value).items():
                yield (keyword, name), sub
        elif keyword in HOLDS_LIST and isinstance(value, list):
            for index, sub in enumerate(cast("list[object]", value)):
                yield (keyword, str(index)), sub
        elif keyword in HOLDS_ONE:
            yield (keyword,), value


def mapped(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """A copy with every direct subschema that is an object replaced by `change` of it."""

    def changed(sub: object) -> object:
        return change(cast("Schema", sub)) if isinstance(sub, dict) else sub

    copy: Schema = {}
    for keyword, value in schema.items():
        if keyword in HOLDS_MAP and isinstance(value, dict):
            copy[keyword] = {name: changed(sub) for name, sub in cast("Schema", value).items()}
        elif keyword in HOLDS_LIST and isinstance(value, list):
            copy[keyword] = [changed(sub) for sub in cast("list[object]", value)]
        else:
            copy[keyword] = changed(value) if keyword in HOLDS_ONE else value
    return copy


def without_titles(schema: Schema) -> Schema:
    """A copy without the titles that generators derive from names: the model knows the names."""
    return mapped({keyword: value for keyword, value in schema.items() if keyword != "title"}, without_titles)


def described(schema: Schema, text: str) -> Schema:
    """A copy with a description, put before the one that it has."""
    both = f"{text} {schema.get('description', '')}".strip()
    return {**schema, "description": both} if text else schema


class Definitions:
    """The `$defs` of one document while it is being written."""

    def __init__(self) -> None:
        self._names: dict[object, str] = {}
        self._schemas: dict[str, Schema] = {}

    def reference(self, key: object, name: str, make: Callable[[], Schema]) -> Schema:
        """A `$ref` to what `make` writes; it is called once for each key, however often the key comes up."""
        if key not in self._names:
            self._names[key] = self._free(name)
            self._schemas[self._names[key]] = {}  # takes its place before the types that it refers to
            self._schemas[self._names[key]] = make()
        return {"$ref": _PREFIX + self._names[key]}

    def adopt(self, schema: Schema) -> Schema:
        """The schema of another document, its definitions moved here under names that are free."""
        inner = cast("dict[str, Schema]", schema.get("$defs") or {})
        names = {_PREFIX + name: _PREFIX + self._free(name) for name in inner}

        def moved(sub: Schema) -> Schema:
            copy = mapped(sub, moved)
            reference = copy.get("$ref")
            return {**copy, "$ref": names.get(reference, reference)} if isinstance(reference, str) else copy

        for name in inner:
            self._schemas[names[_PREFIX + name].removeprefix(_PREFIX)] = {}
        for name, definition in inner.items():
            self._schemas[names[_PREFIX + name].removeprefix(_PREFIX)] = moved(definition)
        return moved({keyword: value for keyword, value in schema.items() if keyword != "$defs"})

    def document(self, root: Schema) -> Schema:
        """The root with what it refers to: written in place where that is one place only, else under `$defs`."""
        name = _target(root)
        if name is not None and name in self._schemas:
            root = _merged(self._schemas[name], root)
        used: Counter[str] = Counter()
        self._count(root, used)
        # Whatever refers to the root's own definition needs it by name, even once: it is recursive.
        shared = {key for key, times in used.items() if times > 1 or key == name}

        def placed(schema: Schema) -> Schema:
            target = _target(schema)
            if target in self._schemas and target not in shared:
                return placed(_merged(self._schemas[target], schema))
            return mapped(schema, placed)

        document = placed(root)
        definitions = {key: placed(schema) for key, schema in self._schemas.items() if key in shared}
        return {**document, "$defs": definitions} if definitions else document

    def _count(self, schema: Schema, used: Counter[str]) -> None:
        """How often each definition is referred to from anything that the schema reaches."""
        name = _target(schema)
        if name is not None and name in self._schemas:
            first = name not in used
            # Beside anything but annotations the two schemas cannot be merged into one; so it stays a reference.
            used[name] += 1 if schema.keys() <= _ANNOTATIONS else 2
            if first:
                self._count(self._schemas[name], used)
        for _, sub in subschemas(schema):
            if isinstance(sub, dict):
                self._count(cast("Schema", sub), used)

    def _free(self, name: str) -> str:
        name = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name).strip("_") or "Type"
        number = 2
        free = name
        while free in self._schemas or free in self._names.values():
            free = f"{name}_{number}"
            number += 1
        return free


def _target(schema: Schema) -> str | None:
    reference = schema.get("$ref")
    return reference.removeprefix(_PREFIX) if isinstance(reference, str) and reference.startswith(_PREFIX) else None


def _merged(definition: Schema, reference: Schema) -> Schema:
    """A definition in the place of a reference to it, with what is said beside the reference."""
    beside = {keyword: value for keyword, value in reference.items() if keyword not in ("$ref", "description")}
    return {**described(definition, str(reference.get("description", ""))), **beside}
