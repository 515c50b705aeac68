from __future__ import annotations

import pytest
from msgspec import Raw

from dragoman.conversation import Json, Media, Text, Thinking, ToolCall, ToolResult
from dragoman.errors import ToolValidationError


def test_blocks_are_compared_by_value_and_never_change() -> None:
    assert Text("a") == Text("a") != Text("b")
    with pytest.raises(AttributeError):
        Text("a").text = "b"  # type: ignore[misc]


def test_arguments_are_parsed() -> None:
    assert ToolCall("1", "now", "").parsed == ToolCall("1", "now", " \n").parsed == {}
    assert ToolCall("1", "add", '{"a": 1, "b": [2]}').parsed == {"a": 1, "b": [2]}


@pytest.mark.parametrize("broken", ['{"a": 1', "[1]", '"text"', "nope", "[" * 100_000])
def test_invalid_arguments_are_a_validation_error_with_the_raw_text(broken: str) -> None:
    with pytest.raises(ToolValidationError, match="'add'") as caught:
        _ = ToolCall("7", "add", broken).parsed
    assert caught.value.details == broken
    assert (caught.value.tool_name, caught.value.call_id, caught.value.type) == ("add", "7", "validation")


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (ToolResult("1", "f", (Text("a"),)), "a"),
        (ToolResult("1", "f", (Json(Raw(b"[1]")),)), [1]),
        (ToolResult("1", "f", (Text("a"),), structured=Json(Raw(b'{"b":1}'))), {"b": 1}),
        (ToolResult("1", "f", (Text("a"), Json(Raw(b'{"b":1}')))), 'a\n{"b":1}'),
        (ToolResult("1", "f"), ""),
    ],
)
def test_the_value_of_a_result(result: ToolResult, value: object) -> None:
    assert result.value == value


def test_thinking_with_only_an_encrypted_form_is_redacted() -> None:
    assert Thinking("", "anthropic", encrypted="xyz").redacted
    assert not Thinking("hm", "anthropic", signature="s").redacted


@pytest.mark.parametrize(
    ("path", "kind", "mime_type"),
    [
        ("a/b.PNG", "image", "image/png"),
        ("b.pdf", "document", "application/pdf"),
        ("c.wav", "audio", "audio/wav"),
        ("d.mp4", "video", "video/mp4"),
        ("e.csv", "document", "text/csv"),
    ],
)
def test_the_kind_of_media_follows_from_the_file_name(path: str, kind: str, mime_type: str) -> None:
    media = Media.from_path(path)
    assert (media.kind, media.mime_type, media.path, media.name) == (kind, mime_type, path, path.rpartition("/")[2])


def test_a_url_without_a_suffix_needs_a_mime_type() -> None:
    assert Media.from_url("https://nowhere.invalid/x.jpg?y=z.pdf").mime_type == "image/jpeg"
    with pytest.raises(ValueError, match="mime_type"):
        Media.from_url("https://host/download")
    assert Media.from_url("https://host/download", mime_type="image/webp").kind == "image"


@pytest.mark.parametrize("sources", [{}, {"data": b"", "path": "x"}, {"path": "x", "url": "y"}])
def test_media_has_exactly_one_source(sources: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        Media(kind="image", mime_type="image/png", **sources)  # type: ignore[arg-type]
