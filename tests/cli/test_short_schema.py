"""Schemas, as --schema says them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dragoman.chat import answer_type
from dragoman.cli.arguments import UsageError
from dragoman.cli.ask import parse_short_schema, read_schema


def test_the_short_form() -> None:
    assert parse_short_schema("name, age int, tags list, scores list[float], ok bool: whether it is") == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "scores": {"type": "array", "items": {"type": "number"}},
            "ok": {"type": "boolean", "description": "whether it is"},
        },
        "required": ["name", "age", "tags", "scores", "ok"],
        "additionalProperties": False,
    }


def test_lines_may_have_commas_in_their_descriptions() -> None:
    found = parse_short_schema("name: first, then last\nage int\n")
    assert found["required"] == ["name", "age"]
    assert found["properties"]["name"]["description"] == "first, then last"  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        (" , ,", "empty"),
        ("name,,age", "empty"),
        ("name, age,", "empty"),
        ("age itn", "Did you mean int?"),
        ("age xyzzy", "There are str, int"),
        ("a b c", "is not a member"),
        ("2nd int", "is not a member"),
        (": about", "is not a member"),
        ("a, a int", "twice"),
        ("{not json", "is not JSON"),
        ("missing.json", "cannot be read"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_schema(text)


def test_a_file_and_a_written_out_schema(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    file = tmp_path / "person.schema"
    file.write_text(json.dumps(schema))
    assert read_schema(str(file)) == read_schema(json.dumps(schema)) == schema
    file.write_text("[1]")
    with pytest.raises(UsageError, match="no object"):
        read_schema(str(file))


@given(st.text())
def test_any_text_is_a_usable_schema_or_a_usage_error(text: str) -> None:
    try:
        found = read_schema(text)
    except UsageError:
        return
    if not text.strip().startswith("{"):
        answer_type(found)
