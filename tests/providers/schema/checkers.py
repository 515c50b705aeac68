"""The rules of each style, written a second time and from the providers' pages alone.

Each checker lists what is wrong with a schema; after a conversion that must be nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

from dragoman.providers import schema as schemas
from dragoman.providers.profile import SchemaStyle

_NUMBERS = {"multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"}
OPENAI_WORDS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"pattern", "format"},
    "number": _NUMBERS,
    "integer": _NUMBERS,
    "boolean": set[str](),
    "null": set[str](),
}
ANTHROPIC_WORDS = {**OPENAI_WORDS, "array": {"items", "minItems"}, "number": set[str](), "integer": set[str]()}
FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}


def walk(schema: Any, at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema of a converted document, which only nests by these keywords."""
    yield at, schema
    for word in ("properties", "$defs"):
        for name, sub in schema.get(word, {}).items():
            yield from walk(sub, f"{at}/{word}/{name}")
    for index, sub in enumerate(schema.get("anyOf", [])):
        yield from walk(sub, f"{at}/anyOf/{index}")
    if "items" in schema:
        yield from walk(schema["items"], f"{at}/items")


def _resolves(root: Any, reference: str) -> bool:
    place = root
    for step in unquote(reference).split("/")[1:]:
        place = place.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(place, dict) else None
    return reference.startswith("#") and place is not None


def _types(schema: dict[str, Any]) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else kinds


def _strict(root: Any, words: dict[str, set[str]], formats: set[str], extra: set[str]) -> list[str]:
    wrong = [] if root.get("type") == "object" and "anyOf" not in root else ["the root is no object"]
    for at, schema in walk(root):
        if "$ref" in schema:
            if set(schema) != {"$ref"} or not _resolves(root, schema["$ref"]):
                wrong.append(f"{at}: a reference with other words, or to nothing")
            continue
        if "anyOf" in schema:
            if set(schema) - {"anyOf", "title", "description"} - extra or not schema["anyOf"]:
                wrong.append(f"{at}: words beside anyOf {set(schema)}")
            continue
        wrong.extend(_typed(at, schema, words, {*extra, *(["$defs"] if not at else [])}))
        if "object" in _types(schema):
            if schema.get("additionalProperties") is not False:
                wrong.append(f"{at}: an object that is not closed")
            if set(schema.get("required", [])) - set(schema["properties"]):
                wrong.append(f"{at}: required but not there")
        if "array" in _types(schema) and "enum" not in schema and "items" not in schema:
            wrong.append(f"{at}: items are missing")
        if "format" in schema and schema["format"] not in formats:
            wrong.append(f"{at}: format {schema['format']}")
    return wrong


def openai_strict(root: Any) -> list[str]:
    wrong = _strict(root, OPENAI_WORDS, FORMATS, set())
    for at, schema in walk(root):
        if "properties" in schema and schema["required"] != list(schema["properties"]):
            wrong.append(f"{at}: optional properties")
        if re.search(r"\(\?<?[!=]", schema.get("pattern", "")):
            wrong.append(f"{at}: look-around in {schema['pattern']}")
    return wrong


def anthropic_strict(root: Any) -> list[str]:
    wrong = _strict(root, ANTHROPIC_WORDS, FORMATS | {"uri"}, {"default"})
    optional = unions = 0
    for at, schema in walk(root):
        unions += "anyOf" in schema or isinstance(schema.get("type"), list)
        optional += len(set(schema.get("properties", {})) - set(schema.get("required", [])))
        if schema.get("minItems", 0) > 1:
            wrong.append(f"{at}: minItems {schema['minItems']}")
        if re.search(r"\(\?|\\[bB]", schema.get("pattern", "")):
            wrong.append(f"{at}: pattern {schema['pattern']}")
    if optional > 24 or unions > 16:
        wrong.append(f"{optional} optional properties, {unions} unions")
    return [*wrong, "recursive"] if _recursive(root) else wrong


def _typed(at: str, schema: Any, words: dict[str, set[str]], extra: set[str]) -> list[str]:
    if "type" not in schema:
        return [f"{at}: no type"]
    allowed = {"type", "title", "description", "enum", "const", *extra}
    allowed = allowed.union(*(words[kind] for kind in _types(schema)))
    wrong = [f"{at}: {word} is not known" for word in sorted(set(schema) - allowed)]
    values = schema.get("enum", [schema["const"]] if "const" in schema else ["something"])
    if not values or any(isinstance(value, list | dict) for value in values):
        wrong.append(f"{at}: values {values}")
    return wrong


def _recursive(root: Any) -> bool:
    edges: dict[str, set[str]] = {}
    for name, definition in [("", root), *root.get("$defs", {}).items()]:
        inner = {key: value for key, value in definition.items() if key != "$defs"}
        edges[name] = {
            sub["$ref"].removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~").removeprefix("#")
            for _, sub in walk(inner)
            if "$ref" in sub
        }
    seen: list[str] = []

    def reaches(name: str) -> bool:
        if name in seen:
            return True
        seen.append(name)
        found = any(reaches(target) for target in sorted(edges[name]))
        seen.pop()
        return found

    return any(reaches(name) for name in edges)


_NOT_AT_THE_TOP = {"anyOf", "oneOf", "allOf", "enum", "const", "not", "$ref"}


def json_schema(root: Any) -> list[str]:
    wrong = [] if root.get("type") == "object" else ["the root is no object"]
    wrong.extend(f"{word} at the top" for word in sorted(_NOT_AT_THE_TOP & set(root)))
    for schema in _everything(root):
        if "$ref" in schema and any(not word.startswith("$") for word in schema):
            wrong.append(f"words beside {schema['$ref']}")
        if "$ref" in schema and not _resolves(root, schema["$ref"]):
            wrong.append(f"a reference to nothing: {schema['$ref']}")
    return wrong


def _everything(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for word, value in schema.items():
            if word in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas"):
                for sub in value.values():
                    yield from _everything(sub)
            elif word in ("allOf", "anyOf", "oneOf", "prefixItems"):
                for sub in value:
                    yield from _everything(sub)
            elif word in ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"):
                yield from _everything(value)


CHECKERS: dict[str, Callable[[Any], list[str]]] = {
    "json_schema": json_schema,
    "openai_strict": openai_strict,
    "anthropic_strict": anthropic_strict,
}


# --- helpers for the tests of all styles ------------------------------------------------------------------------------

STYLES: tuple[SchemaStyle, ...] = ("json_schema", "openai_strict", "anthropic_strict")


def convert(schema: Any, style: SchemaStyle, *, strict: bool = False) -> tuple[Any, tuple[str, ...]]:
    """The converted schema and its notes."""
    done = schemas.convert(schema, style, strict=strict)
    return done.schema, done.lines


def one(style: SchemaStyle, schema: Any, **root: Any) -> tuple[Any, tuple[str, ...]]:
    """How a schema comes out as the one required property `x` of an object."""
    whole = {"type": "object", "properties": {"x": schema}, "required": ["x"], **root}
    done, lines = convert(whole, style, strict=True)
    return done["properties"]["x"], tuple(line.replace("/properties/x", "x") for line in lines)
