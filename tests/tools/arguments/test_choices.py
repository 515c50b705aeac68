"""One of several: Literal, Enum, Flag and unions."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Optional

import msgspec
import pytest

from tests.tools.arguments.cases import INTEGER, NULL, NUMBER, STRING, Case, check, name


class Color(enum.Enum):
    """A colour of light."""

    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    YES = True
    NONE = None
    TEXT = "text"


class Shape(enum.Enum):
    SQUARE = (1, 1)
    WIDE = (2, 1)


class Loose(enum.Enum):
    A = "a"

    @classmethod
    def _missing_(cls, value: object) -> Loose | None:
        if value == 0:
            raise KeyError(value)
        return cls.A if value == "A" else None


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Point:
    x: int
    y: int = 0


class Size(NamedTuple):
    width: int
    height: int = 1


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog", forbid_unknown_fields=True):
    good: bool = True


POINT = {
    "type": "object",
    "properties": {"x": INTEGER, "y": {**INTEGER, "default": 0}},
    "required": ["x"],
    "additionalProperties": False,
}

CASES = [
    Case(
        Literal["a", "b"],
        {"type": "string", "enum": ["a", "b"]},
        {'"a"': "a"},
        {'"c"': 'expected one of "a", "b", got string "c"', "[]": 'expected one of "a", "b", got array []'},
    ),
    Case(
        Literal["a", 1, True, None],
        {"enum": ["a", 1, True, None]},
        {'"a"': "a", "1": 1, "true": True, "null": None, "1.0": 1},
        {"0": 'expected one of "a", 1, true, null, got integer 0'},
    ),
    Case(
        Literal[Color.RED],
        {"type": "string", "enum": ["red"]},
        {'"red"': Color.RED},
        {"1": 'expected "red", got integer 1'},
    ),
    Case(
        Color,
        {"type": "string", "description": "A colour of light.", "enum": ["red", "green"]},
        {'"red"': Color.RED},
        {'"blue"': 'expected one of "red", "green", got string "blue"'},
    ),
    Case(
        Level,
        {"type": "integer", "description": "(1 = LOW, 2 = HIGH)", "enum": [1, 2]},
        {"2": Level.HIGH, "2.0": Level.HIGH},
        {"3": "expected one of 1, 2, got integer 3", "true": "expected one of 1, 2, got boolean true"},
    ),
    Case(
        Mixed,
        {"description": '(true = YES, null = NONE, "text" = TEXT)', "enum": [True, None, "text"]},
        {"true": Mixed.YES, "null": Mixed.NONE, '"text"': Mixed.TEXT},
        {"1": 'expected one of true, null, "text", got integer 1'},
    ),
    Case(
        Shape,
        {"type": "string", "enum": ["SQUARE", "WIDE"]},
        {'"WIDE"': Shape.WIDE},
        {"[2,1]": 'expected one of "SQUARE", "WIDE", got array [2,1]'},
    ),
    Case(
        Loose,
        {"type": "string", "enum": ["a"]},
        {'"a"': Loose.A, '"A"': Loose.A},
        {'"b"': 'expected "a", got string "b"', "0": 'expected "a", got integer 0'},
        forgiven=frozenset({'"A"'}),  # `_missing_` guesses
    ),
    Case(
        Access,
        {"type": "array", "items": {"type": "string", "enum": ["READ", "WRITE"]}, "uniqueItems": True},
        {'["READ", "WRITE"]': Access.READ | Access.WRITE, "[]": Access(0)},
        {
            '["X"]': '[0]: expected one of "READ", "WRITE", got string "X"',
            "3": "expected array, got integer 3",
        },
    ),
    Case(
        Optional[int],  # noqa: UP045 -- the old form is what is tested
        {"anyOf": [INTEGER, NULL]},
        {"1": 1, "null": None},
        {'"x"': 'expected integer or null, got string "x"'},
    ),
    Case(
        int | str | None,
        {"anyOf": [INTEGER, STRING, NULL]},
        {"1": 1, '"1"': "1", "1.0": 1},
        {"[]": "expected integer, string or null, got array []"},
    ),
    Case(int | float, NUMBER, {"1": 1, "1.0": 1.0}, {'"x"': 'expected number, got string "x"'}),
    Case(float | int | None, {"anyOf": [NUMBER, NULL]}, {"1": 1, "1.5": 1.5}, {}),
    Case(int | Any, {}, {'"x"': "x"}, {}),
    Case(
        Decimal | int | str,
        {"anyOf": [NUMBER, {"type": "string", "format": "decimal"}, STRING]},
        {"1": Decimal(1), "1.5": Decimal("1.5"), '"2"': Decimal(2), '"x"': "x"},
        {"[]": "expected number, string with a number or string, got array []"},
    ),
    Case(
        list[int] | list[str],
        {"anyOf": [{"type": "array", "items": INTEGER}, {"type": "array", "items": STRING}]},
        {"[1]": [1], '["a"]': ["a"], "[1.0]": [1]},
        {
            '[1, "a"]': "fits none of the 2 forms of array allowed here, the nearest fails as follows; "
            '[1]: expected integer, got string "a"',
            "1": "expected array, got integer 1",
        },
    ),
    Case(
        list[int] | tuple[int, ...],
        {"type": "array", "items": INTEGER},
        {"[1]": [1]},
        {"1": "expected array, got integer 1"},
    ),
    Case(
        dt.datetime | dt.date | str,
        {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "format": "date"}, STRING]},
        {
            '"2026-01-31"': dt.date(2026, 1, 31),
            '"2026-01-31T00:00:00"': dt.datetime(2026, 1, 31),  # noqa: DTZ001 -- a naive one is what was sent
            '"x"': "x",
        },
        {},
    ),
    Case(
        dt.date | uuid.UUID,
        {"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "uuid"}]},
        {'"2026-01-31"': dt.date(2026, 1, 31)},
        {
            '"x"': "fits none of the 2 forms of string allowed here, the nearest fails as follows; "
            'expected string with a date such as 2026-01-31, got string "x"'
        },
    ),
    Case(
        Color | str,
        {"anyOf": [{"type": "string", "description": "A colour of light.", "enum": ["red", "green"]}, STRING]},
        {'"red"': Color.RED, '"blue"': "blue"},
        {"1": 'expected one of "red", "green" or string, got integer 1'},
    ),
    Case(
        Point | Size | None,
        {
            "anyOf": [
                POINT,
                {
                    "type": "object",
                    "properties": {"width": INTEGER, "height": {**INTEGER, "default": 1}},
                    "required": ["width"],
                    "additionalProperties": False,
                },
                NULL,
            ]
        },
        {'{"x": 1}': Point(1), '{"width": 2}': Size(2), "null": None},
        {
            '{"x": "a"}': "fits none of the 2 forms of object allowed here, the nearest fails as follows; "
            'x: expected integer, got string "a"',
            "3": "expected object or null, got integer 3",
        },
    ),
    Case(
        Cat | Dog | None,
        {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {"type": {"type": "string", "enum": ["cat"]}, "lives": INTEGER},
                    "required": ["type", "lives"],
                },
                {
                    "type": "object",
                    "properties": {
                        "type": {"type": "string", "enum": ["dog"]},
                        "good": {"type": "boolean", "default": True},
                    },
                    "required": ["type"],
                    "additionalProperties": False,
                },
                NULL,
            ]
        },
        {'{"type": "cat", "lives": 9}': Cat(9), '{"type": "dog"}': Dog(), '{"type": "cat", "lives": 9.0}': Cat(9)},
        {
            '{"lives": 9}': "fits none of the 2 forms of object allowed here, the nearest fails as follows; "
            'type: expected "cat", but it is missing',
            '{"type": "cow"}': 'type: expected one of "cat", "dog", got string "cow"',
            '{"type": []}': 'type: expected one of "cat", "dog", got array []',
            '{"type": "cat", "lives": "x"}': 'lives: expected integer, got string "x"',
            '{"type": "dog", "god": 1}': "god: unknown field; did you mean good?",
        },
    ),
]


@pytest.mark.parametrize("case", CASES, ids=name)
def test_hint(case: Case) -> None:
    check(case)
