"""JSON Schemas from the wild, made valid.

Owns: the rewriting of what is almost JSON Schema into JSON Schema 2020-12, with a note for each change.
Must not know: how a schema is used. Nothing is lost: what has no meaning in JSON Schema is kept, and what is replaced
is in the notes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from dragoman.errors import ToolDefinitionError

from .json_values import is_array, kind_of, shown
from .schemas import HOLDS_LIST, HOLDS_MAP, HOLDS_ONE, Schema
from .type_words import JSON_TYPES, meaning_of

__all__ = ["normalise"]

_NUMERIC = frozenset(
    {
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
    }
)
_TRUE = frozenset({"true", "yes", "1"})
_REFERENCES = ("$ref", "$dynamicRef")


def normalise(schema: Mapping[str, object]) -> tuple[Schema, tuple[str, ...]]:
    """A JSON Schema 2020-12 of type object, and what was changed; raises ToolDefinitionError if that cannot be done."""
    if not isinstance(cast("object", schema), Mapping):
        raise ToolDefinitionError(f"A schema of parameters is an object, not {shown(schema)}.")
    normaliser = _Normaliser()
    result = normaliser.schema(schema, "")
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
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, pointer: str, text: str) -> None:
        self.notes.append(f"{pointer}: {text}")

    def schema(self, given: Mapping[str, object], at: str) -> Schema:
        schema = dict(given)
        for step in _STEPS:
            step(self, schema, at)
        return {keyword: self._inside(keyword, value, f"{at}/{_escaped(keyword)}") for keyword, value in schema.items()}

    def _inside(self, keyword: str, value: object, at: str) -> object:
        if keyword in HOLDS_MAP:
            if value is None:
                self.note(at, "null read as none")
                return {}
            if not isinstance(value, Mapping):
                raise ToolDefinitionError(f"{at} of the schema must be an object, not {shown(value)}.")
            entries = cast("Mapping[str, object]", value)
            return {str(name): self._sub(sub, f"{at}/{_escaped(str(name))}") for name, sub in entries.items()}
        if keyword in HOLDS_LIST and isinstance(value, list | tuple):
            items = cast("list[object]", value)
            return [self._sub(sub, f"{at}/{index}") for index, sub in enumerate(items)]
        return self._sub(value, at) if keyword in HOLDS_ONE else value

    def _sub(self, value: object, at: str) -> object:
        if isinstance(value, Mapping):
            return self.schema(cast("Mapping[str, object]", value), at)
        if isinstance(value, bool):
            return value
        if isinstance(value, str):  # "items": "string"
            as_bool = {"true": True, "false": False}.get(value.lower())
            self.note(at, f"{shown(value)} read as {'a boolean' if as_bool is not None else 'a type'}")
            return self.schema({"type": value}, at) if as_bool is None else as_bool
        if value is None:
            self.note(at, "null read as no restriction")
            return {}
        raise ToolDefinitionError(f"{at} of the schema must be a schema, not {shown(value)}.")


# --- the steps, each about one oddity --------------------------------------------------------------------------------


def _dialect(self: _Normaliser, schema: Schema, at: str) -> None:
    dialect = schema.get("$schema")
    if dialect is not None and "2020-12" not in str(dialect):
        self.note(f"{at}/$schema", f"{shown(dialect)} removed, it is 2020-12 now")
        del schema["$schema"]


def _reference(_: _Normaliser, schema: Schema, at: str) -> None:
    for keyword in _REFERENCES:
        target = schema.get(keyword)
        if isinstance(target, str) and not target.startswith("#"):
            raise ToolDefinitionError(
                f"The schema refers to another document at {at}/{keyword}: {target}. Nothing is fetched.",
                hint="Put the definition under $defs of the same schema and refer to it by #/$defs/...",
            )


def _type(self: _Normaliser, schema: Schema, at: str) -> None:
    if "type" not in schema or schema["type"] in JSON_TYPES:
        return
    written = schema["type"]
    words = written if is_array(written) else [written]
    kinds: dict[str, None] = {}
    for word in words:
        meaning = meaning_of(word) if isinstance(word, str) else None
        if meaning is None or not meaning.type:
            reason = "" if meaning is not None else ", a word that means nothing in JSON"
            self.note(f"{at}/type", f"{shown(written)} removed{reason}: any type")
            del schema["type"]
            return
        kinds[meaning.type] = None
        if meaning.items and "items" not in schema:
            schema["items"] = {"type": meaning.items}
    result: object = list(kinds) if is_array(written) else next(iter(kinds))
    if result != written:
        self.note(f"{at}/type", f"{shown(written)} -> {shown(result)}")
        schema["type"] = result


def _nullable(self: _Normaliser, schema: Schema, at: str) -> None:
    """OpenAPI's `nullable`."""
    if not isinstance(schema.get("nullable"), bool):
        return
    if schema.pop("nullable") and isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
        enum = schema.get("enum")
        if is_array(enum) and None not in enum:
            schema["enum"] = [*enum, None]
    self.note(f"{at}/nullable", "said by the type instead")


def _items(self: _Normaliser, schema: Schema, at: str) -> None:
    if not isinstance(schema.get("items"), list | tuple):
        return
    schema["prefixItems"] = schema.pop("items")
    self.note(f"{at}/items", "a list of schemas -> prefixItems")
    if not schema["prefixItems"]:
        del schema["prefixItems"]
    if "additionalItems" in schema:
        schema["items"] = schema.pop("additionalItems")
        self.note(f"{at}/additionalItems", "-> items")


