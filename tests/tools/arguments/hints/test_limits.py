"""Limits and descriptions beside a type, in the words of several libraries."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, NewType

import annotated_types as at
import pytest
import typing_extensions
from msgspec import Meta

from tests.tools.arguments.hints.case import INTEGER, NULL, STRING, Case, check, name


@dataclass
class Point:
    """A point in the plane."""

    x: int


UserId = NewType("UserId", int)

DATE_TIME = "string with a date-time such as 2026-01-31T12:00:00Z"
POINT = {
    "type": "object",
    "description": "A point in the plane.",
    "properties": {"x": INTEGER},
    "required": ["x"],
    "additionalProperties": False,
}

CASES = [
    Case(
        Annotated[int, at.Interval(ge=1, lt=5), "How many."],
        {"type": "integer", "minimum": 1, "exclusiveMaximum": 5, "description": "How many."},
        {"1": 1, "4.0": 4},
        {"0": "expected integer >= 1, got integer 0", "5": "expected integer < 5, got integer 5"},
    ),
    Case(
        Annotated[int | None, Meta(gt=1, le=5)],
        {"anyOf": [{"type": "integer", "exclusiveMinimum": 1, "maximum": 5}, NULL]},
        {"null": None, "5": 5},
        {"1": "expected integer > 1, got integer 1", "6": "expected integer <= 5, got integer 6"},
    ),
    Case(
        Annotated[Annotated[int, at.Ge(1)] | list[int] | None, at.Le(5), at.MaxLen(2)],
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": 5},
                {"type": "array", "items": INTEGER, "maxItems": 2},
                NULL,
            ]
        },
        {"3": 3, "[1]": [1]},
        {
            "6": "expected integer <= 5, got integer 6",
            "[1, 2, 3]": "expected array of at most 2 items, got array [1,2,3]",
        },
    ),
    Case(
        Annotated[UserId, at.Ge(1), at.Ge(3)],
        {"type": "integer", "minimum": 3},
        {"3": 3},
        {"2": "expected integer >= 3, got integer 2"},
    ),
    Case(
        Annotated[int, at.Ge(1.5), at.MultipleOf(2), at.Gt(Decimal(0))],
        {"type": "integer", "minimum": 1.5, "multipleOf": 2, "exclusiveMinimum": 0},
        {"2": 2},
        {"1": "expected integer >= 1.5, got integer 1", "3": "expected integer that is a multiple of 2, got integer 3"},
    ),
    Case(
        Annotated[float, at.MultipleOf(0.5)],
        {"type": "number", "multipleOf": 0.5},
        {"1.5": 1.5},
        {"0.75": "expected number that is a multiple of 0.5, got number 0.75"},
    ),
    Case(
        Annotated[str, Meta(pattern="^a", min_length=2)],
        {"type": "string", "minLength": 2, "pattern": "^a"},
        {'"ab"': "ab"},
        {
            '"a"': 'expected string of at least 2 characters, got string "a"',
            '"ba"': 'expected string that matches ^a, got string "ba"',
        },
    ),
    Case(
        Annotated[str, Meta(pattern="a"), Meta(pattern="b"), Meta(pattern="c")],
        {"type": "string", "pattern": "a", "allOf": [{"pattern": "b"}, {"pattern": "c"}]},
        {'"abc"': "abc"},
        {'"ac"': 'expected string that matches b, got string "ac"'},
    ),
    Case(
        Annotated[list[int], at.Len(1, 2)],
        {"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 2},
        {"[1]": [1]},
        {"[]": "expected array of at least 1 item, got array []"},
    ),
    Case(
        Annotated[dict[str, int], at.MinLen(2)],
        {"type": "object", "additionalProperties": INTEGER, "minProperties": 2},
        {'{"a": 1, "b": 2}': {"a": 1, "b": 2}},
        {"{}": "expected object of at least 2 properties, got object {}"},
    ),
    Case(
        Annotated[bytes, at.MaxLen(1)],
        {"type": "string", "contentEncoding": "base64", "description": "Only values of at most 1 byte."},
        {'"aA=="': b"h"},
        {'"aGk="': 'expected string in base64 of at most 1 byte, got string "aGk="'},
    ),
    Case(
        Annotated[Decimal, at.Ge(Decimal("0.5")), at.Lt(10), at.MultipleOf(Decimal("0.5"))],
        {
            "anyOf": [
                {"type": "number", "minimum": 0.5, "exclusiveMaximum": 10, "multipleOf": 0.5},
                {"type": "string", "format": "decimal"},
            ]
        },
        {"0.5": Decimal("0.5"), '"9.5"': Decimal("9.5")},
        {'"10"': 'expected number or string with a number < 10, got string "10"'},
    ),
    Case(
        Annotated[dt.date, at.Ge(dt.date(2026, 1, 1))],
        {"type": "string", "format": "date", "description": "Only values >= 2026-01-01."},
        {'"2026-01-01"': dt.date(2026, 1, 1)},
        {'"2025-01-01"': 'expected string with a date such as 2026-01-31 >= 2026-01-01, got string "2025-01-01"'},
    ),
    Case(
        Annotated[dt.datetime, at.Gt(dt.datetime(2026, 1, 1, tzinfo=dt.UTC)), "When."],
        {
            "type": "string",
            "format": "date-time",
            "description": "When. Only values > 2026-01-01 00:00:00+00:00.",
        },
        {},
        {
            '"2027-01-01T00:00:00"': f"expected {DATE_TIME} > 2026-01-01 00:00:00+00:00 "
            "(can't compare offset-naive and offset-aware datetimes), "
            'got string "2027-01-01T00:00:00"'
        },
    ),
    Case(
        Annotated[dt.datetime, at.Timezone(...)],
        {"type": "string", "format": "date-time", "description": "Only values with a time zone."},
        {'"2026-01-31T12:00:00Z"': dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)},
        {'"2026-01-31T12:00:00"': f'expected {DATE_TIME} with a time zone, got string "2026-01-31T12:00:00"'},
    ),
    Case(
        Annotated[dt.time, at.Timezone(None)],
        {"type": "string", "format": "time", "description": "Only values without a time zone."},
        {'"12:00:00"': dt.time(12)},
        {'"12:00:00Z"': 'expected string with a time such as 12:00:00 without a time zone, got string "12:00:00Z"'},
    ),
    Case(
        Annotated[str | None, at.Predicate(str.islower)],
        {"anyOf": [STRING, NULL]},
        {'"a"': "a"},
        {
            '"A"': 'expected string or null that satisfies islower, got string "A"',
            "null": "expected string or null that satisfies islower (descriptor 'islower' for 'str' objects doesn't "
            "apply to a 'NoneType' object), got null",
        },
    ),
    Case(
        Annotated[list[Annotated[int, at.Gt(0)]], "Numbers.", "never seen"],
        {"type": "array", "items": {"type": "integer", "exclusiveMinimum": 0}, "description": "Numbers."},
        {"[1]": [1]},
        {"[1, 0]": "[1]: expected integer > 0, got integer 0"},
    ),
    Case(
        Annotated[
            int, Meta(description="An age.", examples=[3], extra_json_schema={"x-unit": "year"}), at.Unit("a"), None
        ],
        {"type": "integer", "description": "An age.", "examples": [3], "x-unit": "year"},
        {"1": 1},
        {},
    ),
    Case(
        Annotated[int, typing_extensions.Doc("An age."), "  "],
        {"type": "integer", "description": "An age."},
        {"1": 1},
        {},
    ),
    Case(
        Annotated[Annotated[int, "Inner."], at.Ge(1)],
        {"type": "integer", "minimum": 1, "description": "Inner."},
        {"1": 1},
        {},
    ),
    Case(
        list[Annotated[Point, "A corner."]],
        {"type": "array", "items": {**POINT, "description": "A corner. A point in the plane."}},
        {'[{"x": 1}]': [Point(1)]},
        {},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=name)
def test_hint(case: Case) -> None:
    check(case)
