"""What hints mean: for each kind of value the type that msgspec decodes, and the JSON Schema that the model is told.

Owns: Node, and how values are read that msgspec does not read itself (a union of dataclasses, an Enum or str, a
pydantic model): in its types a class of our own stands for them, and msgspec calls `decode_custom` where it meets one.
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

from .problems import expected, is_array, is_object, kind_of, one_of, shown
from .resolve import MISSING, RawField, UnsupportedError
from .schemas import Definition, Schema, adopt, describe, without_titles


class Node(NamedTuple):
    """What a hint means."""

    wire: Any
    """The type that msgspec decodes."""
    schema: Schema
    """What the model is told."""
    kind: type | None = None
    """The Python type, where limits can be put on it."""
    members: tuple[Node, ...] = ()
    """The choices of a union."""
    is_described: bool = False
    """Whether a description was written beside the type."""


# --- what msgspec does not read itself -------------------------------------------------------------------------------


class _Custom(type):
    read: Callable[[object], object]

    def __instancecheck__(cls, instance: object) -> bool:
        return True  # msgspec checks what the hook returned; `read` has done so already


def custom(name: str, read: Callable[[object], object]) -> type:
    """A class that stands in msgspec's types for what `read` reads; it raises ValueError if a value does not fit."""
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
        return msgspec.convert(value, wire, dec_hook=decode_custom, str_keys=True)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def make_decoder(wire: Any) -> msgspec.json.Decoder[Any]:
    """msgspec's decoder; raises UnsupportedError, for it has rules of its own, above all about unions."""
    try:
        return msgspec.json.Decoder(wire, dec_hook=decode_custom)
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
    return Node(kind, {"type": "string", "format": form}, kind)


ANYTHING = Node(Any, {})
NULL = Node(type(None), {"type": "null"})
TEXT = Node(str, {"type": "string"}, str)

SCALARS: dict[object, Node] = {
    Any: ANYTHING,
    object: ANYTHING,
    None: NULL,
    type(None): NULL,
    bool: Node(bool, {"type": "boolean"}),
    int: Node(int, {"type": "integer"}, int),
    float: Node(float, {"type": "number"}, float),
    str: TEXT,
    typing.LiteralString: TEXT,
    bytes: Node(bytes, {"type": "string", "contentEncoding": "base64"}, bytes),
    decimal.Decimal: Node(
        decimal.Decimal, {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}, decimal.Decimal
    ),
    datetime.datetime: _text(datetime.datetime, "date-time"),
    datetime.date: _text(datetime.date, "date"),
    datetime.time: _text(datetime.time, "time"),
    datetime.timedelta: _text(datetime.timedelta, "duration"),
    uuid.UUID: _text(uuid.UUID, "uuid"),
}
JSON_SCALARS = (str, int, float, bool, type(None))
"""What every decoder can read."""


# --- objects ---------------------------------------------------------------------------------------------------------


class Field(NamedTuple):
    """A field of an object, or a parameter of a function."""

    raw: RawField
    node: Node


def object_schema(fields: Sequence[Field], descriptions: Mapping[str, str], config: Any = None) -> Schema:
    """The schema of an object with these fields; a Struct may be open, or tagged."""
    properties = {raw.key: _field_schema(raw, node, descriptions.get(raw.name, "")) for raw, node in fields}
    required = [raw.key for raw, _ in fields if raw.required]
    if config is not None and config.tag_field is not None:
        properties = {config.tag_field: {"type": kind_of(config.tag), "enum": [config.tag]}, **properties}
        required = [config.tag_field, *required]
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if config is None or config.forbid_unknown_fields:
        schema["additionalProperties"] = False
    return schema


def _field_schema(raw: RawField, node: Node, description: str) -> Schema:
    """What the model is told of a field; a description beside the type wins over one from elsewhere."""
    text = "" if node.is_described else raw.description or description
    schema = describe(node.schema, text) if text else dict(node.schema)
    if raw.default is not MISSING and (shown_as := _default(raw.default, node)) is not MISSING:
        schema["default"] = shown_as
    return schema


def _default(value: object, node: Node) -> object:
    """The JSON form of a default; MISSING if it has none, or if the model could not send it back."""
    try:
        plain = msgspec.json.decode(msgspec.json.encode(value, enc_hook=_encode_custom, order="deterministic"))
        return plain if convert(plain, node.wire) == value else MISSING
    except Exception:  # noqa: BLE001 -- a default is any object; what cannot be shown is not shown
        return MISSING


def _encode_custom(value: Any) -> object:
    return value.model_dump(mode="json", by_alias=True) if hasattr(value, "model_dump") else str(value)


