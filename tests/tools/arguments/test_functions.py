"""Functions as tools: callables of every kind, their defaults, and where names in annotations are looked up."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from dragoman.errors import ToolDefinitionError
from dragoman.tools.arguments.reader import arguments_of_function
from tests.tools.cases import values_of


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
    @functools.wraps(fn)
    def wrapper(*args: object, **kwargs: object) -> object:
        return fn(*args, **kwargs)

    return wrapper


def passing_keywords(fn: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(fn)
    def wrapper(**kwargs: object) -> object:
        return fn(**kwargs)

    return wrapper


def call(fn: Callable[..., object], text: str) -> object:
    arguments = arguments_of_function(fn)
    decoded = arguments.decode(text)
    positional, keywords = arguments.bind(decoded)
    return fn(*positional, **keywords)


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


def test_what_a_partial_has_filled_in_is_not_offered() -> None:
    secret = functools.partial(functools.partial(plain, b="secret"), 1)
    arguments = arguments_of_function(secret)
    assert arguments.schema["properties"] == {"c": {"type": "boolean", "default": False}}
    assert "secret" not in str(arguments.schema)
    assert call(secret, '{"c": true}') == (1, "secret", True)


def test_a_default_of_none_allows_null() -> None:
    def tool(a: int = None, b: str | None = None) -> object:  # type: ignore[assignment]  # noqa: RUF013 -- the old habit
        return a, b

    properties: Any = arguments_of_function(tool).schema["properties"]
    assert properties["a"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert properties["b"] == {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    assert call(tool, '{"a": null}') == (None, None)


def refusals() -> dict[str, tuple[Callable[..., object], str, str]]:
    def varargs(*values: int) -> None: ...
    def keywords(**values: int) -> None: ...
    def unannotated(a, b: int) -> None: ...  # type: ignore[no-untyped-def]
    def callback(then: Callable[[], None]) -> None: ...

    fix = "Use a JSON-like type, a dataclass, TypedDict, NamedTuple, msgspec.Struct or pydantic model."
    return {
        "*args": (
            varargs,
            "Parameter 'values' of varargs(): *values has no place in a JSON object.",
            "Write one parameter of type list[...] instead, or name each parameter.",
        ),
        "**kwargs": (
            keywords,
            "Parameter 'values' of keywords(): **values has no place in a JSON object.",
            "Write one parameter of type dict[str, ...] instead, or name each parameter.",
        ),
        "no hint": (
            unannotated,
            "Parameter 'a' of unannotated(): it has no type hint.",
            "Write its type, such as a: str, or give it a default.",
        ),
        "a callable": (
            callback,
            "Parameter 'then' of callback(): collections.abc.Callable[[], None] cannot be expressed in JSON.",
            fix,
        ),
        "a lambda": (
            lambda a: a,
            "Parameter 'a' of <lambda>(): it has no type hint.",
            "Write its type, such as a: str, or give it a default.",
        ),
        "a built-in function": (
            len,
            "Parameter 'obj' of len(): it has no type hint.",
            "Write its type, such as obj: str, or give it a default.",
        ),
        "a partial": (
            functools.partial(callback),
            "Parameter 'then' of callback(): collections.abc.Callable[[], None] cannot be expressed in JSON.",
            fix,
        ),
    }


@pytest.mark.parametrize("name", refusals())
def test_refusals_name_the_parameter_and_the_fix(name: str) -> None:
    fn, message, fix = refusals()[name]
    with pytest.raises(ToolDefinitionError) as caught:
        arguments_of_function(fn)
    assert caught.value.message == message
    assert caught.value.hint == fix


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

    arguments = arguments_of_function(tool)
    assert values_of(arguments, '{"outer": {"inner": {"value": 1}}, "inners": [{"value": 2}]}') == (
        Outer(Inner(1)),
        [Inner(2)],
    )


# --- defaults ---------------------------------------------------------------------------------------------------------
