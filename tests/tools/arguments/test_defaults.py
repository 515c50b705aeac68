"""Defaults, as the model is shown them."""

from __future__ import annotations

import datetime as dt
import enum
import pathlib
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest

from dragoman.tools.arguments.reader import arguments_of_function


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Shape(enum.Enum):
    WIDE = (2, 1)


@dataclass
class Point:
    x: int
    y: int = 0


class Size(NamedTuple):
    width: int
    color: Color = Color.RED


class Account(msgspec.Struct):
    name: str
    where: pathlib.Path = pathlib.Path("here")


class Model(pydantic.BaseModel):
    value: int = pydantic.Field(alias="theValue")


SHOWN: list[tuple[object, object, object]] = [
    (int, 5, 5),
    (str | None, None, None),
    (float, 5, 5),
    (list[int], [1], [1]),
    (tuple[int, ...], (1, 2), [1, 2]),
    (set[str], {"b", "a", "c"}, ["a", "b", "c"]),
    (dict[int, Color], {1: Color.RED}, {"1": "red"}),
    (Color, Color.GREEN, "green"),
    (dt.date, dt.date(2026, 1, 31), "2026-01-31"),
    (Decimal, Decimal("1.5"), "1.5"),
    (bytes, b"hi", "aGk="),
    (pathlib.Path, pathlib.Path("a"), "a"),
    (Point, Point(1), {"x": 1, "y": 0}),
    (Account, Account("a"), {"name": "a", "where": "here"}),
    (Model, Model(theValue=3), {"theValue": 3}),
    (Any, {"a": [1]}, {"a": [1]}),
]
HIDDEN: list[tuple[object, object]] = [
    (Any, object()),
    (int, "not an integer"),
    (float, float("nan")),
    (list[int], (1, 2)),
    (str, type),
    (Shape, Shape.WIDE),
    (Size, Size(1)),
]


def schema_of(hint: object, default: object) -> dict[str, object]:
    def tool(value: Any = default) -> None: ...

    tool.__annotations__["value"] = hint
    arguments = arguments_of_function(tool)
    assert arguments.positional(arguments.decode("{}"))[0] is default
    assert arguments.positional(arguments.recover("{}"))[0] is default
    properties: Any = arguments.schema["properties"]
    return properties["value"]


@pytest.mark.parametrize(("hint", "default", "shown"), SHOWN)
def test_a_default_that_json_can_hold_is_shown(hint: object, default: object, shown: object) -> None:
    assert schema_of(hint, default)["default"] == shown


@pytest.mark.parametrize(("hint", "default"), HIDDEN)
def test_any_other_default_works_and_is_not_shown(hint: object, default: object) -> None:
    assert "default" not in schema_of(hint, default)
