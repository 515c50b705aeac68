"""Anthropic's strict subset, rule by rule."""

from __future__ import annotations

from dragoman.providers.schema import convert
from tests.providers.schema.styles import one


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
