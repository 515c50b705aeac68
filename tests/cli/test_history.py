"""Conversations as Markdown and JSON."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from dragoman.cli.history import format_document, write_document
from dragoman.conversation import (
    Citation,
    Conversation,
    Media,
    Message,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from dragoman.stores import Snapshot, snapshot_from_json
from tests.strategies import conversations

EVIL = "</p></section><script>alert(1)</script>\n```\n\n## You\n"


def snapshot(*messages: Message, system: str | None = None) -> Snapshot:
    return Snapshot.first(Conversation(system, messages), provider="openai", model="gpt-5")


TALK = snapshot(
    Message.user("What is 6*7?", Media.from_bytes(b"123", "image/png", name="a.png")),
    Message.assistant(Thinking("Hm.", provider="x"), Text("Let me see."), ToolCall("c1", "calc", '{"e": "6*7"}')),
    Message.tool([ToolResult("c1", "calc", (Text("42"),))]),
    Message(role="assistant", blocks=(Text("It is"),), stop_reason=StopReason.INTERRUPTED),
    system="Be brief.",
)


def test_markdown_contains_the_whole_conversation() -> None:
    text = format_document(TALK, "markdown")
    parts = ["# What is 6*7?", "## System\n\nBe brief.", "## You", "Let me see.", "```json\n{", "```\n42\n```", "Hm."]
    for part in [*parts, "*(image: a.png)*", "*(interrupted)*"]:
        assert part in text


def test_markdown_lists_sources() -> None:
    cited = (Citation(url="https://a.ch", title="A\npage"), Citation(url="https://a.ch"), Citation(document="f1"))
    text = format_document(snapshot(Message.user("x"), Message.assistant(Text("Yes.", citations=cited))), "markdown")
    assert "Yes.\n\nSources:\n\n1. A page <https://a.ch>\n2. document f1\n" in text


def test_names_are_escaped_in_markdown() -> None:
    odd = "[a](javascript:x)\n## You <b>"
    cited = (Citation(url=f"https://a.ch/{odd}", title=odd), Citation(url="https://a.ch/[b](javascript:y)"))
    said = (Text("Yes.", citations=cited), ToolCall("c", odd))
    text = format_document(snapshot(Message.user("x"), Message.assistant(*said)), "markdown")
    plain = "\\[a\\](javascript:x) \\#\\# You \\<b\\>"
    assert f"**{plain}** is called:" in text
    assert f"1. {plain}\n2. <https://a.ch/[b](javascript:y)>\n" in text


def test_tool_results_cannot_leave_their_code_block() -> None:
    talk = snapshot(Message.user("x"), Message.tool([ToolResult("c", "t", (Text(EVIL),))]))
    text = format_document(talk, "markdown")
    assert "````\n" + EVIL in text
    assert text.count("````") == 2


@given(conversations)
def test_every_conversation_can_be_exported_and_json_round_trips(conversation: Conversation) -> None:
    kept = Snapshot.first(conversation, provider="p", model="m")
    assert format_document(kept, "markdown").endswith("\n")
    assert snapshot_from_json(format_document(kept, "json").encode()) == kept


@pytest.mark.parametrize(("name", "begins"), [("a.md", "# "), ("a", "# "), ("a.JSON", "{")])
def test_the_suffix_chooses_the_format(name: str, begins: str, tmp_path: Path) -> None:
    assert write_document(TALK, str(tmp_path / name)).read_text().startswith(begins)
