"""The root, which is the same for all styles, and JSON Schema as it is."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.errors import ToolDefinitionError
from dragoman.providers import restored
from dragoman.providers.profile import SchemaStyle
from dragoman.providers.schema import convert as conversion
from tests.providers.schema.checkers import STYLES, convert, one


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("schema", [{"type": "array", "items": {}}, {"type": "string"}, {"anyOf": [{"type": "null"}]}])
def test_a_root_that_is_no_object_is_refused(style: SchemaStyle, schema: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="must describe an object"):
        convert(schema, style)


@pytest.mark.parametrize("style", STYLES)
def test_a_schema_that_nothing_fits_is_refused(style: SchemaStyle) -> None:
    nothing = {"allOf": [{"properties": {"a": False}}, {"required": ["a"]}]}
    with pytest.raises(ToolDefinitionError):
        convert(nothing, style, strict=True)


@pytest.mark.parametrize("style", STYLES)
def test_references_to_other_documents_are_refused(style: SchemaStyle) -> None:
    for reference in ("https://host/schema.json", "other.json#/$defs/A", "#/$defs/Missing", "#nowhere"):
        with pytest.raises(ToolDefinitionError, match="refers to"):
            one(style, {"$ref": reference})


@pytest.mark.parametrize("style", STYLES)
def test_a_schema_nested_without_end_is_refused(style: SchemaStyle) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(5_000):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(ToolDefinitionError, match="nested too deeply"):
        convert(schema, style)


def test_no_type_and_several_types_become_object() -> None:
    assert convert({"properties": {}}, "json_schema") == (
        {"type": "object", "properties": {}},
        ('/type: read as "object"',),
    )
    assert convert({"type": ["object", "null"]}, "json_schema")[0] == {"type": "object", "properties": {}}


def test_all_of_at_the_top_is_merged_without_loss() -> None:
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


def test_alternatives_at_the_top_are_folded_and_told() -> None:
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
            "kind": {"anyOf": [{"enum": ["circle"]}, {"enum": ["square"]}]},
            "r": {"type": "number"},
            "w": {"type": "number"},
        },
        "required": ["kind"],
    }
    assert lines == (
        "/: the alternatives are folded into one object, only the description tells them apart",
        '/type: read as "object"',
    )


def test_at_least_one_of_several_properties_is_told() -> None:
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


def test_references_into_a_root_that_was_merged() -> None:
    schema = {
        "allOf": [
            {"properties": {"q": {"type": "integer"}}},
            {"properties": {"r": {"$ref": "#/allOf/0/properties/q"}, "s": {"$ref": "#"}}},
        ]
    }
    strict, _ = convert(schema, "openai_strict", strict=True)
    assert strict["$defs"]["q"] == {"type": "integer"}
    assert strict["$defs"]["root"]["properties"]["s"]["anyOf"][0] == {"$ref": "#/$defs/root"}
    with pytest.raises(ToolDefinitionError, match="root had to be made one object"):
        convert(schema, "json_schema")


@pytest.mark.parametrize("style", STYLES)
def test_references_that_double_each_other_are_bounded(style: SchemaStyle) -> None:
    """Whoever offers a tool could otherwise keep the process busy for ever."""
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    definitions = {"$defs": {**doubling, "d40": {"properties": {"a": {"type": "string"}}}}}
    with pytest.raises(ToolDefinitionError, match="beyond measure"):
        convert({"$ref": "#/$defs/d0", **definitions}, style, strict=True)
    inside, lines = one(style, {"$ref": "#/$defs/d0"}, **definitions)
    assert inside == {"$ref": "#/$defs/d0"}
    assert any("beyond measure" in line for line in lines) == (style != "json_schema")


MANY = 20_000
TEXT = {"type": "string"}
LARGE: dict[str, tuple[Any, str]] = {
    "lists of values that are folded": (
        {"oneOf": [{"properties": {"k": {"enum": [*range(at, at + MANY)]}}} for at in (0, MANY)]},
        "",
    ),
    "lists of values of which few are common": (
        {"properties": {"k": {"allOf": [{"enum": [*range(at, at + MANY)]} for at in (0, MANY - 1)]}}},
        "",
    ),
    "many properties, merged again and again": (
        {
            "allOf": [{"$ref": "#/$defs/a"}] * 2_000,
            "$defs": {"a": {"properties": dict.fromkeys(map(str, range(2_000)), TEXT)}},
        },
        "beyond measure",
    ),
    "alternatives that grow": (
        {
            "anyOf": [{"title": str(n)} for n in range(64)],
            "allOf": [{"properties": {str(n): TEXT}} for n in range(10_000)],
        },
        "beyond measure",
    ),
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("case", LARGE)
def test_large_schemas_take_time_that_grows_with_their_size_and_not_with_its_square(
    style: SchemaStyle, case: str
) -> None:
    schema, refused = LARGE[case]
    if refused:
        with pytest.raises(ToolDefinitionError, match=refused):
            convert({"type": "object", **schema}, style, strict=True)
    else:
        done, _ = convert({"type": "object", **schema}, style, strict=True)
        assert len(done["properties"]["k"].get("enum", [])) in (0, 1, 2, 2 * MANY)
    assert restored({"k": None}, {"type": "object", **schema}) in ({}, {"k": None})


# --- JSON Schema as it is ---------------------------------------------------------------------------------------------


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


def test_words_beside_a_reference_move_around_it() -> None:
    schema = {"$ref": "#/$defs/A", "description": "Which."}
    defs = {"$defs": {"A": {"type": "string"}}}
    assert one("json_schema", schema, **defs) == (
        {"description": "Which.", "anyOf": [{"$ref": "#/$defs/A"}]},
        ("x: $ref put into anyOf, since other keywords stand beside it",),
    )
    assert one("json_schema", {**schema, "anyOf": [{}]}, **defs)[0]["allOf"] == [{"$ref": "#/$defs/A"}]
    every = {**schema, "anyOf": [{}], "allOf": [{}]}
    assert one("json_schema", every, **defs)[0]["allOf"] == [{}, {"$ref": "#/$defs/A"}]


# --- values on their way back to the schema that was given ------------------------------------------------------------

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


A_NUMBER, A_NULL = {"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"type": "null"}}}


@pytest.mark.parametrize(
    ("forms", "kept"),
    [
        ([{"type": "string"}, {"type": "object", **A_NUMBER}], {}),  # one that cannot be an object does not count
        ([A_NUMBER, A_NULL], {"a": None}),  # one that takes null keeps it
        ([{**A_NULL, "required": ["b"]}, A_NUMBER], {}),  # one that lacks what it requires does not count
    ],
)
def test_which_forms_count(forms: list[Any], kept: dict[str, None]) -> None:
    schema = {"type": "object", "properties": {"x": {"anyOf": forms}}}
    assert restored({"x": {"a": None}}, schema) == {"x": kept}


A = {"type": "object", "properties": {"s": {"type": "string"}}}
CAT = {"type": "object", "properties": {"k": {"const": "cat"}, "m": {"type": "integer"}}, "required": ["k", "m"]}
DOG = {"type": "object", "properties": {"k": {"const": "dog"}, "b": {"type": "string"}}, "required": ["k", "b"]}


@pytest.mark.parametrize(
    ("property_", "given", "wanted"),
    [
        ({"allOf": [{"$ref": "#/$defs/A"}, {"properties": {"zip": {"type": "string"}}}]}, None, "absent"),
        ({"$ref": "#/$defs/A", "required": ["s"]}, None, "absent"),
        ({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}, None, None),
        ({"type": "object", "oneOf": [CAT, DOG]}, {"k": "cat", "m": 1, "b": None}, {"k": "cat", "m": 1}),
    ],
)
def test_a_null_that_only_fills_a_place_is_taken_away(property_: object, given: object, wanted: object) -> None:
    schema = {"type": "object", "properties": {"x": property_}, "$defs": {"A": A}}
    assert restored({"x": given}, schema) == ({} if wanted == "absent" else {"x": wanted})
