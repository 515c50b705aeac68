"""From a hint to a node: which forms of hints are understood, and what stands beside a type in `Annotated`.

Owns: the walk over a hint; what cannot be expressed is refused with a fix. Descriptions and limits may be in the words
of msgspec, annotated-types or pydantic; neither of the latter is imported here: who uses them has them.
Must not know: what the nodes do, functions and tools.
"""

from __future__ import annotations

import enum
import pathlib
import sys
import types
import typing
from collections import abc
from collections.abc import Iterable
from typing import Annotated, Any, Union, cast

import msgspec

from .docstrings import parse_docstring
from .nodes import (
    ANYTHING,
    SCALARS,
    TEXT,
    Field,
    Node,
    array,
    convert,
    custom,
    enumeration,
    limit,
    literal,
    mapping,
    object_schema,
    own_docstring,
    pydantic_node,
    struct_of,
    union,
)
from .resolve import RawField, UnsupportedError, class_of, fields_of, resolve, scope_of
from .schemas import Definition, Schema, describe, write_document

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


# --- the walk over a hint --------------------------------------------------------------------------------------------


class Parser:
    """Turns hints into nodes. One parser serves one function or type, so that a class has one node in it."""

    def __init__(self) -> None:
        self._known: dict[object, Node] = {}
        """Classes and aliases, from the moment when they are begun: they may contain themselves."""
        self._has_definitions: bool = False

    def write(self, schema: Schema) -> Schema:
        """A schema made of the nodes, as a document of its own."""
        if self._has_definitions:
            return write_document(schema)
        return msgspec.json.decode(msgspec.json.encode(schema))  # a copy: nodes are shared by all tools

    def _define(self, name: str) -> Definition:
        self._has_definitions = True
        return Definition(name)

    def _ask_pydantic(self, hint: object) -> Node:
        self._has_definitions = True  # it may have
        return pydantic_node(hint)

    def parameter(self, hint: object) -> Node:
        """The node of a parameter's hint, beside which a Field may give a default."""
        is_annotated = not isinstance(hint, type) and typing.get_origin(hint) is Annotated
        return self._annotated(hint, may_default=True) if is_annotated else self.node(hint)

    def node(self, hint: object) -> Node:
        """The node of a hint; raises UnsupportedError."""
        scalar = SCALARS.get(_key(hint))
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
        if key in self._known:
            return self._known[key]
        generic = typing.get_origin(hint) or hint
        value: Any = resolve(generic.__value__, scope_of(generic))
        definition = self._define(generic.__name__)
        target = ANYTHING
        read = custom(generic.__name__, lambda value: convert(value, target.wire))
        self._known[key] = Node(read, {"$ref": definition})
        target = self.node(value if generic is hint else value[typing.get_args(hint)])
        definition.schema = target.schema
        return target._replace(schema={"$ref": definition})

    def _generic(self, hint: object, origin: object, arguments: tuple[Any, ...]) -> Node:
        if origin is Annotated:
            return self._annotated(hint)
        if origin is Union or origin is types.UnionType:
            members = [self.node(argument) for argument in arguments if argument is not msgspec.UnsetType]
            return union(members)
        if origin is typing.Literal:
            return literal(hint, arguments)
        if getattr(origin, "_name", None) in _QUALIFIERS:
            return self.node(arguments[0])
        if not arguments and (origin is not tuple or hint is typing.Tuple):  # noqa: UP006 -- typing.List and its like
            return self._class(origin)
        if origin is tuple and (len(arguments) != 2 or arguments[1] is not ...):
            return self._fixed_array(hint, arguments)
        if origin in _MAPPINGS and len(arguments) == 2:
            return mapping(self.node(arguments[0]), self.node(arguments[1]))
        if origin in _ARRAYS and (len(arguments) == 1 or origin is tuple):
            return array(self.node(arguments[0]), _ARRAYS[origin])
        if origin in _MAPPINGS or origin in _ARRAYS:
            raise _refusal(hint)
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

    def _annotated(self, hint: Any, *, may_default: bool = False) -> Node:
        if not may_default and any(is_pydantic_field(item) and not item.is_required() for item in hint.__metadata__):
            fix = "Give the parameter or the field itself the default: name: type = value."
            raise UnsupportedError("a Field inside a type cannot give a default", fix)
        found = _Annotations(hint.__metadata__)
        node = None if found.unusual is not None else limit(self.node(hint.__origin__), found.limits)
        if node is None and (found.has_meta or "pydantic" not in sys.modules):
            limits = ", ".join(f"{kind}={value!r}" for kind, value in found.limits.items()) or repr(found.unusual)
            raise UnsupportedError(
                f"the limit {limits} cannot be checked on {_name_of(hint.__origin__)}",
                "Check it in the function, or import pydantic and use its Field, which knows more limits.",
            )
        node = node or self._ask_pydantic(hint)
        extra = {keyword: value for keyword, value in found.schema.items() if keyword != "description"}
        said = str(found.schema.get("description", ""))
        schema = {**(node.schema if node.schema.get("description") == said else describe(node.schema, said)), **extra}
        return node._replace(schema=schema, is_described=bool(said) or node.is_described)

    def _class(self, hint: Any) -> Node:
        key = _key(hint)
        if key in _ARRAYS:
            return array(ANYTHING, _ARRAYS[key])
        if key in _MAPPINGS:
            return mapping(TEXT, ANYTHING)
        cls = class_of(hint)
        if cls is None:
            raise _refusal(hint)
        if hasattr(cls, "__get_pydantic_core_schema__") or "__pydantic_validator__" in vars(cls):
            return self._ask_pydantic(hint)
        if issubclass(cls, enum.Enum):
            return enumeration(cls)
        if issubclass(cls, pathlib.PurePath):
            return Node(cls, {"type": "string", "format": "path"})
        return self._known[key] if key in self._known else self._record(hint, cls)

    # --- objects with named fields ---

    def _record(self, hint: object, cls: type[Any]) -> Node:
        """An object with named fields, read by a Struct of the same fields, so that unknown ones are refused."""
        arguments = "_".join(getattr(argument, "__name__", str(argument)) for argument in typing.get_args(hint))
        definition = self._define(f"{cls.__name__}_{arguments}" if arguments else cls.__name__)
        names: list[str] = []
        struct: Any = None

        def build(value: object) -> object:
            decoded = msgspec.structs.astuple(convert(value, struct))
            given = {name: item for name, item in zip(names, decoded, strict=True) if item is not msgspec.UNSET}
            try:
                return given if issubclass(cls, dict) else cls(**given)
            except Exception as error:  # noqa: BLE001 -- __init__ and __post_init__ are the user's code, and may check
                raise ValueError(str(error)[:200] or type(error).__name__) from None

        node = self._known[_key(hint)] = Node(custom(cls.__name__, build), {"$ref": definition})
        declared = fields_of(hint)
        if declared is None:
            raise _refusal(hint)
        fields = [Field(raw, self._field(cls, raw)) for raw in declared]
        names.extend(raw.name for raw in declared)
        text, descriptions = parse_docstring(own_docstring(cls))
        config: Any = getattr(cls, "__struct_config__", None)
        definition.schema = describe(object_schema(fields, descriptions, config), text)
        tag = {"tag": config.tag, "tag_field": config.tag_field} if config else {}
        struct = struct_of(fields, tag=tag, is_closed=config is None or config.forbid_unknown_fields)
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


