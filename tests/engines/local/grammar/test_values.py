"""JSON Schemas as grammars: whatever a grammar lets through is valid, and what a schema allows can be written."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.engines.local.grammar import schema_grammar
from dragoman.errors import ToolDefinitionError
from tests.engines.local.grammar.gbnf import Reading
from tests.providers.schema.generated import instances, schemas, seeded


def grammar_of(schema: Any) -> tuple[Reading, tuple[Any, ...]]:
    text, notes = schema_grammar(schema)
    return Reading(text), notes


def written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def lets(schema: Any, value: Any) -> bool:
    return grammar_of(schema)[0].accepts(written(value))


# --- any schema -------------------------------------------------------------------------------------------------------


def check_that_all_it_makes_is_valid(schema: dict[str, Any], choose: Any, count: int) -> bool:
    """Whether the grammar holds everything that the schema says; if so, what it makes was valid."""
    try:
        grammar, notes = grammar_of(schema)
    except ToolDefinitionError:
        return False
    if not grammar.ends:  # a tree that has no leaves: the schema allows endless values alone
        return False
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    for _ in range(count):
        text = grammar.made(choose)
        assert grammar.accepts(text), text
        value = json.loads(text)
        assert notes or validator.is_valid(value), f"{text} is not valid"
    return not notes


@pytest.mark.parametrize("tame", [True, False], ids=["tame", "wild"])
def test_what_a_grammar_makes_is_valid_for_many_schemas(tame: bool) -> None:
    held = [check_that_all_it_makes_is_valid(seeded(seed, tame=tame), Random(seed).randrange, 3) for seed in range(150)]
    assert sum(held) >= 60  # and not only because nothing was promised


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_a_grammar_makes_is_valid(data: st.DataObject) -> None:
    check_that_all_it_makes_is_valid(
        data.draw(schemas()), lambda number: data.draw(st.integers(0, number - 1)), count=2
    )


def in_order(value: Any, schema: Any) -> Any:
    """The value with its properties in the order of a schema without references and alternatives."""
    if isinstance(value, dict) and isinstance(schema, dict):
        known = schema.get("properties", {})
        order = [*[name for name in known if name in value], *[name for name in value if name not in known]]
        return {name: in_order(value[name], known.get(name)) for name in order}
    if isinstance(value, list) and isinstance(schema, dict):
        return [in_order(item, schema.get("items")) for item in value]
    # An integer is written in one way.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def simple(choose: Any, depth: int = 3) -> dict[str, Any]:
    """A schema all of which a grammar can hold, closed at every level."""
    kinds: list[Any] = [
        {"type": "string", "maxLength": 4},
        {"type": "integer", "minimum": -3, "maximum": 12},
        {"type": "number", "minimum": -0.5, "exclusiveMaximum": 2.75},
        {"type": "boolean"},
        {"enum": ["a", 1, None, [1, {"b": 2}], 2.5]},
        {"type": ["null", "string"]},
    ]
    if depth:
        kinds.append({"type": "array", "items": simple(choose, depth - 1), "minItems": 1, "maxItems": 3})
        names = ("a", "b", "ü ~ 1", 'with "quotes"')[: 1 + choose(4)]
        kinds += [
            {
                "type": "object",
                "properties": {name: simple(choose, depth - 1) for name in names},
                "required": [name for name in names if choose(2)],
                "additionalProperties": False,
            }
        ] * 3
    return kinds[choose(len(kinds))]


@pytest.mark.parametrize("seed", range(60))
def test_valid_values_can_be_written_and_others_cannot(seed: int) -> None:
    random = Random(seed)
    schema = simple(random.randrange)
    grammar, notes = grammar_of(schema)
    assert not notes
    validator = jsonschema_rs.Draft202012Validator(schema)
    for _ in range(40):
        value = in_order(instances(schema, random.randrange), schema)
        assert grammar.accepts(written(value)) == validator.is_valid(value), written(value)


# --- particular ones --------------------------------------------------------------------------------------------------

ALLOWED: list[tuple[Any, Any]] = [
    (True, {"any": [1, "thing", None, {"deep": [[]]}]}),
    ({}, -0.5),
    ({"type": "string"}, 'quotes " and \\ and\nlines\tand ü 漢 😀'),
    ({"type": "string", "minLength": 2, "maxLength": 3}, "😀😀"),
    ({"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"}, "AB-1234"),
    ({"type": "string", "pattern": "b+"}, "abbc"),
    ({"type": "string", "pattern": r"^\w+@(one|two)\.(com|org)$"}, "me@two.org"),
    ({"type": "string", "pattern": r'^"\\?$'}, '"\\'),
    ({"type": "string", "format": "date"}, "2026-02-28"),
    ({"type": "string", "format": "date-time"}, "2026-11-30T23:59:59.5+01:00"),
    ({"type": "string", "format": "uuid"}, "123e4567-e89b-12d3-a456-426614174000"),
    ({"type": "string", "format": "email"}, "a.b@example.org"),
    ({"type": "integer", "minimum": 1, "maximum": 30, "multipleOf": 7}, 21),
    ({"type": "integer", "minimum": 10**17}, 10**17 + 1),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}, [1, "a"]),
    ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "null"}}, [1, None, None]),
    ({"type": "array", "minItems": 2, "maxItems": 2}, [1, "a"]),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, {"x": 1, "y": 2}),
    (
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}},
        {"a": "x", "ab": 1, "b": 2},
    ),
    ({"type": "object", "required": ["a"]}, {"a": [1]}),
    ({"type": "object", "properties": {"a": False, "b": True}}, {"b": 1}),
    ({"anyOf": [{"type": "integer"}, {"$ref": "#/anyOf/0"}, {"type": "null"}]}, None),
    ({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]}, 4),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "s"),
    (
        {"$ref": "#/$defs/tree", "$defs": {"tree": {"properties": {"left": {"$ref": "#/$defs/tree"}}}}},
        {"left": {"left": {}}},
    ),
    ({"const": {"a": [1, "x"]}}, {"a": [1, "x"]}),
    ({"enum": ["line\nbreak", "\x01"]}, "line\nbreak"),
]
REFUSED: list[tuple[Any, Any]] = [
    ({"type": "string", "minLength": 2, "maxLength": 3}, "😀"),
    ({"type": "string", "maxLength": 3}, "abcd"),
    ({"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"}, "AB-"),
    ({"type": "string", "pattern": "^a|b$"}, "xax"),
    ({"type": "string", "format": "date"}, "2026-02-30"),
    ({"type": "string", "format": "date"}, "2026-13-01"),
    ({"type": "integer"}, 1.5),
    ({"type": "integer", "exclusiveMinimum": 3}, 3),
    ({"type": "number", "maximum": 2.5}, 2.51),
    ({"type": "number", "exclusiveMinimum": 0}, 0),
    ({"type": "boolean"}, None),
    ({"type": "array", "maxItems": 1}, [1, 2]),
    ({"type": "array", "items": False}, [1]),
    ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, {}),
    ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, {"b": 1}),
    (
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}},
        {"a": 1},
    ),
    ({"enum": [1, 2]}, 3),
    ({"enum": [1, 5], "minimum": 4}, 1),
]


@pytest.mark.parametrize(("schema", "value"), ALLOWED)
def test_allowed(schema: Any, value: Any) -> None:
    assert lets(schema, value)


@pytest.mark.parametrize(("schema", "value"), REFUSED)
def test_refused(schema: Any, value: Any) -> None:
    assert not lets(schema, value)


def test_there_is_one_way_to_write_a_value() -> None:
    grammar = grammar_of({"type": "object", "properties": {"a": {"type": "array"}}})[0]
    assert grammar.accepts('{"a": [1, 2]}')
    for other in (
        '{"a":[1, 2]}',
        '{ "a": [1, 2]}',
        '{"a": [1,2]}',
        '{"a": [1, 2]}\n',
        '{"a": [01, 2]}',
        '{"\\u0061": []}',
    ):
        assert not grammar.accepts(other)


@pytest.mark.parametrize(
    ("schema", "short", "endless"),
    [
        ({"type": "string"}, "x" * 2000, "x" * 2001),
        ({"type": "string", "maxLength": 100_000}, "x", "x" * 2001),
        ({"type": "string", "pattern": "^a+$"}, "a" * 100, "a" * 1000),
        ({"type": "string", "format": "email"}, "a@b.org", "a" * 100 + "@b.org"),
        ({"type": "array", "items": {"type": "null"}}, [None] * 100, [None] * 101),
        (
            {"type": "object", "additionalProperties": {"type": "null"}},
            {"a": None},
            dict.fromkeys(map(str, range(101))),
        ),
        ({"type": "integer"}, 10**14, 10**15),
    ],
)
def test_everything_has_an_end(schema: Any, short: Any, endless: Any) -> None:
    grammar, notes = grammar_of(schema)
    assert not notes
    assert grammar.accepts(written(short))
    assert not grammar.accepts(written(endless))


NOT_HELD = [
    ({"type": "string", "pattern": "^(?!x)"}, "/pattern"),
    ({"type": "string", "pattern": "("}, "/pattern"),
    ({"type": "string", "pattern": r"(a)\1"}, "/pattern"),
    ({"type": "string", "minLength": 100_000}, "/minLength"),
    ({"type": "string", "format": "hostname"}, "/format"),
    ({"type": "array", "uniqueItems": True}, "/uniqueItems"),
    ({"type": "array", "contains": {"type": "integer"}}, "/contains"),
    ({"type": "number", "multipleOf": 0.01}, "/multipleOf"),
    ({"type": "object", "minProperties": 2}, "/minProperties"),
    ({"type": "object", "patternProperties": {"^a": {}}}, "/patternProperties"),
    ({"type": "integer", "not": {"const": 3}}, "/not"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "/oneOf"),
]


@pytest.mark.parametrize(("schema", "at"), NOT_HELD)
def test_what_is_not_enforced_is_said(schema: Any, at: str) -> None:
    grammar, notes = grammar_of(schema)
    assert at in [note.at for note in notes]
    assert grammar.ends


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"enum": []},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "array", "items": False, "minItems": 1},
    ],
)
def test_a_schema_that_nothing_fits_is_refused(schema: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="contradicts itself"):
        schema_grammar(schema)


OBJECT = {"type": "object"}
NEVER = {"$ref": "#/$defs/never"}


def test_a_branch_that_nothing_fits_is_left_out() -> None:
    never = {"$ref": "#/$defs/never"}
    schema = {
        "$defs": {"never": {"type": "object", "properties": {"a": never, "b": False}, "required": ["b"]}},
        "properties": {"x": {"anyOf": [never, {"type": "integer"}]}, "y": never},
        "type": "object",
    }
    assert lets(schema, {"x": 3})
    assert not lets(schema, {"y": {}})


def test_a_schema_nested_deeply() -> None:
    schema: Any = {"type": "null"}
    for _ in range(40):
        schema = {"type": "array", "items": schema, "minItems": 1}
    assert lets(schema, json.loads("[" * 40 + "null" + "]" * 40))
    for _ in range(4000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(ToolDefinitionError, match="nested too deeply"):
        schema_grammar(schema)
