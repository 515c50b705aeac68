"""The strict subsets of OpenAI and of Anthropic, rule by rule; and what is not quite JSON Schema."""

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
PLACES = [{"type": "number"}, STR]


def told(limits: str, before: str = "") -> str:
    return f"{before}Must also match the JSON Schema {limits}."


# A style, a schema that is required, what is sent for it, and what is said about that.
REQUIRED: list[tuple[SchemaStyle, Any, Any, list[str]]] = [
    # What a provider enforces stays, the rest is described.
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
    (
        OPENAI,
        WORD,
        {
            "type": "string",
            "description": told('{"minLength":2,"pattern":"^(?!x)"}', 'A word. Default: "no". Examples: "y". '),
        },
        [
            "x/minLength: 2 is only in the description",
            'x/pattern: "^(?!x)" is only in the description',
            "x/default: told in the description",
            "x/examples: told in the description",
        ],
    ),
    (
        OPENAI,
        {**STR, "format": "uri"},
        {**STR, "description": told('{"format":"uri"}')},
        ['x/format: "uri" is only in the description'],
    ),
    (
        CLAUDE,
        {**INT, "minimum": 1, "multipleOf": 2},
        {**INT, "description": told('{"minimum":1,"multipleOf":2}')},
        ["x/minimum: 1 is only in the description", "x/multipleOf: 2 is only in the description"],
    ),
    # Alternatives, and what holds at once.
    (
        OPENAI,
        {"oneOf": [STR, INT]},
        {"anyOf": [STR, INT]},
        ["x/oneOf: written as anyOf: a value may fit more than one form"],
    ),
    (
        OPENAI,
        {"allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"b": INT}, "required": ["b"], "minProperties": 2}]},
        {
            "type": "object",
            "description": told('{"allOf":[{"minProperties":2}]}'),
            "properties": {"a": STR, "b": INT},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        ['x/allOf: [{"minProperties":2}] is only in the description'],
    ),
    # Items by position; `items` is how it was written before 2020-12.
    *[
        (
            OPENAI,
            {**PAIR, word: PLACES},
            {
                **PAIR,
                "description": told('{"prefixItems":[{"type":"number"},{"type":"string"}]}'),
                "items": {"anyOf": PLACES},
            },
            ['x/prefixItems: [{"type":"number"},{"type":"string"}] is only in the description'],
        )
        for word in ("prefixItems", "items")
    ],
    # Oddities are read for what they mean.
    (OPENAI, {"type": "number", "minimum": 0, "exclusiveMinimum": True}, {"type": "number", "exclusiveMinimum": 0}, []),
    (OPENAI, {**STR, "nullable": True, "enum": ["a"]}, {**MAYBE, "enum": ["a", None]}, []),
    (OPENAI, {**INT, "minimum": "3"}, INT, ['x/minimum: "3" is no number, removed']),
    (
        OPENAI,
        {"type": "dict", "properties": {"a": NULL}, "required": ["a"]},
        {"type": "object", "properties": {"a": NULL}, "required": ["a"], "additionalProperties": False},
        ['x/type: "dict" is no type, read as any', "x/type: added: object"],
    ),
]


@pytest.mark.parametrize(("style", "schema", "sent", "lines"), REQUIRED)
def test_what_is_sent(style: SchemaStyle, schema: Any, sent: Any, lines: list[str]) -> None:
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


def test_alternatives_beside_other_words_are_folded_and_told() -> None:
    schema = {
        "type": "object",
        "properties": {"a": STR, "b": STR},
        "anyOf": [{"required": ["a"]}, {"properties": {"c": NULL}, "required": ["b", "c"]}],
    }
    done, lines = one(OPENAI, schema)
    assert done["properties"] == {"a": MAYBE, "b": MAYBE, "c": NULL}
    assert done["description"] == "One of these forms must be met: (1) with a; (2) with b, c."
    assert lines[0] == "x: the alternatives are folded into one object, only the description tells them apart"


def test_references_may_be_recursive_for_openai_and_stand_alone() -> None:
    again = {"$ref": "#/$defs/a node", "description": "The next."}
    node = {"type": "object", "properties": {"value": INT, "next": again}, "required": ["value", "next"]}
    whole = {"type": "object", "properties": {"x": {"$ref": "#/$defs/a%20node"}}, "$defs": {"a node": node}}
    done, lines = convert(whole, OPENAI, strict=True)
    assert done["properties"] == {"x": {"anyOf": [{"$ref": "#/$defs/a_node"}, NULL]}}
    written = done["$defs"]["a_node"]["properties"]["next"]
    assert written == {"description": "The next.", "anyOf": [{"$ref": "#/$defs/a_node"}]}
    assert len(lines) == 1
    assert convert(whole, CLAUDE, strict=True)[1][0] == "not strict: /$defs/a node: the schema is recursive"
    told_root = {"type": "object", "properties": {"more": {"$ref": "#", "description": "Again."}}}
    assert any("recursive" in line for line in convert(told_root, CLAUDE, strict=True)[1])
    described = one(
        CLAUDE, {"$ref": "#/$defs/S", "description": "This one."}, **{"$defs": {"S": {**STR, "enum": ["a"]}}}
    )
    assert described[0] == {**STR, "description": "This one.", "enum": ["a"]}, "Anthropic gets it written out"


# --- what cannot be strict --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", [OPENAI, CLAUDE])
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({}, "any value is allowed"),
        ({"type": "object"}, "an object that says nothing of its properties"),
        ({"type": "object", "additionalProperties": True}, "an object with properties of any name"),
        ({"type": "object", "additionalProperties": STR}, "an object with properties of any name"),
        ({"type": "object", "patternProperties": {"^a": STR}}, "an object with properties of any name"),
        ({"type": "object", "properties": {"a": NULL}, "required": ["b"]}, "required but not described: b"),
        ({"type": "array"}, "an array that says nothing of its items"),
        ({"type": "array", "items": False}, "an array that must be empty"),
        ({"allOf": [{**STR, "pattern": "a"}, {"pattern": "b"}]}, "allOf cannot be told as one object"),
    ],
)
def test_what_needs_more_freedom_is_not_strict(style: SchemaStyle, schema: Any, reason: str) -> None:
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
def test_schemas_beyond_a_limit_are_not_strict(style: SchemaStyle, schema: Any, reason: str) -> None:
    done, lines = convert(schema, style, strict=True)
    assert done == schema
    assert lines[0].startswith(f"not strict: /: {reason}")
    assert convert(nested(10), OPENAI, strict=True)[1] == ()


