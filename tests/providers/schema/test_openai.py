"""OpenAI's strict subset, rule by rule; and what no strict subset has."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.providers.profile import SchemaStyle
from dragoman.providers.schema import convert
from tests.providers.schema.styles import one


def test_without_strict_the_strict_styles_send_what_is_given() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}
    for style in ("openai_strict", "anthropic_strict"):
        assert convert(schema, style, strict=False) == (schema, ())  # type: ignore[arg-type]


OPTIONAL: list[tuple[Any, Any]] = [
    ({"type": "string"}, {"type": ["string", "null"]}),
    ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
    ({"enum": ["a", "b"]}, {"type": ["string", "null"], "enum": ["a", "b", None]}),
    ({"const": "a"}, {"type": ["string", "null"], "enum": ["a", None]}),
    ({"$ref": "#/$defs/S"}, {"anyOf": [{"$ref": "#/$defs/S"}, {"type": "null"}]}),
    (
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
    ),
    (
        {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        {"type": ["array", "null"], "maxItems": 3, "items": {"type": "integer"}},
    ),
]


@pytest.mark.parametrize(("given", "sent"), OPTIONAL)
def test_optional_properties_may_be_null(given: Any, sent: Any) -> None:
    schema = {"type": "object", "properties": {"x": given}, "$defs": {"S": {"type": "string"}}}
    done, lines = convert(schema, "openai_strict", strict=True)
    assert done["properties"] == {"x": sent}
    assert done["required"] == ["x"]
    assert done["additionalProperties"] is False
    assert "/properties/x: optional -> required, null where there is nothing to say" in lines


def test_what_openai_does_not_enforce_is_described() -> None:
    schema = {
        "type": "string",
        "description": "A word.",
        "default": "no",
        "minLength": 2,
        "pattern": "^(?!x)",
        "format": "uri",
        "examples": ["yes"],
    }
    assert one("openai_strict", schema) == (
        {
            "type": "string",
            "description": 'A word. Default: "no". Examples: "yes". '
            'Must also match the JSON Schema {"minLength":2,"pattern":"^(?!x)","format":"uri"}.',
        },
        (
            "x/minLength: 2 is only in the description",
            'x/pattern: "^(?!x)" is only in the description',
            'x/format: "uri" is only in the description',
            "x/default: told in the description",
            "x/examples: told in the description",
        ),
    )


def test_what_openai_enforces_is_kept() -> None:
    for schema in (
        {"type": "string", "pattern": "^a", "format": "uuid"},
        {"type": "integer", "multipleOf": 2, "minimum": 0, "exclusiveMaximum": 10},
        {"type": "array", "minItems": 1, "maxItems": 9, "items": {"type": "boolean"}},
    ):
        assert one("openai_strict", schema) == (schema, ())


def test_one_of_becomes_any_of() -> None:
    assert one("openai_strict", {"oneOf": [{"type": "string"}, {"type": "integer"}]}) == (
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        ("x/oneOf: written as anyOf: a value may fit more than one form",),
    )


def test_what_stands_beside_alternatives_goes_into_each() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"properties": {"c": {"type": "null"}}, "required": ["b", "c"]}],
    }
    done, _ = one("openai_strict", schema)
    assert [list(branch["properties"]) for branch in done["anyOf"]] == [["a", "b"], ["a", "b", "c"]]
    assert done["anyOf"][0]["properties"]["a"] == {"type": "string"}
    assert done["anyOf"][1]["properties"]["a"] == {"type": ["string", "null"]}


def test_all_of_is_merged() -> None:
    schema = {
        "allOf": [
            {"type": ["integer", "string"], "minimum": 1, "multipleOf": 4},
            {"type": "number", "minimum": 3, "maximum": 30, "multipleOf": 6, "description": "A number."},
        ]
    }
    assert one("openai_strict", schema) == (
        {"type": "integer", "description": "A number.", "minimum": 3, "multipleOf": 12, "maximum": 30},
        (),
    )
    clashing = {"allOf": [{"type": "string", "pattern": "a"}, {"pattern": "b"}]}
    assert one("openai_strict", clashing) == (
        {"type": "string", "description": 'Must also match the JSON Schema {"pattern":"b"}.', "pattern": "a"},
        ('x/allOf/1/pattern: "b" is only in the description',),
    )


def test_references_may_be_recursive_and_stand_alone() -> None:
    node = {
        "type": "object",
        "properties": {"value": {"type": "number"}, "next": {"$ref": "#/$defs/a node", "description": "The next."}},
        "required": ["value", "next"],
    }
    done, lines = convert(
        {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/a%20node"}},
            "$defs": {"a node": node},
            "required": [],
        },
        "openai_strict",
        strict=True,
    )
    assert done["properties"] == {"x": {"anyOf": [{"$ref": "#/$defs/a_node"}, {"type": "null"}]}}
    definition = done["$defs"]["a_node"]  # type: ignore[index]
    assert definition["properties"]["next"] == {"description": "The next.", "anyOf": [{"$ref": "#/$defs/a_node"}]}
    assert len(lines) == 1


NOT_STRICT: list[tuple[Any, str]] = [
    ({}, "any value is allowed"),
    ({"type": "object"}, "an object that says nothing of its properties"),
    ({"type": "object", "additionalProperties": True}, "an object with properties of any name"),
    ({"type": "object", "additionalProperties": {"type": "string"}}, "an object with properties of any name"),
    ({"type": "object", "patternProperties": {"^a": {"type": "string"}}}, "an object with properties of any name"),
    ({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["b"]}, "required but not described: b"),
    ({"type": "array"}, "an array that says nothing of its items"),
    ({"type": "array", "items": False}, "an array that must be empty"),
]


@pytest.mark.parametrize("style", ["openai_strict", "anthropic_strict"])
@pytest.mark.parametrize(("schema", "reason"), NOT_STRICT)
def test_what_needs_more_freedom_is_not_strict(style: SchemaStyle, schema: Any, reason: str) -> None:
    assert one(style, schema) == (schema, (f"not strict: x: {reason}",))


def test_a_tool_without_parameters_is_strict() -> None:
    done, lines = convert({"type": "object", "properties": {}}, "openai_strict", strict=True)
    assert done == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert lines == ()


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


TOO_LARGE: list[tuple[Any, str]] = [
    (nested(11), "11 levels of nesting, at most 10 are allowed"),
    ({"properties": {f"p{i}": {"type": "null"} for i in range(5_001)}}, "5001 properties, at most 5000 are allowed"),
    ({"properties": {"a": {"enum": list(range(1_001))}}}, "1001 listed values"),
    ({"properties": {"a": {"enum": [f"{i:060}" for i in range(251)]}}}, "15060 characters in one list of values"),
    ({"properties": {"a": {"const": "x" * 120_000}}}, "120001 characters in names and values"),
]


@pytest.mark.parametrize(("schema", "reason"), TOO_LARGE, ids=[reason for _, reason in TOO_LARGE])
def test_schemas_beyond_a_limit_are_not_strict(schema: Any, reason: str) -> None:
    schema = {"type": "object", "required": [*schema["properties"]], **schema}
    done, lines = convert(schema, "openai_strict", strict=True)
    assert done == schema
    assert lines[0].startswith(f"not strict: /: {reason}")


def test_ten_levels_are_strict() -> None:
    assert convert(nested(10), "openai_strict", strict=True)[1] == ()


def test_items_by_position_become_items() -> None:
    alike = {"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}], "minItems": 2, "items": False}
    assert one("openai_strict", alike) == (
        {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "number"}},
        ("x/prefixItems: written as items",),
    )
    mixed = {"type": "array", "items": [{"type": "number"}, {"type": "string"}]}  # as it was written before 2020-12
    assert one("openai_strict", mixed) == (
        {
            "type": "array",
            "description": "Items by position: number, string.",
            "maxItems": 2,
            "items": {"anyOf": [{"type": "number"}, {"type": "string"}]},
        },
        ("x/prefixItems: written as items, in no fixed order",),
    )
