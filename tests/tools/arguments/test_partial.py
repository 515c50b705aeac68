"""JSON that is still arriving."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET

from dragoman.tools import PartialReader, read_beginning
from tests.growth import grows_linearly

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def has_grown(before: Any, after: Any) -> bool:
    """Whether nothing was removed or changed, only added."""
    match before, after:
        case dict(), dict():
            return all(name in after and has_grown(value, after[name]) for name, value in before.items())
        case list(), list():
            return len(before) <= len(after) and all(map(has_grown, before, after))
        case str(), str():
            return after.startswith(before)
    return type(before) is type(after) and before == after


@given(value=VALUES, ascii_only=st.booleans(), indent=st.sampled_from([None, 1]))
def test_every_prefix_of_any_document(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    seen: Any = UNSET
    for end in range(len(text) + 1):
        now = read_beginning(text[:end])
        assert seen is UNSET or has_grown(seen, now), text[:end]
        seen = now
    assert read_beginning(text, ended=True) == value
    assert seen == value or (seen is UNSET and isinstance(value, int | float))


@given(text=st.text('{}[]",:\\ud8a1-. \ntrue', max_size=40))
def test_invalid_json_is_harmless(text: str) -> None:
    for ended in (False, True):
        read_beginning(text, ended=ended)
        PartialReader({"type": "object"}).read(text, ended=ended)


@pytest.mark.parametrize("end", ["", "\\u12", "\\ud83d"])
@pytest.mark.parametrize("piece", ["a", "\\n", "\\\\", "\\ud83d", "a[,"])
def test_a_megabyte_takes_no_longer_than_its_parts(piece: str, end: str) -> None:
    assert grows_linearly(read_beginning, lambda size: '["' + piece * (size // len(piece)) + end)


def test_a_long_string_needs_no_memory_beside_itself() -> None:
    """A repetition in an expression would be remembered step by step."""
    text = '["' + "\\n" * 500_000
    tracemalloc.start()
    try:
        value = read_beginning(text)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert value == ["\n" * 500_000]
    assert most < 8 * len(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", UNSET),
        ("  ", UNSET),
        ("{", {}),
        ('{"na', {}),
        ('{"name"', {}),
        ('{"name": ', {}),
        ('{"name": "Lyo', {"name": "Lyo"}),
        ('{"name": "a\\', {"name": "a"}),
        ('{"name": "a\\u00', {"name": "a"}),
        ('{"name": "a\\ud83d', {"name": "a"}),
        ('{"name": "a\\ud83d\\ude', {"name": "a"}),
        ('{"name": "a\\\\ud83d', {"name": "a\\ud83d"}),
        ('{"total": 12', {}),
        ('{"total": 12,', {"total": 12}),
        ('{"paid": tru', {}),
        ('{"paid": true', {"paid": True}),
        ("[1, [2, {", [1, [2, {}]]),
        ('{"a": 1} That is all.', {"a": 1}),
        ("I look it up.", UNSET),
        ("]", UNSET),
        ("[" * 100_000, UNSET),
        ('"\ud800', UNSET),
    ],
)
def test_prefixes(text: str, value: object) -> None:
    assert read_beginning(text) == value


SCHEMA = {
    "type": "object",
    "properties": {
        "number": {"type": "string", "minLength": 3},
        "state": {"enum": ["open", "paid"]},
        "lines": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/Line"}},
        "to": {"oneOf": [{"$ref": "#/$defs/Line"}, {"type": "object", "required": ["city"]}]},
    },
    "required": ["number"],
    "additionalProperties": False,
    "$defs": {"Line": {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}},
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{", {}),
        ('{"number": "A', {"number": "A"}),  # as far as it has come
        ('{"number": 5, "state": "paid"', {"state": "paid"}),
        ('{"state": "pa', {}),  # none of the allowed values yet
        ('{"unknown": 1, "number": "A', {"number": "A"}),
        ('{"lines": [{}, {"price": "x"}, 5, {"price": 1}', {"lines": [{}, {}, {"price": 1}]}),
        ('{"to": {"price": 1', {"to": {}}),
        ("[", UNSET),
        ('{"lines": ' + "[" * 300, UNSET),
        ('{"lines": [' + "5, " * 500, UNSET),  # too many problems
    ],
)
def test_parts_that_do_not_fit_are_left_out_and_nothing_is_required_yet(text: str, value: object) -> None:
    assert PartialReader(SCHEMA).read(text) == value


def test_an_unsupported_schema_leaves_nothing_out() -> None:
    assert PartialReader({"type": "string", "pattern": "(?P<odd>"}).read('["x') == ["x"]
