"""Gemini's own schemas, rule by rule; and what is not quite JSON Schema."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.errors import ToolDefinitionError
from dragoman.providers.schema import convert
from tests.providers.schema.styles import one

GEMINI: list[tuple[Any, Any]] = [
    ({"type": ["string", "null"]}, {"type": "STRING", "nullable": True}),
    (
        {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "D"},
        {"type": "STRING", "description": "D", "nullable": True},
    ),
    (
        {"type": ["string", "integer"], "description": "D", "minLength": 1, "minimum": 1},
        {"anyOf": [{"type": "STRING", "description": "D", "minLength": 1}, {"type": "INTEGER", "minimum": 1}]},
    ),
    ({"type": "null"}, {"type": "NULL"}),
    ({"const": "a"}, {"type": "STRING", "enum": ["a"]}),
    ({"enum": ["a", None]}, {"type": "STRING", "enum": ["a"], "nullable": True}),
    ({"enum": ["a", ""]}, {"type": "STRING", "enum": ["a"]}),
    ({"enum": [1, 5]}, {"type": "STRING", "enum": ["1", "5"]}),
    ({"type": "number", "enum": [0.5, 1]}, {"type": "STRING", "enum": ["0.5", "1"]}),
    ({"enum": [True, False]}, {"type": "BOOLEAN"}),
    ({"const": True}, {"type": "BOOLEAN", "description": "Must be true."}),
    ({"type": "integer", "exclusiveMinimum": 0}, {"type": "INTEGER", "minimum": 1}),
    ({"type": "string", "format": "date-time"}, {"type": "STRING", "format": "date-time"}),
    (
        {"type": "string", "format": "date"},
        {"type": "STRING", "description": 'Must also match the JSON Schema {"format":"date"}.'},
    ),
    ({"type": "object", "additionalProperties": False}, {"type": "OBJECT"}),
    ({"type": "array", "items": False}, {"type": "ARRAY", "maxItems": 0, "items": {"type": "STRING"}}),
    ({"oneOf": [{"type": "string"}, {"type": "boolean"}]}, {"anyOf": [{"type": "STRING"}, {"type": "BOOLEAN"}]}),
    ({"allOf": [{"type": "string"}, {"minLength": 3}]}, {"type": "STRING", "minLength": 3}),
]


@pytest.mark.parametrize(("given", "sent"), GEMINI)
def test_gemini_writes(given: Any, sent: Any) -> None:
    assert one("gemini", given)[0] == sent


def test_gemini_has_no_type_for_any_value() -> None:
    done, lines = one("gemini", {"description": "Anything."})
    assert [branch["type"] for branch in done["anyOf"]] == ["STRING", "NUMBER", "BOOLEAN", "OBJECT", "ARRAY"]
    assert all(branch["nullable"] for branch in done["anyOf"])
    assert done["anyOf"][0]["description"] == "Anything."
    assert "x/type: added: string, number, boolean, object, array, null" in lines


def test_gemini_gets_references_written_out_and_recursion_cut() -> None:
    tree = {"type": "object", "properties": {"more": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}}
    done, lines = one("gemini", {"$ref": "#/$defs/Tree", "description": "A tree."}, **{"$defs": {"Tree": tree}})
    inner = done["properties"]["more"]["items"]["properties"]["more"]["items"]
    assert done["description"] == "A tree."
    assert inner == {"type": "OBJECT", "description": "Of the same form as Tree."}
    assert lines == ("x: Tree written out", "/$defs/Tree/properties/more/items: Tree contains itself: cut off")


def test_gemini_does_not_write_out_what_doubles_and_doubles() -> None:
    pair = {
        f"d{i}": {"type": "object", "properties": {side: {"$ref": f"#/$defs/d{i + 1}"} for side in ("l", "r")}}
        for i in range(50)
    }
    defs = {"$defs": {**pair, "d50": {"type": "string"}}}
    done, lines = one("gemini", {"$ref": "#/$defs/d0"}, **defs)
    assert len(str(done)) < 300_000
    assert any(line.endswith("is too large to be written out again: cut off") for line in lines)


def test_gemini_reads_its_own_types() -> None:
    schema = {
        "type": "OBJECT",
        "properties": {"a": {"type": "STRING", "nullable": True}, "b": {"type": "ARRAY", "items": {"type": "NUMBER"}}},
        "required": ["a"],
    }
    assert convert(schema, "gemini") == (schema, ())


# --- what is not quite JSON Schema ------------------------------------------------------------------------------------


def test_oddities_are_read_for_what_they_mean() -> None:
    assert one("openai_strict", {"type": "number", "minimum": 0, "exclusiveMinimum": True})[0] == {
        "type": "number",
        "exclusiveMinimum": 0,
    }
    assert one("openai_strict", {"type": "string", "nullable": True, "enum": ["a"]})[0] == {
        "type": ["string", "null"],
        "enum": ["a", None],
    }
    assert one("openai_strict", {"type": "integer", "minimum": "3"}) == (
        {"type": "integer"},
        ('x/minimum: "3" is no number, removed',),
    )
    assert one("gemini", {"type": "dict", "properties": {"a": {"type": "string"}}})[1] == (
        'x/type: "dict" is no type, read as any',
        "x/type: added: object",
    )
    with pytest.raises(ToolDefinitionError, match="must be a schema"):
        one("gemini", {"type": "array", "items": 5})
