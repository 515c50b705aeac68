"""Limits and descriptions beside a type, in the words of several libraries."""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, NewType

import annotated_types as at
import pydantic  # noqa: F401 -- what msgspec cannot check is left to it
import pytest
import typing_extensions
from msgspec import Meta

from dragoman.errors import ToolDefinitionError
from dragoman.tools.arguments.problems import InvalidArguments
from dragoman.tools.arguments.reader import decoder_of_type, schema_of_type
from tests.tools.arguments.cases import INTEGER, NULL, Case, check, name


@dataclass
class Point:
    """A point in the plane."""

    x: int


UserId = NewType("UserId", int)

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


def test_what_msgspec_cannot_check_is_left_to_pydantic() -> None:
    day = Annotated[dt.date, at.Ge(dt.date(2026, 1, 1))]
    assert schema_of_type(day) == {"type": "string", "format": "date"}
    assert decoder_of_type(day)('"2026-01-01"') == dt.date(2026, 1, 1)
    problems = {
        day: '"2025-01-01"',
        Annotated[Decimal, at.Ge(1)]: '"0.5"',
        Annotated[str, at.Predicate(str.islower)]: '"A"',
        Annotated[int, at.Ge(1), at.Ge(3)]: "2",
        Annotated[dt.datetime, at.Timezone(None)]: '"2026-01-01T00:00:00Z"',
    }
    for hint, text in problems.items():
        with pytest.raises(InvalidArguments, match="."):
            decoder_of_type(hint)(text)


def test_what_msgspec_checks_and_a_schema_cannot_say() -> None:
    for hint, text in {
        Annotated[bytes, Meta(max_length=1)]: '"aGk="',
        Annotated[dt.datetime, Meta(tz=True)]: '"2026-01-31T12:00:00"',
    }.items():
        with pytest.raises(InvalidArguments, match="Expected"):
            decoder_of_type(hint)(text)


def test_without_pydantic_such_a_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pydantic")
    with pytest.raises(ToolDefinitionError, match="the limit ge=1 cannot be checked on Decimal") as caught:
        schema_of_type(Annotated[Decimal, at.Ge(1)])
    assert "import pydantic" in str(caught.value.hint)
