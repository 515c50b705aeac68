"""Many values: lists, sets, tuples and mappings."""

from __future__ import annotations

import enum
import pathlib
import typing
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence, Set
from typing import Any, Literal

import pytest

from tests.tools.arguments.cases import INTEGER, STRING, Case, check, name

# The names that typing had before Python 3.9; users' code still has them.
OLD_LIST: Any = vars(typing)["List"]
OLD_TUPLE: Any = vars(typing)["Tuple"]
OLD_DICT: Any = vars(typing)["Dict"]


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


CASES = [
    Case(list, {"type": "array"}, {"[1, null]": [1, None]}, {"{}": "expected array, got object {}"}),
    Case(OLD_LIST, {"type": "array"}, {"[1]": [1]}, {"{}": "expected array, got object {}"}),
    Case(OLD_LIST[int], {"type": "array", "items": INTEGER}, {"[1]": [1]}, {"{}": "expected array, got object {}"}),
    Case(
        list[int],
        {"type": "array", "items": INTEGER},
        {"[1, 2]": [1, 2], "[1.0]": [1]},
        {'[1, "x", []]': '[1]: expected integer, got string "x"; [2]: expected integer, got array []'},
    ),
    *(
        Case(hint, {"type": "array", "items": INTEGER}, {"[1]": [1]}, {"1": "expected array, got integer 1"})
        for hint in (list[int], Sequence[int], Collection[int], Iterable[int])
    ),
    Case(tuple, {"type": "array"}, {"[1]": (1,)}, {"1": "expected array, got integer 1"}),
    Case(OLD_TUPLE, {"type": "array"}, {"[1]": (1,)}, {"1": "expected array, got integer 1"}),
    Case(tuple[int, ...], {"type": "array", "items": INTEGER}, {"[1]": (1,)}, {"1": "expected array, got integer 1"}),
    Case(
        tuple[()],
        {"type": "array", "maxItems": 0},
        {"[]": ()},
        {"[1]": "expected array of at most 0 items, got array [1]"},
    ),
    Case(
        tuple[int, str],
        {"type": "array", "prefixItems": [INTEGER, STRING], "items": False, "minItems": 2, "maxItems": 2},
        {'[1, "a"]': (1, "a")},
        {"[1]": "expected array of at least 2 items, got array [1]", "[1, 2]": "[1]: expected string, got integer 2"},
    ),
    *(
        Case(
            hint,
            {"type": "array", "items": INTEGER, "uniqueItems": True},
            {"[1]": kind({1}), "[1, 1]": kind({1})},
            {"1": "expected array, got integer 1"},
            forgiven=frozenset({"[1, 1]"}),
        )
        for hint, kind in ((set[int], set), (frozenset[int], frozenset), (Set[int], set))
    ),
    Case(
        set[tuple[int, ...]],
        {"type": "array", "items": {"type": "array", "items": INTEGER}, "uniqueItems": True},
        {"[[1]]": {(1,)}},
        {},
    ),
    Case(
        set[Any],
        {"type": "array", "uniqueItems": True},
        {"[1]": {1}},
        {"[[1]]": "unhashable type: 'list'"},
    ),
    *(
        Case(hint, {"type": "object"}, {'{"a": 1}': {"a": 1}}, {"[]": "expected object, got array []"})
        for hint in (dict, OLD_DICT, Mapping, dict[str, Any], dict[Any, Any])
    ),
    *(
        Case(
            hint,
            {"type": "object", "additionalProperties": INTEGER},
            {'{"a": 1}': {"a": 1}, '{"a": 1.0}': {"a": 1}},
            {'{"a b": "x"}': '["a b"]: expected integer, got string "x"'},
        )
        for hint in (dict[str, int], Mapping[str, int], MutableMapping[str, int])
    ),
    Case(
        dict[int, str],
        {"type": "object", "propertyNames": {"pattern": "^-?[0-9]+$"}, "additionalProperties": STRING},
        {'{"1": "a"}': {1: "a"}},
        {
            '{"x": "a"}': 'x: as a name in an object: expected string that matches ^-?[0-9]+$, got string "x"',
            '{"1": 2}': '["1"]: expected string, got integer 2',
        },
    ),
    Case(dict[float, int], {"type": "object", "additionalProperties": INTEGER}, {'{"1.5": 1}': {1.5: 1}}, {}),
    Case(
        dict[Level, int],
        {"type": "object", "propertyNames": {"enum": ["1", "2"]}, "additionalProperties": INTEGER},
        {'{"1": 1}': {Level.LOW: 1}},
        {'{"3": 1}': '["3"]: as a name in an object: expected one of "1", "2", got string "3"'},
    ),
    Case(
        dict[Literal["a", "b"], int],
        {
            "type": "object",
            "propertyNames": {"type": "string", "enum": ["a", "b"]},
            "additionalProperties": INTEGER,
        },
        {'{"a": 1}': {"a": 1}},
        {'{"c": 1}': 'c: as a name in an object: expected one of "a", "b", got string "c"'},
    ),
    Case(
        dict[pathlib.Path, int],
        {
            "type": "object",
            "propertyNames": {"type": "string", "format": "path"},
            "additionalProperties": INTEGER,
        },
        {'{"a": 1}': {pathlib.Path("a"): 1}},
        {},
    ),
    Case(
        dict[int | str, int],
        {"type": "object", "additionalProperties": INTEGER},
        {'{"1": 1, "a": 2}': {"1": 1, "a": 2}},
        {},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=name)
def test_hint(case: Case) -> None:
    check(case)
