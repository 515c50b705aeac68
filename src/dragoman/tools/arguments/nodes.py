"""Nodes: for each kind of value the type that msgspec decodes, and the JSON Schema that the model sees.

Owns: Node, and the decoding of values that msgspec does not support (a union of dataclasses, an Enum or str, a pydantic
model). In msgspec's types a class made by `custom` takes their place, and msgspec passes their values to
`decode_custom`.
Must not know: how hints are written (hints.py), functions and tools.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import inspect
import pathlib
import re
import sys
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Union, cast

import msgspec

from dragoman._decoding import Decoder, convert_to, decoder_of

from .problems import expected, is_object, kind_of, one_of, shown
from .resolve import MISSING, Field, UnsupportedError
from .schemas import Schema, describe, without_titles


class Node(NamedTuple):
    """The meaning of a hint."""

    wire: Any
    """The type that msgspec decodes."""
    schema: Schema
    """The JSON Schema that the model sees."""
    members: tuple[Node, ...] = ()
    """The choices of a union."""
    is_described: bool = False
    """Whether `Annotated` has a description."""


# --- types that msgspec does not support -----------------------------------------------------------------------------


class _Custom(type):
    read: Callable[[object], object]

    def __instancecheck__(cls, instance: object) -> bool:
        return True  # msgspec checks the type of what the hook returned, and `read` may return anything


def custom(name: str, read: Callable[[object], object]) -> type:
    """A class whose values msgspec decodes by calling `read`, which raises ValueError if a value does not fit."""
    return _Custom(name, (), {"read": staticmethod(read)})


def decode_custom(kind: type, value: object) -> object:
    """The `dec_hook` for all types that are made here."""
    if isinstance(kind, _Custom):
        return kind.read(value)
    if issubclass(kind, pathlib.PurePath) and isinstance(value, str):
        return kind(value)
    raise ValueError(expected("string", value))


def convert(value: object, wire: Any) -> Any:
    """A decoded JSON value as a value of the type; raises ValueError, which ends with the path if there is one."""
    try:
        return convert_to(value, wire, dec_hook=decode_custom, str_keys=True)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def make_decoder(wire: Any) -> Decoder[Any]:
    """msgspec's decoder; raises UnsupportedError for types that msgspec refuses, above all some unions."""
    try:
        return decoder_of(wire, dec_hook=decode_custom)
    except (TypeError, ValueError, OverflowError, NameError, re.error) as error:
        raise UnsupportedError(f"it cannot be read: {error}", "Use a simpler type.") from None


def is_decodable(wire: Any) -> bool:
    try:
        make_decoder(wire)
    except UnsupportedError:
        return False
    return True


# --- single values ---------------------------------------------------------------------------------------------------


def _text(kind: type, form: str) -> Node:
    return Node(kind, {"type": "string", "format": form})


ANYTHING = Node(Any, {})
NULL = Node(type(None), {"type": "null"})
TEXT = Node(str, {"type": "string"})

SCALARS: dict[object, Node] = {
    Any: ANYTHING,
    object: ANYTHING,
    None: NULL,
    type(None): NULL,
    bool: Node(bool, {"type": "boolean"}),
    int: Node(int, {"type": "integer"}),
    float: Node(float, {"type": "number"}),
    str: TEXT,
    typing.LiteralString: TEXT,
    bytes: Node(bytes, {"type": "string", "contentEncoding": "base64"}),
    decimal.Decimal: Node(decimal.Decimal, {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}),
    datetime.datetime: _text(datetime.datetime, "date-time"),
    datetime.date: _text(datetime.date, "date"),
    datetime.time: _text(datetime.time, "time"),
    datetime.timedelta: _text(datetime.timedelta, "duration"),
    uuid.UUID: _text(uuid.UUID, "uuid"),
}
JSON_SCALARS = (str, int, float, bool, type(None))
"""Types that every decoder supports."""


def literal(hint: object, values: tuple[object, ...]) -> Node:
    if any(isinstance(value, bytes) for value in values):
        raise UnsupportedError(f"{hint} has no JSON form", "Use strings, integers, booleans or None.")
    if not any(isinstance(value, enum.Enum) for value in values):
        return Node(hint, _choice(values))
    return _one_of([(_json_of_member(value) if isinstance(value, enum.Enum) else value, value) for value in values])


def enumeration(cls: type[enum.Enum]) -> Node:
    pairs = [(_json_of_member(member), member) for member in cls]
    if not pairs:
        raise UnsupportedError(f"{cls.__name__} has no members", "Give it members with different values.")
    is_text = all(isinstance(value, str) for value, _ in pairs)
    names = "" if is_text else f"({', '.join(f'{shown(value)} = {member.name}' for value, member in pairs)})"
    wire, schema = _one_of(pairs)[:2]
    return Node(cls if is_decodable(cls) else wire, describe(describe(schema, names), own_docstring(cls)))


def _json_of_member(member: enum.Enum) -> object:
    """The value of a member if JSON can hold all values of its Enum, else the name."""
    is_simple = all(isinstance(other.value, JSON_SCALARS) for other in type(member))
    return member.value if is_simple else member.name


