"""From a hint to a node.

Owns: which node each form of hint becomes; what cannot be expressed is refused with a fix.
Must not know: what the nodes do.
"""

from __future__ import annotations

import enum
import pathlib
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import msgspec

from dragoman.tools.arguments.schemas import Definitions, Schema

from .annotations import Described, annotations_of, limited
from .choices import AnyOf, choice_of_enum, choice_of_literal
from .classes import RawField, Shape, own_docstring, shape_of
from .containers import Array, Dictionary, FixedArray
from .node import Node, UnsupportedError, reachable
from .pydantic_types import PydanticType, belongs_to_pydantic
from .records import Field, Record
from .resolve import class_of, resolve, scope_of_alias
from .scalars import ANYTHING, SCALARS, TEXT, PathText

__all__ = ["Parser"]

_ARRAYS: dict[object, Callable[[Iterable[object]], object]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Collection: list,
    abc.Iterable: list,
    abc.Set: set,
    abc.MutableSet: set,
}
_MAPPINGS: frozenset[object] = frozenset({dict, abc.Mapping, abc.MutableMapping})
_QUALIFIERS = frozenset({"Final", "Required", "NotRequired", "ReadOnly"})


class Alias(Node):
    """A `type X = ...` that contains itself. Made empty and filled later."""

    verbatim = False
    hashable = None

    def __init__(self, name: str) -> None:
        self.expected: str = name
        self.kinds: frozenset[str] = frozenset()
        self._target: Node = ANYTHING

    def fill(self, target: Node) -> bool:
        """Say what it stands for; returns whether that contains the alias itself."""
        self._target = target
        self.kinds = target.kinds
        return any(node is self for node in reachable(target))

    def children(self) -> tuple[Node, ...]:
        return (self._target,)

    def schema(self, definitions: Definitions) -> Schema:
        return definitions.reference(self, self.expected, lambda: self._target.schema(definitions))

    def read(self, value: object, lenient: bool) -> object:
        return self._target.read(value, lenient)


