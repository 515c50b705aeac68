"""Validation against a schema, and the words for problems."""

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
    ({"minimum": 1}, 0, "integer 0 is less than the minimum of 1"),
    ({"exclusiveMinimum": 1.5}, 1, "integer 1 is less than or equal to the minimum of 1.5"),
    ({"maximum": 1}, 1.5, "number 1.5 is greater than the maximum of 1"),
    ({"exclusiveMaximum": 1}, 1, "integer 1 is greater than or equal to the maximum of 1"),
    ({"multipleOf": 2}, 3, "integer 3 is not a multiple of 2"),
    ({"minLength": 1}, "", 'string "" is shorter than 1 character'),
    ({"maxLength": 2}, "abc", 'string "abc" is longer than 2 characters'),
    ({"pattern": "^a"}, "b", 'string "b" does not match "^a"'),
    ({"minItems": 2}, [1], "array [1] has less than 2 items"),
    ({"maxItems": 1}, [1, 2], "array [1,2] has more than 1 item"),
    ({"minProperties": 2}, {"a": 1}, 'object {"a":1} has less than 2 properties'),
    ({"maxProperties": 1}, {"a": 1, "b": 2}, 'object {"a":1,"b":2} has more than 1 property'),
    ({"uniqueItems": True}, [1, 1], "array [1,1] has non-unique elements"),
    ({"prefixItems": [{}], "items": False}, [1, 2], "[1]: False schema does not allow integer 2"),
    ({"not": {"type": "string"}}, "a", '{"type":"string"} is not allowed for string "a"'),
    ({"contains": {"type": "string"}}, [1], "None of array [1] are valid under the given schema"),
    (
        {"propertyNames": {"maxLength": 1}},
        {"ab": 1},
        'ab: as a name in an object: string "ab" is longer than 1 character',
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
        "limits: unknown field; did you mean limit?",
    ),
    (
        {"properties": {"a": {"additionalProperties": False}}},
        {"a": {"b": 1, "c": 2}},
        "a.b: unknown field; there are none; a.c: unknown field; there are none",
    ),
    ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"zzz": 1}, "zzz: unknown field; known are: a"),
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
def test_problems_in_words(schema: dict[str, object], value: object, message: str) -> None:
    checker = compile_schema(schema)
    assert not checker.fits(value)
    assert str(InvalidArguments(checker.problems(value))) == message


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "dict"}, "The JSON Schema is not valid at /type: "),
        ({"properties": {"a": {"minimum": "x"}}}, 'at /properties/a/minimum: string "x" is not of type "number"'),
        ({"pattern": "("}, "not valid at /pattern: "),
        ({"$ref": "#/$defs/nothing"}, "not valid at the root: Pointer '/$defs/nothing' does not exist"),
        ({"$ref": "https://example.com/schema"}, "nothing is fetched, not even https://example.com/schema"),
        ({"default": object()}, "The JSON Schema cannot be used: "),
    ],
)
def test_invalid_schemas_are_refused(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        compile_schema(schema)
    assert message in caught.value.message
    assert caught.value.hint
