"""The one line that a model reads."""

from __future__ import annotations

import pickle

import pytest

from dragoman.tools.arguments.problems import (
    InvalidArguments,
    Problem,
    expected,
    shown,
    unknown,
)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), "wrong"),
        (("a",), "a: wrong"),
        (("a", 0, "b"), "a[0].b: wrong"),
        ((0, 1), "[0][1]: wrong"),
        (("odd key", "b"), '["odd key"].b: wrong'),
        (("a", "1"), 'a["1"]: wrong'),
        (("x" * 100,), "x" * 59 + "…: wrong"),
    ],
)
def test_paths(path: tuple[str | int, ...], text: str) -> None:
    assert str(Problem(path, "wrong")) == text


def test_a_problem_is_one_line() -> None:
    assert str(Problem(("a",), "not\nthis\r\nor\u2028that")) == "a: not this  or that"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "integer 1"),
        (1.5, "number 1.5"),
        (True, "boolean true"),
        (None, "null"),
        ("a\nb", 'string "a\\nb"'),
        ("ä" * 100, 'string "' + "ä" * 58 + "…"),
        ([1, {"a": None}], 'array [1,{"a":null}]'),
        ({"a": 1}, 'object {"a":1}'),
        (list(range(10**6)), "array [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22…"),
        ({1}, 'set "{1}"'),
    ],
)
def test_what_came(value: object, text: str) -> None:
    assert expected("something", value) == f"expected something, got {text}"


def test_a_value_that_is_too_deep_to_show() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert shown(deep) == "[" * 59 + "…"


def test_the_nearest_name() -> None:
    names = ["start_date", "end_date", "limit"]
    assert unknown("startDate", names, "argument", ()) == "unknown argument; did you mean start_date?"
    assert unknown("end-date", names, "field", ()) == "unknown field; did you mean end_date?"
    assert unknown("date", names, "field", {"start_date"}) == "unknown field; did you mean end_date?"
    assert unknown("color", names, "field", ()) == "unknown field; known are: start_date, end_date, limit"
    assert unknown("color", [], "argument", ()) == "unknown argument; there are none"
    many = unknown("color", [f"p{number}" for number in range(30)], "argument", ())
    assert many.endswith(", p19, …")


def test_the_exception_survives_pickling() -> None:
    error = InvalidArguments([Problem(("a", 0), "wrong"), Problem((), "also wrong")])
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == "a[0]: wrong; also wrong"
    assert again.problems == error.problems
