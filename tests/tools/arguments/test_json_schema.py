"""Validation against a schema, and what is said."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.errors import ToolDefinitionError
from dragoman.tools import InvalidArguments, compile_schema

CASES: list[tuple[dict[str, object], object, str]] = [
    ({"type": "integer"}, "x", 'expected integer, got string "x"'),
    ({"type": ["integer", "null"]}, "x", 'expected integer or null, got string "x"'),
    ({"enum": ["a", 1]}, "b", 'expected one of "a", 1, got string "b"'),
    ({"const": 1}, 2, "expected 1, got integer 2"),
    ({"minimum": 1}, 0, "expected integer >= 1, got integer 0"),
    ({"exclusiveMinimum": 1.5}, 1, "expected integer > 1.5, got integer 1"),
    ({"maximum": 1}, 1.5, "expected number <= 1, got number 1.5"),
    ({"exclusiveMaximum": 1}, 1, "expected integer < 1, got integer 1"),
    ({"multipleOf": 2}, 3, "expected integer that is a multiple of 2, got integer 3"),
    ({"minLength": 1}, "", 'expected string with 1 or more characters, got string ""'),
    ({"maxLength": 2}, "abc", 'expected string with 2 or fewer characters, got string "abc"'),
    ({"pattern": "^a"}, "b", 'expected string that matches ^a, got string "b"'),
    ({"minItems": 2}, [1], "expected array with 2 or more items, got array [1]"),
    ({"maxItems": 1}, [1, 2], "expected array with 1 or fewer items, got array [1,2]"),
    ({"minProperties": 2}, {"a": 1}, 'expected object with 2 or more properties, got object {"a":1}'),
    ({"maxProperties": 1}, {"a": 1, "b": 2}, 'expected object with 1 or fewer properties, got object {"a":1,"b":2}'),
    ({"uniqueItems": True}, [1, 1], "expected array without repeated items, got array [1,1]"),
    ({"prefixItems": [{}], "items": False}, [1, 2], "[1]: expected nothing, got integer 2"),
    ({"not": {"type": "string"}}, "a", '{"type":"string"} is not allowed for "a"'),
    ({"contains": {"type": "string"}}, [1], "None of [1] are valid under the given schema"),
    (
        {"propertyNames": {"maxLength": 1}},
        {"ab": 1},
        'ab: as a name in an object: expected string with 1 or fewer characters, got string "ab"',
    ),
    # --- objects
    (
        {"properties": {"a": {"type": "string"}, "b": {"type": ["string", "null"]}}, "required": ["a", "b", "c"]},
        {},
        (
            "a: expected string, but it is missing; b: expected string or null, but it is missing; "
            "c: expected a value, but it is missing"
        ),
    ),
    ({"properties": {"a": True}, "required": ["a"]}, {}, "a: expected a value, but it is missing"),
    (
        {"dependentRequired": {"a": ["b"]}, "properties": {"b": {"type": "integer"}}},
        {"a": 1},
        "b: expected integer, but it is missing",
    ),
    (
        {"properties": {"limit": {}}, "additionalProperties": False},
        {"limits": 1},
        "limits: unknown argument; did you mean limit?",
    ),
    (
        {"properties": {"a": {"additionalProperties": False}}},
        {"a": {"b": 1, "c": 2}},
        "a.b: unknown field; there are none; a.c: unknown field; there are none",
    ),
    ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"zzz": 1}, "zzz: unknown argument; known are: a"),
    (
        {"items": {"allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}]}},
        [{}],
        "[0].a: expected string, but it is missing",
    ),
    (
        {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"required": ["x"], "properties": {"x": {"type": "null"}}}}},
        [{}],
        "[0].x: expected null, but it is missing",
    ),
    # --- one of several
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, "expected string or null, got integer 1"),
    (
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]},
        ["a"],
        '[0]: expected integer, got string "a"',
    ),
    (
        {"oneOf": [{"type": "object", "required": ["a", "b"]}, {"type": "object", "required": ["c"]}]},
        {},
        (
            "fits none of the 2 forms of object allowed here, the nearest fails as follows; "
            "c: expected a value, but it is missing"
        ),
    ),
    (
        {"properties": {"a": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}},
        {"a": 1},
        "a: expected a value that fits exactly one of the allowed forms, got integer 1",
    ),
    (
        {"properties": {"a": {"anyOf": [{"type": "string"}, {"items": {"anyOf": [{"type": "null"}]}}]}}},
        {"a": [1]},
        "a[0]: expected null, got integer 1",
    ),
]


@pytest.mark.parametrize(("schema", "value", "message"), CASES, ids=str)
def test_what_is_said(schema: dict[str, object], value: object, message: str) -> None:
    checker = compile_schema(schema)
    assert not checker.fits(value)
    assert str(InvalidArguments(checker.problems(value))) == message


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "dict"}, "The JSON Schema is not valid at /type: "),
        ({"properties": {"a": {"minimum": "x"}}}, 'not valid at /properties/a/minimum: "x" is not of type "number"'),
        ({"pattern": "("}, "not valid at /pattern: "),
        ({"$ref": "#/$defs/nothing"}, "not valid at the root: Pointer '/$defs/nothing' does not exist"),
        ({"$ref": "https://example.com/schema"}, "nothing is fetched, not even https://example.com/schema"),
        ({"default": object()}, "The JSON Schema cannot be used: "),
    ],
)
def test_schemas_that_cannot_be_used(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        compile_schema(schema)
    assert message in caught.value.message
    assert caught.value.hint
