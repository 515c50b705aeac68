"""The shape of JSON Schema: walking over one, the definitions that schemas share, and odd schemas made regular.

Walking never mistakes data (a `default` that looks like a schema) for a schema. `normalise` rewrites what is almost
JSON Schema into JSON Schema 2020-12, with a note for each change: words for types from other languages, OpenAPI's
`nullable`, older drafts, and `optional` or `required` inside a property.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias, cast

import msgspec

from dragoman.errors import ToolDefinitionError

from .problems import is_array, is_object, kind_of, shown

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


# --- schemas from the wild --------------------------------------------------------------------------------------------

_JSON_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
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
        plain: object = msgspec.json.decode(msgspec.json.encode(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolDefinitionError(f"The schema holds something that is not JSON: {error}.") from None
    if not is_object(plain):
        raise ToolDefinitionError(f"A schema of parameters is an object, not {shown(plain)}.")
    normaliser = _Normaliser()
    result = normaliser.schema(plain, "")
    kind = result.get("type")
    if kind is None:
        normaliser.note("/type", 'added "object"')
    elif kind != "object":
        message = f"The parameters of a tool are an object, but the schema has type {shown(kind)}."
        raise ToolDefinitionError(message, hint='Give the schema "type": "object" and name the parameters in it.')
    if "properties" not in result:
        normaliser.note("/properties", "added, without any")
    return {**result, "type": "object", "properties": result.get("properties", {})}, tuple(normaliser.notes)


class _Normaliser:
    """One walk over a schema; `at` is the JSON pointer of the place."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, pointer: str, text: str) -> None:
        self.notes.append(f"{pointer}: {text}")

    def schema(self, schema: Schema, at: str) -> Schema:
        for step in _STEPS:
            step(self, schema, at)
        return {keyword: self._inside(keyword, value, f"{at}/{_escape(keyword)}") for keyword, value in schema.items()}

    def _inside(self, keyword: str, value: object, at: str) -> object:
        if keyword in HOLDS_MAP:
            if value is None:
                self.note(at, "null read as none")
                return {}
            if not is_object(value):
                raise ToolDefinitionError(f"{at} of the schema must be an object, not {shown(value)}.")
            return {name: self._sub(sub, f"{at}/{_escape(name)}") for name, sub in value.items()}
        if keyword in HOLDS_LIST and is_array(value):
            return [self._sub(sub, f"{at}/{index}") for index, sub in enumerate(value)]
        return self._sub(value, at) if keyword in HOLDS_ONE else value

    def _sub(self, value: object, at: str) -> object:
        if value is None:
            self.note(at, "null read as no restriction")
            return {}
        if is_object(value):
            return self.schema(value, at)
        if isinstance(value, bool):
            return value
        raise ToolDefinitionError(f"{at} of the schema must be a schema, not {shown(value)}.")

    # --- the steps, each about one oddity ---

    def dialect(self, schema: Schema, at: str) -> None:
        dialect = schema.get("$schema")
        if dialect is not None and "2020-12" not in str(dialect):
            self.note(f"{at}/$schema", f"{shown(dialect)} removed, it is 2020-12 now")
            del schema["$schema"]

    def reference(self, schema: Schema, at: str) -> None:
        for keyword in ("$ref", "$dynamicRef"):
            target = schema.get(keyword)
            if isinstance(target, str) and not target.startswith("#"):
                raise ToolDefinitionError(
                    f"The schema refers to another document at {at}/{keyword}: {target}. Nothing is fetched.",
                    hint="Put the definition under $defs of the same schema and refer to it by #/$defs/...",
                )

    def type(self, schema: Schema, at: str) -> None:
        written = schema.get("type", "object")
        if written in _JSON_TYPES:
            return
        kinds = dict.fromkeys(_meaning_of(word) for word in (written if is_array(written) else [written]))
        if "" in kinds or None in kinds:
            reason = ", a word that means nothing in JSON" if None in kinds else ""
            self.note(f"{at}/type", f"{shown(written)} removed{reason}: any type")
            del schema["type"]
            return
        result: object = list(kinds) if is_array(written) else next(iter(kinds))
        if result != written:
            self.note(f"{at}/type", f"{shown(written)} -> {shown(result)}")
            schema["type"] = result

    def nullable(self, schema: Schema, at: str) -> None:
        if not isinstance(schema.get("nullable"), bool):
            return
        if schema.pop("nullable") and isinstance(schema.get("type"), str):
            schema["type"] = [schema["type"], "null"]
            enum = schema.get("enum")
            if is_array(enum) and None not in enum:
                schema["enum"] = [*enum, None]
        self.note(f"{at}/nullable", "said by the type instead")

    def items(self, schema: Schema, at: str) -> None:
        items = schema.get("items")
        if not is_array(items):
            return
        del schema["items"]
        self.note(f"{at}/items", "a list of schemas -> prefixItems")
        if items:
            schema["prefixItems"] = items
        if "additionalItems" in schema:
            schema["items"] = schema.pop("additionalItems")
            self.note(f"{at}/additionalItems", "-> items")

    def enum(self, schema: Schema, at: str) -> None:
        values, kind, items = schema.get("enum"), schema.get("type"), schema.get("items", {})
        if not is_array(values) or all(_is_of_type(value, kind) for value in values):
            if values == []:
                self.note(f"{at}/enum", "removed, since it lists nothing and would allow nothing")
                del schema["enum"]
        elif kind == "array" and is_object(items) and "enum" not in items:
            schema["items"] = {**items, "enum": schema.pop("enum")}
            self.note(f"{at}/enum", "-> items/enum, since it lists items and not arrays")
        else:
            self.note(f"{at}/type", f"{shown(schema.pop('type'))} removed, since enum lists values of other types")

    def exclusive(self, schema: Schema, at: str) -> None:
        """Draft 4 wrote `"minimum": 0, "exclusiveMinimum": true`."""
        for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            written = schema.get(exclusive)
            if isinstance(written, bool):
                del schema[exclusive]
                if written and inclusive in schema:
                    schema[exclusive] = schema.pop(inclusive)
                self.note(f"{at}/{exclusive}", f"{shown(written)} -> the number itself")

    def required(self, schema: Schema, at: str) -> None:
        """Which properties are required: said by the object in JSON Schema, by the properties themselves elsewhere."""
        properties = schema.get("properties")
        known = properties if is_object(properties) else {}
        required = self._required_names(schema, known, at)
        for name, sub in known.items():
            place = f"{at}/properties/{_escape(name)}"
            for keyword in ("optional", "required"):
                said = _SAID.get(str(sub.get(keyword)).lower()) if is_object(sub) else None
                if said is None or not is_object(sub):
                    continue
                self.note(f"{place}/{keyword}", f"{shown(sub.pop(keyword))} said by the object's required instead")
                if said and keyword == "required":
                    required[name] = None
                elif said:
                    required.pop(name, None)
        if required or is_array(schema.get("required")):
            schema["required"] = list(required)
        else:
            schema.pop("required", None)

    def _required_names(self, schema: Schema, known: Mapping[str, object], at: str) -> dict[object, None]:
        written = schema.get("required", [])
        if not is_array(written):
            self.note(f"{at}/required", f"{shown(written)} removed, it is a list of names")
            return {}
        required = dict.fromkeys(written)
        # A schema that is only a condition may require what another part of the whole declares.
        if not known or any(keyword in schema for keyword in ("$ref", "allOf", "anyOf", "oneOf", "patternProperties")):
            return required
        for name in [name for name in required if name not in known]:
            del required[name]
            self.note(f"{at}/required", f"{shown(name)} removed, there is no such property")
        return required


_STEPS: tuple[Callable[[_Normaliser, Schema, str], None], ...] = (
    _Normaliser.dialect,
    _Normaliser.reference,
    _Normaliser.type,
    _Normaliser.nullable,
    _Normaliser.items,
    _Normaliser.enum,
    _Normaliser.exclusive,
    _Normaliser.required,
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


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
