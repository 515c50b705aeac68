"""The shape of JSON Schema: walking over one, the definitions that schemas share, and odd schemas made regular.

Walking never mistakes data (a `default` that looks like a schema) for a schema. `normalise` rewrites what is almost
JSON Schema into JSON Schema 2020-12, with a note for each change: words for types from other languages, OpenAPI's
`nullable`, older drafts, and `optional` or `required` inside a property.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
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

_PREFIX = "#/$defs/"
_ANNOTATIONS = frozenset(["$comment", "$ref", "default", "deprecated", "description", "examples"])


class Definition:
    """A schema that others refer to by `{"$ref": definition}`, until `write_document` decides where it stands."""

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.schema: Schema = {}


def map_subschemas(schema: Schema, change: Callable[[Schema, str], Schema], at: str = "") -> Schema:
    """A copy with every direct subschema that is an object replaced by `change` of it and of its JSON pointer."""

    def changed(sub: object, pointer: str) -> object:
        return change(cast("Schema", sub), pointer) if isinstance(sub, dict) else sub

    copy: Schema = {}
    for keyword, value in schema.items():
        here = f"{at}/{keyword}"
        if keyword in _HOLD_MAP and is_object(value):
            copy[keyword] = {name: changed(sub, f"{here}/{_escape(name)}") for name, sub in value.items()}
        elif keyword in _HOLD_LIST and is_array(value):
            copy[keyword] = [changed(sub, f"{here}/{index}") for index, sub in enumerate(value)]
        else:
            copy[keyword] = changed(value, here) if keyword in _HOLD_ONE else value
    return copy


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def without_titles(schema: Schema, _: str = "") -> Schema:
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

    def move(sub: Schema, _: str = "") -> Schema:
        copy = map_subschemas(sub, move)
        reference = copy.get("$ref")
        return {**copy, "$ref": found.get(reference, reference)} if isinstance(reference, str) else copy

    for name, definition in inner.items():
        found[_PREFIX + name].schema = move(definition)
    return move({keyword: value for keyword, value in schema.items() if keyword != "$defs"})


def write_document(root: Schema) -> Schema:
    """The schema with its definitions: each in place where it is used once, else under `$defs`."""
    uses: Counter[Definition] = Counter()

    def count(schema: Schema, _: str = "") -> Schema:
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

    def place(schema: Schema, _: str = "") -> Schema:
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


def _subschemas(schema: Schema) -> Iterator[Schema]:
    """The direct subschemas but for definitions, which count where they are referred to."""
    for keyword, value in schema.items():
        inner: Iterable[object] = ()
        if is_object(value):
            is_map = keyword in _HOLD_MAP and keyword not in ("$defs", "definitions")
            inner = value.values() if is_map else [value] if keyword in _HOLD_ONE else ()
        elif is_array(value) and keyword in _HOLD_LIST:
            inner = value
        yield from (each for each in inner if is_object(each))


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
    "": "any mixed unknown variant",
}
_MEANINGS = {word: meaning for meaning, words in _WORDS.items() for word in words.split()} | {"": "", "*": ""}
_SAID = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def normalise(schema: Mapping[str, object]) -> tuple[Schema, tuple[str, ...]]:
    """A JSON Schema 2020-12 of type object, and what was changed; raises ToolDefinitionError if that cannot be done."""
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
    notes: list[str] = []

    def change(sub: Schema, at: str) -> Schema:
        for step in _STEPS:
            notes.extend(f"{at}/{note}" for note in step(sub))
        return map_subschemas(sub, change, at)

    result = change(plain, "")
    if result.get("type", "object") != "object":
        message = f"The parameters of a tool are an object, but the schema has type {shown(result['type'])}."
        raise ToolDefinitionError(message, hint='Give the schema "type": "object" and name the parameters in it.')
    notes += [f"/{keyword}: added" for keyword in ("type", "properties") if keyword not in result]
    return {**result, "type": "object", "properties": result.get("properties", {})}, tuple(notes)


# Each step mends one oddity of a schema in place, and gives a note for each change.


def _mend_references(schema: Schema) -> Iterator[str]:
    dialect = schema.get("$schema")
    if dialect is not None and "2020-12" not in str(dialect):
        del schema["$schema"]
        yield f"$schema: {shown(dialect)} removed, it is 2020-12 now"
    for keyword in ("$ref", "$dynamicRef"):
        target = schema.get(keyword)
        if isinstance(target, str) and not target.startswith("#"):
            raise ToolDefinitionError(
                f"The schema refers to another document: {target}. Nothing is fetched.",
                hint="Put the definition under $defs of the same schema and refer to it by #/$defs/...",
            )


def _mend_type(schema: Schema) -> Iterator[str]:
    written = schema.get("type", "object")
    kinds = dict.fromkeys(_meaning_of(word) for word in (written if is_array(written) else [written]))
    if "" in kinds or None in kinds:
        reason = ", a word that means nothing in JSON" if None in kinds else ""
        del schema["type"]
        yield f"type: {shown(written)} removed{reason}: any type"
        return
    result: object = list(kinds) if is_array(written) else next(iter(kinds))
    if result != written:
        schema["type"] = result
        yield f"type: {shown(written)} -> {shown(result)}"


def _mend_nullable(schema: Schema) -> Iterator[str]:
    if isinstance(schema.get("nullable"), bool):
        if schema.pop("nullable") and isinstance(schema.get("type"), str):
            schema["type"] = [schema["type"], "null"]
            enum = schema.get("enum")
            if is_array(enum) and None not in enum:
                schema["enum"] = [*enum, None]
        yield "nullable: said by the type instead"


def _mend_items(schema: Schema) -> Iterator[str]:
    items = schema.get("items")
    if is_array(items):
        del schema["items"]
        if items:
            schema["prefixItems"] = items
        if "additionalItems" in schema:
            schema["items"] = schema.pop("additionalItems")
        yield "items: a list of schemas -> prefixItems"


def _mend_enum(schema: Schema) -> Iterator[str]:
    values, kind, items = schema.get("enum"), schema.get("type"), schema.get("items", {})
    if not is_array(values) or all(_is_of_type(value, kind) for value in values):
        return
    if kind == "array" and is_object(items) and "enum" not in items:
        schema["items"] = {**items, "enum": schema.pop("enum")}
        yield "enum: -> items/enum, since it lists items and not arrays"
    else:
        yield f"type: {shown(schema.pop('type'))} removed, since enum lists values of other types"


def _mend_exclusive(schema: Schema) -> Iterator[str]:
    """Draft 4 wrote `"minimum": 0, "exclusiveMinimum": true`."""
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        written = schema.get(exclusive)
        if isinstance(written, bool):
            del schema[exclusive]
            if written and inclusive in schema:
                schema[exclusive] = schema.pop(inclusive)
            yield f"{exclusive}: {shown(written)} -> the number itself"


def _mend_required(schema: Schema) -> Iterator[str]:
    """Which properties are required: said by the object in JSON Schema, by the properties themselves elsewhere."""
    properties, written = schema.get("properties"), schema.get("required", [])
    known = properties if is_object(properties) else {}
    required = dict.fromkeys(written if is_array(written) else [])
    if not is_array(written):
        yield f"required: {shown(written)} removed, it is a list of names"
    # A schema that is only a condition may require what another part of the whole declares.
    elif known and not schema.keys() & {"$ref", "allOf", "anyOf", "oneOf", "patternProperties"}:
        for name in [name for name in required if name not in known]:
            del required[name]
            yield f"required: {shown(name)} removed, there is no such property"
    for name, sub in known.items():
        for keyword in ("optional", "required") if is_object(sub) else ():
            said = _SAID.get(str(sub.get(keyword)).lower()) if is_object(sub) else None
            if said is not None and is_object(sub):
                yield f"properties/{_escape(name)}/{keyword}: {shown(sub.pop(keyword))} said by the object instead"
                required |= {name: None} if said and keyword == "required" else {}
                if said and keyword == "optional":
                    required.pop(name, None)
    if required or is_array(schema.get("required")):
        schema["required"] = list(required)
    else:
        schema.pop("required", None)


_STEPS: tuple[Callable[[Schema], Iterator[str]], ...] = (
    _mend_references,
    _mend_type,
    _mend_nullable,
    _mend_items,
    _mend_enum,
    _mend_exclusive,
    _mend_required,
)


def _meaning_of(word: object) -> str | None:
    """The JSON type that a word for a type means, "" for any type; None if nobody knows."""
    if not isinstance(word, str):
        return None
    plain = word.strip().lower()
    if plain.endswith("[]"):
        return "array"
    outer = re.split(r"[\[<]", plain)[0].strip()  # list[str], List<String>
    return _MEANINGS.get(outer.rpartition(".")[2])  # typing.List, java.lang.String


def _is_of_type(value: object, kind: object) -> bool:
    allowed = kind if is_array(kind) else [kind]
    mine = kind_of(value)
    return kind is None or mine in allowed or (mine == "integer" and "number" in allowed)
