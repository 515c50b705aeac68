"""From a hint to a node: which forms of hints are understood, and the metadata in `Annotated`.

Descriptions and limits may be those of msgspec, annotated-types or pydantic; the latter two are never imported here.
Must not know: functions and tools.
"""

from __future__ import annotations

import enum
import pathlib
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Union

import msgspec

from .docstrings import parse_docstring
from .nodes import (
    ANYTHING,
    LIMITS,
    SCALARS,
    TEXT,
    Node,
    array,
    convert,
    custom,
    enumeration,
    fixed_array,
    limit,
    literal,
    mapping,
    object_schema,
    own_docstring,
    pydantic_node,
    union,
)
from .resolve import UnsupportedError, class_of, fields_of, resolve, scope_of
from .schemas import Schema, describe, map_subschemas

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


class Parser:
    """Turns hints into nodes. One parser serves one function or type, and collects the definitions of its schema."""

    def __init__(self) -> None:
        self._known: dict[object, Node] = {}
        """Classes and aliases that were used before."""
        self._definitions: dict[str, Schema] = {}
        self._unused: set[str] = set()
        """The names of definitions that nothing refers to."""

    def document(self, schema: Schema) -> Schema:
        """A schema made of the nodes, with its definitions; a copy, because nodes are shared by all tools."""
        definitions = {name: sub for name, sub in self._definitions.items() if name not in self._unused}

        def refer(sub: Schema) -> Schema:
            for name, definition in definitions.items():
                # Another class may have the same fields, and another meaning.
                if sub == definition and sub.get("properties") is definition.get("properties"):
                    return {"$ref": f"#/$defs/{name}"}
            return map_subschemas(sub, refer)

        if definitions:
            short = {name: map_subschemas(definition, refer) for name, definition in definitions.items()}
            schema = {**map_subschemas(schema, refer), "$defs": short}
        return msgspec.json.decode(msgspec.json.encode(schema))

    def node(self, hint: object) -> Node:
        """The node of a hint; raises UnsupportedError."""
        scalar = SCALARS.get(_key(hint))
        if scalar is not None:
            return scalar
        if isinstance(hint, str | typing.ForwardRef):
            raise UnsupportedError(f"the forward reference {hint!r} was not resolved", "Write the type without quotes.")
        if isinstance(hint, typing.TypeVar):
            if hint.__constraints__:
                return union([self.node(constraint) for constraint in hint.__constraints__], self._definitions)
            return ANYTHING if hint.__bound__ is None else self.node(hint.__bound__)
        if isinstance(hint, typing.NewType):
            return self.node(hint.__supertype__)
        origin = typing.get_origin(hint)
        if "TypeAliasType" in (type(hint).__name__, type(origin).__name__):
            generic: Any = origin or hint
            return self._recursive(hint, generic.__name__, lambda: self.node(_value_of_alias(hint, generic)))
        if origin is not None:
            return self._generic(hint, origin, typing.get_args(hint))
        return self._class(hint)

    def _recursive(self, hint: object, name: str, parse: Callable[[], Node]) -> Node:
        """The node of a class or an alias, which may contain itself: inside, it is a reference to its definition.

        So is a class that is used again, which keeps the schema small.
        """
        key = _key(hint)
        if key in self._known:
            node = self._known[key]
            self._unused.discard(str(node.schema.get("$ref")).removeprefix("#/$defs/"))
            return node
        while name in self._definitions:
            name += "_"
        self._definitions[name] = {}
        self._unused.add(name)
        parsed = ANYTHING
        self._known[key] = Node(custom(name, lambda value: convert(value, parsed.wire)), {"$ref": f"#/$defs/{name}"})
        parsed = parse()
        self._definitions[name] = parsed.schema
        if class_of(hint) is None:  # limits and names in a mapping need to see what an alias stands for
            self._known[key] = parsed
        return parsed

    def _generic(self, hint: object, origin: object, arguments: tuple[Any, ...]) -> Node:
        if origin is Annotated:
            return self._annotated(hint)
        if origin is Union or origin is types.UnionType:
            members = [self.node(argument) for argument in arguments if argument is not msgspec.UnsetType]
            return union(members, self._definitions)
        if origin is typing.Literal:
            return literal(hint, arguments)
        if getattr(origin, "_name", None) in _QUALIFIERS:
            return self.node(arguments[0])
        if not arguments and (origin is not tuple or hint is typing.Tuple):  # noqa: UP006 -- typing.List and its like
            return self._class(origin)
        if origin is tuple and (len(arguments) != 2 or arguments[1] is not ...):
            if any(getattr(argument, "__unpacked__", False) for argument in arguments):
                raise _refusal(hint)
            return fixed_array([self.node(argument) for argument in arguments])
        if origin in _MAPPINGS and len(arguments) == 2:
            return mapping(self.node(arguments[0]), self.node(arguments[1]))
        if origin in _ARRAYS and (len(arguments) == 1 or origin is tuple):
            return array(self.node(arguments[0]), _ARRAYS[origin])
        if origin in _MAPPINGS or origin in _ARRAYS:
            raise _refusal(hint)
        return self._class(hint)

    def _annotated(self, hint: Any) -> Node:
        limits: dict[str, Any] = {}
        description, keywords, needs_pydantic, has_meta = "", Schema(), False, False
        for item in _flatten(hint.__metadata__):
            text = getattr(item, "documentation", item)  # that of typing_extensions.Doc, or a plain string
            is_meta, is_field = isinstance(item, msgspec.Meta), is_pydantic_field(item)
            if is_meta or is_field:
                text, examples = item.description, item.examples
                extra = item.extra_json_schema if is_meta else item.json_schema_extra
                keywords |= {} if examples is None else {"examples": list(examples)}
                keywords |= extra if isinstance(extra, dict) else {}
            if is_field:
                if item.alias or item.validation_alias or item.serialization_alias:
                    fix = "Give the parameter the name that the model shall use, or put it into a pydantic model."
                    raise UnsupportedError("a Field beside a type cannot have an alias", fix)
                needs_pydantic = needs_pydantic or item.discriminator is not None
            elif is_meta or _is_checked_by_pydantic(item):  # anything else is ignored, as PEP 593 asks
                found = {name: value for name in LIMITS if (value := getattr(item, name, None)) is not None}
                is_known = is_meta or (found and getattr(item, "__dict__", found).keys() <= found.keys())
                needs_pydantic = needs_pydantic or not is_known or bool(found.keys() & limits.keys())
                has_meta = has_meta or (is_meta and bool(found))  # which pydantic does not see
                limits |= found
            if isinstance(text, str):
                description = description or text.strip()
        node = None if needs_pydantic else limit(self.node(hint.__origin__), limits)
        if node is None and (has_meta or "pydantic" not in sys.modules):
            found = ", ".join(f"{name}={value!r}" for name, value in limits.items()) or "in Annotated"
            raise UnsupportedError(
                f"the limit {found} cannot be checked on {_name_of(hint.__origin__)}",
                "Check it in the function, or import pydantic and use its Field, which knows more limits.",
            )
        node = node or pydantic_node(hint, self._definitions)
        text = str(keywords.pop("description", description))
        schema = node.schema if node.schema.get("description") == text else describe(node.schema, text)
        return node._replace(schema={**schema, **keywords}, is_described=bool(text) or node.is_described)

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
            return pydantic_node(hint, self._definitions)
        if issubclass(cls, enum.Enum):
            return enumeration(cls)
        if issubclass(cls, pathlib.PurePath):
            return Node(cls, {"type": "string", "format": "path"})
        return self._recursive(hint, cls.__name__, lambda: self._record(hint, cls))

    def _record(self, hint: object, cls: type[Any]) -> Node:
        """An object with named fields, decoded by a Struct with the same fields, so that unknown ones are refused."""
        try:
            declared = fields_of(hint)
            fields = [(field, self.node(field.hint)) for field in declared or ()]
        except UnsupportedError as error:
            raise UnsupportedError(f"in {cls.__name__}, {error.message}", error.fix) from None
        if declared is None:
            raise _refusal(hint)
        config: Any = getattr(cls, "__struct_config__", None)
        struct = msgspec.defstruct(
            "Fields",
            [
                (f"f{index}", node.wire, msgspec.field(default=_NO_DEFAULT[field.required], name=field.key))
                for index, (field, node) in enumerate(fields)
            ],
            kw_only=True,
            forbid_unknown_fields=config is None or config.forbid_unknown_fields,
            tag=config and config.tag,
            tag_field=config and config.tag_field,
        )

        def build(value: object) -> object:
            decoded = msgspec.structs.astuple(convert(value, struct))
            pairs = zip(declared, decoded, strict=True)
            given = {field.name: item for field, item in pairs if item is not msgspec.UNSET}
            try:
                return given if issubclass(cls, dict) else cls(**given)
            except Exception as error:  # noqa: BLE001 -- __init__ and __post_init__ are the user's code, and may check
                raise ValueError(str(error)[:200] or type(error).__name__) from None

        text, descriptions = parse_docstring(own_docstring(cls))
        schema = describe(object_schema(fields, descriptions, config), text)
        return Node(custom(cls.__name__, build), schema)


_NO_DEFAULT = {True: msgspec.NODEFAULT, False: msgspec.UNSET}
"""The default of a field, by whether it is required; the class has its own defaults."""


def _value_of_alias(hint: Any, generic: Any) -> object:
    value: Any = resolve(generic.__value__, scope_of(generic))
    return value if generic is hint else value[typing.get_args(hint)]


def _key(hint: object) -> object:
    """A hint as a key of a table: an Annotated with a list or a dict in its metadata cannot be hashed."""
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


def _is_checked_by_pydantic(item: object) -> bool:
    package = type(item).__module__.partition(".")[0]
    return package in ("annotated_types", "pydantic") or hasattr(item, "__get_pydantic_core_schema__")


def _flatten(metadata: Iterable[Any]) -> Iterator[Any]:
    for item in metadata:
        if is_pydantic_field(item):
            yield item
            yield from _flatten(item.metadata)
        elif getattr(item, "__is_annotated_types_grouped_metadata__", False):  # Interval, Len, StringConstraints
            yield from _flatten(item)
        else:
            yield item


def is_pydantic_field(item: object) -> bool:
    """Whether this is what pydantic's `Field(...)` returns."""
    return type(item).__name__ == "FieldInfo" and type(item).__module__.startswith("pydantic")
