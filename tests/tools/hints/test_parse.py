"""Which hints are understood: aliases, generics, and what is refused."""

from __future__ import annotations

import datetime as dt
import enum
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Annotated, Literal, Never, TypeVar

import annotated_types as at
import pytest
import typing_extensions
from msgspec import Meta

from dragoman.errors import ToolDefinitionError
from dragoman.tools.arguments import InvalidArguments, arguments_of_function
from dragoman.tools.hints.compile import decoder_of_type, schema_of_type
from tests.tools.hints.case import INTEGER, NULL, STRING, Case, check, name


class Empty(enum.Enum):
    pass


T = TypeVar("T")
Pair = typing_extensions.TypeAliasType("Pair", tuple[T, T], type_params=(T,))
Names = typing_extensions.TypeAliasType("Names", list[str])
Json = typing_extensions.TypeAliasType("Json", "dict[str, Json] | list[Json] | str | int | None")

CASES = [
    Case(Names, {"type": "array", "items": STRING}, {'["a"]': ["a"]}, {"[1]": "[0]: expected string, got integer 1"}),
    Case(
        Pair[int],
        {"type": "array", "prefixItems": [INTEGER, INTEGER], "items": False, "minItems": 2, "maxItems": 2},
        {"[1, 2]": (1, 2)},
        {'[1, "a"]': '[1]: expected integer, got string "a"'},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=name)
def test_hint(case: Case) -> None:
    check(case)


def test_a_recursive_alias() -> None:
    def tool(value: Json) -> None: ...

    arguments = arguments_of_function(tool)
    assert arguments.schema["properties"] == {"value": {"$ref": "#/$defs/Json"}}
    assert arguments.schema["$defs"] == {
        "Json": {
            "anyOf": [
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/Json"}},
                {"type": "array", "items": {"$ref": "#/$defs/Json"}},
                STRING,
                INTEGER,
                NULL,
            ]
        }
    }
    text = '{"value": {"a": [1, null, {"b": "c"}]}}'
    assert arguments.positional(arguments.decode(text)) == ({"a": [1, None, {"b": "c"}]},)
    assert arguments.positional(arguments.recover(text)) == ({"a": [1, None, {"b": "c"}]},)
    with pytest.raises(InvalidArguments, match=r"^value\.a\[0\]: expected .*, got boolean true$"):
        arguments.recover('{"value": {"a": [true]}}')


REFUSED = {
    "Callable": (Callable[[int], int], "cannot be expressed in JSON"),
    "complex": (complex, "complex cannot be expressed in JSON"),
    "a class": (pytest.Config, "Config cannot be expressed in JSON"),
    "type": (type[int], "cannot be expressed in JSON"),
    "Never": (Never, "Never cannot be expressed in JSON"),
    "Iterator": (Iterator[int], "cannot be expressed in JSON"),
    "deque": (deque[int], "cannot be expressed in JSON"),
    "OrderedDict": (OrderedDict[str, int], "cannot be expressed in JSON"),
    "a tuple of unknown length": (tuple[int, *tuple[str, ...]], "cannot be expressed in JSON"),
    "inside a list": (list[complex], "complex cannot be expressed in JSON"),
    "inside a union": (int | complex, "complex cannot be expressed in JSON"),
    "a string": ("int", "the forward reference 'int' was not resolved"),
    "not a type": (5, "5 cannot be expressed in JSON"),
    "an empty enum": (Empty, "the enum Empty has no members"),
    "bytes in Literal": (Literal[b"a"], "has no JSON form"),
    "a set of lists": (set[list[int]], "a set cannot hold what can change: array"),
    "a set of dicts": (frozenset[dict[str, int]], "a set cannot hold what can change: object"),
    "a set of tuples of lists": (set[tuple[list[int], int]], "a set cannot hold what can change: array of 2 items"),
    "names that are booleans": (dict[bool, int], "boolean cannot be a name in a JSON object"),
    "names that are tuples": (dict[tuple[int, int], int], "cannot be a name in a JSON object"),
    "a limit on the wrong type": (Annotated[bool, at.Ge(1)], "the limit ge=1 does not apply to boolean"),
    "a limit on no member of a union": (Annotated[bool | None, at.Ge(1)], "does not apply to boolean or null"),
    "a length of a number": (Annotated[int, Meta(min_length=1)], "the limit min_length=1 does not apply to integer"),
    "a time zone": (Annotated[dt.datetime, at.Timezone("Europe/Rome")], "has no JSON form"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_expressed(name: str) -> None:
    hint, message = REFUSED[name]
    with pytest.raises(ToolDefinitionError) as caught:
        schema_of_type(hint)
    assert message in caught.value.message
    assert caught.value.hint
    with pytest.raises(ToolDefinitionError):
        decoder_of_type(hint)