class Parser:
    """Turns hints into nodes. One parser serves one function or type, so that a class has one node in it."""

    def __init__(self) -> None:
        self._records: dict[object, Record] = {}
        self._aliases: dict[object, Alias] = {}

    def node(self, hint: object) -> Node:
        """The node of a hint; raises UnsupportedError."""
        scalar = SCALARS.get(_key(hint))
        if scalar is not None:
            return scalar
        if isinstance(hint, str | typing.ForwardRef):
            raise UnsupportedError(f"the forward reference {hint!r} was not resolved", "Write the type without quotes.")
        if isinstance(hint, typing.TypeVar):
            return self._type_variable(hint)
        if isinstance(hint, typing.NewType):
            return self.node(hint.__supertype__)
        origin = typing.get_origin(hint)
        if "TypeAliasType" in (type(hint).__name__, type(origin).__name__):
            return self._alias(hint)
        if origin is not None:
            return self._generic(hint, origin, typing.get_args(hint))
        return self._array_or_class(hint)

    def _type_variable(self, variable: typing.TypeVar) -> Node:
        if variable.__bound__ is not None:
            return self.node(variable.__bound__)
        if variable.__constraints__:
            return AnyOf(map(self.node, variable.__constraints__))
        return ANYTHING

    def _alias(self, hint: Any) -> Node:
        key = _key(hint)
        if key in self._aliases:
            return self._aliases[key]
        generic = typing.get_origin(hint) or hint
        value: Any = resolve(generic.__value__, scope_of_alias(generic))
        alias = self._aliases[key] = Alias(generic.__name__)
        target = self.node(value if generic is hint else value[typing.get_args(hint)])
        if alias.fill(target):
            return alias
        del self._aliases[key]
        return target

    def _generic(self, hint: object, origin: object, arguments: tuple[Any, ...]) -> Node:
        if origin is Annotated:
            return self._annotated(hint)
        if origin is typing.Union or origin is types.UnionType:
            return self._union(arguments)
        if origin is typing.Literal:
            return choice_of_literal(hint, arguments)
        if getattr(origin, "_name", None) in _QUALIFIERS:
            return self.node(arguments[0])
        if hint is typing.Tuple or (not arguments and origin is not tuple):  # noqa: UP006 -- typing.List and its like
            return self._array_or_class(origin)
        if origin is tuple:
            return self._tuple(hint, arguments)
        if origin in _MAPPINGS:
            key, value = arguments
            return Dictionary(self.node(key), self.node(value))
        if origin in _ARRAYS:
            return Array(self.node(arguments[0]), _ARRAYS[origin])
        return self._array_or_class(hint)

    def _tuple(self, hint: object, arguments: tuple[Any, ...]) -> Node:
        if any(getattr(argument, "__unpacked__", False) for argument in arguments):
            raise _refused(hint)
        if len(arguments) == 2 and arguments[1] is ...:
            return Array(self.node(arguments[0]), tuple)
        return FixedArray(map(self.node, arguments))

    def _union(self, arguments: tuple[Any, ...]) -> Node:
        members = [self.node(argument) for argument in arguments if argument is not msgspec.UnsetType]
        if ANYTHING in members:
            return ANYTHING
        return members[0] if len(members) == 1 else AnyOf(members)

    def _annotated(self, hint: Any) -> Node:
        found = annotations_of(hint.__metadata__)
        if found.beyond_us and "pydantic" in sys.modules:
            node: Node = PydanticType(hint)
        else:
            node = limited(self.node(hint.__origin__), found.limits)
        return Described(node, found.schema) if found.schema else node

    def _array_or_class(self, hint: Any) -> Node:
        key = _key(hint)
        if key in _ARRAYS:
            return Array(ANYTHING, _ARRAYS[key])
        if key is tuple:
            return Array(ANYTHING, tuple)
        if key in _MAPPINGS:
            return Dictionary(TEXT, ANYTHING)
        if hint is typing.LiteralString:
            return TEXT
        if belongs_to_pydantic(hint):
            return PydanticType(hint)
        cls = class_of(hint)
        if cls is not None and issubclass(cls, enum.Enum):
            return choice_of_enum(cls, own_docstring(cls))
        if cls is not None and issubclass(cls, pathlib.PurePath):
            return PathText(cls)
        shape = shape_of(hint)
        if shape is None:
            raise _refused(hint)
        return self._records[key] if key in self._records else self._record(hint, shape)

    def _record(self, hint: object, shape: Shape) -> Record:
        cls = typing.cast("type[Any]", class_of(hint))
        arguments = "_".join(getattr(argument, "__name__", str(argument)) for argument in typing.get_args(hint))
        name = f"{cls.__name__}_{arguments}" if arguments else cls.__name__
        record = self._records[_key(hint)] = Record(
            name,
            shape.build,
            closed=shape.closed,
            native=shape.native,
            tag=shape.tag,
            as_array=shape.as_array,
            hashable=shape.hashable,
        )
        record.description, descriptions = _documentation(cls)
        record.fields = tuple(self._field(cls, raw, descriptions) for raw in shape.fields())
        return record

    def _field(self, cls: type, raw: RawField, descriptions: abc.Mapping[str, str]) -> Field:
        try:
            node = self.node(raw.hint)
        except UnsupportedError as error:
            raise error.within(f"field {raw.name} of {cls.__name__}") from None
        return Field(
            raw.name,
            node,
            key=raw.key,
            required=raw.required,
            default=raw.default,
            description=raw.description or descriptions.get(raw.name, ""),
        )


def _key(hint: object) -> object:
    """What stands for a hint in a table: an Annotated with a list or a dict beside the type cannot be hashed."""
    try:
        hash(hint)
    except TypeError:
        return repr(hint)
    return hint


def _documentation(cls: type) -> tuple[str, abc.Mapping[str, str]]:
    text = own_docstring(cls)
    if not text:
        return "", {}
    from dragoman.tools.arguments.docstrings import parse_docstring  # it loads the docstring parser

    documentation = parse_docstring(text)
    return documentation.description, documentation.parameters


def _refused(hint: object) -> UnsupportedError:
    name = hint.__name__ if isinstance(hint, type) else str(hint).removeprefix("typing.")
    return UnsupportedError(
        f"{name} cannot be expressed in JSON",
        "Use a JSON-like type, a dataclass, TypedDict, NamedTuple, msgspec.Struct or pydantic model.",
    )
