from __future__ import annotations

import pytest
from msgspec import Raw

from dragoman.conversation import Json, Opaque, Text, Thinking, ToolCall, ToolResult
from dragoman.errors import ToolValidationError


def test_blocks_are_compared_by_value_and_never_change() -> None:
    assert Text("a") == Text("a") != Text("b")
    with pytest.raises(AttributeError):
        Text("a").text = "b"  # type: ignore[misc]


@pytest.mark.parametrize("nothing", ["", "  ", "\n"])
def test_a_call_without_arguments_has_an_empty_dict(nothing: str) -> None:
    assert ToolCall("1", "now", nothing).parsed == {}


def test_the_parsed_view_of_arguments() -> None:
    assert ToolCall("1", "add", '{"a": 1, "b": [2]}').parsed == {"a": 1, "b": [2]}


@pytest.mark.parametrize("broken", ['{"a": 1', "[1]", '"text"', "nope", "[" * 100_000])
def test_arguments_that_are_no_object_are_a_validation_error_with_the_raw_text(broken: str) -> None:
    with pytest.raises(ToolValidationError, match="'add'") as caught:
        _ = ToolCall("7", "add", broken).parsed
    assert caught.value.details == broken
    assert (caught.value.tool_name, caught.value.call_id, caught.value.type) == ("add", "7", "validation")


def test_the_text_of_a_result_joins_its_readable_parts() -> None:
    assert ToolResult("1", "f", (Text("a"), Json(Raw(b'{"b":1}')))).text == 'a\n{"b":1}'


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (ToolResult("1", "f", (Text("a"),)), "a"),
        (ToolResult("1", "f", (Json(Raw(b"[1]")),)), [1]),
        (ToolResult("1", "f", (Text("a"),), structured=Json(Raw(b'{"b":1}'))), {"b": 1}),
        (ToolResult("1", "f"), ""),
    ],
)
def test_the_value_of_a_result(result: ToolResult, value: object) -> None:
    assert result.value == value


def test_an_opaque_block_keeps_its_bytes_and_can_be_looked_into() -> None:
    block = Opaque("anthropic", Raw(b'{"type": "server_tool_use",  "n": 1.0}'))
    assert bytes(block.raw) == b'{"type": "server_tool_use",  "n": 1.0}'
    assert block.value == {"type": "server_tool_use", "n": 1.0}


def test_thinking_is_redacted_when_only_its_encrypted_form_is_there() -> None:
    assert Thinking("", "anthropic", encrypted="xyz").redacted
    assert not Thinking("hm", "anthropic", signature="s").redacted
