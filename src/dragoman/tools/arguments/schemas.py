"""JSON Schemas as data: walk over one, measure it, and rewrite what is almost JSON Schema into JSON Schema 2020-12.

The walk never mistakes data (a `default` that looks like a schema) for a schema. `normalise` understands type names of
other languages, OpenAPI's `nullable`, older drafts, and `optional` or `required` inside a property.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import msgspec

from dragoman._decoding import DEEPEST_SCHEMA, TooDeepError, decode, deeper_than
from dragoman.errors import ToolDefinitionError

from .problems import is_array, is_object, kind_of, shown

Schema: TypeAlias = dict[str, object]

_HOLD_ONE = frozenset(
    {"additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"}
    | {"propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"}
)
_HOLD_LIST = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_HOLD_MAP = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_DEFINITIONS = ("$defs", "definitions")


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


# --- limits for untrusted schemas -------------------------------------------------------------------------------------

_LARGEST = 1_000_000
_MOST_PARTS = 20_000
"""A definition may refer to the next one twice, that one to the next twice, and so on. With its references expanded,
as some providers need it, and for a validator, such a schema is as large as its author likes."""


def measure(schema: Schema) -> int:
    """How many references lead back to where they came from: the most in the expansion of one part of the schema.

    Raises ToolDefinitionError if the schema is too deep, or too large with its references expanded.
    """
    parts = most = back = 0
    back_to: Counter[str] = Counter()

    def visit(sub: Schema, expanding: frozenset[str], depth: int) -> None:
        nonlocal parts, most, back
        parts += 1
        if parts > _MOST_PARTS:
            raise _too_large(f"with its references expanded it has more than {_MOST_PARTS} parts")
        if depth > DEEPEST_SCHEMA:
            raise _too_large(f"its chain of references is too long: more than {DEEPEST_SCHEMA} deep")
        target = sub.get("$ref")
        if isinstance(target, str) and target in expanding:
            back += 1
            back_to[target] += 1
        elif isinstance(target, str):
            before = back, back_to[target]
            visit(find_target(schema, target), expanding | {target}, depth + 1)
            if back_to[target] > before[1]:  # it is recursive
                most = max(most, back - before[0])

        def descend(inner: Schema) -> Schema:
            visit(inner, expanding, depth + 1)
            return inner

        # Definitions count where something refers to them.
        map_subschemas({word: value for word, value in sub.items() if word not in _DEFINITIONS}, descend)

    if deeper_than(DEEPEST_SCHEMA, schema):
        raise _too_large(f"it is nested more than {DEEPEST_SCHEMA} deep")
    visit({"$ref": "#"}, frozenset(), 0)
    return most


def _too_large(reason: str) -> ToolDefinitionError:
    return ToolDefinitionError(f"The JSON Schema is too large: {reason}.", hint="Simplify it, or leave the tool out.")


def find_target(schema: Schema, pointer: str) -> Schema:
    """The target of a reference within the document; an empty schema if there is none."""
    from urllib.parse import unquote  # slow to import, and few schemas have references

    place: Any = schema
    for step in unquote(pointer).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            place = place[int(name) if is_array(place) else name]
        except (LookupError, TypeError, ValueError):
            return {}
    return place if is_object(place) else {}


# --- schemas from the wild --------------------------------------------------------------------------------------------

_TYPE_NAMES = {
    "array": "array arraylist collection frozenset hashset iterable linkedlist list sequence set tuple vector",
    "boolean": "bool boolean logical",
    "integer": "bigint biginteger byte int int16 int32 int64 int8 integer long short uint uint16 uint32 uint64 uint8",
    "null": "nil none nonetype null undefined void",
    "number": "bigdecimal decimal double float float32 float64 num number numeric real",
    "object": "dict dictionary hash hashmap json jsonobject map mapping object record struct",
    "string": "char character str string text varchar",
}
_TYPES = {name: kind for kind, names in _TYPE_NAMES.items() for name in names.split()}


def normalise(schema: Mapping[str, object]) -> Schema:
    """A JSON Schema 2020-12 of type object; raises ToolDefinitionError if the schema cannot be rewritten as one."""
    try:
        text = msgspec.json.encode(schema)
        plain = decode(text)
    except (TooDeepError, RecursionError):
        raise _too_large(f"it is nested more than {DEEPEST_SCHEMA} deep") from None
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(f"The schema contains something that is not JSON: {error}.") from None
    if len(text) > _LARGEST:
        raise _too_large(f"it has {len(text)} bytes, and {_LARGEST} are allowed")
    if not is_object(plain):
        raise ToolDefinitionError(f"A schema of parameters is an object, not {shown(plain)}.")
    measure(plain)
    result = _fix(plain)
    if result.get("type", "object") != "object":
        message = f"The parameters of a tool are an object, but the schema has type {shown(result['type'])}."
        raise ToolDefinitionError(message, hint='Give the schema "type": "object" and name the parameters in it.')
    return {**result, "type": "object", "properties": result.get("properties", {})}


def _fix(schema: Schema) -> Schema:
    """Rewrite a schema, which is changed in place, and those inside it."""
    _check_references(schema)
    _fix_type(schema)
    _fix_older_drafts(schema)
    _fix_enum(schema)
    _fix_required(schema)
    return map_subschemas(schema, _fix)


def _check_references(schema: Schema) -> None:
    if "2020-12" not in str(schema.get("$schema")):
        schema.pop("$schema", None)
    for keyword in ("$ref", "$dynamicRef"):
        target = schema.get(keyword)
        if isinstance(target, str) and not target.startswith("#"):
            raise ToolDefinitionError(
                f"The schema refers to another document: {target}. Nothing is fetched.",
                hint="Put the definition under $defs of the same schema and refer to it by #/$defs/...",
            )


def _fix_type(schema: Schema) -> None:
    written = schema.get("type", "object")
    kinds = dict.fromkeys(_json_type(name) for name in (written if is_array(written) else [written]))
    if "" in kinds:
        del schema["type"]
    elif "type" in schema:
        schema["type"] = list(kinds) if is_array(written) else next(iter(kinds))
    # OpenAPI 3.0
    if isinstance(schema.get("nullable"), bool) and schema.pop("nullable") and isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
        enum = schema.get("enum")
        if is_array(enum) and None not in enum:
            schema["enum"] = [*enum, None]


def _json_type(name: object) -> str:
    """The JSON type for a type name of any language; "" for any type, and for a name that means nothing in JSON."""
    if not isinstance(name, str):
        return ""
    plain = name.strip().lower()
    if plain.endswith("[]"):
        return "array"
    outer = re.split(r"[\[<]", plain)[0].strip()  # list[str], List<String>
    return _TYPES.get(outer.rpartition(".")[2], "")  # typing.List, java.lang.String


def _fix_older_drafts(schema: Schema) -> None:
    items = schema.get("items")
    if is_array(items):  # until 2019-09
        del schema["items"]
        if items:
            schema["prefixItems"] = items
        if "additionalItems" in schema:
            schema["items"] = schema.pop("additionalItems")
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):  # draft 4
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and inclusive in schema:
            schema[exclusive] = schema.pop(inclusive)


def _fix_enum(schema: Schema) -> None:
    """Values of another type than the schema has: they are those of the items, or the type is wrong."""
    values, kind, items = schema.get("enum"), schema.get("type"), schema.get("items", {})
    allowed = kind if is_array(kind) else [kind]
    if "number" in allowed:
        allowed = [*allowed, "integer"]
    if kind is None or not is_array(values) or all(kind_of(value) in allowed for value in values):
        return
    if kind == "array" and is_object(items) and "enum" not in items:
        schema["items"] = {**items, "enum": schema.pop("enum")}
    else:
        del schema["type"]


_COMBINED = frozenset({"$ref", "allOf", "anyOf", "oneOf", "patternProperties"})


def _fix_required(schema: Schema) -> None:
    """In JSON Schema the object lists its required properties; elsewhere each property says so itself."""
    written, properties = schema.pop("required", None), schema.get("properties")
    required = dict.fromkeys(name for name in (written if is_array(written) else ()) if isinstance(name, str))
    # A condition may require a property that another part of the schema declares; elsewhere such a name is a mistake.
    if properties and is_object(properties) and not schema.keys() & _COMBINED:
        required = {name: None for name in required if name in properties}
    for name, sub in properties.items() if is_object(properties) else ():
        for keyword in ("required", "optional"):
            if is_object(sub) and isinstance(value := sub.get(keyword), bool | str):
                del sub[keyword]
                if str(value).lower() not in ("true", "yes"):
                    continue
                if keyword == "required":
                    required[name] = None
                else:
                    required.pop(name, None)
    if required:
        schema["required"] = list(required)
