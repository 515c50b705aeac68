from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.conversation import Conversation, Media, Message, Text, ToolResult
from dragoman.engines.media import with_files_read
from dragoman.errors import ConfigurationError


def test_files_are_read_once_when_first_sent(tmp_path: Path) -> None:
    picture = tmp_path / "cat.png"
    picture.write_bytes(b"meow")
    conversation = Conversation().plus(
        Message.user("look", Media.from_path(picture)),
        Message.tool([ToolResult("1", "f", (Text("x"), Media.from_path(picture)))]),
    )
    first = with_files_read(conversation)
    media = first.messages[0].blocks[1]
    assert isinstance(media, Media)
    assert (media.data, media.path, media.name, media.mime_type) == (b"meow", None, "cat.png", "image/png")
    inside = first.messages[1].tool_results[0].content[1]
    assert isinstance(inside, Media)
    assert inside.data == b"meow"
    picture.write_bytes(b"changed")
    assert with_files_read(conversation) == first  # what the model saw is what it sees in later turns
    assert with_files_read(conversation).messages[0] is first.messages[0]


def test_nothing_to_read_changes_nothing() -> None:
    conversation = Conversation().plus(Message.user("hi", Media.from_bytes(b"x", "image/png")))
    assert with_files_read(conversation) is conversation


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    conversation = Conversation().plus(Message.user(Media.from_path(tmp_path / "gone.png")))
    with pytest.raises(ConfigurationError, match="'gone.png' cannot be read.*Check the path"):
        with_files_read(conversation)
