"""Splitting a JSON array into its elements."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.providers.gemini.json_array import ArrayStream
from tests.providers.feeding import cut_at, one_by_one
from tests.strategies import json_values

objects = st.dictionaries(st.text(max_size=5), json_values, max_size=3)


def elements(pieces: list[bytes]) -> tuple[list[object], bool]:
    stream = ArrayStream()
    found = [json.loads(element) for piece in pieces for element in stream.feed(piece)]
    return found, stream.complete


@given(st.lists(objects, max_size=4), st.sampled_from([None, 2]), st.lists(st.integers(0, 500), max_size=10))
def test_elements_are_found_however_the_bytes_come(
    values: list[dict[str, object]], indent: int | None, places: list[int]
) -> None:
    data = json.dumps(values, indent=indent, ensure_ascii=False).encode()
    for pieces in ([data], one_by_one(data), cut_at(data, places)):
        assert elements(pieces) == (values, True)


@settings(max_examples=30, deadline=None)
@given(st.lists(objects, min_size=1, max_size=3))
def test_an_array_that_breaks_off_is_not_complete(values: list[dict[str, object]]) -> None:
    data = json.dumps(values).encode()
    for length in range(len(data)):
        assert not elements([data[:length]])[1]


def test_brackets_in_strings_are_text() -> None:
    values = [{"a": '}]"\\', "\\": "[{"}, {"b": "\\\\"}]
    data = json.dumps(values).encode()
    assert elements(one_by_one(data)) == (values, True)


def test_what_comes_behind_is_passed_over() -> None:
    assert elements([b'[{"a": 1}]\n[{"b": 2}]', b'{"c": "']) == ([{"a": 1}], True)