def _enum(self: _Normaliser, schema: Schema, at: str) -> None:
    if "enum" not in schema:
        return
    written = schema["enum"]
    values = written if is_array(written) else list(cast("Any", written)) if _is_many(written) else [written]
    if not is_array(written):
        self.note(f"{at}/enum", f"{shown(written)} -> {shown(values)}")
        schema["enum"] = values
    if not values:
        self.note(f"{at}/enum", "removed, since it lists nothing and would allow nothing")
        del schema["enum"]
    elif not all(_fits(value, schema.get("type")) for value in values):
        _reconcile(self, schema, values, at)


def _is_many(value: object) -> bool:
    return isinstance(value, Mapping | tuple | set | frozenset)


def _fits(value: object, kind: object) -> bool:
    allowed = kind if is_array(kind) else [kind]
    mine = kind_of(value)
    return kind is None or mine in allowed or (mine == "integer" and "number" in allowed)


def _reconcile(self: _Normaliser, schema: Schema, values: list[object], at: str) -> None:
    """The values that an enum lists are not of the type: nothing could fit both."""
    items = schema.get("items", {})
    if schema.get("type") == "array" and isinstance(items, Mapping) and "enum" not in items:
        schema["items"] = {**cast("Mapping[str, object]", items), "enum": values}
        del schema["enum"]
        self.note(f"{at}/enum", "-> items/enum, since it lists items and not arrays")
        return
    self.note(f"{at}/type", f"{shown(schema.pop('type'))} removed, since enum lists values of other types")


def _numbers(self: _Normaliser, schema: Schema, at: str) -> None:
    for keyword in sorted(_NUMERIC & schema.keys()):
        written = schema[keyword]
        number = _number(written) if isinstance(written, str) else None
        if number is not None:
            schema[keyword] = number
            self.note(f"{at}/{keyword}", f"{shown(written)} -> {shown(number)}")


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None  # refused when the schema is compiled
    return int(number) if number.is_integer() else number


def _exclusive(self: _Normaliser, schema: Schema, at: str) -> None:
    """Draft 4 wrote `"minimum": 0, "exclusiveMinimum": true`."""
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        written = schema.get(exclusive)
        if isinstance(written, bool):
            del schema[exclusive]
            if written and inclusive in schema:
                schema[exclusive] = schema.pop(inclusive)
            self.note(f"{at}/{exclusive}", f"{shown(written)} -> the number itself")


def _required(self: _Normaliser, schema: Schema, at: str) -> None:
    """Which properties are required: said by the object in JSON Schema, by the properties themselves elsewhere."""
    properties = schema.get("properties")
    names = dict(cast("Mapping[str, object]", properties)) if isinstance(properties, Mapping) else {}
    required = _listed(self, schema, names, at)
    for name in _optional_names(self, schema, at):
        required.pop(name, None)
    for name, sub in names.items():
        if isinstance(sub, Mapping):
            names[name] = _property(self, dict(cast("Mapping[str, object]", sub)), name, required, at)
    if isinstance(properties, Mapping):
        schema["properties"] = names
    if required or isinstance(schema.get("required"), list):
        schema["required"] = list(required)
    else:
        schema.pop("required", None)


def _listed(self: _Normaliser, schema: Schema, names: Mapping[str, object], at: str) -> dict[str, None]:
    written = schema.get("required", [])
    if isinstance(written, bool) or written is None:
        self.note(f"{at}/required", f"{shown(written)} removed, it is a list of names")
        return {}
    words = written if is_array(written) else list(cast("Any", written)) if _is_many(written) else [written]
    if not is_array(written):
        self.note(f"{at}/required", f"{shown(written)} -> {shown(words)}")
    required = dict.fromkeys(str(word) for word in words)
    strangers = [name for name in required if names and name not in names]
    # A schema that is only a condition may require what another part of the whole declares.
    if strangers and not any(keyword in schema for keyword in ("$ref", "allOf", "anyOf", "oneOf", "patternProperties")):
        for name in strangers:
            del required[name]
            self.note(f"{at}/required", f"{shown(name)} removed, there is no such property")
    return required


def _optional_names(self: _Normaliser, schema: Schema, at: str) -> list[str]:
    """`optional` as a list of names, beside `required`."""
    optional = schema.get("optional")
    if not is_array(optional):
        return []
    del schema["optional"]
    names = [str(name) for name in optional]
    self.note(f"{at}/optional", f"{shown(names)} removed, what is not required is optional")
    return names


def _property(self: _Normaliser, sub: Schema, name: str, required: dict[str, None], at: str) -> Schema:
    """`optional: true` and `required: true` inside a property are about the object that holds it."""
    place = f"{at}/properties/{_escaped(name)}"
    if "optional" in sub and isinstance(sub["optional"], bool | str):
        optional = str(sub.pop("optional")).lower() in _TRUE
        if optional:
            required.pop(name, None)
        self.note(f"{place}/optional", f"{shown(optional)} said by required instead")
    if isinstance(sub.get("required"), bool | str) and str(sub["required"]).lower() in (*_TRUE, "false", "no", "0"):
        if str(sub["required"]).lower() in _TRUE:
            required[name] = None
        self.note(f"{place}/required", f"{shown(sub.pop('required'))} said by the object's required instead")
    return sub


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


_STEPS: tuple[Callable[[_Normaliser, Schema, str], None], ...] = (
    _dialect,
    _reference,
    _type,
    _nullable,
    _items,
    _enum,
    _numbers,
    _exclusive,
    _required,
)
