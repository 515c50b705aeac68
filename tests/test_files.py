"""Files of media are read when they are added to a conversation, and never when one is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman import ChatClient, Conversation, Media, Message, ScriptedEngine, Text, ToolResult, engine
from dragoman._files import read_files
from dragoman.conversation import conversation_from_json, conversation_to_json
from dragoman.errors import ConfigurationError
from dragoman.simulator import Reply, Simulator


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "cat.png"
    path.write_bytes(b"meow")
    return path


def test_a_file_is_read_when_it_is_added(picture: Path) -> None:
    with ChatClient(ScriptedEngine(["A cat."])) as client:
        client.add(Media.from_path(picture))
        picture.write_bytes(b"changed")
        client.chat(["Look:", Media.from_path(picture)])
    first, second = client.history[0].blocks[0], client.history[1].blocks[1]
    assert isinstance(first, Media)
    assert (first.data, first.path, first.name, first.mime_type) == (b"meow", None, "cat.png", "image/png")
    assert isinstance(second, Media)
    assert second.data == b"changed"


def test_a_file_that_a_tool_returns_is_read_at_once(picture: Path) -> None:
    from dragoman import ToolCall

    def photograph() -> Media:
        """Take a picture."""
        return Media.from_path(picture)

    script = [Message.assistant(ToolCall("1", "photograph", "{}")), "A cat."]
    with ChatClient(ScriptedEngine(script), [photograph]) as client:
        client.chat("What do you see?")
    (part,) = client.history[2].tool_results[0].content
    assert isinstance(part, Media)
    assert (part.data, part.path) == (b"meow", None)


def test_a_conversation_without_files_is_not_changed(picture: Path) -> None:
    plain = Conversation("s").plus(Message.user("Hi"), Message.assistant("Yes?"))
    assert read_files(plain) is plain
    shown = plain.plus(Message.user(Media.from_path(picture)))
    read = read_files(shown.with_metadata({"a": 1}))
    assert read.messages[:2] == plain.messages
    assert (read.system, read.metadata) == ("s", {"a": 1})
    result = ToolResult("1", "f", (Text("x"), Media.from_path(picture)))
    part = read_files(Conversation().plus(Message.tool([result]))).messages[0].tool_results[0].content[1]
    assert isinstance(part, Media)
    assert part.data == b"meow"


@pytest.mark.parametrize("model", ["anthropic:claude-sonnet-4-5", "openai:gpt-4o", "gemini:gemini-2.5-flash"])
def test_a_path_in_a_loaded_conversation_is_not_read(picture: Path, model: str) -> None:
    stored = conversation_to_json(Conversation().plus(Message.user(Media.from_path(picture))))
    with Simulator([Reply("Thanks.")]) as provider:
        dialect = {"anthropic": "anthropic", "openai": "openai_chat", "gemini": "gemini"}[model.partition(":")[0]]
        with (
            engine(model, key="k", base_url=provider.base_url(dialect)) as talker,
            pytest.raises(ConfigurationError, match="read_files"),
        ):
            talker.reply(conversation_from_json(stored))
        assert not provider.requests


@pytest.mark.parametrize("name", ["gone.png", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with ChatClient(ScriptedEngine([])) as client, pytest.raises(ConfigurationError, match="Check the path"):
        client.chat(Media.from_path(tmp_path / name, mime_type="image/png"))
