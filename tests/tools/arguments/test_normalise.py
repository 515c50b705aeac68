"""Schemas from the wild are normalised."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, strategies as st

from dragoman.errors import ToolDefinitionError
from dragoman.tools import InvalidArguments, Tool
from dragoman.tools.arguments.schemas import normalise

A = {"type": "string"}
FOREIGN = {"type": "string", "default": 5, "x-note": {"type": "dict"}, "example": "a", "format": "float"}
CONDITION = {"type": "object", "properties": {"a": A}, "required": ["b"], "anyOf": [{"required": ["c"]}]}
PROPERTIES: list[tuple[object, object]] = [
    ({"type": "any"}, {}),
    ({"type": "date"}, {}),  # a word that means nothing in JSON
    ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
    ({"type": ["str", "None"]}, {"type": ["string", "null"]}),
    ({"type": "List<String>"}, {"type": "array"}),
    ({"type": "dict[str, int]"}, {"type": "object"}),
    # --- items
    (
        {"type": "tuple", "items": [{"type": "float"}, {"type": "string"}]},
        {"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}]},
    ),
    (
        {"type": "array", "items": [{}], "additionalItems": False},
        {"type": "array", "prefixItems": [{}], "items": False},
    ),
    # --- enum
    ({"type": "boolean", "enum": ["True", "False"]}, {"enum": ["True", "False"]}),
    (
        {"type": "array", "items": {"type": "string"}, "enum": ["a", "b"]},
        {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
    ),
    (
        {"minimum": 0, "exclusiveMinimum": True, "maximum": 5, "exclusiveMaximum": False},
        {"exclusiveMinimum": 0, "maximum": 5},
    ),
    # --- null
    ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
    ({"type": "string", "nullable": False}, {"type": "string"}),
    # --- a property that is no schema
    (True, True),
    # --- what is not ours stays
    (FOREIGN, FOREIGN),
    (
        {"anyOf": [{"type": "str"}, {"not": {"type": "int"}}]},
        {"anyOf": [{"type": "string"}, {"not": {"type": "integer"}}]},
    ),
    (
        {"type": "object", "properties": {"type": {"type": "str"}, "a/b~c": {"type": "str"}}},
        {"type": "object", "properties": {"type": {"type": "string"}, "a/b~c": {"type": "string"}}},
    ),
]
OBJECTS: list[tuple[object, object]] = [
    ({}, {"type": "object", "properties": {}}),
    (
        {"type": "object", "properties": {"a": A}, "required": ["a", "b", "a"]},
        {"type": "object", "properties": {"a": A}, "required": ["a"]},
    ),
    ({"type": "object", "properties": {"a": A}, "required": True}, {"type": "object", "properties": {"a": A}}),
    (
        {"type": "object", "properties": {"a": {**A, "optional": True}, "b": A}, "required": ["a", "b"]},
        {"type": "object", "properties": {"a": A, "b": A}, "required": ["b"]},
    ),
    (
        {"type": "object", "properties": {"a": {**A, "required": True}, "b": {**A, "required": "false"}}},
        {"type": "object", "properties": {"a": A, "b": A}, "required": ["a"]},
    ),
    (CONDITION, CONDITION),
    (
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {}},
        {"type": "object", "properties": {}},
    ),
    (
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "str"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}},
    ),
    *(tuple({"type": "object", "properties": {"p": each}} for each in pair) for pair in PROPERTIES),
]


@pytest.mark.parametrize(("given_schema", "schema"), OBJECTS, ids=str)
def test_odd_schemas_are_normalised(given_schema: dict[str, object], schema: dict[str, object]) -> None:
    assert normalise(given_schema) == schema
    assert jsonschema_rs.meta.is_valid(schema)


def doubling(keyword: str, levels: int = 40) -> dict[str, object]:
    """Each definition refers to the next one twice."""
    definitions: dict[str, object] = {f"d{levels}": {"type": "object"}}
    for level in range(levels):
        next_one = {"$ref": f"#/$defs/d{level + 1}"}
        twice = {"a": next_one, "b": next_one} if keyword == "properties" else [next_one, next_one]
        definitions[f"d{level}"] = {keyword: twice}
    return {"type": "object", "properties": {"p": {"$ref": "#/$defs/d0"}}, "$defs": definitions}


def nested(levels: int) -> dict[str, object]:
    schema: dict[str, object] = {}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"p": schema}}
    return schema


@pytest.mark.parametrize(
    ("given_schema", "message"),
    [
        ([], "A schema of parameters is an object, not []"),
        ({"type": "string"}, 'The parameters of a tool are an object, but the schema has type "string"'),
        ({"type": ["object", "null"]}, "but the schema has type"),
        (
            {"properties": {"a": {"$ref": "https://example.com/a.json"}}},
            "refers to another document: https://example.com/a.json. Nothing is fetched.",
        ),
        ({"properties": {"a": {"items": {"$dynamicRef": "other.json#a"}}}}, "refers to another document"),
        *((doubling(keyword), "more than 20000 parts") for keyword in ("allOf", "anyOf", "properties", "prefixItems")),
        ({"properties": {f"p{number}": {} for number in range(20_001)}}, "more than 20000 parts"),
        ({"description": "x" * 1_000_001}, "1000000 are allowed"),
        (nested(60), "nested more than 100 deep"),
        (nested(5_000), "nested more than 100 deep"),
        (
            {"$defs": {f"d{n}": {"items": {"$ref": f"#/$defs/d{n + 1}"}} for n in range(2_000)}, "$ref": "#/$defs/d0"},
            "chain of references is too long",
        ),
    ],
)
def test_invalid_and_too_large_schemas_are_refused(given_schema: Any, message: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        Tool.from_schema(lambda **_: None, given_schema, name="t")
    assert message in str(caught.value)


def test_repeated_definitions_are_accepted() -> None:
    for keyword in ("allOf", "properties"):
        Tool.from_schema(lambda **_: None, doubling(keyword, 8), name="t")


def either(*names: str) -> Any:
    return {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names]}


def holding(*names: str) -> Any:
    return {"properties": {"p": either(*names), "n": {"type": "integer"}}}


@pytest.mark.parametrize(
    "definitions",
    [
        {"d": holding("d", "d")},
        {"d": holding("a", "b"), "a": {"$ref": "#/$defs/d"}, "b": {"$ref": "#/$defs/d"}},
        {"d": holding("e"), "e": holding("d", "e")},
    ],
    ids=["to itself", "through aliases", "through each other"],
)
def test_problems_with_a_recursive_schema_are_listed_within_reason(definitions: Any) -> None:
    recursive = {"properties": {"p": either("d", "d")}, "$defs": definitions}
    made = Tool.from_schema(lambda **_: None, recursive, name="t")
    deep = '{"p": ' * 90 + '{"n": "x"}' + "}" * 90
    with pytest.raises(InvalidArguments, match="nested too deeply to say where"):
        made.arguments.decode(deep)
    with pytest.raises(InvalidArguments, match="p.p.n: expected integer"):
        made.arguments.decode('{"p": {"p": {"n": "x"}}}')
    assert made.arguments.decode(deep.replace('"x"', "1"))


kinds = st.sampled_from(
    ["dict", "float", "String", "tuple", "any", "list[int]", "int", "array", "Foo", "", None, 3, ["str"]]
)
property_schemas = st.recursive(
    st.just(True),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": kinds,
            "optional": st.booleans() | st.sampled_from(["true", "no"]),
            "required": st.booleans() | st.lists(st.sampled_from("abcd"), max_size=2),
            "nullable": st.booleans(),
            "enum": st.lists(st.integers() | st.text(max_size=2), min_size=1, max_size=2),
            "default": st.none() | st.integers(),
            "minimum": st.integers(),
            "exclusiveMinimum": st.booleans(),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
            "items": inner | st.lists(inner, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
        },
    ),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from("abc"), property_schemas, max_size=3))
def test_the_result_is_valid_and_stable(properties: dict[str, object]) -> None:
    schema = normalise({"type": "dict", "properties": properties})
    assert jsonschema_rs.meta.is_valid(schema)
    assert schema["properties"].keys() == properties.keys()  # type: ignore[attr-defined]
    assert normalise(schema) == schema
