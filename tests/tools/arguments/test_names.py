"""Where the names in annotations are looked up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from dragoman.errors import ToolDefinitionError
from dragoman.tools.arguments.reader import arguments_of_function, decoder_of_type

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Shadow:
    int: int
    date: str = "today"


def test_a_field_named_like_a_type() -> None:
    assert decoder_of_type(Shadow)('{"int": 1}') == Shadow(1)


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
    decoded = arguments.decode('{"outer": {"inner": {"value": 1}}, "inners": [{"value": 2}]}')
    assert arguments.positional(decoded) == (Outer(Inner(1)), [Inner(2)])


def test_names_of_a_closure_outlive_the_function_around() -> None:
    def make():  # type: ignore[no-untyped-def]
        @dataclass
        class Inner:
            value: int

        def tool(inner: Inner) -> object:
            return Inner(0)

        return tool

    arguments = arguments_of_function(make())
    assert arguments.schema["properties"]["inner"]["type"] == "object"  # type: ignore[index]


def test_names_in_a_class_body() -> None:
    found = []

    class Service:
        @dataclass
        class Request:
            part: Part

            @dataclass
            class Part:
                value: int

        def handle(self, request: Request) -> None: ...

        found.append(arguments_of_function(handle, skip=1))

    assert found[0].positional(found[0].decode('{"request": {"part": {"value": 1}}}')) == (
        Service.Request(Service.Request.Part(1)),
    )


def test_a_name_that_is_assigned_later() -> None:
    def tool(value: Later) -> object:  # type: ignore[name-defined]  # noqa: F821 -- that is the point
        return later

    with pytest.raises(ToolDefinitionError, match="Parameter 'value' of tool.*the name Later in its annotation"):
        arguments_of_function(tool)
    later = 1


def test_a_name_for_type_checkers_only() -> None:
    def tool(amount: Decimal) -> None: ...

    with pytest.raises(ToolDefinitionError) as caught:
        arguments_of_function(tool)
    assert str(caught.value) == (
        "Parameter 'amount' of tool(): the name Decimal in its annotation is not defined. "
        "Define or import it where the function is defined, before the tool is made; not only under TYPE_CHECKING."
    )


@pytest.mark.parametrize("annotation", ["int[", "int.nothing", "1 / 'a'"])
def test_an_annotation_that_is_no_type(annotation: str) -> None:
    def tool(value: int) -> None: ...

    tool.__annotations__["value"] = annotation
    with pytest.raises(ToolDefinitionError, match="its annotation .* cannot be evaluated"):
        arguments_of_function(tool)
