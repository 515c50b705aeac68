"""Which hints are understood: aliases, generics, and what is refused."""

from __future__ import annotations

import datetime as dt
import enum
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, Never, NewType, TypeVar

import annotated_types as at
import msgspec
import pytest
import typing_extensions
from msgspec import Meta

from dragoman.errors import ToolDefinitionError
from dragoman.tools.arguments.reader import InvalidArguments, arguments_of_function, decoder_of_type, schema_of_type
from tests.tools.arguments.cases import INTEGER, NULL, STRING, Case, check, name


class Empty(enum.Enum):
    pass


T = TypeVar("T")
Pair = typing_extensions.TypeAliasType("Pair", tuple[T, T], type_params=(T,))
IntOrText = typing_extensions.TypeAliasType("IntOrText", int | str)
Age = NewType("Age", Annotated[int, "In years."])
Names = typing_extensions.TypeAliasType("Names", list[str])
Json = typing_extensions.TypeAliasType("Json", "dict[str, Json] | list[Json] | str | int | None")


@dataclass
class Box(Generic[T]):
    value: T


class Everything(msgspec.Struct):
    names: dict[str, Annotated[int, Meta(ge=1)]]
    said: Annotated[str, Meta(description="A word.")]
    pair: tuple[int, str | None]
    tags: set[str] = msgspec.field(default_factory=set)


CASES = [
    Case(Names, {"type": "array", "items": STRING}, {'["a"]': ["a"]}, {"[1]": "[0]: expected string, got integer 1"}),
    Case(
        Pair[int],
        {"type": "array", "prefixItems": [INTEGER, INTEGER], "items": False, "minItems": 2, "maxItems": 2},
        {"[1, 2]": (1, 2)},
        {'[1, "a"]': '[1]: expected integer, got string "a"'},
    ),
    Case(
        Annotated[IntOrText | None, at.Ge(1), at.MinLen(2)],
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "minLength": 2}, NULL]},
        {"1": 1, '"ab"': "ab", "null": None},
        {"0": "expected integer >= 1, got integer 0"},
    ),
    Case(
        Annotated[Age, at.Ge(1)],
        {"type": "integer", "minimum": 1, "description": "In years."},
        {"1": 1},
        {"0": "expected integer >= 1, got integer 0"},
    ),
    # --- what cannot be hashed
    Case(list[Annotated[int, {"unit": "m"}]], {"type": "array", "items": INTEGER}, {"[1]": [1]}, {}),
    Case(
        Box[Annotated[int, ["m"]]],
        {"type": "object", "properties": {"value": INTEGER}, "required": ["value"], "additionalProperties": False},
        {'{"value": 1}': Box(1)},
        {'{"value": "x"}': 'value: expected integer, got string "x"'},
    ),
    # --- a Struct that msgspec decodes itself, whatever is in it
    Case(
        Everything,
        {
            "type": "object",
            "properties": {
                "names": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
                "said": {"type": "string", "description": "A word."},
                "pair": {
                    "type": "array",
                    "prefixItems": [INTEGER, {"anyOf": [STRING, NULL]}],
                    "items": False,
                    "minItems": 2,
                    "maxItems": 2,
                },
                "tags": {"type": "array", "items": STRING, "uniqueItems": True, "default": []},
            },
            "required": ["names", "said", "pair"],
        },
        {'{"names": {"a": 1}, "said": "b", "pair": [1, null]}': Everything({"a": 1}, "b", (1, None))},
        {
            '{"names": {"a": 0}, "said": "b", "pair": [1]}': "names.a: expected integer >= 1, got integer 0; "
            "pair: expected array of at least 2 items, got array [1]"
        },
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
    "a set of lists": (set[list[int]], "a set cannot hold what can change"),
    "a set of dicts": (frozenset[dict[str, int]], "a set cannot hold what can change"),
    "names that are booleans": (dict[bool, int], "cannot be a name in a JSON object"),
    "names that are tuples": (dict[tuple[int, int], int], "cannot be a name in a JSON object"),
    "a limit on the wrong type": (Annotated[bool, Meta(ge=1)], "the limit ge=1 cannot be checked on bool"),
    "a limit on no member of a union": (Annotated[bool | None, Meta(ge=1)], "cannot be checked on bool | None"),
    "a time zone": (Annotated[dt.datetime, at.Timezone("Europe/Rome")], "cannot be checked on datetime"),
    "a second limit of one kind": (Annotated[str, Meta(pattern="a"), Meta(pattern="b")], "cannot be checked on str"),
    "a length of a number": (Annotated[int, Meta(min_length=1)], "the limit min_length=1 cannot be checked on int"),
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


Even = typing_extensions.TypeAliasType("Even", "list[Odd] | None")
Odd = typing_extensions.TypeAliasType("Odd", "list[Even]")


def test_aliases_that_contain_each_other() -> None:
    assert schema_of_type(Even)["anyOf"] == [
        {"type": "array", "items": {"type": "array", "items": {"$ref": "#/$defs/Even"}}},
        NULL,
    ]
    assert decoder_of_type(Odd)("[null, [[null]]]") == [None, [[None]]]
    with pytest.raises(InvalidArguments, match=r"^\[0\]: expected array or null, got integer 1$"):
        decoder_of_type(Odd)("[1]")


class HoldsJson(msgspec.Struct):
    value: Json


def test_a_struct_with_a_recursive_alias() -> None:
    decode = decoder_of_type(HoldsJson)
    assert decode('{"value": [{"a": 1}]}') == HoldsJson([{"a": 1}])
    with pytest.raises(InvalidArguments, match=r"^value\[0\]: expected"):
        decode('{"value": [true]}')


NEW_SYNTAX = """
from dataclasses import dataclass

type Json = dict[str, Json] | list[Json] | str | int | None
type Pair[T] = tuple[T, T]

@dataclass
class Box[T: (int, str)]:
    value: T

def tool[T: int](json: Json, pair: Pair[int], box: Box[int], some: T) -> None: ...
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is of Python 3.12")
def test_aliases_and_generics_in_the_syntax_of_python_3_12() -> None:
    names: dict[str, Any] = {"__name__": __name__}
    exec(NEW_SYNTAX, names)
    arguments = arguments_of_function(names["tool"])
    text = '{"json": {"a": [1]}, "pair": [1, 2], "box": {"value": 3}, "some": 4}'
    assert arguments.positional(arguments.decode(text)) == ({"a": [1]}, (1, 2), names["Box"](3), 4)
    with pytest.raises(InvalidArguments) as caught:
        arguments.recover('{"json": true, "pair": [1], "box": {"value": "x"}, "some": "y"}')
    assert [problem.path for problem in caught.value.problems] == [("json",), ("pair",), ("box", "value"), ("some",)]
