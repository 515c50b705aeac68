"""Walking over schemas, and where definitions go."""

from __future__ import annotations

from dragoman.tools.arguments.schemas import Definitions, Schema, described, mapped, subschemas, without_titles

SCHEMA: Schema = {
    "title": "Root",
    "properties": {"title": {"title": "Title", "type": "string"}, "b": True},
    "prefixItems": [{"title": "First"}, False],
    "items": {"title": "Items"},
    "not": {"title": "Not"},
    "default": {"title": "data, not a schema"},
    "enum": [{"title": "data"}],
}


def test_subschemas_are_told_from_data() -> None:
    assert [steps for steps, _ in subschemas(SCHEMA)] == [
        ("properties", "title"),
        ("properties", "b"),
        ("prefixItems", "0"),
        ("prefixItems", "1"),
        ("items",),
        ("not",),
    ]


def test_titles_go_and_properties_named_title_stay() -> None:
    assert without_titles(SCHEMA) == {
        "properties": {"title": {"type": "string"}, "b": True},
        "prefixItems": [{}, False],
        "items": {},
        "not": {},
        "default": {"title": "data, not a schema"},
        "enum": [{"title": "data"}],
    }


def test_odd_shapes_are_left_alone() -> None:
    odd: Schema = {"properties": ["a"], "anyOf": {"a": 1}, "items": [{"title": "x"}]}
    assert mapped(odd, without_titles) == {"properties": ["a"], "anyOf": {"a": 1}, "items": [{}]}
    assert [steps for steps, _ in subschemas(odd)] == [("items", "0")]


def test_descriptions() -> None:
    assert described({"type": "string"}, "") == {"type": "string"}
    assert described({"type": "string"}, "A name.") == {"type": "string", "description": "A name."}
    assert described({"description": "Only > 1."}, "A number.") == {"description": "A number. Only > 1."}


# --- definitions -----------------------------------------------------------------------------------------------------


def test_what_is_used_once_is_written_in_place() -> None:
    definitions = Definitions()
    reference = definitions.reference("a", "A", lambda: {"type": "string", "description": "An A."})
    assert reference == {"$ref": "#/$defs/A"}
    root: Schema = {"properties": {"a": {**reference, "description": "This one."}}}
    assert definitions.document(root) == {"properties": {"a": {"type": "string", "description": "This one. An A."}}}


def test_what_is_used_twice_is_defined() -> None:
    definitions = Definitions()
    reference = definitions.reference("a", "A", lambda: {"type": "string"})
    assert definitions.reference("a", "A", lambda: {"never": "called"}) == reference
    document = definitions.document({"items": reference, "contains": reference})
    assert document == {"items": reference, "contains": reference, "$defs": {"A": {"type": "string"}}}


def test_keywords_beside_a_reference_keep_it_a_reference() -> None:
    definitions = Definitions()
    reference = definitions.reference("a", "A", lambda: {"minLength": 1})
    document = definitions.document({"items": {**reference, "minLength": 2}})
    assert document == {"items": {**reference, "minLength": 2}, "$defs": {"A": {"minLength": 1}}}


def test_a_reference_as_the_root() -> None:
    definitions = Definitions()
    reference = definitions.reference("a", "A", lambda: {"type": "string"})
    assert definitions.document(reference) == {"type": "string"}
    assert definitions.document({**reference, "description": "Said."}) == {"type": "string", "description": "Said."}


def test_a_recursive_root() -> None:
    definitions = Definitions()

    def make() -> Schema:
        return {"items": definitions.reference("a", "A", make)}

    tree = {"items": {"$ref": "#/$defs/A"}}
    assert definitions.document(definitions.reference("a", "A", make)) == {**tree, "$defs": {"A": tree}}


def test_names_are_made_usable_and_unique() -> None:
    definitions = Definitions()
    names = ["A", "A", "Box[int]", "Box[int]", "[]"]
    references = [definitions.reference(number, name, dict) for number, name in enumerate(names)]
    assert [reference["$ref"] for reference in references] == [
        "#/$defs/A",
        "#/$defs/A_2",
        "#/$defs/Box_int",
        "#/$defs/Box_int_2",
        "#/$defs/Type",
    ]


def test_another_documents_definitions_are_adopted() -> None:
    definitions = Definitions()
    definitions.reference("a", "A", dict)
    other: Schema = {
        "$defs": {"A": {"items": {"$ref": "#/$defs/B"}}, "B": {"not": {"$ref": "#/$defs/A"}}},
        "properties": {"$ref": {"$ref": "#/$defs/A"}, "x": {"$ref": "#/$defs/A"}, "y": {"$ref": "other"}},
    }
    document = definitions.document(definitions.adopt(other))
    assert document == {
        "properties": {"$ref": {"$ref": "#/$defs/A_2"}, "x": {"$ref": "#/$defs/A_2"}, "y": {"$ref": "other"}},
        "$defs": {"A_2": {"items": {"not": {"$ref": "#/$defs/A_2"}}}},
    }


def test_references_to_nothing_stay() -> None:
    assert Definitions().document({"$ref": "#/$defs/Nothing"}) == {"$ref": "#/$defs/Nothing"}
    assert Definitions().document({"items": {"$ref": "#/$defs/Nothing"}}) == {"items": {"$ref": "#/$defs/Nothing"}}
