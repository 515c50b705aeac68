"""The vocabulary of JSON Schema: which keywords hold schemas, which describe, which limit values of which type.

Owns: the tables, and the small readings of raw JSON that every other module here needs.
Must not know: any provider's rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, TypeGuard, TypeVar

import msgspec

__all__ = [
    "ANNOTATIONS",
    "HOLDS_LIST",
    "HOLDS_MAP",
    "HOLDS_ONE",
    "JSON_TYPES",
    "LIMITED_TYPE",
    "META",
    "Schema",
    "distinct",
    "escaped",
    "is_array",
    "is_object",
    "is_true_schema",
    "kind_is_limited",
    "kind_of",
    "mapped",
    "ordered",
    "same",
    "shown",
]

_T = TypeVar("_T")
Schema: TypeAlias = dict[str, object]

JSON_TYPES: Final = ("object", "array", "string", "integer", "number", "boolean", "null")

HOLDS_ONE: Final = frozenset(
    [
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
    ]
)
HOLDS_LIST: Final = frozenset(["allOf", "anyOf", "items", "oneOf", "prefixItems"])
HOLDS_MAP: Final = frozenset(["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"])

META: Final = frozenset(["$anchor", "$comment", "$dynamicAnchor", "$id", "$schema", "$vocabulary", "id"])
"""About the document, not about values: no model needs to read them, and none misses them."""

ANNOTATIONS: Final = frozenset(["title", "description", "default", "examples", "example", "deprecated"])
"""They tell something and forbid nothing."""

LIMITED_TYPE: Final[dict[str, str]] = {
    "minLength": "string",
    "maxLength": "string",
    "pattern": "string",
    "format": "string",
    "contentEncoding": "string",
    "contentMediaType": "string",
    "minimum": "number",
    "maximum": "number",
    "exclusiveMinimum": "number",
    "exclusiveMaximum": "number",
    "multipleOf": "number",
    "minItems": "array",
    "maxItems": "array",
    "uniqueItems": "array",
    "minProperties": "object",
    "maxProperties": "object",
}
"""Keywords that limit the values of one type and hold no schema; values of other types pass them by."""

_FORMATTED: Final = ("string", "integer", "number")
_SHOWN_LENGTH = 60


def is_object(value: object) -> TypeGuard[Schema]:
    """Whether a decoded value is an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[object]]:
    """Whether a decoded value is an array."""
    return isinstance(value, list)


def is_true_schema(value: object) -> bool:
    """Whether a schema allows everything, and says nothing."""
    return value is True or value == {}


_KINDS: Final[dict[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


def kind_of(value: object) -> str:
    """JSON's name for the type of a decoded value. A number without a fraction is an integer, however it is written."""
    if isinstance(value, float) and value.is_integer():
        return "integer"
    return _KINDS.get(type(value), "")


def kind_is_limited(word: str, types: Iterable[str]) -> bool:
    """Whether a limit means something to values of one of the types."""
    if word == "format":  # OpenAPI has formats for numbers as well
        return any(kind in _FORMATTED for kind in types)
    limited = LIMITED_TYPE[word]
    return any(kind == limited or (kind == "integer" and limited == "number") for kind in types)


def same(a: object, b: object) -> bool:
    """Whether two JSON values are equal; to Python 1 and True are the same, to JSON they are not."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if is_object(a) and is_object(b):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if is_array(a) and is_array(b):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def distinct(values: Sequence[_T]) -> list[_T]:
    """The values, each once."""
    found: list[_T] = []
    for value in values:
        if not any(same(value, other) for other in found):
            found.append(value)
    return found


def shown(value: object) -> str:
    """The value as JSON, cut to a length that fits a note."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 1] + "…"


def ordered(schema: Schema) -> Schema:
    """The same members, the telling ones first: models read schemas too."""
    first = {word: schema[word] for word in ("type", "title", "description", "default") if word in schema}
    return {**first, **schema}


def escaped(name: str) -> str:
    """A member's name as a step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def mapped(schema: Schema, at: str, change: Callable[[object, str], object]) -> Schema:
    """A copy with every direct subschema replaced by `change` of it and of its pointer."""
    copy: Schema = {}
    for word, value in schema.items():
        here = f"{at}/{escaped(word)}"
        if word in HOLDS_MAP and is_object(value):
            copy[word] = {name: change(sub, f"{here}/{escaped(name)}") for name, sub in value.items()}
        elif word in HOLDS_LIST and is_array(value):
            copy[word] = [change(sub, f"{here}/{index}") for index, sub in enumerate(value)]
        else:
            copy[word] = change(value, here) if word in HOLDS_ONE else value
    return copy
