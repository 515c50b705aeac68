"""Single values: numbers, text, dates and whatever is written as text in JSON.

Owns: the table of types that are one JSON value, with their schemas and what a message says of them.
Must not know: other kinds of nodes.
"""

from __future__ import annotations

import datetime
import decimal
import pathlib
import uuid
from typing import Any

import msgspec

from dragoman.tools.arguments.schemas import Definitions, Schema

from .node import Measure, Node, mismatch

__all__ = ["ALL_KINDS", "ANYTHING", "NULL", "SCALARS", "TEXT", "PathText", "Scalar"]

EXACT_FLOATS = 2**53
"""Beyond this a float no longer says which integer was meant."""

ALL_KINDS = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})


class Anything(Node):
    """Any JSON value, as it is."""

    expected = "any value"
    kinds = ALL_KINDS
    hashable = None

    def schema(self, definitions: Definitions) -> Schema:
        return {}

    def read(self, value: object, lenient: bool) -> object:
        return value

    def wire(self) -> object:
        return Any


class Scalar(Node):
    """A value of one of the types in the table below."""

    def __init__(self, kind: type, schema: Schema, kinds: str, expected: str, measure: Measure | None = None) -> None:
        self.kinds: frozenset[str] = frozenset(kinds.split())
        self.expected: str = expected
        self.measure: Measure | None = measure
        self._type: type[object] = kind
        self._schema: Schema = schema

    def schema(self, definitions: Definitions) -> Schema:
        return dict(self._schema)

    def read(self, value: object, lenient: bool) -> object:
        if type(value) is self._type:
            return value
        if lenient and self._type is int and isinstance(value, float) and _says_integer(value):
            return int(value)
        try:
            return msgspec.convert(value, self._type)
        except (msgspec.ValidationError, OverflowError):
            raise mismatch(self.expected, value) from None

    def wire(self) -> object:
        return self._type


def _says_integer(value: float) -> bool:
    return value.is_integer() and abs(value) <= EXACT_FLOATS


class PathText(Node):
    """A file system path, written as text."""

    expected = "string with a path"
    kinds = frozenset({"string"})
    verbatim = False

    def __init__(self, kind: type[pathlib.PurePath]) -> None:
        self._type: type[pathlib.PurePath] = kind

    def schema(self, definitions: Definitions) -> Schema:
        return {"type": "string", "format": "path"}

    def read(self, value: object, lenient: bool) -> object:
        if not isinstance(value, str):
            raise mismatch(self.expected, value)
        return self._type(value)


def _plain(kind: type, name: str, measure: Measure | None = None, kinds: str = "") -> Scalar:
    return Scalar(kind, {"type": name}, kinds or name, name, measure)


def _text(kind: type, form: str, example: str, measure: Measure | None = None) -> Scalar:
    what = f"string with a {form} such as {example}"
    return Scalar(kind, {"type": "string", "format": form}, "string", what, measure)


ANYTHING: Node = Anything()
NULL: Node = _plain(type(None), "null")
TEXT: Node = _plain(str, "string", "string")

_BASE64: Schema = {"type": "string", "contentEncoding": "base64"}
_DECIMAL: Schema = {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}

SCALARS: dict[object, Node] = {
    Any: ANYTHING,
    object: ANYTHING,
    None: NULL,
    type(None): NULL,
    bool: _plain(bool, "boolean"),
    int: _plain(int, "integer", "integer"),
    float: _plain(float, "number", "number", kinds="number integer"),
    str: TEXT,
    bytes: Scalar(bytes, _BASE64, "string", "string in base64", "bytes"),
    decimal.Decimal: Scalar(
        decimal.Decimal, _DECIMAL, "number integer string", "number or string with a number", "decimal"
    ),
    datetime.datetime: _text(datetime.datetime, "date-time", "2026-01-31T12:00:00Z", "moment"),
    datetime.date: _text(datetime.date, "date", "2026-01-31", "span"),
    datetime.time: _text(datetime.time, "time", "12:00:00", "moment"),
    datetime.timedelta: _text(datetime.timedelta, "duration", "P1DT2H30M", "span"),
    uuid.UUID: _text(uuid.UUID, "uuid", "123e4567-e89b-12d3-a456-426614174000"),
}
"""The types that are one JSON value."""