def struct_of(fields: Sequence[Field], *, tag: Mapping[str, Any] | None = None, is_closed: bool = True) -> Any:
    """The Struct that reads an object with these fields; what is optional and not there is UNSET."""
    declared: list[tuple[str, Any, Any]] = []
    for index, (raw, node) in enumerate(fields):
        default = msgspec.NODEFAULT if raw.required else msgspec.UNSET
        declared.append((f"f{index}", node.wire, msgspec.field(default=default, name=raw.key)))
    return msgspec.defstruct("Fields", declared, kw_only=True, forbid_unknown_fields=is_closed, **(tag or {}))


def own_docstring(cls: type) -> str:
    """The docstring written for this class: not an inherited one, not one that Python made up."""
    own = vars(cls).get("__doc__")
    made_up = (f"{cls.__name__}(", "An enumeration.", "A collection of name/value pairs")
    return inspect.cleandoc(own) if isinstance(own, str) and not own.startswith(made_up) else ""


# --- one of several --------------------------------------------------------------------------------------------------


def union(members: Sequence[Node]) -> Node:
    """Any one of several kinds of values; where msgspec cannot tell them apart, the nearest that fits."""
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

    def read_first(value: object) -> object:
        # Forms that take any name take every object: only those are meant that know the most names of this one.
        strange = [_count_unknown(value, member.schema) for member in members]
        nearest = [each for each, count in zip(members, strange, strict=True) if count == min(strange)]
        for member in nearest:
            try:
                return convert(value, member.wire)
            except ValueError:
                if len(nearest) == 1:
                    raise
        raise ValueError(f"{kind_of(value)} {shown(value)} fits none of the allowed forms")

    is_optional = len(members) == 2 and NULL in members
    wire = wire if is_optional or is_decodable(wire) else custom("Union", read_first)
    return Node(wire, options[0] if len(options) == 1 else {"anyOf": options}, members=tuple(members))


def _count_unknown(value: object, schema: Schema) -> int:
    """How many names of an object a schema does not mention."""
    while isinstance(target := schema.get("$ref"), Definition):
        schema = target.schema
    known = schema.get("properties")
    return len(value.keys() - known.keys()) if is_object(value) and is_object(known) else 0


def _choice(meanings: Sequence[tuple[object, object]], native: Any = None) -> Node:
    """One of a fixed list of JSON values, each standing for a Python value."""
    # The type is part of the key: 1, 1.0 and true are equal in Python and different in JSON.
    table = {(type(key), key): meaning for key, meaning in meanings}
    values = [value for _, value in table]

    def read(value: object) -> object:
        if is_array(value) or is_object(value) or (type(value), value) not in table:
            raise ValueError(expected(one_of(values), value))
        return table[type(value), value]

    kinds = {kind_of(value) for value in values}
    schema: Schema = {"type": kinds.pop()} if len(kinds) == 1 else {}
    return Node(native or custom("Choice", read), {**schema, "enum": values})


def literal(hint: object, values: tuple[object, ...]) -> Node:
    if any(isinstance(value, bytes) for value in values):
        raise UnsupportedError(f"{hint} has no JSON form", "Use strings, integers, booleans or None.")
    # msgspec reads a bool as an int here, and knows no enum members.
    is_native = all(type(value) in (str, int, type(None)) for value in values)
    pairs = [(_json_of_member(value) if isinstance(value, enum.Enum) else value, value) for value in values]
    return _choice(pairs, hint if is_native else None)


def enumeration(cls: type[enum.Enum]) -> Node:
    """An Enum: its values where JSON can hold them, else its names."""
    members = list(cls)
    if not members or issubclass(cls, enum.Flag):
        raise UnsupportedError(f"{cls.__name__} is not a choice of one member", "Use an Enum, or a list of one.")
    pairs = [(_json_of_member(member), member) for member in members]
    node = _choice(pairs, cls if is_decodable(cls) else None)
    is_telling = all(isinstance(value, str) for value, _ in pairs)
    names = "" if is_telling else f"({', '.join(f'{shown(value)} = {member.name}' for value, member in pairs)})"
    return node._replace(schema=describe(describe(node.schema, names), own_docstring(cls)))


def _json_of_member(member: enum.Enum) -> object:
    is_simple = all(type(other.value) in JSON_SCALARS for other in type(member))
    return member.value if is_simple else member.name


# --- many ------------------------------------------------------------------------------------------------------------


