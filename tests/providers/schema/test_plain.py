"""The root, which is the same for all styles, and plain JSON Schema."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.errors import ToolDefinitionError
from dragoman.providers.profile import SchemaStyle
from dragoman.providers.schema import convert as conversion
from tests.providers.schema.checkers import STYLES, convert, one


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("schema", [{"type": "array", "items": {}}, {"type": "string"}, {"anyOf": [{"type": "null"}]}])
def test_a_root_that_is_not_an_object_is_refused(style: SchemaStyle, schema: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="must describe an object"):
        convert(schema, style)


@pytest.mark.parametrize("style", STYLES)
def test_references_to_other_documents_and_to_nothing_are_refused(style: SchemaStyle) -> None:
    for reference in ("https://host/schema.json", "other.json#/$defs/A", "#/$defs/Missing", "#nowhere"):
        with pytest.raises(ToolDefinitionError, match="refers to"):
            one(style, {"$ref": reference})


@pytest.mark.parametrize("style", STYLES)
def test_a_schema_nested_too_deeply_is_refused(style: SchemaStyle) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(5_000):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(ToolDefinitionError, match="nested too deeply"):
        convert(schema, style)


def test_a_root_without_a_type_or_with_several_becomes_an_object() -> None:
    assert convert({"properties": {}}, "json_schema") == (
        {"type": "object", "properties": {}},
        ('/type: read as "object"',),
    )
    assert convert({"type": ["object", "null"]}, "json_schema")[0] == {"type": "object", "properties": {}}


def test_all_of_at_the_root_is_merged_without_loss() -> None:
    schema = {
        "description": "Both.",
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"$ref": "#/$defs/Rest"},
        ],
        "$defs": {"Rest": {"properties": {"b": {"type": "integer"}}, "required": ["b"], "description": "The rest."}},
    }
    done = conversion(schema, "json_schema")
    assert done.schema == {
        "type": "object",
        "description": "Both. The rest.",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "$defs": schema["$defs"],
    }
    assert done.exact
    assert conversion(schema, "openai_strict", strict=True).schema["properties"] == {
        "a": {"type": "string"},
        "b": {"type": "integer"},
    }


def test_closed_parts_of_an_all_of_forbid_each_others_properties() -> None:
    closed = {"properties": {"a": {"type": "string"}}, "additionalProperties": False}
    done = conversion({"allOf": [closed, {"properties": {"b": {"type": "string"}}}]}, "json_schema")
    assert done.schema["properties"] == {"a": {"type": "string"}}
    assert done.schema["additionalProperties"] is False


def test_alternatives_at_the_root_are_merged_and_described() -> None:
    shapes = {
        "oneOf": [
            {"properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}, "required": ["kind", "r"]},
            {"properties": {"kind": {"const": "square"}, "w": {"type": "number"}}, "required": ["kind", "w"]},
            {"type": "null"},
        ]
    }
    schema, lines = convert(shapes, "json_schema")
    assert schema == {
        "type": "object",
        "description": 'One of these forms must be met: (1) with kind = "circle", r; (2) with kind = "square", w.',
        "properties": {
            "kind": {"anyOf": [{"const": "circle"}, {"const": "square"}]},
            "r": {"type": "number"},
            "w": {"type": "number"},
        },
        "required": ["kind"],
    }
    assert lines == (
        "/: the alternatives are merged into one object, only the description tells them apart",
        '/type: read as "object"',
    )


def test_alternatives_that_only_require_properties_are_described() -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "string"}, "name": {"type": "string"}},
        "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
        "not": {"required": ["id", "name"]},
    }
    done = conversion(schema, "json_schema")
    assert done.schema["properties"] == schema["properties"]
    assert "One of these forms must be met: (1) with id; (2) with name." in str(done.schema["description"])
    assert 'Must also match the JSON Schema {"not":{"required":["id","name"]}}.' in str(done.schema["description"])
    assert not done.exact


def test_references_into_a_merged_root() -> None:
    schema = {
        "allOf": [
            {"properties": {"q": {"type": "integer"}}},
            {"properties": {"r": {"$ref": "#/allOf/0/properties/q"}, "s": {"$ref": "#"}}},
        ]
    }
    strict, _ = convert(schema, "openai_strict", strict=True)
    assert strict["$defs"]["q"] == {"type": "integer"}
    assert strict["$defs"]["root"]["properties"]["s"]["anyOf"][0] == {"$ref": "#/$defs/root"}
    with pytest.raises(ToolDefinitionError, match="root had to be merged"):
        convert(schema, "json_schema")


@pytest.mark.parametrize("style", STYLES)
def test_references_that_double_each_other_do_not_take_forever(style: SchemaStyle) -> None:
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    definitions = {"$defs": {**doubling, "d40": {"properties": {"a": {"type": "string"}}}}}
    with pytest.raises(ToolDefinitionError, match="too large"):
        convert({"$ref": "#/$defs/d0", **definitions}, style, strict=True)
    inside, lines = one(style, {"$ref": "#/$defs/d0"}, **definitions)
    assert inside == {"$ref": "#/$defs/d0"}
    assert any("too large" in line for line in lines) == (style != "json_schema")


MANY = 20_000
TEXT = {"type": "string"}
LARGE: dict[str, tuple[Any, str]] = {
    "merged lists of values": (
        {"oneOf": [{"properties": {"k": {"enum": [*range(at, at + MANY)]}}} for at in (0, MANY)]},
        "",
    ),
    "lists of values with few in common": (
        {"properties": {"k": {"allOf": [{"enum": [*range(at, at + MANY)]} for at in (0, MANY - 1)]}}},
        "",
    ),
    "many properties, merged many times": (
        {
            "allOf": [{"$ref": "#/$defs/a"}] * 2_000,
            "$defs": {"a": {"properties": dict.fromkeys(map(str, range(2_000)), TEXT)}},
        },
        "too large",
    ),
    "alternatives that grow": (
        {
            "anyOf": [{"title": str(n)} for n in range(64)],
            "allOf": [{"properties": {str(n): TEXT}} for n in range(10_000)],
        },
        "too large",
    ),
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("case", LARGE)
def test_large_schemas_do_not_take_quadratic_time(style: SchemaStyle, case: str) -> None:
    schema, refused = LARGE[case]
    if refused:
        with pytest.raises(ToolDefinitionError, match=refused):
            convert({"type": "object", **schema}, style, strict=True)
    else:
        done, _ = convert({"type": "object", **schema}, style, strict=True)
        assert len(done["properties"]["k"].get("enum", [])) in (0, 1, 2, 2 * MANY)


# --- plain JSON Schema ------------------------------------------------------------------------------------------------


def test_nearly_everything_is_kept() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "a": {"oneOf": [{"type": "string", "minLength": 1}, {"const": 4}], "default": "x", "examples": ["y"]},
            "b": {"type": "array", "prefixItems": [True], "contains": {"type": "integer"}},
            "c": {"$ref": "#/definitions/C"},
        },
        "definitions": {"C": {"type": "object", "patternProperties": {"^x": {}}, "x-unknown": 1}},
        "$defs": {"Tree": {"$anchor": "tree", "properties": {"more": {"$dynamicRef": "#tree"}}}},
        "if": {"required": ["a"]},
        "then": {"required": ["b"]},
    }
    done, lines = convert(schema, "json_schema")
    assert done == {word: value for word, value in schema.items() if word != "$schema"}
    assert lines == ()


def test_keywords_beside_a_reference_move_around_it() -> None:
    schema = {"$ref": "#/$defs/A", "description": "Which."}
    defs = {"$defs": {"A": {"type": "string"}}}
    assert one("json_schema", schema, **defs) == (
        {"description": "Which.", "anyOf": [{"$ref": "#/$defs/A"}]},
        ("/: reference to #/$defs/A put into anyOf, since there are other keywords beside it",),
    )
    assert one("json_schema", {**schema, "anyOf": [{}]}, **defs)[0]["allOf"] == [{"$ref": "#/$defs/A"}]
    every = {**schema, "anyOf": [{}], "allOf": [{}]}
    assert one("json_schema", every, **defs)[0]["allOf"] == [{}, {"$ref": "#/$defs/A"}]
