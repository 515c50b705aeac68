"""Values on their way back to the schema that was given."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.providers import restored

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "needed": {"type": ["string", "null"]},
        "unit": {"type": "string"},
        "maybe": {"type": ["string", "null"]},
        "place": {"$ref": "#/$defs/Place"},
        "route": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"properties": {"x": {"type": "integer"}}}]},
    },
    "required": ["needed"],
    "allOf": [{"properties": {"extra": {"type": "boolean"}}}],
    "$defs": {
        "Place": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "inside": {"$ref": "#/$defs/Place"}},
            "required": ["name"],
        }
    },
}

CASES: list[tuple[Any, Any]] = [
    ({"needed": None, "unit": None, "maybe": None}, {"needed": None, "maybe": None}),
    ({"needed": "", "extra": None, "unknown": None}, {"needed": "", "unknown": None}),
    ({"place": None}, {}),
    ({"place": {"name": None, "inside": None}}, {"place": {"name": None}}),
    ({"route": [{"name": "a", "inside": {"name": "b", "inside": None}}]}, None),
    ({"pair": [1, {"x": None}]}, {"pair": [1, {}]}),
    ([1, None], [1, None]),
    ("text", "text"),
]


@pytest.mark.parametrize(("value", "wanted"), CASES)
def test_nulls_go_back_to_what_they_stand_for(value: Any, wanted: Any) -> None:
    if wanted is None:
        wanted = {"route": [{"name": "a", "inside": {"name": "b"}}]}
    before = repr(value)
    assert restored(value, SCHEMA) == wanted
    assert repr(value) == before


def test_alternatives_that_cannot_be_objects_do_not_count() -> None:
    forms = [{"type": "string"}, {"type": "object", "properties": {"a": {"type": "integer"}}}]
    schema = {"type": "object", "properties": {"x": {"anyOf": forms}}, "required": ["x"]}
    assert restored({"x": {"a": None}}, schema) == {"x": {}}


def test_a_form_that_takes_null_keeps_it() -> None:
    forms = [{"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"type": "null"}}}]
    schema = {"type": "object", "properties": {"x": {"anyOf": forms}}}
    assert restored({"x": {"a": None}}, schema) == {"x": {"a": None}}


def test_a_form_that_lacks_what_it_requires_does_not_count() -> None:
    forms = [{"properties": {"a": {"type": "null"}}, "required": ["b"]}, {"properties": {"a": {"type": "integer"}}}]
    schema = {"type": "object", "properties": {"x": {"anyOf": forms}}}
    assert restored({"x": {"a": None}}, schema) == {"x": {}}
