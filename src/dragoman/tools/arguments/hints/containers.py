"""Many values: lists, sets, tuples and mappings.

Owns: how arrays and free-form objects are read and described.
Must not know: what the values in them are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from dragoman.tools.arguments.json_values import is_array, is_object, shown
from dragoman.tools.arguments.problems import MANY_PROBLEMS, MismatchError, Problem
from dragoman.tools.arguments.schemas import Definitions, Schema

from .choices import AnyOf, Choice
from .node import Node, UnsupportedError, decodable, marker, mismatch

__all__ = ["Array", "Dictionary", "FixedArray"]


class Array(Node):
    """Any number of items of one kind: list, set, frozenset, tuple[T, ...]."""

    measure = "array"
    expected = "array"
    kinds = frozenset({"array"})

    def __init__(self, item: Node, build: Callable[[Iterable[object]], object]) -> None:
        self.item: Node = item
        self._build: Callable[[Iterable[object]], object] = build
        if build in (set, frozenset) and item.hashable is False:
            raise UnsupportedError(f"a set cannot hold what can change: {item.expected}", "Use list[...] instead.")
        # What cannot be hashed would leave msgspec's decoder as a TypeError; `read` says where it is.
        self.verbatim: bool = build not in (set, frozenset) or item.hashable is True
        self.hashable: bool | None = item.hashable if build in (tuple, frozenset) else False

    def children(self) -> tuple[Node, ...]:
        return (self.item,)

    def schema(self, definitions: Definitions) -> Schema:
        schema: Schema = {"type": "array"}
        if items := self.item.schema(definitions):
            schema["items"] = items
        return {**schema, "uniqueItems": True} if self._build in (set, frozenset) else schema

    def read(self, value: object, lenient: bool) -> object:
        if not is_array(value):
            raise mismatch(self.expected, value)
        read = self.item.read
        items: list[object] = []
        problems: list[Problem] = []
        for index, item in enumerate(value):
            try:
                items.append(read(item, lenient))
            except MismatchError as error:
                problems.extend(error.under(index))
                if len(problems) >= MANY_PROBLEMS:
                    break
        if problems:
            raise MismatchError(problems)
        if self._build is list:
            return items
        try:
            return self._build(items)
        except TypeError:
            raise mismatch("array of strings, numbers or other single values", value) from None

    def wire(self) -> object:
        if not self.verbatim:
            return marker(self)
        item = cast("Any", self.item.wire())
        return tuple[item, ...] if self._build is tuple else cast("Any", self._build)[item]


class FixedArray(Node):
    """A tuple: so many items, each of its own kind."""

    kinds = frozenset({"array"})

    def __init__(self, items: Iterable[Node]) -> None:
        self.items: tuple[Node, ...] = tuple(items)
        self.expected: str = f"array of {len(self.items)} {'item' if len(self.items) == 1 else 'items'}"
        answers = {item.hashable for item in self.items}
        self.hashable: bool | None = False if False in answers else None if None in answers else True

    def children(self) -> tuple[Node, ...]:
        return self.items

    def schema(self, definitions: Definitions) -> Schema:
        count = len(self.items)
        if not count:
            return {"type": "array", "maxItems": 0}
        items = [item.schema(definitions) for item in self.items]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": count, "maxItems": count}

    def read(self, value: object, lenient: bool) -> object:
        if not is_array(value) or len(value) != len(self.items):
            raise mismatch(self.expected, value)
        items: list[object] = []
        problems: list[Problem] = []
        for index, (node, item) in enumerate(zip(self.items, value, strict=True)):
            try:
                items.append(node.read(item, lenient))
            except MismatchError as error:
                problems.extend(error.under(index))
        if problems:
            raise MismatchError(problems)
        return tuple(items)

    def wire(self) -> object:
        return tuple[tuple(cast("Any", item.wire()) for item in self.items)]


class Dictionary(Node):
    """A dict: any keys of one kind, any values of another."""

    measure = "object"
    expected = "object"
    kinds = frozenset({"object"})

    hashable = False

    def __init__(self, key: Node, value: Node) -> None:
        self.key: Node = key
        self.value: Node = value
        if not key.kinds & {"string", "integer", "number"}:
            raise UnsupportedError(f"{key.expected} cannot be a name in a JSON object", "Use dict[str, ...] instead.")
        # Which member of a union a name is, msgspec decides otherwise than `read`.
        self.verbatim: bool = not isinstance(key, AnyOf)

    def children(self) -> tuple[Node, ...]:
        return (self.key, self.value)

    def schema(self, definitions: Definitions) -> Schema:
        schema: Schema = {"type": "object"}
        if names := _names_schema(self.key, definitions):
            schema["propertyNames"] = names
        if values := self.value.schema(definitions):
            schema["additionalProperties"] = values
        return schema

    def read(self, value: object, lenient: bool) -> object:
        if not is_object(value):
            raise mismatch(self.expected, value)
        result: dict[object, object] = {}
        problems: list[Problem] = []
        for name, item in value.items():
            try:
                key = self._read_key(name)
                result[key] = self.value.read(item, lenient)
            except MismatchError as error:
                problems.extend(error.under(name))
                if len(problems) >= MANY_PROBLEMS:
                    break
        if problems:
            raise MismatchError(problems)
        return result

    def _read_key(self, name: str) -> object:
        """The names of an object are strings in JSON, whatever they stand for."""
        try:
            return self.key.read(name, False)
        except MismatchError as error:
            number = _number(name)
            if number is not None:
                try:
                    return self.key.read(number, False)
                except MismatchError:
                    pass
            raise MismatchError([Problem((), f"as a name in an object: {error.problems[0].text}")]) from None

    def wire(self) -> object:
        key = cast("Any", self.key.wire())
        if not self.verbatim or not decodable(dict[key, Any]):
            return marker(self)
        return dict[key, cast("Any", self.value.wire())]


def _number(name: str) -> object:
    try:
        return msgspec.json.decode(name, type=int | float)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _names_schema(key: Node, definitions: Definitions) -> Schema | None:
    """What JSON Schema can say of the names: they are strings, so a number becomes a pattern."""
    if key.kinds == frozenset({"string"}):
        schema = {keyword: value for keyword, value in key.schema(definitions).items() if keyword != "description"}
        return None if schema == {"type": "string"} else schema
    if isinstance(key, Choice):
        return {"enum": [value if isinstance(value, str) else shown(value) for value in key.values]}
    return {"pattern": "^-?[0-9]+$"} if key.kinds == frozenset({"integer"}) else None
