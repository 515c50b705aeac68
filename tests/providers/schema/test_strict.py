"""The strict subsets of OpenAI and of Anthropic, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.errors import ToolDefinitionError
from dragoman.providers.profile import SchemaStyle
from tests.providers.schema.checkers import convert, one

OPENAI: SchemaStyle = "openai_strict"
CLAUDE: SchemaStyle = "anthropic_strict"
STR, INT, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
MAYBE = {"type": ["string", "null"]}
LIST = {"type": "array", "items": INT, "maxItems": 3}
WORD = {
    "type": "string",
    "description": "A word.",
    "default": "no",
    "minLength": 2,
    "pattern": "^(?!x)",
    "examples": ["y"],
}
PAIR = {"type": "array", "minItems": 2}
CLOSED = {"type": "object", "properties": {"a": STR}, "additionalProperties": False}
PLACES = [{"type": "number"}, STR]


def described(limits: str, before: str = "") -> str:
    return f"{before}Must also match the JSON Schema {limits}."


# A style, the schema of a required property, what is sent for it, and the notes.
REQUIRED: list[tuple[SchemaStyle, Any, Any, list[str]]] = [
    # What a provider enforces is kept, the rest is described.
    *[
        (OPENAI, kept, kept, [])
        for kept in (
            {**STR, "pattern": "^a", "format": "uuid"},
            {**INT, "multipleOf": 2, "minimum": 0, "exclusiveMaximum": 10},
            {"type": "array", "minItems": 1, "maxItems": 9, "items": {"type": "boolean"}},
        )
    ],
    *[
        (CLAUDE, kept, kept, [])
        for kept in ({**STR, "pattern": "^[a-z]{1,8}$", "format": "uri"}, {**PAIR, "minItems": 1, "items": STR})
    ],
    # What limits nothing is left out.
    (OPENAI, {**STR, "minLength": 0}, STR, []),
    (CLAUDE, {"type": "array", "items": STR, "uniqueItems": False}, {"type": "array", "items": STR}, []),
    (CLAUDE, {**CLOSED, "unevaluatedProperties": False}, CLOSED, []),
    (
        OPENAI,
        WORD,
        {
            "type": "string",
            "description": described('{"minLength":2,"pattern":"^(?!x)"}', 'A word. Default: "no". Examples: "y". '),
        },
        [
            "x/minLength: 2 is only in the description",
            'x/pattern: "^(?!x)" is only in the description',
            "x/default: moved into the description",
            "x/examples: moved into the description",
        ],
    ),
    (
        OPENAI,
        {**STR, "format": "uri"},
        {**STR, "description": described('{"format":"uri"}')},
        ['x/format: "uri" is only in the description'],
    ),
    (
        CLAUDE,
        {**INT, "minimum": 1, "multipleOf": 2},
        {**INT, "description": described('{"minimum":1,"multipleOf":2}')},
        ["x/minimum: 1 is only in the description", "x/multipleOf: 2 is only in the description"],
    ),
    # Combinators.
    (
        OPENAI,
        {"oneOf": [STR, INT]},
        {"anyOf": [STR, INT]},
        ["x/oneOf: written as anyOf: several forms may fit"],
    ),
    (
        OPENAI,
        {"allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"b": INT}, "required": ["b"], "minProperties": 2}]},
        {
            "type": "object",
            "description": described('{"allOf":[{"minProperties":2}]}'),
            "properties": {"a": STR, "b": INT},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        ['x/allOf: [{"minProperties":2}] is only in the description'],
    ),
    (
        OPENAI,
        {**PAIR, "prefixItems": PLACES},
        {
            **PAIR,
            "description": described('{"prefixItems":[{"type":"number"},{"type":"string"}]}'),
            "items": {"anyOf": PLACES},
        },
        ['x/prefixItems: [{"type":"number"},{"type":"string"}] is only in the description'],
    ),
    (
        OPENAI,
        {"minLength": 1, "x-y": 1, **STR},
        {**STR, "description": described('{"minLength":1}')},
        [
            "x/x-y: removed, the provider does not know it",
            "x/minLength: 1 is only in the description",
        ],
    ),
    (OPENAI, {"pattern": "^a"}, {**STR, "pattern": "^a"}, ["x/type: added: string"]),
]


@pytest.mark.parametrize(("style", "schema", "sent", "lines"), REQUIRED)
def test_what_is_sent_and_noted(style: SchemaStyle, schema: Any, sent: Any, lines: list[str]) -> None:
    base = {"type": "object", "properties": {"a": STR}, "required": ["a"]}
    assert one(style, schema, **{"$defs": {"Base": base}}) == (sent, tuple(lines))


@pytest.mark.parametrize(
    "schema",
    [
        *[{**STR, "pattern": pattern} for pattern in (r"\bword\b", r"(a)\1", "^(?=a)", "a{1,5000}")],
        *[{"type": "array", word: 2, "items": STR} for word in ("minItems", "maxItems")],
    ],
)
def test_what_anthropic_does_not_enforce_is_described(schema: Any) -> None:
    assert "Must also match" in one(CLAUDE, schema)[0]["description"]


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (STR, MAYBE),
        (MAYBE, MAYBE),
        ({"enum": ["a", "b"]}, {**MAYBE, "enum": ["a", "b", None]}),
        ({"const": "a"}, {**MAYBE, "enum": ["a", None]}),
        ({"$ref": "#/$defs/S"}, {"anyOf": [{"$ref": "#/$defs/S"}, NULL]}),
        ({"anyOf": [STR, INT]}, {"anyOf": [STR, INT, NULL]}),
        (LIST, {"type": ["array", "null"], "maxItems": 3, "items": INT}),
    ],
)
def test_optional_properties_may_be_null_for_openai_and_stay_for_anthropic(given: Any, sent: Any) -> None:
    schema = {"type": "object", "properties": {"x": given}, "$defs": {"S": STR}}
    done, lines = convert(schema, OPENAI, strict=True)
    assert (done["properties"], done["required"], done["additionalProperties"]) == ({"x": sent}, ["x"], False)
    assert "/properties/x: optional -> required, null where there is nothing to say" in lines
    kept = {"type": "object", "properties": {"a": {**STR, "default": "x"}}, "additionalProperties": False}
    assert convert(kept, CLAUDE, strict=True) == (kept, ())


def test_alternatives_beside_other_keywords_are_merged_and_described() -> None:
    schema = {
        "type": "object",
        "properties": {"a": STR, "b": STR},
        "anyOf": [{"required": ["a"]}, {"properties": {"c": NULL}, "required": ["b", "c"]}],
    }
    done, lines = one(OPENAI, schema)
    assert done["properties"] == {"a": MAYBE, "b": MAYBE, "c": NULL}
    assert done["description"] == "One of these forms must be met: (1) with a; (2) with b, c."
    assert lines[0] == "x: the alternatives are merged into one object, only the description tells them apart"


def test_references_may_be_recursive_for_openai_only() -> None:
    again = {"$ref": "#/$defs/a node", "description": "The next."}
    node = {"type": "object", "properties": {"value": INT, "next": again}, "required": ["value", "next"]}
    whole = {"type": "object", "properties": {"x": {"$ref": "#/$defs/a%20node"}}, "$defs": {"a node": node}}
    done, lines = convert(whole, OPENAI, strict=True)
    assert done["properties"] == {"x": {"anyOf": [{"$ref": "#/$defs/a_node"}, NULL]}}
    written = done["$defs"]["a_node"]["properties"]["next"]
    assert written == {"description": "The next.", "anyOf": [{"$ref": "#/$defs/a_node"}]}
    assert len(lines) == 1
    assert convert(whole, CLAUDE, strict=True)[1][0] == "not strict: /$defs/a node: the schema is recursive"
    root = {"type": "object", "properties": {"more": {"$ref": "#", "description": "Again."}}}
    assert any("recursive" in line for line in convert(root, CLAUDE, strict=True)[1])
    inlined = one(CLAUDE, {"$ref": "#/$defs/S", "description": "This one."}, **{"$defs": {"S": {**STR, "enum": ["a"]}}})
    assert inlined[0] == {**STR, "description": "This one.", "enum": ["a"]}


# --- what cannot be strict --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", [OPENAI, CLAUDE])
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({}, "any value is allowed"),
        ({"type": "object"}, "an object that declares no properties"),
        ({"type": "object", "additionalProperties": True}, "an object with properties of any name"),
        ({"type": "object", "additionalProperties": STR}, "an object with properties of any name"),
        ({"type": "object", "patternProperties": {"^a": STR}}, "an object with properties of any name"),
        ({"type": "object", "properties": {"a": NULL}, "required": ["b"]}, "required but not declared: b"),
        ({"type": "array"}, "an array that declares no items"),
        ({"allOf": [{**STR, "pattern": "a"}, {"pattern": "b"}]}, "allOf cannot be merged into one object"),
    ],
)
def test_a_schema_that_needs_more_freedom_is_not_strict(style: SchemaStyle, schema: Any, reason: str) -> None:
    assert one(style, schema) == (schema, (f"not strict: x: {reason}",))


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = STR
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


@pytest.mark.parametrize(
    ("style", "schema", "reason"),
    [
        (OPENAI, nested(11), "11 levels of nesting, at most 10 are allowed"),
        (OPENAI, of(**{f"p{i}": NULL for i in range(5_001)}), "5001 properties, at most 5000 are allowed"),
        (OPENAI, of(a={"enum": list(range(1_001))}), "1001 listed values"),
        (OPENAI, of(a={"enum": [f"{i:060}" for i in range(251)]}), "15060 characters in one list of values"),
        (OPENAI, of(a={"const": "x" * 120_000}), "120001 characters in names and values"),
        (
            CLAUDE,
            {**of(**{f"p{i}": STR for i in range(25)}), "required": []},
            "25 optional properties, at most 24 are allowed",
        ),
        (
            CLAUDE,
            of(**{f"p{i}": MAYBE for i in range(17)}),
            "17 properties of more than one type, at most 16 are allowed",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_schema_that_exceeds_a_limit_is_not_strict(style: SchemaStyle, schema: Any, reason: str) -> None:
    done, lines = convert(schema, style, strict=True)
    assert done == schema
    assert lines[0].startswith(f"not strict: /: {reason}")
    assert convert(nested(10), OPENAI, strict=True)[1] == ()


def test_plain_and_empty_and_invalid_schemas() -> None:
    schema = {"type": "object", "properties": {"a": {**STR, "minLength": 1}}}
    assert convert(schema, OPENAI) == convert(schema, CLAUDE) == (schema, ())
    empty = {"type": "object", "properties": {}}
    assert convert(empty, OPENAI, strict=True) == ({**empty, "required": [], "additionalProperties": False}, ())
    with pytest.raises(ToolDefinitionError, match="must be a schema"):
        one(OPENAI, {"type": "array", "items": 5})


def test_alternatives_of_objects_stay_alternatives() -> None:
    forms = [{"type": "object", "properties": {name: STR}, "required": [name]} for name in "ab"]
    sent = one(OPENAI, {"type": "object", "oneOf": forms})[0]
    assert [list(form["properties"]) for form in sent["anyOf"]] == [["a"], ["b"]]


def test_properties_around_alternatives_hold_for_all_of_them() -> None:
    kind = {"enum": ["a", "b"]}
    forms = [{"properties": {"kind": {"const": "a"}}, "required": ["size"]}, {"required": ["kind"]}]
    schema = {"type": "object", "properties": {"kind": kind, "size": INT}, "oneOf": forms}
    sent = convert(schema, OPENAI)[0]
    assert '"b"' in str(sent["properties"]["kind"]).replace("'", '"')
    assert "allOf" not in str(sent["properties"]["kind"])
    forms = {"properties": {"op": {"const": "get"}}, "required": ["id"]}, {"properties": {"op": {"const": "list"}}}
    own = {"op": {**STR, "enum": ["get", "list"]}, "id": STR}
    text = str(convert({"type": "object", "properties": own, "required": ["op"], "anyOf": [*forms]}, OPENAI)[0])
    assert '(1) with op = "get", id; (2) with op = "list"' in text