def _one_of(pairs: Sequence[tuple[object, object]]) -> Node:
    """A choice of JSON values, each of which stands for a Python value."""
    values = [value for value, _ in pairs]

    def read(value: object) -> object:
        for allowed, meaning in pairs:
            if value == allowed and isinstance(value, bool) == isinstance(allowed, bool):  # in Python, 1 == True
                return meaning
        raise ValueError(expected(one_of(values), value))

    return Node(custom("Choice", read), _choice(values))


def _choice(values: Sequence[object]) -> Schema:
    kinds = {kind_of(value) for value in values}
    return {"type": kinds.pop(), "enum": [*values]} if len(kinds) == 1 else {"enum": [*values]}


# --- objects ---------------------------------------------------------------------------------------------------------


def object_schema(fields: Sequence[tuple[Field, Node]], descriptions: Mapping[str, str], config: Any = None) -> Schema:
    """The schema of an object with these fields. `config` is that of a Struct, which may be open, or tagged."""
    properties = {field.key: _field_schema(field, node, descriptions.get(field.name, "")) for field, node in fields}
    required = [field.key for field, _ in fields if field.required]
    if config is not None and config.tag_field is not None:
        properties = {config.tag_field: _choice([config.tag]), **properties}
        required = [config.tag_field, *required]
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if config is None or config.forbid_unknown_fields:
        schema["additionalProperties"] = False
    return schema


def _field_schema(field: Field, node: Node, description: str) -> Schema:
    """The schema of a field; a description in `Annotated` overrides all others."""
    text = "" if node.is_described else field.description or description
    schema = describe(node.schema, text) if text else dict(node.schema)
    if field.default is not MISSING and (default := _json_default(field.default, node)) is not MISSING:
        schema["default"] = default
    return schema


def _json_default(value: object, node: Node) -> object:
    """The JSON form of a default; MISSING if it has none, or if the model could not send it back."""
    try:
        plain = msgspec.json.decode(msgspec.json.encode(value, enc_hook=_encode_custom, order="deterministic"))
        return plain if convert(plain, node.wire) == value else MISSING
    except Exception:  # noqa: BLE001 -- a default is any object
        return MISSING


def _encode_custom(value: Any) -> object:
    return value.model_dump(mode="json", by_alias=True) if hasattr(value, "model_dump") else str(value)


def own_docstring(cls: type) -> str:
    """The docstring written for this class: neither inherited nor generated by Python."""
    own = vars(cls).get("__doc__")
    generated = (f"{cls.__name__}(", "An enumeration.", "A collection of name/value pairs")
    return inspect.cleandoc(own) if isinstance(own, str) and not own.startswith(generated) else ""


# --- unions ----------------------------------------------------------------------------------------------------------


def union(members: Sequence[Node], definitions: Mapping[str, Schema] = {}) -> Node:
    """One of several kinds of values. If msgspec cannot tell them apart, the first that fits best is taken."""
    members = [part for member in members for part in (member.members or (member,))]
    if any(member.wire is Any for member in members):
        return ANYTHING
    if len(members) == 1:
        return members[0]
    options: list[Schema] = []
    for member in members:
        inner = cast("list[Schema]", member.schema["anyOf"]) if member.schema.keys() == {"anyOf"} else [member.schema]
        options.extend(option for option in inner if option not in options)
    if {"type": "number"} in options and {"type": "integer"} in options:
        options.remove({"type": "integer"})
    wire = Union[tuple(member.wire for member in members)]  # noqa: UP007 -- built, not written

    def read_best(value: object) -> object:
        # A form that ignores unknown names accepts every object: only those count that know the most of its names.
        unknown = [_count_unknown(value, member.schema, definitions) for member in members]
        best = [member for member, count in zip(members, unknown, strict=True) if count == min(unknown)]
        for member in best:
            try:
                return convert(value, member.wire)
            except ValueError:
                if len(best) == 1:
                    raise
        raise ValueError(f"{kind_of(value)} {shown(value)} fits none of the allowed forms")

    is_optional = len(members) == 2 and NULL in members
    wire = wire if is_optional or is_decodable(wire) else custom("Union", read_best)
    return Node(wire, options[0] if len(options) == 1 else {"anyOf": options}, members=tuple(members))


def _count_unknown(value: object, schema: Schema, definitions: Mapping[str, Schema]) -> int:
    """The number of names in an object that a schema does not declare."""
    target = str(schema.get("$ref")).removeprefix("#/$defs/")
    known = definitions.get(target, schema).get("properties")
    return len(value.keys() - known.keys()) if is_object(value) and is_object(known) else 0


# --- arrays and mappings ---------------------------------------------------------------------------------------------


def array(item: Node, build: Any) -> Node:
    is_set = build in (set, frozenset)
    if is_set and typing.get_origin(item.wire) in (list, set, dict):
        raise UnsupportedError("a set cannot hold mutable values", "Use list[...] instead.")
    schema: Schema = {"type": "array"}
    if item.schema:
        schema["items"] = item.schema
    wire = tuple[item.wire, ...] if build is tuple else cast("Any", build)[item.wire]
    return Node(wire, {**schema, "uniqueItems": True} if is_set else schema)


