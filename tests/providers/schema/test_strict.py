"""The strict subsets of OpenAI and of Anthropic, rule by rule; and what is not quite JSON Schema."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.errors import ToolDefinitionError
from dragoman.providers.profile import SchemaStyle
from tests.providers.schema.checkers import convert, one


def test_without_strict_the_strict_styles_send_what_is_given() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}
    for style in ("openai_strict", "anthropic_strict"):
        assert convert(schema, style, strict=False) == (schema, ())


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
    told = '{"allOf":[{"pattern":"b"}]}'
    assert one("openai_strict", clashing) == (
        {"type": "string", "description": f"Must also match the JSON Schema {told}.", "pattern": "a"},
        ('x/allOf: [{"pattern":"b"}] is only in the description',),
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
    definition = done["$defs"]["a_node"]
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


@pytest.mark.parametrize("word", ["prefixItems", "items"])
def test_items_by_position_become_items(word: str) -> None:
    """`items` is how it was written before 2020-12."""
    mixed = {"type": "array", word: [{"type": "number"}, {"type": "string"}], "minItems": 2}
    told = '{"prefixItems":[{"type":"number"},{"type":"string"}]}'
    assert one("openai_strict", mixed) == (
        {
            "type": "array",
            "description": f"Must also match the JSON Schema {told}.",
            "minItems": 2,
            "items": {"anyOf": [{"type": "number"}, {"type": "string"}]},
        },
        ('x/prefixItems: [{"type":"number"},{"type":"string"}] is only in the description',),
    )


# --- Anthropic ---


def test_anthropic_keeps_optional_properties_and_defaults() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}, "additionalProperties": False}
    assert convert(schema, "anthropic_strict", strict=True) == (schema, ())


def test_what_anthropic_does_not_enforce_is_described() -> None:
    number = {"type": "integer", "minimum": 1, "multipleOf": 2}
    assert one("anthropic_strict", number)[0] == {
        "type": "integer",
        "description": 'Must also match the JSON Schema {"minimum":1,"multipleOf":2}.',
    }
    for kept in (
        {"type": "string", "pattern": "^[a-z]{1,8}$", "format": "uri"},
        {"type": "array", "minItems": 1, "items": {"type": "string"}},
    ):
        assert one("anthropic_strict", kept) == (kept, ())
    for described in (
        {"type": "string", "pattern": r"\bword\b"},
        {"type": "string", "pattern": r"(a)\1"},
        {"type": "string", "pattern": "^(?=a)"},
        {"type": "string", "pattern": "a{1,5000}"},
        {"type": "array", "minItems": 2, "items": {"type": "string"}},
        {"type": "array", "maxItems": 2, "items": {"type": "string"}},
    ):
        assert "Must also match" in one("anthropic_strict", described)[0]["description"]


def test_anthropic_takes_no_recursion() -> None:
    tree = {"type": "object", "properties": {"more": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}}
    assert one("anthropic_strict", {"$ref": "#/$defs/Tree"}, **{"$defs": {"Tree": tree}})[1] == (
        "not strict: /$defs/Tree: the schema is recursive",
    )
    told = {"type": "object", "properties": {"more": {"$ref": "#", "description": "Again."}}}
    assert any("recursive" in line for line in convert(told, "anthropic_strict", strict=True)[1])


def test_anthropic_gets_described_references_written_out() -> None:
    schema = {"$ref": "#/$defs/S", "description": "This one."}
    done, _ = one("anthropic_strict", schema, **{"$defs": {"S": {"type": "string", "enum": ["a"]}}})
    assert done == {"type": "string", "description": "This one.", "enum": ["a"]}


def test_anthropic_counts_optional_properties_and_unions() -> None:
    optional = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(25)}}
    assert convert(optional, "anthropic_strict", strict=True)[1] == (
        "not strict: /: 25 optional properties, at most 24 are allowed",
    )
    unions = {"type": "object", "properties": {f"p{i}": {"type": ["string", "null"]} for i in range(17)}}
    unions["required"] = [*unions["properties"]]  # type: ignore[assignment]
    assert convert(unions, "anthropic_strict", strict=True)[1] == (
        "not strict: /: 17 properties of more than one type, at most 16 are allowed",
    )


# --- what is not quite JSON Schema ---


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
    assert one("openai_strict", {"type": "dict", "properties": {"a": {"type": "null"}}, "required": ["a"]})[1] == (
        'x/type: "dict" is no type, read as any',
        "x/type: added: object",
    )
    with pytest.raises(ToolDefinitionError, match="must be a schema"):
        one("openai_strict", {"type": "array", "items": 5})


def test_types_may_be_written_as_gemini_does() -> None:
    schema = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": True}}, "required": ["a"]}
    done, _ = convert(schema, "json_schema")
    assert done == {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}
