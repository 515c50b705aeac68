"""Single values: numbers, text, dates and whatever is written as text in JSON."""

from __future__ import annotations

import datetime as dt
import pathlib
import uuid
from decimal import Decimal
from typing import Any, Final, LiteralString, NewType, TypeVar

import pytest

from tests.tools.arguments.cases import INTEGER, NULL, NUMBER, STRING, Case, check, name

T = TypeVar("T")
Bounded = TypeVar("Bounded", bound=int)
Constrained = TypeVar("Constrained", int, str)
UserId = NewType("UserId", int)

DATE_TIME = "string with a date-time such as 2026-01-31T12:00:00Z"

CASES = [
    Case(bool, {"type": "boolean"}, {"true": True}, {"1": "expected boolean, got integer 1"}),
    Case(
        int,
        INTEGER,
        {"5": 5, "5.0": 5, "1e3": 1000, "123456789012345678901": 123456789012345678901},
        {
            '"5"': 'expected integer, got string "5"',
            "5.5": "expected integer, got number 5.5",
            "1e20": "Expected `int`, got `float`",
            "true": "expected integer, got boolean true",
            "null": "expected integer, got null",
        },
    ),
    Case(float, NUMBER, {"5": 5.0, "2.5": 2.5}, {'"x"': 'expected number, got string "x"'}),
    Case(str, STRING, {'"ä"': "ä"}, {"[1]": "expected string, got array [1]"}),
    Case(LiteralString, STRING, {'"a"': "a"}, {"1": "expected string, got integer 1"}),
    Case(None, NULL, {"null": None}, {"0": "expected null, got integer 0"}),
    Case(Any, {}, {"1": 1, "[null]": [None]}, {}),
    Case(object, {}, {'{"a": 1}': {"a": 1}}, {}),
    Case(
        bytes,
        {"type": "string", "contentEncoding": "base64"},
        {'"aGk="': b"hi"},
        {'"!"': "Invalid base64 encoded string"},
    ),
    Case(
        Decimal,
        {"anyOf": [NUMBER, {"type": "string", "format": "decimal"}]},
        {"1.10": Decimal("1.10"), '"1.10"': Decimal("1.10"), "2": Decimal(2)},
        {'"x"': 'expected string with a number, got string "x"'},
    ),
    Case(
        dt.datetime,
        {"type": "string", "format": "date-time"},
        {'"2026-01-31T12:00:00Z"': dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)},
        {'"today"': f'expected {DATE_TIME}, got string "today"', "5": f"expected {DATE_TIME}, got integer 5"},
    ),
    Case(
        dt.date,
        {"type": "string", "format": "date"},
        {'"2026-01-31"': dt.date(2026, 1, 31)},
        {'"x"': 'expected string with a date such as 2026-01-31, got string "x"'},
    ),
    Case(
        dt.time,
        {"type": "string", "format": "time"},
        {'"12:30:00"': dt.time(12, 30)},
        {'"x"': 'expected string with a time such as 12:00:00, got string "x"'},
    ),
    Case(
        dt.timedelta,
        {"type": "string", "format": "duration"},
        {'"P1DT2H"': dt.timedelta(days=1, hours=2)},
        {"60": "expected string with a duration such as P1DT2H30M, got integer 60"},
    ),
    Case(
        uuid.UUID,
        {"type": "string", "format": "uuid"},
        {'"00000000-0000-0000-0000-000000000001"': uuid.UUID(int=1)},
        {'"1"': 'expected string with a uuid such as 123e4567-e89b-12d3-a456-426614174000, got string "1"'},
    ),
    Case(
        pathlib.Path,
        {"type": "string", "format": "path"},
        {'"a/b"': pathlib.Path("a/b")},
        {"1": "expected string, got integer 1"},
    ),
    Case(
        pathlib.PurePosixPath,
        {"type": "string", "format": "path"},
        {'"a/b"': pathlib.PurePosixPath("a/b")},
        {"null": "expected string, got null"},
    ),
    Case(UserId, INTEGER, {"1": 1}, {'"x"': 'expected integer, got string "x"'}),
    Case(Final[int], INTEGER, {"1": 1}, {'"x"': 'expected integer, got string "x"'}),
    Case(Bounded, INTEGER, {"1": 1}, {'"x"': 'expected integer, got string "x"'}),
    Case(
        Constrained,
        {"anyOf": [INTEGER, STRING]},
        {"1": 1, '"a"': "a"},
        {"null": "expected integer or string, got null"},
    ),
    Case(T, {}, {"1": 1}, {}),
]


@pytest.mark.parametrize("case", CASES, ids=name)
def test_hint(case: Case) -> None:
    check(case)