def array(item: Node, build: Any) -> Node:
    is_set = build in (set, frozenset)
    if is_set and item.kind in (list, set, dict):
        raise UnsupportedError("a set cannot hold what can change", "Use list[...] instead.")
    schema: Schema = {"type": "array"}
    if item.schema:
        schema["items"] = item.schema
    wire = tuple[item.wire, ...] if build is tuple else cast("Any", build)[item.wire]
    return Node(wire, {**schema, "uniqueItems": True} if is_set else schema, build)


def mapping(key: Node, value: Node) -> Node:
    names = {keyword: said for keyword, said in key.schema.items() if keyword != "description"}
    kind = names.get("type", "string" if not names else "")
    if kind not in ("string", "integer") or isinstance(key.wire, _Custom) or names.get("format") == "path":
        raise UnsupportedError("such a key cannot be a name in a JSON object", "Use dict[str, ...] instead.")
    schema: Schema = {"type": "object"}
    # Names are texts in JSON, so that numbers become a pattern or a list of texts.
    if "enum" in names:
        values = cast("list[object]", names["enum"])
        schema["propertyNames"] = {"enum": [each if isinstance(each, str) else shown(each) for each in values]}
    elif kind == "integer":
        schema["propertyNames"] = {"pattern": "^-?[0-9]+$"}
    elif len(names) > 1:
        schema["propertyNames"] = names
    if value.schema:
        schema["additionalProperties"] = value.schema
    return Node(dict[key.wire, value.wire], schema, dict)


# --- limits ----------------------------------------------------------------------------------------------------------

_NUMERIC = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_ITEMS = {"min_length": "minItems", "max_length": "maxItems"}
_LIMITS: Mapping[type | None, Mapping[str, str]] = {
    int: _NUMERIC,
    float: _NUMERIC,
    str: {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"},
    list: _ITEMS,
    tuple: _ITEMS,
    set: _ITEMS,
    frozenset: _ITEMS,
    dict: {"min_length": "minProperties", "max_length": "maxProperties"},
}
"""The limits that msgspec checks on each type, with their keywords in JSON Schema."""


def limit(node: Node, limits: Mapping[str, Any]) -> Node | None:
    """The node within limits, None if msgspec cannot check them; those on a union go to the members they apply to."""
    if not limits:
        return node
    keywords = _LIMITS.get(node.kind, {})
    if node.members:
        shares = [limits.keys() & _LIMITS.get(member.kind, {}).keys() for member in node.members]
        parts = [
            limit(member, {kind: value for kind, value in limits.items() if kind in share})
            for member, share in zip(node.members, shares, strict=True)
        ]
        found = [part for part in parts if part is not None]
        return union(found) if len(found) == len(parts) and set[str]().union(*shares) == set(limits) else None
    try:
        wire = Annotated[node.wire, msgspec.Meta(**limits)]
    except (TypeError, ValueError, re.error):
        return None
    if not limits.keys() <= keywords.keys() or not is_decodable(wire):
        return None
    said = {keyword: limits[kind] for kind, keyword in keywords.items() if kind in limits}
    return node._replace(wire=wire, schema={**node.schema, **said})


# --- pydantic --------------------------------------------------------------------------------------------------------


def pydantic_node(hint: object) -> Node:
    """Whatever pydantic reads, by pydantic's rules. It is never imported here: who uses it has imported it."""
    pydantic = cast("Any", sys.modules.get("pydantic"))
    if pydantic is None:
        raise UnsupportedError(f"{hint!r} belongs to pydantic, which is not imported", "Import pydantic.")
    try:
        adapter: Any = pydantic.TypeAdapter(hint)
        schema = adopt(without_titles(adapter.json_schema()))
    except Exception as error:  # noqa: BLE001 -- pydantic has many, some of them plain NameErrors
        reason = str(error).splitlines()[0]
        raise UnsupportedError(f"pydantic cannot express it: {reason}", "Correct the model.") from None
    to_json: Any = sys.modules["pydantic_core"].to_json

    def read(value: object) -> object:
        try:
            # As JSON: strict models take a date from text only when it comes from JSON.
            return adapter.validate_json(to_json(value))
        except Exception as error:  # noqa: BLE001 -- validators are the user's code
            raise ValueError(_pydantic_problem(error)) from None

    return Node(custom("Pydantic", read), schema)


def _pydantic_problem(error: Any) -> str:
    """The first problem that pydantic found, with its place as msgspec writes it."""
    if not hasattr(error, "errors"):
        return str(error) or type(error).__name__
    item = error.errors(include_url=False, include_context=False)[0]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in item["loc"])
    text = str(item["msg"]).removeprefix("Value error, ").replace("Input should be", "expected")
    return f"{text}, got {kind_of(item['input'])} {shown(item['input'])}" + (f" - at `${path}`" if path else "")