def test_what_else_is_strict_or_refused() -> None:
    schema = {"type": "object", "properties": {"a": {**STR, "minLength": 1}}}
    assert convert(schema, OPENAI) == convert(schema, CLAUDE) == (schema, ()), "without strict what is given is sent"
    empty = {"type": "object", "properties": {}}
    assert convert(empty, OPENAI, strict=True) == ({**empty, "required": [], "additionalProperties": False}, ())
    with pytest.raises(ToolDefinitionError, match="must be a schema"):
        one(OPENAI, {"type": "array", "items": 5})
    of_gemini = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": True}}, "required": ["a"]}
    assert convert(of_gemini, "json_schema")[0] == of(a=MAYBE)


def test_alternatives_of_objects_stay_alternatives() -> None:
    forms = [{"type": "object", "properties": {name: STR}, "required": [name]} for name in "ab"]
    sent = one(OPENAI, {"type": "object", "oneOf": forms})[0]
    assert [list(form["properties"]) for form in sent["anyOf"]] == [["a"], ["b"]]


def test_what_is_said_around_alternatives_holds_for_all_of_them() -> None:
    kind = {"enum": ["a", "b"]}
    forms = [{"properties": {"kind": {"const": "a"}}, "required": ["size"]}, {"required": ["kind"]}]
    schema = {"type": "object", "properties": {"kind": kind, "size": INT}, "oneOf": forms}
    sent = convert(schema, OPENAI)[0]
    assert '"b"' in str(sent["properties"]["kind"]).replace("'", '"')
    assert "allOf" not in str(sent["properties"]["kind"])
    said = {"properties": {"op": {"const": "get"}}, "required": ["id"]}, {"properties": {"op": {"const": "list"}}}
    own = {"op": {**STR, "enum": ["get", "list"]}, "id": STR}
    told = str(convert({"type": "object", "properties": own, "required": ["op"], "anyOf": [*said]}, OPENAI)[0])
    assert '(1) with op = "get", id; (2) with op = "list"' in told
