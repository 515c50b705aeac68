"""What a hint means: the type that msgspec decodes, and the JSON Schema that the model is told.

Owns: which forms of hints are understood; what cannot be expressed is refused with a fix.
Must not know: functions and tools.

Most hints go to msgspec as they are. What it does not read itself (a union of dataclasses, an Enum or str, a limit on a
date, a pydantic model) is replaced by a class of our own, and msgspec calls `decode_custom` where it meets one.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import functools
import inspect
import operator
import pathlib
import sys
import types
import typing
import uuid
from collections import abc
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, Union, cast

import msgspec

from .limits import LIMIT_KEYWORDS, Annotations
from .problems import expected, kind_of, one_of, shown
from .resolve import MISSING, RawField, UnsupportedError, class_of, fields_of, resolve_one, scope_of_alias
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


def _custom(name: str, read: Callable[[object], object]) -> type:
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
    except (TypeError, ValueError, OverflowError, NameError) as error:
        raise UnsupportedError(f"it cannot be read: {error}", "Use a simpler type.") from None


def _is_decodable(wire: Any) -> bool:
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
_TEXT = Node(str, {"type": "string"}, str)

_SCALARS: dict[object, Node] = {
    Any: ANYTHING,
    object: ANYTHING,
    None: NULL,
    type(None): NULL,
    bool: Node(bool, {"type": "boolean"}),
    int: Node(int, {"type": "integer"}, int),
    float: Node(float, {"type": "number"}, float),
    str: _TEXT,
    typing.LiteralString: _TEXT,
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
_ARRAYS: dict[object, Any] = {
    list: list,
    set: set,
    frozenset: frozenset,
    tuple: tuple,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Collection: list,
    abc.Iterable: list,
    abc.Set: set,
    abc.MutableSet: set,
}
_MAPPINGS: frozenset[object] = frozenset({dict, abc.Mapping, abc.MutableMapping})
_QUALIFIERS = frozenset({"Final", "Required", "NotRequired", "ReadOnly"})
_JSON_SCALARS = (str, int, float, bool, type(None))


# --- the walk over a hint --------------------------------------------------------------------------------------------


class _Alias:
    """A `type X = ...` while it is being read; it may contain itself."""

    def __init__(self, name: str) -> None:
        self.target: Node = ANYTHING
        self.definition: Definition = Definition(name)
        self.is_recursive: bool = False
        self.node: Node = Node(_custom(name, lambda value: convert(value, self.target.wire)), {"$ref": self.definition})


class Parser:
    """Turns hints into nodes. One parser serves one function or type, so that a class has one node in it."""

    def __init__(self) -> None:
        self._records: dict[object, Node] = {}
        self._aliases: dict[object, _Alias] = {}
        self.has_definitions: bool = False
        """Whether the schemas refer to definitions, so that a document must be written of them."""

    def node(self, hint: object) -> Node:
        """The node of a hint; raises UnsupportedError."""
        scalar = _SCALARS.get(_key(hint))
        if scalar is not None:
            return scalar
        if isinstance(hint, str | typing.ForwardRef):
            raise UnsupportedError(f"the forward reference {hint!r} was not resolved", "Write the type without quotes.")
        if isinstance(hint, typing.TypeVar):
            if hint.__constraints__:
                return union([self.node(constraint) for constraint in hint.__constraints__])
            return ANYTHING if hint.__bound__ is None else self.node(hint.__bound__)
        if isinstance(hint, typing.NewType):
            return self.node(hint.__supertype__)
        origin = typing.get_origin(hint)
        if "TypeAliasType" in (type(hint).__name__, type(origin).__name__):
            return self._alias(hint)
        if origin is not None:
            return self._generic(hint, origin, typing.get_args(hint))
        return self._class(hint)

    def _alias(self, hint: Any) -> Node:
        key = _key(hint)
        if key in self._aliases:
            self._aliases[key].is_recursive = True
            return self._aliases[key].node
        generic = typing.get_origin(hint) or hint
        value: Any = resolve_one(generic.__value__, scope_of_alias(generic))
        self.has_definitions = True
        alias = self._aliases[key] = _Alias(generic.__name__)
        alias.target = self.node(value if generic is hint else value[typing.get_args(hint)])
        alias.definition.schema = alias.target.schema
        if alias.is_recursive:
            return alias.node
        del self._aliases[key]
        return alias.target

    def _generic(self, hint: object, origin: object, arguments: tuple[Any, ...]) -> Node:
        if origin is Annotated:
            return self._annotated(hint)
        if origin is Union or origin is types.UnionType:
            members = [self.node(argument) for argument in arguments if argument is not msgspec.UnsetType]
            return union(members)
        if origin is typing.Literal:
            return _literal(hint, arguments)
        if getattr(origin, "_name", None) in _QUALIFIERS:
            return self.node(arguments[0])
        if not arguments and (origin is not tuple or hint is typing.Tuple):  # noqa: UP006 -- typing.List and its like
            return self._class(origin)
        if origin is tuple and (len(arguments) != 2 or arguments[1] is not ...):
            return self._fixed_array(hint, arguments)
        if origin in _MAPPINGS:
            return _mapping(self.node(arguments[0]), self.node(arguments[1]))
        if origin in _ARRAYS:
            return _array(self.node(arguments[0]), _ARRAYS[origin])
        return self._class(hint)

    def _fixed_array(self, hint: object, arguments: tuple[Any, ...]) -> Node:
        if any(getattr(argument, "__unpacked__", False) for argument in arguments):
            raise _refusal(hint)
        items = [self.node(argument) for argument in arguments]
        wire, count = tuple[tuple(item.wire for item in items)], len(items)
        if not count:
            return Node(wire, {"type": "array", "maxItems": 0})
        schemas = [item.schema for item in items]
        return Node(
            wire, {"type": "array", "prefixItems": schemas, "items": False, "minItems": count, "maxItems": count}
        )

    def _annotated(self, hint: Any) -> Node:
        found = Annotations(hint.__metadata__)
        node = None if found.unusual is not None else _limit(self.node(hint.__origin__), found.limits)
        if node is None and (found.has_meta or "pydantic" not in sys.modules):
            limits = ", ".join(f"{kind}={value!r}" for kind, value in found.limits.items()) or repr(found.unusual)
            raise UnsupportedError(
                f"the limit {limits} cannot be checked on {_name_of(hint.__origin__)}",
                "Check it in the function, or import pydantic and use its Field, which knows more limits.",
            )
        node = node or self._pydantic(hint)
        extra = {keyword: value for keyword, value in found.schema.items() if keyword != "description"}
        said = str(found.schema.get("description", ""))
        schema = {**(node.schema if node.schema.get("description") == said else describe(node.schema, said)), **extra}
        return node._replace(schema=schema, is_described=bool(said) or node.is_described)

    def _class(self, hint: Any) -> Node:
        key = _key(hint)
        if key in _ARRAYS:
            return _array(ANYTHING, _ARRAYS[key])
        if key in _MAPPINGS:
            return _mapping(_TEXT, ANYTHING)
        cls = class_of(hint)
        if cls is None:
            raise _refusal(hint)
        if hasattr(cls, "__get_pydantic_core_schema__") or "__pydantic_validator__" in vars(cls):
            return self._pydantic(hint)
        if issubclass(cls, enum.Enum):
            return _enum(cls)
        if issubclass(cls, pathlib.PurePath):
            return Node(cls, {"type": "string", "format": "path"})
        return self._records[key] if key in self._records else self._record(hint, cls)

    def _pydantic(self, hint: object) -> Node:
        self.has_definitions = True
        return _pydantic(hint)

    # --- objects with named fields ---

    def _record(self, hint: object, cls: type[Any]) -> Node:
        """An object with named fields, read by a Struct of the same fields, so that unknown ones are refused."""
        self.has_definitions = True
        arguments = "_".join(getattr(argument, "__name__", str(argument)) for argument in typing.get_args(hint))
        definition = Definition(f"{cls.__name__}_{arguments}" if arguments else cls.__name__)
        names: list[str] = []
        struct: Any = None

        def build(value: object) -> object:
            decoded = msgspec.structs.astuple(convert(value, struct))
            given = {name: item for name, item in zip(names, decoded, strict=True) if item is not msgspec.UNSET}
            try:
                return given if issubclass(cls, dict) else cls(**given)
            except Exception as error:  # noqa: BLE001 -- __init__ and __post_init__ are the user's code, and may check
                raise ValueError(str(error)[:200] or type(error).__name__) from None

        # A class may contain itself, so that its node is there before its fields are read.
        node = self._records[_key(hint)] = Node(_custom(cls.__name__, build), {"$ref": definition})
        declared = fields_of(hint)
        if declared is None:
            raise _refusal(hint)
        fields = [Field(raw, self._field(cls, raw)) for raw in declared]
        names.extend(raw.name for raw in declared)
        text, descriptions = _documentation(cls)
        schema = object_schema(fields, descriptions)
        config: Any = getattr(cls, "__struct_config__", None)
        definition.schema = describe(schema if config is None else _struct_schema(schema, config), text)
        struct = _struct_of(fields, config)
        # A Struct is left to msgspec if msgspec sees all that its hints say, and if only it checks what is built.
        native = config is not None and not hasattr(cls, "__post_init__")
        if native and all(field.node.wire == field.raw.hint for field in fields) and _is_decodable(hint):
            node = self._records[_key(hint)] = node._replace(wire=hint)
        return node

    def _field(self, cls: type, field: RawField) -> Node:
        try:
            return self.node(field.hint)
        except UnsupportedError as error:
            raise error.within(f"field {field.name} of {cls.__name__}") from None


def _key(hint: object) -> object:
    """What stands for a hint in a table: an Annotated with a list or a dict beside the type cannot be hashed."""
    try:
        hash(hint)
    except TypeError:
        return repr(hint)
    return hint


def _name_of(hint: object) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).removeprefix("typing.")


def _refusal(hint: object) -> UnsupportedError:
    return UnsupportedError(
        f"{_name_of(hint)} cannot be expressed in JSON",
        "Use a JSON-like type, a dataclass, TypedDict, NamedTuple, msgspec.Struct or pydantic model.",
    )


# --- objects ---------------------------------------------------------------------------------------------------------


class Field(NamedTuple):
    """A field of an object, or a parameter of a function."""

    raw: RawField
    node: Node


def object_schema(fields: Sequence[Field], descriptions: abc.Mapping[str, str]) -> Schema:
    """The schema of an object with these fields and no others."""
    properties = {raw.key: _field_schema(raw, node, descriptions.get(raw.name, "")) for raw, node in fields}
    schema: Schema = {"type": "object", "properties": properties}
    if required := [raw.key for raw, _ in fields if raw.required]:
        schema["required"] = required
    return {**schema, "additionalProperties": False}


def _field_schema(raw: RawField, node: Node, description: str) -> Schema:
    """What the model is told of a field; a description beside the type wins over one from elsewhere."""
    schema = dict(node.schema) if node.is_described else dict(describe(node.schema, raw.description or description))
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


def _struct_schema(schema: Schema, config: Any) -> Schema:
    """The schema of a msgspec.Struct, which may be open, tagged, or written as an array."""
    properties, required = (
        cast("dict[str, Schema]", schema["properties"]),
        cast("list[str]", schema.get("required", [])),
    )
    if config.tag_field is not None:
        properties = {config.tag_field: {"type": kind_of(config.tag), "enum": [config.tag]}, **properties}
        required = [config.tag_field, *required]
    if config.array_like:
        return {"type": "array", "prefixItems": list(properties.values()), "minItems": len(required)}
    opened: Schema = {"type": "object", "properties": properties}
    if required:
        opened["required"] = required
    return {**opened, "additionalProperties": False} if config.forbid_unknown_fields else opened


def _struct_of(fields: Sequence[Field], config: Any) -> Any:
    """The Struct that reads an object with these fields; what is optional and not there is UNSET."""
    layout = {name: getattr(config, name) for name in ("tag", "tag_field", "array_like")} if config else {}
    declared: list[tuple[str, Any, Any]] = []
    for index, (raw, node) in enumerate(fields):
        default = msgspec.NODEFAULT if raw.required else msgspec.UNSET
        declared.append((f"f{index}", node.wire, msgspec.field(default=default, name=raw.key)))
    is_closed = config is None or config.forbid_unknown_fields
    return msgspec.defstruct("Fields", declared, kw_only=True, forbid_unknown_fields=is_closed, **layout)


def _documentation(cls: type) -> tuple[str, abc.Mapping[str, str]]:
    """What the docstring says of a class and of its fields."""
    text = _own_docstring(cls)
    if not text:
        return "", {}
    from .docstrings import parse_docstring  # it loads the docstring parser

    documentation = parse_docstring(text)
    return documentation.description, documentation.parameters


def _own_docstring(cls: type) -> str:
    """The docstring written for this class: not an inherited one, not one that Python made up."""
    own = vars(cls).get("__doc__")
    made_up = (f"{cls.__name__}(", "An enumeration.", "A collection of name/value pairs")
    return inspect.cleandoc(own) if isinstance(own, str) and not own.startswith(made_up) else ""


# --- one of several --------------------------------------------------------------------------------------------------


def union(members: Sequence[Node]) -> Node:
    """Any one of several kinds of values; where msgspec cannot tell them apart, the first that fits."""
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
        for member in members:
            try:
                return convert(value, member.wire)
            except ValueError:
                continue
        raise ValueError(f"{kind_of(value)} {shown(value)} fits none of the allowed forms")

    is_optional = len(members) == 2 and NULL in members
    wire = wire if is_optional or _is_decodable(wire) else _custom("Union", read_first)
    return Node(wire, options[0] if len(options) == 1 else {"anyOf": options}, members=tuple(members))


def _choice(meanings: Sequence[tuple[object, object]], native: Any = None) -> Node:
    """One of a fixed list of JSON values, each standing for a Python value."""
    # The type is part of the key: 1, 1.0 and true are equal in Python and different in JSON.
    table = {(type(key), key): meaning for key, meaning in meanings}
    values = [value for _, value in table]

    def read(value: object) -> object:
        if isinstance(value, (list, dict)) or (type(value), value) not in table:
            raise ValueError(expected(one_of(values), value))
        return table[type(value), value]

    kinds = {kind_of(value) for value in values}
    schema: Schema = {"type": kinds.pop()} if len(kinds) == 1 else {}
    return Node(native or _custom("Choice", read), {**schema, "enum": values})


def _literal(hint: object, values: tuple[object, ...]) -> Node:
    if any(isinstance(value, bytes) for value in values):
        raise UnsupportedError(f"{hint} has no JSON form", "Use strings, integers, booleans or None.")
    # msgspec reads a bool as an int here, and knows no enum members.
    is_native = all(type(value) in (str, int, type(None)) for value in values)
    pairs = [(_json_of_member(value) if isinstance(value, enum.Enum) else value, value) for value in values]
    return _choice(pairs, hint if is_native else None)


def _enum(cls: type[enum.Enum]) -> Node:
    """An Enum: its values where JSON can hold them, else its names. A Flag is a list of names."""
    members = list(cls)
    if not members:
        raise UnsupportedError(f"the enum {cls.__name__} has no members", "Give it at least one member.")
    if issubclass(cls, enum.Flag):
        names = _choice([(member.name, member) for member in cls])

        def read(value: object) -> object:
            return functools.reduce(operator.or_, convert(value, list[names.wire]), cls(0))

        return Node(_custom(cls.__name__, read), {"type": "array", "items": names.schema, "uniqueItems": True})
    pairs = [(_json_of_member(member), member) for member in members]
    node = _choice(pairs, cls if _is_decodable(cls) else None)
    meanings = "" if all(isinstance(value, str) for value, _ in pairs) else _meanings(pairs)
    return node._replace(schema=describe(describe(node.schema, meanings), _own_docstring(cls)))


def _meanings(pairs: Sequence[tuple[object, enum.Enum]]) -> str:
    return f"({', '.join(f'{shown(value)} = {member.name}' for value, member in pairs)})"


def _json_of_member(member: enum.Enum) -> object:
    is_simple = all(type(other.value) in _JSON_SCALARS for other in type(member))
    return member.value if is_simple else member.name


# --- many ------------------------------------------------------------------------------------------------------------


def _array(item: Node, build: Any) -> Node:
    is_set = build in (set, frozenset)
    if is_set and item.kind in (list, set, dict):
        raise UnsupportedError("a set cannot hold what can change", "Use list[...] instead.")
    schema: Schema = {"type": "array"}
    if item.schema:
        schema["items"] = item.schema
    wire: Any = tuple[item.wire, ...] if build is tuple else build[item.wire]
    return Node(wire, {**schema, "uniqueItems": True} if is_set else schema, build)


def _mapping(key: Node, value: Node) -> Node:
    names = {keyword: said for keyword, said in key.schema.items() if keyword != "description"}
    kind = names.get("type")
    if kind in ("boolean", "null", "array", "object") or "$ref" in names:
        raise UnsupportedError("such a key cannot be a name in a JSON object", "Use dict[str, ...] instead.")
    schema: Schema = {"type": "object"}
    # Names are texts in JSON, so that numbers become a pattern or a list of texts.
    if kind == "string" and len(names) > 1:
        schema["propertyNames"] = names
    elif "enum" in names:
        values = cast("list[object]", names["enum"])
        schema["propertyNames"] = {"enum": [each if isinstance(each, str) else shown(each) for each in values]}
    elif kind == "integer":
        schema["propertyNames"] = {"pattern": "^-?[0-9]+$"}
    if value.schema:
        schema["additionalProperties"] = value.schema
    if not isinstance(key.wire, _Custom) and not (
        isinstance(key.wire, type) and issubclass(key.wire, pathlib.PurePath)
    ):
        return Node(dict[key.wire, value.wire], schema, dict)

    def read(given: object) -> object:
        items = convert(given, dict[str, value.wire]).items()
        return {convert(name, key.wire): item for name, item in items}

    return Node(_custom("Mapping", read), schema, dict)


# --- limits ----------------------------------------------------------------------------------------------------------


def _limit(node: Node, limits: abc.Mapping[str, Any]) -> Node | None:
    """The node within limits, None if msgspec cannot check them; those on a union go to the members they apply to."""
    if not limits:
        return node
    keywords = LIMIT_KEYWORDS.get(node.kind, {})
    if node.members:
        shares = [limits.keys() & LIMIT_KEYWORDS.get(member.kind, {}).keys() for member in node.members]
        parts = [
            _limit(member, {kind: value for kind, value in limits.items() if kind in share})
            for member, share in zip(node.members, shares, strict=True)
        ]
        found = [part for part in parts if part is not None]
        return union(found) if len(found) == len(parts) and set[str]().union(*shares) == limits.keys() else None
    try:
        wire = Annotated[node.wire, msgspec.Meta(**limits)]
    except (TypeError, ValueError):
        return None
    if not limits.keys() <= keywords.keys() or not _is_decodable(wire):
        return None
    said = {keyword: limits[kind] for kind, keyword in keywords.items() if kind in limits and keyword}
    return node._replace(wire=wire, schema={**node.schema, **said})


# --- pydantic --------------------------------------------------------------------------------------------------------


def _pydantic(hint: object) -> Node:
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

    return Node(_custom("Pydantic", read), schema)


def _pydantic_problem(error: Any) -> str:
    """The first problem that pydantic found, with its place as msgspec writes it."""
    if not hasattr(error, "errors"):
        return str(error) or type(error).__name__
    item = error.errors(include_url=False, include_context=False)[0]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in item["loc"])
    text = str(item["msg"]).removeprefix("Value error, ").replace("Input should be", "expected")
    return f"{text}, got {kind_of(item['input'])} {shown(item['input'])}" + (f" - at `${path}`" if path else "")
