"""One of several: Literal, Enum, Flag and unions.

Owns: which of the choices a value is, and what to say when it is none.
Must not know: how the choices were written.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union, cast

from dragoman.tools.arguments.json_values import is_array, is_object, kind_of, shown
from dragoman.tools.arguments.problems import MismatchError, Problem, expected, listed, missing, no_form_fits, one_of
from dragoman.tools.arguments.schemas import Definitions, Schema

from .node import Node, UnsupportedError, decodable, marker, mismatch

__all__ = ["AnyOf", "Choice", "FlagSet", "choice_of_enum", "choice_of_literal", "json_of_member"]

_JSON_SCALARS = (str, int, float, bool, type(None))

_PRECISION: dict[str | None, int] = {"number": 1, "decimal": 2}


class Choice(Node):
    """One of a fixed list of JSON values, each standing for a Python value."""

    def __init__(
        self,
        meanings: Sequence[tuple[object, object]],
        *,
        native: object = None,
        cls: type[enum.Enum] | None = None,
        description: str = "",
    ) -> None:
        # The type is part of the key: 1, 1.0 and true are equal in Python and different in JSON.
        self._meanings: dict[tuple[type, object], object] = {(type(key), key): meaning for key, meaning in meanings}
        self._values: list[object] = [value for _, value in self._meanings]
        self.expected: str = one_of(self._values)
        self.kinds: frozenset[str] = frozenset(map(kind_of, self._values))
        self._cls: type[enum.Enum] | None = cls
        self._native: object = native
        self._description: str = description
        self.verbatim: bool = native is not None

    @property
    def values(self) -> list[object]:
        """The JSON values, in order."""
        return self._values

    def schema(self, definitions: Definitions) -> Schema:
        if self._cls is None:
            return self._own_schema()
        return definitions.reference(self._cls, self._cls.__name__, self._own_schema)

    def _own_schema(self) -> Schema:
        schema: Schema = {"type": next(iter(self.kinds))} if len(self.kinds) == 1 else {}
        if self._cls is not None and (description := _meaning_of(self._description, self._meanings)):
            schema["description"] = description
        return {**schema, "enum": self._values}

    def read(self, value: object, lenient: bool) -> object:
        if is_array(value) or is_object(value):
            raise mismatch(self.expected, value)
        if (type(value), value) in self._meanings:
            return self._meanings[type(value), value]
        if lenient and isinstance(value, float) and value.is_integer():
            return self.read(int(value), False)
        if self._cls is None or not _has_missing(self._cls):
            raise mismatch(self.expected, value)
        try:
            return self._cls(value)
        except Exception:  # noqa: BLE001 -- `_missing_` is the user's code
            raise mismatch(self.expected, value) from None

    def wire(self) -> object:
        return marker(self) if self._native is None else self._native


def choice_of_literal(hint: object, values: Sequence[object]) -> Choice:
    """The node of `Literal[...]`."""
    meanings: list[tuple[object, object]] = []
    for value in values:
        plain: object = json_of_member(value) if isinstance(value, enum.Enum) else value
        if isinstance(plain, bytes):
            raise UnsupportedError(f"Literal[{value!r}] has no JSON form", "Use strings, integers, booleans or None.")
        meanings.append((plain, value))
    # msgspec reads a bool as an int here, and knows no enum members.
    native = all(type(value) in (str, int, type(None)) for value in values)
    return Choice(meanings, native=hint if native else None)


def choice_of_enum(cls: type[enum.Enum], description: str) -> Node:
    """The node of an Enum: its values where JSON can hold them, else its names; a Flag is a list of names."""
    members = list(cls)
    if not members:
        raise UnsupportedError(f"the enum {cls.__name__} has no members", "Give it at least one member.")
    if issubclass(cls, enum.Flag):
        return FlagSet(cls)
    native = not _has_missing(cls) and decodable(cls)
    meanings = [(json_of_member(member), member) for member in members]
    return Choice(meanings, native=cls if native else None, cls=cls, description=description)


def json_of_member(member: enum.Enum) -> object:
    """A member of an Enum in JSON: its value if JSON has such values, for all members of the class; else its name."""
    simple = all(type(other.value) in _JSON_SCALARS for other in type(member))
    return member.value if simple else member.name


def _has_missing(cls: type[enum.Enum]) -> bool:
    return cast("Any", cls._missing_).__func__ is not cast("Any", enum.Enum._missing_).__func__


def _meaning_of(description: str, meanings: Mapping[tuple[type, object], object]) -> str:
    """The description, with what the values stand for where they do not say it themselves."""
    if all(kind is str for kind, _ in meanings):
        return description
    names = ", ".join(f"{shown(value)} = {cast('enum.Enum', member).name}" for (_, value), member in meanings.items())
    return f"{description} ({names})" if description else names


class FlagSet(Node):
    """A Flag, as the list of the names that are set: a sum of powers of two means nothing to a model."""

    verbatim = False
    kinds = frozenset({"array"})

    def __init__(self, cls: type[enum.Flag]) -> None:
        self._cls: type[enum.Flag] = cls
        self._names: Choice = Choice([(member.name, member) for member in cls])
        self.expected: str = f"array with any of {listed([shown(value) for value in self._names.values], 'and')}"

    def schema(self, definitions: Definitions) -> Schema:
        return {"type": "array", "items": self._names.schema(definitions), "uniqueItems": True}

    def read(self, value: object, lenient: bool) -> object:
        if not is_array(value):
            raise mismatch(self.expected, value)
        result = self._cls(0)
        for index, name in enumerate(value):
            try:
                result |= cast("enum.Flag", self._names.read(name, lenient))
            except MismatchError as error:
                raise MismatchError(error.under(index)) from None
        return result


class AnyOf(Node):
    """Any one of several kinds of values; the first that fits, in the order they were written."""

    def __init__(self, members: Iterable[Node]) -> None:
        self.members: tuple[Node, ...] = tuple(members)
        self.expected: str = listed(list(dict.fromkeys(member.expected for member in self.members)))
        self.kinds: frozenset[str] = frozenset[str]().union(*(member.kinds for member in self.members))
        answers = {member.hashable for member in self.members}
        self.hashable: bool | None = answers.pop() if len(answers) == 1 else None

    def children(self) -> tuple[Node, ...]:
        return self.members

    def schema(self, definitions: Definitions) -> Schema:
        options: list[Schema] = []
        for member in self.members:
            schema = member.schema(definitions)
            inner = cast("list[Schema]", schema["anyOf"]) if schema.keys() == {"anyOf"} else [schema]
            options.extend(option for option in inner if option not in options)
        if {"type": "number"} in options and {"type": "integer"} in options:
            options.remove({"type": "integer"})
        return options[0] if len(options) == 1 else {"anyOf": options}

    def wire(self) -> object:
        wire = Union[tuple(cast("Any", member.wire()) for member in self.members)]  # noqa: UP007 -- built, not written
        return wire if decodable(wire) else marker(self)

    def read(self, value: object, lenient: bool) -> object:
        if is_object(value) and (tagged := self._tagged()) is not None:
            return self._read_tagged(*tagged, value, lenient)
        kind = kind_of(value)
        members = [member for member in self.members if kind in member.kinds] or self.members
        if isinstance(value, (int, float)):  # as in msgspec: 5 is the integer of `float | int`, though a float takes it
            members = sorted(members, key=lambda member: _PRECISION.get(member.measure, 0))
        failures: list[tuple[Node, MismatchError]] = []
        # All of them strictly first: 5.0 is the float of `int | float`, not the integer.
        for leniently in (False, True) if lenient else (False,):
            failures.clear()
            for member in members:
                try:
                    return member.read(value, leniently)
                except MismatchError as error:
                    failures.append((member, error))
        raise self._explained(value, failures)

    def _tagged(self) -> tuple[str, dict[object, Node]] | None:
        """The field and its values, where every member that is an object says by a tag which one it is."""
        objects = [member for member in self.members if "object" in member.kinds]
        fields = {member.tag[0] if member.tag else None for member in objects}
        field = fields.pop() if len(fields) == 1 else None
        if field is None or len(objects) < 2:
            return None
        return field, {member.tag[1]: member for member in objects if member.tag}

    def _read_tagged(self, field: str, members: dict[object, Node], value: dict[str, object], lenient: bool) -> object:
        tag = value.get(field)
        member = members.get(tag) if isinstance(tag, (str, int)) else None
        if member is not None:
            return member.read(value, lenient)
        what = one_of(list(members))
        raise MismatchError([Problem((field,), expected(what, tag) if field in value else missing(what))])

    def _explained(self, value: object, failures: list[tuple[Node, MismatchError]]) -> MismatchError:
        kind = kind_of(value)
        near = [error for member, error in failures if kind in member.kinds]
        if len(near) == 1:
            return near[0]
        if not near or kind not in ("object", "array"):
            return mismatch(self.expected, value)
        nearest = min(near, key=lambda error: len(error.problems))
        return MismatchError([Problem((), no_form_fits(len(near), value)), *nearest.problems])
