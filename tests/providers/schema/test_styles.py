"""Each rule of each style by an example."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.errors import ToolDefinitionError
from dragoman.providers.profile import SchemaStyle
from dragoman.providers.schema import conversion, convert

STYLES: tuple[SchemaStyle, ...] = ("json_schema", "openai_strict", "anthropic_strict", "gemini")


def one(style: SchemaStyle, schema: Any, **root: Any) -> tuple[Any, tuple[str, ...]]:
    """How a schema comes out as the one required property `x` of an object."""
    whole = {"type": "object", "properties": {"x": schema}, "required": ["x"], **root}
    done, lines = convert(whole, style, strict=True)
    return done["properties"]["x"], tuple(line.replace("/properties/x", "x") for line in lines)  # type: ignore[index]


# --- the root, the same for all ---------------------------------------------------------------------------------------


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
        ('/type: added "object"',),
    )
    assert convert({"type": ["object", "null"]}, "json_schema")[0] == {"type": "object"}


def test_all_of_at_the_top_is_merged_without_loss() -> None:
    schema = {
        "description": "Both.",
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {"minimum": 1}}, "required": ["a"]},
            {"$ref": "#/$defs/Rest"},
        ],
        "$defs": {"Rest": {"properties": {"b": {"type": "integer"}}, "required": ["b"], "description": "The rest."}},
    }
    done = conversion(schema, "json_schema")
    assert done.schema == {
        "type": "object",
        "description": "Both. The rest.",
        "properties": {"a": {"type": "string"}, "b": {"allOf": [{"minimum": 1}, {"type": "integer"}]}},
        "required": ["a", "b"],
        "$defs": schema["$defs"],
    }
    assert done.exact
    assert conversion(schema, "openai_strict", strict=True).schema["properties"] == {
        "a": {"type": "string"},
        "b": {"type": "integer", "minimum": 1},
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
        "description": 'Exactly one of these forms must be met: (1) with kind = "circle", r; '
        '(2) with kind = "square", w.',
        "properties": {"kind": {"enum": ["circle", "square"]}, "r": {"type": "number"}, "w": {"type": "number"}},
        "required": ["kind"],
    }
    assert lines == (
        "/oneOf: 1 of 3 forms are no objects",
        "/oneOf: the alternatives are folded into one object, only the description tells them apart",
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
    assert "At least one of these forms must be met: (1) with id; (2) with name." in str(done.schema["description"])
    assert 'Must also match the JSON Schema {"not":{"required":["id","name"]}}.' in str(done.schema["description"])
    assert not done.exact


def test_references_into_what_was_merged_still_lead_there() -> None:
    schema = {
        "allOf": [
            {"properties": {"q": {"type": "integer"}}},
            {"properties": {"r": {"$ref": "#/allOf/0/properties/q"}, "s": {"$ref": "#"}}},
        ]
    }
    done, _ = convert(schema, "json_schema")
    assert done["properties"]["r"] == {"$ref": "#/$defs/q"}  # type: ignore[index]
    assert done["$defs"] == {"q": {"type": "integer"}}
    strict, _ = convert(schema, "openai_strict", strict=True)
    assert strict["$defs"]["q"] == {"type": "integer"}  # type: ignore[index]
    assert strict["$defs"]["root"]["properties"]["s"]["anyOf"][0] == {"$ref": "#/$defs/root"}  # type: ignore[index]


# --- JSON Schema as it is ---------------------------------------------------------------------------------------------


def test_nearly_everything_is_kept() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "a": {"oneOf": [{"type": "string", "minLength": 1}, {"const": 4}], "default": "x", "examples": ["y"]},
            "b": {"type": "array", "prefixItems": [True], "contains": {"type": "integer"}},
            "c": {"$ref": "#/definitions/C"},
            "d": {"$ref": "#tree"},
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
    every = {**schema, "anyOf": [{}], "allOf": [{}], "oneOf": [{}]}
    assert one("json_schema", every, **defs)[0]["not"] == {"not": {"$ref": "#/$defs/A"}}


# --- OpenAI's strict subset -------------------------------------------------------------------------------------------


def test_without_strict_the_strict_styles_send_what_is_given() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}
    for style in ("openai_strict", "anthropic_strict"):
        assert convert(schema, style, strict=False) == (schema, ())  # type: ignore[arg-type]


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
    apart = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
    together = {"oneOf": [{"type": "number"}, {"type": "integer"}]}
    assert one("openai_strict", apart) == (
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        ("x/oneOf: written as anyOf; the forms exclude each other",),
    )
    assert one("openai_strict", together)[1] == ("x/oneOf: written as anyOf: a value may fit more than one form",)


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
    assert one("openai_strict", clashing) == (
        {"type": "string", "description": 'Must also match the JSON Schema {"pattern":"b"}.', "pattern": "a"},
        ('x/allOf/1/pattern: "b" is only in the description',),
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
    definition = done["$defs"]["a_node"]  # type: ignore[index]
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


def test_items_by_position_become_items() -> None:
    alike = {"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}], "minItems": 2, "items": False}
    assert one("openai_strict", alike) == (
        {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "number"}},
        ("x/prefixItems: written as items",),
    )
    mixed = {"type": "array", "items": [{"type": "number"}, {"type": "string"}]}  # as it was written before 2020-12
    assert one("openai_strict", mixed) == (
        {
            "type": "array",
            "description": "Items by position: number, string.",
            "maxItems": 2,
            "items": {"anyOf": [{"type": "number"}, {"type": "string"}]},
        },
        ("x/prefixItems: written as items, in no fixed order",),
    )


# --- Anthropic's strict subset ----------------------------------------------------------------------------------------


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


# --- Gemini's own schemas ---------------------------------------------------------------------------------------------

GEMINI: list[tuple[Any, Any]] = [
    ({"type": ["string", "null"]}, {"type": "STRING", "nullable": True}),
    (
        {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "D"},
        {"type": "STRING", "description": "D", "nullable": True},
    ),
    (
        {"type": ["string", "integer"], "description": "D", "minLength": 1, "minimum": 1},
        {"anyOf": [{"type": "STRING", "description": "D", "minLength": 1}, {"type": "INTEGER", "minimum": 1}]},
    ),
    ({"type": "null"}, {"type": "NULL"}),
    ({"const": "a"}, {"type": "STRING", "enum": ["a"]}),
    ({"enum": ["a", None]}, {"type": "STRING", "enum": ["a"], "nullable": True}),
    ({"enum": ["a", ""]}, {"type": "STRING", "enum": ["a"]}),
    ({"enum": [1, 2, 3]}, {"type": "INTEGER", "minimum": 1, "maximum": 3}),
    ({"const": 7}, {"type": "INTEGER", "minimum": 7, "maximum": 7}),
    ({"enum": [1, 5]}, {"type": "STRING", "enum": ["1", "5"]}),
    ({"type": "number", "enum": [0.5, 1]}, {"type": "STRING", "enum": ["0.5", "1"]}),
    ({"enum": [True, False]}, {"type": "BOOLEAN"}),
    ({"const": True}, {"type": "BOOLEAN", "description": "Must be true."}),
    ({"type": "integer", "exclusiveMinimum": 0}, {"type": "INTEGER", "minimum": 1}),
    ({"type": "string", "format": "date-time"}, {"type": "STRING", "format": "date-time"}),
    (
        {"type": "string", "format": "date"},
        {"type": "STRING", "description": 'Must also match the JSON Schema {"format":"date"}.'},
    ),
    ({"type": "object", "additionalProperties": False}, {"type": "OBJECT"}),
    ({"type": "array", "items": False}, {"type": "ARRAY", "maxItems": 0, "items": {"type": "STRING"}}),
    ({"oneOf": [{"type": "string"}, {"type": "boolean"}]}, {"anyOf": [{"type": "STRING"}, {"type": "BOOLEAN"}]}),
    ({"allOf": [{"type": "string"}, {"minLength": 3}]}, {"type": "STRING", "minLength": 3}),
]


@pytest.mark.parametrize(("given", "sent"), GEMINI)
def test_gemini_writes(given: Any, sent: Any) -> None:
    assert one("gemini", given)[0] == sent


def test_gemini_has_no_type_for_any_value() -> None:
    done, lines = one("gemini", {"description": "Anything."})
    assert [branch["type"] for branch in done["anyOf"]] == ["STRING", "NUMBER", "BOOLEAN", "OBJECT", "ARRAY"]
    assert all(branch["nullable"] for branch in done["anyOf"])
    assert done["anyOf"][0]["description"] == "Anything."
    assert "x/type: added: any of them" in lines


def test_gemini_gets_references_written_out_and_recursion_cut() -> None:
    tree = {"type": "object", "properties": {"more": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}}
    done, lines = one("gemini", {"$ref": "#/$defs/Tree", "description": "A tree."}, **{"$defs": {"Tree": tree}})
    inner = done["properties"]["more"]["items"]["properties"]["more"]["items"]
    assert done["description"] == "A tree."
    assert inner == {"type": "OBJECT", "description": "Of the same form as Tree."}
    assert lines == ("x: Tree written out", "/$defs/Tree/properties/more/items: Tree contains itself: cut off")


def test_gemini_does_not_write_out_what_doubles_and_doubles() -> None:
    pair = {
        f"d{i}": {"type": "object", "properties": {side: {"$ref": f"#/$defs/d{i + 1}"} for side in ("l", "r")}}
        for i in range(50)
    }
    defs = {"$defs": {**pair, "d50": {"type": "string"}}}
    done, lines = one("gemini", {"$ref": "#/$defs/d0"}, **defs)
    assert len(str(done)) < 300_000
    assert any(line.endswith("is too large to be written out again: cut off") for line in lines)


def test_gemini_reads_its_own_types() -> None:
    schema = {
        "type": "OBJECT",
        "properties": {"a": {"type": "STRING", "nullable": True}, "b": {"type": "ARRAY", "items": {"type": "NUMBER"}}},
        "required": ["a"],
    }
    assert convert(schema, "gemini") == (schema, ())


# --- what is not quite JSON Schema ------------------------------------------------------------------------------------


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
    assert one("gemini", {"type": "dict", "properties": {"a": {"type": "string"}}})[1] == (
        'x/type: "dict" is no type, read as any',
        "x/type: added: object",
    )
    with pytest.raises(ToolDefinitionError, match="must be a schema"):
        one("gemini", {"type": "array", "items": 5})
