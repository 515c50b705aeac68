"""The shape of JSON Schema: which keywords hold schemas, and the definitions that schemas share.

Owns: walking over a schema without mistaking data (a `default` that looks like a schema) for a schema, and `$defs`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias, cast

Schema: TypeAlias = dict[str, object]

HOLDS_ONE = frozenset(
    {"additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"}
    | {"propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"}
)
HOLDS_LIST = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
HOLDS_MAP = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})

_PREFIX = "#/$defs/"
_ANNOTATIONS = frozenset(["$comment", "$ref", "default", "deprecated", "description", "examples"])


class Definition:
    """A schema that others refer to by `{"$ref": definition}`, until `write_document` decides where it stands."""

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.schema: Schema = {}


def map_subschemas(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
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
    return map_subschemas({keyword: value for keyword, value in schema.items() if keyword != "title"}, without_titles)


def describe(schema: Schema, text: str) -> Schema:
    """A copy with a description, put before the one that it has."""
    both = f"{text} {schema.get('description', '')}".strip()
    return {**schema, "description": both} if text else schema


def adopt(schema: Schema) -> Schema:
    """The schema of another document, with definitions in the place of its `$defs`."""
    inner = cast("dict[str, Schema]", schema.get("$defs") or {})
    found: dict[object, Definition] = {_PREFIX + name: Definition(name) for name in inner}

    def move(sub: Schema) -> Schema:
        copy = map_subschemas(sub, move)
        reference = copy.get("$ref")
        return {**copy, "$ref": found.get(reference, reference)} if isinstance(reference, str) else copy

    for name, definition in inner.items():
        found[_PREFIX + name].schema = move(definition)
    return move({keyword: value for keyword, value in schema.items() if keyword != "$defs"})


def write_document(root: Schema) -> Schema:
    """The schema with its definitions: each in place where it is used once, else under `$defs`."""
    uses: Counter[Definition] = Counter()

    def count(schema: Schema) -> Schema:
        target = schema.get("$ref")
        if isinstance(target, Definition):
            # Beside anything but annotations the two schemas cannot be merged into one; so it stays a reference.
            is_new = target not in uses
            uses[target] += 1 if schema.keys() <= _ANNOTATIONS else 2
            if is_new:
                count(target.schema)
        return map_subschemas(schema, count)

    count(root)
    if not uses:
        return root
    names = _unique_names([definition for definition, times in uses.items() if times > 1])

    def place(schema: Schema) -> Schema:
        target = schema.get("$ref")
        if not isinstance(target, Definition):
            return map_subschemas(schema, place)
        return {**schema, "$ref": _PREFIX + names[target]} if target in names else place(_merge(target.schema, schema))

    top = root.get("$ref")
    document = place(_merge(top.schema, root) if isinstance(top, Definition) else root)
    definitions = {name: place(definition.schema) for definition, name in names.items()}
    return {**document, "$defs": definitions} if definitions else document


def _merge(definition: Schema, reference: Schema) -> Schema:
    """A definition in the place of a reference to it, with what is said beside the reference."""
    beside = {keyword: value for keyword, value in reference.items() if keyword not in ("$ref", "description")}
    return {**describe(definition, str(reference.get("description", ""))), **beside}


def _unique_names(definitions: list[Definition]) -> dict[Definition, str]:
    names: dict[Definition, str] = {}
    for definition in definitions:
        letters = (letter if letter.isalnum() or letter in "._-" else "_" for letter in definition.name)
        name = free = "".join(letters).strip("_") or "Type"
        number = 2
        while free in names.values():
            free = f"{name}_{number}"
            number += 1
        names[definition] = free
    return names