# --- what stands beside a type ----------------------------------------------------------------------------------------

_LIMITS = {
    "Ge": "ge",
    "Gt": "gt",
    "Le": "le",
    "Lt": "lt",
    "MultipleOf": "multiple_of",
    "MinLen": "min_length",
    "MaxLen": "max_length",
}
"""The classes of annotated-types, by msgspec's names for what they say."""


class _Annotations:
    def __init__(self, metadata: Iterable[object]) -> None:
        self.limits: dict[str, Any] = {}
        """By msgspec's names: ge, max_length, pattern …"""
        self.schema: Schema = {}
        """Keywords for the schema: description, examples and whatever the user added."""
        self.unusual: object = None
        """Something that only pydantic can check, such as a validator function or a second limit of one kind."""
        self.has_meta: bool = False
        """Whether there are limits of msgspec, which pydantic does not see."""
        for item in metadata:
            self._take(item)

    def _take(self, item: Any) -> None:
        name, module = type(item).__name__, type(item).__module__
        if isinstance(item, msgspec.Meta):
            self._take_keywords(item.description, item.examples, item.extra_json_schema)
            for kind in (*_LIMITS.values(), "pattern", "tz"):
                self.has_meta = self.has_meta or getattr(item, kind) is not None
                self._take_limit(kind, getattr(item, kind), item)
        elif is_pydantic_field(item):
            if item.alias or item.validation_alias or item.serialization_alias:
                fix = "Give the parameter the name that the model shall use, or put it into a pydantic model."
                raise UnsupportedError("a Field beside a type cannot have an alias", fix)
            self._take_keywords(item.description, item.examples, item.json_schema_extra)
            self.unusual = self.unusual or (item if item.discriminator is not None else None)
            for part in item.metadata:
                self._take(part)
        elif getattr(item, "__is_annotated_types_grouped_metadata__", False):  # Interval, Len, StringConstraints
            for part in item:
                self._take(part)
        elif name in _LIMITS and module == "annotated_types":
            self._take_limit(_LIMITS[name], getattr(item, _LIMITS[name]), item)
        elif name == "_PydanticGeneralMetadata" and isinstance(pattern := getattr(item, "pattern", None), str):
            self._take_limit("pattern", pattern, item)
        elif module.startswith(("pydantic", "annotated_types")) or hasattr(item, "__get_pydantic_core_schema__"):
            self.unusual = item
        else:  # what nobody here knows is ignored, as PEP 593 asks
            self._take_keywords(item if isinstance(item, str) else getattr(item, "documentation", None))

    def _take_limit(self, kind: str, value: object, item: object) -> None:
        if value is not None:
            self.unusual = item if kind in self.limits else self.unusual
            self.limits[kind] = value

    def _take_keywords(self, description: object, examples: Any = None, extra: object = None) -> None:
        if isinstance(description, str) and description.strip():  # the first one counts
            self.schema.setdefault("description", description.strip())
        if examples is not None:
            self.schema["examples"] = list(examples)
        if isinstance(extra, dict):
            self.schema.update(cast("Schema", extra))


def is_pydantic_field(item: object) -> bool:
    """Whether this is what pydantic's `Field(...)` returns."""
    return type(item).__name__ == "FieldInfo" and type(item).__module__.startswith("pydantic")
