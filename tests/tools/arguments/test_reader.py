"""From a function or a schema to the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dragoman.tools import InvalidArguments
from dragoman.tools.arguments.reader import Arguments, arguments_of_function, arguments_of_schema
from tests.tools.cases import values_of


def forecast(city: str, days: int = 1, *, units: str = "metric") -> tuple[str, int, str]:
    return city, days, units


def called(fn: Callable[..., object], arguments: Arguments, text: str) -> object:
    """Call a function as the executor does."""
    positional, keywords = arguments.bind(arguments.decode(text))
    return fn(*positional, **keywords)


def problem(arguments: Arguments, text: str) -> str:
    with pytest.raises(InvalidArguments) as caught:
        arguments.decode(text)
    return str(caught.value)


# --- from a function -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"city": 1, "days": "x"}', 'city: expected string, got integer 1; days: expected integer, got string "x"'),
        ('{"city": "a", "day": 1}', "day: unknown argument; did you mean days?"),
        ('{"city": "a", "CITY": 1}', "CITY: unknown argument; known are: city, days, units"),
        ("[1]", "expected object, got array [1]"),
        ("null", "expected object, got null"),
        ('"{}"', 'expected object, got string "{}"'),
        ('{"city": ', 'not valid JSON (Input data was truncated): {"city": '),
        ("{'city': 1}", "not valid JSON (JSON is malformed: object keys must be strings (byte 1)): {'city': 1}"),
        ('{"city": "a"} x', 'not valid JSON (JSON is malformed: trailing characters (byte 15)): {"city": "a"} x'),
    ],
)
def test_what_is_said_of_wrong_arguments(text: str, message: str) -> None:
    assert problem(arguments_of_function(forecast), text) == message


def test_json_that_is_nested_too_deeply() -> None:
    def tool(value: Any) -> None: ...

    deep = '{"value": ' + "[" * 100_000
    assert problem(arguments_of_function(tool), deep) == "not usable: the JSON is nested too deeply"


def test_a_mutable_default_is_the_very_object() -> None:
    shared: list[int] = [1]

    def tool(values: list[int] = shared, more: dict[str, int] = {}) -> object:  # noqa: B006 -- that is the point
        return values, more

    arguments = arguments_of_function(tool)
    decoded = values_of(arguments, "{}")
    assert decoded[0] is shared
    assert decoded[1] is tool.__defaults__[1]  # type: ignore[index]


# --- from a schema ---------------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "dict",
    "properties": {
        "city": {"type": "string", "description": "Which city."},
        "days": {"type": "int", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
}


def test_a_schema_is_normalised_and_the_call_gets_keywords() -> None:
    arguments = arguments_of_schema(SCHEMA)
    assert arguments.schema["type"] == "object"
    assert arguments.notes == ('/type: "dict" -> "object"', '/properties/days/type: "int" -> "integer"')
    assert SCHEMA["type"] == "dict"

    def tool(**given: object) -> object:
        return given

    assert called(tool, arguments, '{"city": "Rome", "days": 2}') == {"city": "Rome", "days": 2}
    assert called(tool, arguments, '{"city": "Rome", "days": 2.0}') == {"city": "Rome", "days": 2.0}
    assert called(tool, arguments_of_schema({}), "") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "city: expected string, but it is missing"),
        ("", "city: expected string, but it is missing"),
        ('{"city": 1}', "city: expected string, got integer 1"),
        ('{"city": "a", "days": 0}', "days: expected integer >= 1, got integer 0"),
        ('{"city": "a", "tags": ["a", 1]}', "tags[1]: expected string, got integer 1"),
        ("[1]", "expected object, got array [1]"),
        ("{", "not valid JSON (Input data was truncated): {"),
    ],
)
def test_what_is_said_of_arguments_that_do_not_fit_a_schema(text: str, message: str) -> None:
    assert problem(arguments_of_schema(SCHEMA), text) == message


def test_deep_values_for_a_schema() -> None:
    arguments = arguments_of_schema({"properties": {"a": {"type": "array", "items": {"$ref": "#/properties/a"}}}})

    def nested(depth: int, inside: str = "") -> str:
        return '{"a": ' + "[" * depth + inside + "]" * depth + "}"

    assert problem(arguments, nested(100, "1")).endswith(": expected array, got integer 1")
    assert problem(arguments, nested(500)) == "not usable: the JSON is nested too deeply"
    assert problem(arguments, nested(100_000)) == "not usable: the JSON is nested too deeply"


def test_null_for_an_optional_argument_means_that_it_was_left_out() -> None:
    def search(text: str, limit: int = 10) -> None: ...

    hinted = arguments_of_function(search)
    assert values_of(hinted, '{"text": "x", "limit": null}') == ("x", 10)
    with pytest.raises(InvalidArguments, match="text"):
        hinted.decode('{"text": null}')

    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]}
    described = arguments_of_schema(schema)
    assert described.decode('{"a": "x", "b": null}') == {"a": "x"}
    with pytest.raises(InvalidArguments, match="a"):
        described.decode('{"a": null, "b": null}')
