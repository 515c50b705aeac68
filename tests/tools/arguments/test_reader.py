"""From a function or a schema to the arguments of a call."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from dragoman.errors import ToolDefinitionError
from dragoman.tools import InvalidArguments
from dragoman.tools.arguments.reader import Arguments, arguments_of_schema
from tests.tools.cases import arguments_of, values_of


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


SCHEMA = {
    "type": "dict",
    "properties": {
        "city": {"type": "string", "description": "Which city."},
        "days": {"type": "int", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
}


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        *(
            (arguments_of(forecast), text, message)
            for text, message in (
                (
                    '{"city": 1, "days": "x"}',
                    'city: expected string, got integer 1; days: expected integer, got string "x"',
                ),
                ('{"city": "a", "day": 1}', "day: unknown field; did you mean days?"),
                ('{"city": "a", "CITY": 1}', "CITY: unknown field; known are: city, days, units"),
                ("null", "expected object, got null"),
                ('"{}"', 'expected object, got string "{}"'),
                (
                    "{'city': 1}",
                    "not valid JSON (JSON is malformed: object keys must be strings (byte 1)): {'city': 1}",
                ),
                (
                    '{"city": "a"} x',
                    'not valid JSON (JSON is malformed: trailing characters (byte 15)): {"city": "a"} x',
                ),
                ('{"city": ' + "[" * 100_000, "not usable: the JSON is nested too deeply"),
            )
        ),
        *(
            (arguments_of_schema(SCHEMA), text, message)
            for text, message in (
                ("", "city: expected string, but it is missing"),
                ('{"city": "a", "days": 0}', "days: integer 0 is less than the minimum of 1"),
                ('{"city": "a", "tags": ["a", 1]}', "tags[1]: expected string, got integer 1"),
            )
        ),
        *(
            (made, text, message)
            for made in (arguments_of(forecast), arguments_of_schema(SCHEMA))
            for text, message in (
                ("[1]", "expected object, got array [1]"),
                ("{", "not valid JSON (Input data was truncated): {"),
            )
        ),
    ],
)
def test_problems_of_wrong_arguments(arguments: Arguments, text: str, message: str) -> None:
    assert problem(arguments, text) == message


def test_a_mutable_default_is_the_same_object() -> None:
    shared: list[int] = [1]

    def tool(values: list[int] = shared, more: dict[str, int] = {}) -> object:  # noqa: B006 -- that is the point
        return values, more

    arguments = arguments_of(tool)
    decoded = values_of(arguments, "{}")
    assert decoded[0] is shared
    assert decoded[1] is tool.__defaults__[1]  # type: ignore[index]


# --- from a schema ---------------------------------------------------------------------------------------------------


def test_a_schema_is_normalised_and_the_call_gets_keywords() -> None:
    arguments = arguments_of_schema(SCHEMA)
    assert arguments.schema["type"] == "object"
    assert arguments.schema["properties"]["days"]["type"] == "integer"  # type: ignore[index]
    assert SCHEMA["type"] == "dict"

    def tool(**given: object) -> object:
        return given

    assert called(tool, arguments, '{"city": "Rome", "days": 2}') == {"city": "Rome", "days": 2}
    assert called(tool, arguments, '{"city": "Rome", "days": 2.0}') == {"city": "Rome", "days": 2.0}
    assert called(tool, arguments_of_schema({}), "") == {}


def test_deep_values_for_a_schema() -> None:
    arguments = arguments_of_schema({"properties": {"a": {"type": "array", "items": {"$ref": "#/properties/a"}}}})

    def nested(depth: int, inside: str = "") -> str:
        return '{"a": ' + "[" * depth + inside + "]" * depth + "}"

    assert problem(arguments, nested(100, "1")).endswith(": expected array, got integer 1")
    assert problem(arguments, nested(500)) == "not usable: the JSON is nested too deeply"
    assert problem(arguments, nested(100_000)) == "not usable: the JSON is nested too deeply"


def test_null_for_an_optional_argument_is_ignored() -> None:
    assert values_of(arguments_of(forecast), '{"city": "x", "days": null}') == ("x", 1, "metric")
    assert "city" in problem(arguments_of(forecast), '{"city": null}')
    described = arguments_of_schema(SCHEMA)
    assert described.decode('{"city": "x", "days": null}') == {"city": "x"}
    assert "city" in problem(described, '{"city": null, "days": null}')


def plain(a: int, b: str = "b", *, c: bool = False) -> object:
    return a, b, c


class Service:
    def method(self, a: int) -> object:
        return a

    @classmethod
    def of_class(cls, a: int) -> object:
        return a

    @staticmethod
    def static(a: int) -> object:
        return a

    def __call__(self, a: int) -> object:
        return a


def passing_all(fn: Callable[..., object]) -> Callable[..., object]:
    return functools.wraps(fn)(lambda *args, **kwargs: fn(*args, **kwargs))  # noqa: PLW0108 -- a function around it


def passing_keywords(fn: Callable[..., object]) -> Callable[..., object]:
    return functools.wraps(fn)(lambda **kwargs: fn(**kwargs))  # noqa: PLW0108 -- as above


def call(fn: Callable[..., object], text: str) -> object:
    return called(fn, arguments_of(fn), text)


@pytest.mark.parametrize(
    "fn",
    [
        Service().method,
        Service.of_class,
        Service.static,
        Service(),
        passing_all(Service().method),
        passing_keywords(Service().method),
        functools.partial(Service().method),
        lambda a=0: a,
    ],
    ids=["method", "class method", "static", "object", "decorated", "by keyword", "partial", "lambda"],
)
def test_callables(fn: Callable[..., object]) -> None:
    assert call(fn, '{"a": 1}') == 1


def test_arguments_of_a_partial_are_not_offered() -> None:
    secret = functools.partial(functools.partial(plain, b="secret"), 1)
    arguments = arguments_of(secret)
    assert arguments.schema["properties"] == {"c": {"type": "boolean", "default": False}}
    assert "secret" not in str(arguments.schema)
    assert call(secret, '{"c": true}') == (1, "secret", True)


def test_a_default_of_none_allows_null() -> None:
    def tool(a: int = None, b: str | None = None) -> object:  # type: ignore[assignment]  # noqa: RUF013 -- the old habit
        return a, b

    properties: Any = arguments_of(tool).schema["properties"]
    assert properties["a"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert properties["b"] == {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    assert call(tool, '{"a": null}') == (None, None)


def varargs(*values: int) -> None: ...
def keywords(**values: int) -> None: ...
def unannotated(a, b: int) -> None: ...  # type: ignore[no-untyped-def]
def callback(then: Callable[[], None]) -> None: ...


NO_FORM = "Parameter 'then' of callback(): collections.abc.Callable[[], None] cannot be expressed in JSON."


@pytest.mark.parametrize(
    ("fn", "message", "fix"),
    [
        (varargs, "'values' of varargs(): *values has no place in a JSON object.", "type list[...] instead"),
        (keywords, "'values' of keywords(): **values has no place in a JSON object.", "type dict[str, ...] instead"),
        (unannotated, "Parameter 'a' of unannotated(): it has no type hint.", "Write its type, such as a: str"),
        (lambda a: a, "Parameter 'a' of <lambda>(): it has no type hint.", "give it a default"),
        (len, "Parameter 'obj' of len(): it has no type hint.", "Write its type, such as obj: str"),
        (callback, NO_FORM, "Use a JSON-like type, a dataclass, TypedDict, NamedTuple"),
        (functools.partial(callback), NO_FORM, "msgspec.Struct or pydantic model."),
    ],
)
def test_refusals_name_the_parameter_and_the_fix(fn: Callable[..., object], message: str, fix: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        arguments_of(fn)
    assert message in caught.value.message
    assert fix in str(caught.value.hint)


# --- names ------------------------------------------------------------------------------------------------------------


def test_classes_and_functions_inside_a_function() -> None:
    @dataclass
    class Outer:
        inner: Inner
        again: Outer | None = None

    @dataclass
    class Inner:
        value: int

    def tool(outer: Outer, inners: list[Inner]) -> None: ...

    arguments = arguments_of(tool)
    assert values_of(arguments, '{"outer": {"inner": {"value": 1}}, "inners": [{"value": 2}]}') == (
        Outer(Inner(1)),
        [Inner(2)],
    )


ODD = """
1 / 0|int[|nowhere.Type|__import__('nowhere')|list['1 / 0']|[].pop()|int if x else|\0|dict[str]|list[int, str]|set[()]
Literal|Literal[()]|Annotated|Union|Unpack[int]|ClassVar[int]|Final|...|NotImplemented|type(None)()|lambda: 1|{}|typing
tuple[int, ...][str]|Generic[int]|Annotated[int, object]|Callable|type|Self|TypeVar('T', bound='T')
""".replace("\n", "|").strip("|")


@pytest.mark.parametrize("annotation", [*ODD.split("|"), "(" * 300, "list[" * 90 + "int" + "]" * 90])
def test_odd_annotations_are_accepted_or_refused(annotation: str) -> None:
    def tool(value: Any) -> None: ...

    tool.__annotations__["value"] = annotation
    tool.__globals__.update(vars(typing))
    with suppress(ToolDefinitionError):
        arguments_of(tool)
