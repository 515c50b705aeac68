"""Classes with fields, in all the ways that they can be written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypedDict, TypeVar

import msgspec
import pytest
import typing_extensions

from dragoman.tools import InvalidArguments, decoder_of_type, schema_of_type

INTEGER = {"type": "integer"}
STRING = {"type": "string"}

T = TypeVar("T")


def properties(hint: object) -> Any:
    return schema_of_type(hint)["properties"]


def problem(hint: object, text: str) -> str:
    with pytest.raises(InvalidArguments) as caught:
        decoder_of_type(hint)(text)
    return str(caught.value)


# --- dataclasses -----------------------------------------------------------------------------------------------------


@dataclass
class Base:
    """Described here."""

    a: int
    shared: ClassVar[int] = 1


@dataclass
class Derived(Base):
    b: str = "b"
    counted: int = field(init=False, default=5)


def test_inheritance_and_fields_that_are_not_arguments() -> None:
    assert schema_of_type(Derived) == {
        "type": "object",
        "properties": {"a": INTEGER, "b": {**STRING, "default": "b"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert decoder_of_type(Derived)('{"a": 1}') == Derived(1)
    assert problem(Derived, '{"a": 1, "counted": 2}') == "counted: unknown field; known are: a, b"


@dataclass
class Checked:
    a: int

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("a must\nbe positive")
        if self.a == 0:
            raise KeyError


class CheckedStruct(msgspec.Struct):
    a: int

    def __post_init__(self) -> None:
        if self.a < 0:
            raise LookupError("a must be positive")


def test_what_post_init_raises_is_a_problem_with_its_place() -> None:
    assert problem(list[Checked], '[{"a": 1}, {"a": -1}]') == "[1]: a must be positive"
    assert problem(dict[str, Checked], '{"x": {"a": 0}}') == '["..."]: KeyError'
    assert problem(list[CheckedStruct], '[{"a": 1}, {"a": -1}]') == "[1]: a must be positive"
    assert decoder_of_type(list[CheckedStruct])('[{"a": 1}]') == [CheckedStruct(1)]


# --- generics --------------------------------------------------------------------------------------------------------


@dataclass
class Box(Generic[T]):
    value: T
    others: list[Box[T]] = field(default_factory=list)


class IntBox(Box[int]):
    pass


@dataclass
class NamedIntBox(IntBox):
    name: str = ""


class BoxStruct(msgspec.Struct, Generic[T]):
    value: T


class BoxDict(TypedDict, Generic[T]):
    value: T


class BoxTuple(NamedTuple, Generic[T]):
    value: T


@pytest.mark.parametrize("hint", [Box[int], IntBox, NamedIntBox, BoxStruct[int], BoxDict[int], BoxTuple[int]])
def test_generic_classes(hint: object) -> None:
    assert properties(hint)["value"] == INTEGER
    decoder_of_type(hint)('{"value": 1}')
    assert problem(hint, '{"value": "x"}') == 'value: expected integer, got string "x"'


# --- typed dicts -----------------------------------------------------------------------------------------------------


class Whole(TypedDict):
    a: int


class More(Whole, total=False):
    b: typing_extensions.Required[str]
    c: typing_extensions.ReadOnly[typing_extensions.NotRequired[float]]
    d: bool


Functional = TypedDict("Functional", {"odd key": int, "class": str})


class Extended(typing_extensions.TypedDict):
    a: typing_extensions.NotRequired[int]


def test_which_keys_of_a_typed_dict_are_required() -> None:
    assert schema_of_type(More)["required"] == ["a", "b"]
    assert properties(More) == {"a": INTEGER, "b": STRING, "c": {"type": "number"}, "d": {"type": "boolean"}}
    assert schema_of_type(Functional)["required"] == ["odd key", "class"]
    assert "required" not in schema_of_type(Extended)
    assert problem(Functional, '{"odd key": "x", "class": "y"}') == '["odd key"]: expected integer, got string "x"'
