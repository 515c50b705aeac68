"""The shape of JSON Schema: walking over one, the definitions that schemas share, and odd schemas made regular.

Walking never mistakes data (a `default` that looks like a schema) for a schema. `normalise` rewrites what is almost
JSON Schema into JSON Schema 2020-12: words for types from other languages, OpenAPI's `nullable`, older drafts, and
`optional` or `required` inside a property.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

import msgspec

from dragoman.errors import ToolDefinitionError

from .problems import deeper_than, is_array, is_object, kind_of, shown

Schema: TypeAlias = dict[str, object]

_HOLD_ONE = frozenset(
    {"additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"}
    | {"propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"}
)
_HOLD_LIST = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_HOLD_MAP = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_DEFINITIONS = ("$defs", "definitions")

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
        if keyword in _HOLD_MAP and is_object(value):
            copy[keyword] = {name: changed(sub) for name, sub in value.items()}
        elif keyword in _HOLD_LIST and is_array(value):
            copy[keyword] = [changed(sub) for sub in value]
        else:
            copy[keyword] = changed(value) if keyword in _HOLD_ONE else value
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

    def count(schema: Schema) -> None:
        target = schema.get("$ref")
        if isinstance(target, Definition):
            # Beside anything but annotations the two schemas cannot be merged into one; so it stays a reference.
            is_new = target not in uses
            uses[target] += 1 if schema.keys() <= _ANNOTATIONS else 2
            if is_new:
                count(target.schema)
        for inner in _subschemas(schema):
            count(inner)

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
        plain = name = re.sub(r"[^\w.-]+", "_", definition.name).strip("_") or "Type"
        number = 2
        while name in names.values():
            name, number = f"{plain}_{number}", number + 1
        names[definition] = name
    return names


# --- schemas that strangers made --------------------------------------------------------------------------------------

_LARGEST = 1_000_000
_DEEPEST = 100
_MOST_PARTS = 20_000
"""A schema may refer to one definition twice, that one to the next twice, and so on: with its references written out,
as some providers want it, and for whoever checks a value against it, it is as large as a stranger likes."""


def measure(schema: Schema) -> int:
    """How often the part of a schema, or the definition, that does so most refers back to where it stands.

    Raises ToolDefinitionError if the schema is too deep, or too large with its references written out.
    """
    left = _MOST_PARTS
    found: dict[str, set[int]] = {"#": set()}

    def visit(sub: Schema, home: str, under_way: frozenset[str]) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise _too_large(f"with its references written out it has more than {_MOST_PARTS} parts")
        target = sub.get("$ref")
        if isinstance(target, str) and target in under_way:
            found.setdefault(home, set()).add(id(sub))
        elif isinstance(target, str):
            visit(_find(schema, target), target, under_way | {target})
        for inner in _subschemas(sub):
            visit(inner, home, under_way)

    if deeper_than(_DEEPEST, schema):
        raise _too_large(f"it is nested more than {_DEEPEST} deep")
    try:
        visit(schema, "#", frozenset(["#"]))
    except RecursionError:
        raise _too_large("its references lead too far") from None
    return max(map(len, found.values()))


def _too_large(reason: str) -> ToolDefinitionError:
    return ToolDefinitionError(f"The JSON Schema is too large: {reason}.", hint="Simplify it, or leave the tool out.")


def _subschemas(schema: Schema) -> list[Schema]:
    """The direct subschemas but for definitions, which count where they are referred to."""
    found: list[Schema] = []

    def take(sub: Schema) -> Schema:
        found.append(sub)
        return sub

    map_subschemas({word: value for word, value in schema.items() if word not in _DEFINITIONS}, take)
    return found


def _find(schema: Schema, pointer: str) -> Schema:
    """What a reference within the document means; an empty schema if there is no such thing."""
    place: Any = schema
    for step in unquote(pointer).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            place = place[int(name) if is_array(place) else name]
        except (LookupError, TypeError, ValueError):
            return {}
    return place if is_object(place) else {}


# --- schemas from the wild --------------------------------------------------------------------------------------------

_WORDS = {
    "array": "array arraylist collection frozenset hashset iterable linkedlist list sequence set tuple vector",
    "boolean": "bool boolean logical",
    "integer": "bigint biginteger byte int int16 int32 int64 int8 integer long short uint uint16 uint32 uint64 uint8",
    "null": "nil none nonetype null undefined void",
    "number": "bigdecimal decimal double float float32 float64 num number numeric real",
    "object": "dict dictionary hash hashmap json jsonobject map mapping object record struct",
    "string": "char character str string text varchar",
}
_MEANINGS = {word: meaning for meaning, words in _WORDS.items() for word in words.split()}
_SAID = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def normalise(schema: Mapping[str, object]) -> Schema:
    """A JSON Schema 2020-12 of type object; raises ToolDefinitionError if that cannot be made of it."""
    try:
        text = msgspec.json.encode(schema)
        plain: object = msgspec.json.decode(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolDefinitionError(f"The schema holds something that is not JSON: {error}.") from None
    if len(text) > _LARGEST:
        raise _too_large(f"it has {len(text)} bytes, and {_LARGEST} are allowed")
    if not is_object(plain):
        raise ToolDefinitionError(f"A schema of parameters is an object, not {shown(plain)}.")
    measure(plain)
    result = _mend(plain)
    if result.get("type", "object") != "object":
        message = f"The parameters of a tool are an object, but the schema has type {shown(result['type'])}."
        raise ToolDefinitionError(message, hint='Give the schema "type": "object" and name the parameters in it.')
    return {**result, "type": "object", "properties": result.get("properties", {})}


# Each step mends one oddity of a schema in place.


def _mend_references(schema: Schema) -> None:
    if "2020-12" not in str(schema.get("$schema")):
        schema.pop("$schema", None)
    for keyword in ("$ref", "$dynamicRef"):
        target = schema.get(keyword)
        if isinstance(target, str) and not target.startswith("#"):
            raise ToolDefinitionError(
                f"The schema refers to another document: {target}. Nothing is fetched.",
                hint="Put the definition under $defs of the same schema and refer to it by #/$defs/...",
            )


def _mend_type(schema: Schema) -> None:
    written = schema.get("type", "object")
    kinds = dict.fromkeys(_meaning_of(word) for word in (written if is_array(written) else [written]))
    if "" in kinds:  # any type
        del schema["type"]
    elif "type" in schema:
        schema["type"] = list(kinds) if is_array(written) else next(iter(kinds))


def _mend_nullable(schema: Schema) -> None:
    if isinstance(schema.get("nullable"), bool) and schema.pop("nullable") and isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
        enum = schema.get("enum")
        if is_array(enum) and None not in enum:
            schema["enum"] = [*enum, None]


def _mend_items(schema: Schema) -> None:
    items = schema.get("items")
    if is_array(items):
        del schema["items"]
        if items:
            schema["prefixItems"] = items
        if "additionalItems" in schema:
            schema["items"] = schema.pop("additionalItems")


def _mend_enum(schema: Schema) -> None:
    """Values of another type than the schema has: they are those of the items, or the type is wrong."""
    values, kind, items = schema.get("enum"), schema.get("type"), schema.get("items", {})
    if not is_array(values) or all(_is_of_type(value, kind) for value in values):
        return
    if kind == "array" and is_object(items) and "enum" not in items:
        schema["items"] = {**items, "enum": schema.pop("enum")}
    else:
        del schema["type"]


def _mend_exclusive(schema: Schema) -> None:
    """Draft 4 wrote `"minimum": 0, "exclusiveMinimum": true`."""
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and inclusive in schema:
            schema[exclusive] = schema.pop(inclusive)


def _mend_required(schema: Schema) -> None:
    """Which properties are required: said by the object in JSON Schema, by the properties themselves elsewhere."""
    properties, written = schema.get("properties"), schema.get("required")
    known = properties if is_object(properties) else {}
    required = dict.fromkeys(written if is_array(written) else [])
    # A schema that is only a condition may require what another part of the whole declares.
    if known and not schema.keys() & {"$ref", "allOf", "anyOf", "oneOf", "patternProperties"}:
        required = {name: None for name in required if name in known}
    for name, sub in known.items():
        if is_object(sub):
            for keyword in ("optional", "required"):
                said = _SAID.get(str(sub.get(keyword)).lower())
                if said is not None:
                    del sub[keyword]
                if said and keyword == "required":
                    required[name] = None
                elif said:
                    required.pop(name, None)
    if required or is_array(written):
        schema["required"] = list(required)
    else:
        schema.pop("required", None)


def _mend(schema: Schema) -> Schema:
    steps = (_mend_references, _mend_type, _mend_nullable, _mend_items, _mend_enum, _mend_exclusive, _mend_required)
    for step in steps:
        step(schema)
    return map_subschemas(schema, _mend)


def _meaning_of(word: object) -> str:
    """The JSON type that a word for a type means; "" for any type, and for a word that means nothing in JSON."""
    if not isinstance(word, str):
        return ""
    plain = word.strip().lower()
    if plain.endswith("[]"):
        return "array"
    outer = re.split(r"[\[<]", plain)[0].strip()  # list[str], List<String>
    return _MEANINGS.get(outer.rpartition(".")[2], "")  # typing.List, java.lang.String


def _is_of_type(value: object, kind: object) -> bool:
    allowed = kind if is_array(kind) else [kind]
    mine = kind_of(value)
    return kind is None or mine in allowed or (mine == "integer" and "number" in allowed)