def fixed_array(items: Sequence[Node]) -> Node:
    """A tuple with one item of each kind."""
    wire, count = tuple[tuple(item.wire for item in items)], len(items)
    if not count:
        return Node(wire, {"type": "array", "maxItems": 0})
    schemas = [item.schema for item in items]
    return Node(wire, {"type": "array", "prefixItems": schemas, "items": False, "minItems": count, "maxItems": count})


def mapping(key: Node, value: Node) -> Node:
    names = {keyword: meaning for keyword, meaning in key.schema.items() if keyword != "description"}
    kind = names.get("type", "" if names else "string")
    if kind not in ("string", "integer") or isinstance(key.wire, _Custom) or names.get("format") == "path":
        raise UnsupportedError("such a key cannot be a name in a JSON object", "Use dict[str, ...] instead.")
    schema: Schema = {"type": "object"}
    if kind == "integer":  # names are strings in JSON
        values = cast("list[int]", names.get("enum", []))
        schema["propertyNames"] = {"enum": [*map(str, values)]} if values else {"pattern": "^-?[0-9]+$"}
    elif len(names) > 1:
        schema["propertyNames"] = names
    if value.schema:
        schema["additionalProperties"] = value.schema
    return Node(dict[key.wire, value.wire], schema)


# --- limits ----------------------------------------------------------------------------------------------------------

_NUMERIC = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_KEYWORDS: Mapping[object, Mapping[str, str]] = {
    "integer": _NUMERIC,
    "number": _NUMERIC,
    "string": {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"},
    "array": {"min_length": "minItems", "max_length": "maxItems"},
    "object": {"min_length": "minProperties", "max_length": "maxProperties"},
}
"""The limits that msgspec checks on each JSON type, with their keywords in JSON Schema."""
LIMITS = (*_NUMERIC, "min_length", "max_length", "pattern", "tz")


def limit(node: Node, limits: Mapping[str, Any]) -> Node | None:
    """The node within limits, None if msgspec cannot check them. A limit on a union is for the members it suits."""
    if not limits:
        return node
    keywords = _KEYWORDS.get(node.schema.get("type"), {})
    if node.members:
        known = [limits.keys() & _KEYWORDS.get(member.schema.get("type"), {}).keys() for member in node.members]
        pairs = zip(node.members, known, strict=True)
        parts = [limit(member, {name: limits[name] for name in names}) for member, names in pairs]
        limited = [part for part in parts if part is not None]
        return union(limited) if len(limited) == len(parts) and set(limits) == set[str]().union(*known) else None
    try:
        wire = Annotated[node.wire, msgspec.Meta(**limits)]
    except (TypeError, ValueError, re.error):
        return None
    if not limits.keys() <= keywords.keys() or node.wire is bytes or not is_decodable(wire):
        return None
    return node._replace(wire=wire, schema={**node.schema, **{keywords[name]: limits[name] for name in limits}})


# --- pydantic --------------------------------------------------------------------------------------------------------


def pydantic_node(hint: object, definitions: dict[str, Schema]) -> Node:
    """A type that pydantic validates, whose definitions are added. A program that uses pydantic has imported it."""
    pydantic = cast("Any", sys.modules.get("pydantic"))
    if pydantic is None:
        raise UnsupportedError(f"{hint!r} belongs to pydantic, which is not imported", "Import pydantic.")
    try:
        adapter: Any = pydantic.TypeAdapter(hint)
        prefix = ""
        while True:
            schema = without_titles(adapter.json_schema(ref_template=f"#/$defs/{prefix}{{model}}"))
            own = {prefix + name: sub for name, sub in cast("dict[str, Schema]", schema.pop("$defs", {})).items()}
            if all(definitions.get(name, sub) == sub for name, sub in own.items()):
                break
            prefix += "_"  # another class has this name
    except Exception as error:  # noqa: BLE001 -- pydantic has many, some of them plain NameErrors
        reason = str(error).splitlines()[0]
        raise UnsupportedError(f"pydantic cannot express it: {reason}", "Correct the model.") from None
    definitions.update(own)
    if "$ref" in schema:  # a recursive model
        schema = own[str(schema["$ref"]).removeprefix("#/$defs/")]
    to_json: Any = sys.modules["pydantic_core"].to_json

    def read(value: object) -> object:
        try:
            # As JSON: strict models accept text for a date only when it comes from JSON.
            return adapter.validate_json(to_json(value))
        except Exception as error:  # noqa: BLE001 -- validators are the user's code
            raise ValueError(_pydantic_problem(error)) from None

    return Node(custom("Pydantic", read), schema)


def _pydantic_problem(error: Any) -> str:
    """The first problem that pydantic found, with its path as msgspec writes it."""
    if not hasattr(error, "errors"):
        return str(error) or type(error).__name__
    item = error.errors(include_url=False, include_context=False)[0]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in item["loc"])
    text = str(item["msg"]).removeprefix("Value error, ").replace("Input should be", "expected")
    return f"{text}, got {kind_of(item['input'])} {shown(item['input'])}" + (f" - at `${path}`" if path else "")
