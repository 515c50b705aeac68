"""Conversations as Markdown, JSON and HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given

from dragoman.cli.export import export, format_of
from dragoman.conversation import Conversation, Media, Message, StopReason, Text, Thinking, ToolCall, ToolResult
from dragoman.stores.json_form import snapshot_from_json
from dragoman.stores.snapshot import Snapshot
from tests.strategies import conversations

EVIL = "</p></section><script>alert(1)</script>\n```\n\n## You\n"


TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "section", "pre", "strong", "em"}
TAGS |= {"details", "summary"}


def snapshot(*messages: Message, system: str | None = None) -> Snapshot:
    return Snapshot.first(Conversation(system, messages), provider="openai", model="gpt-5")


TALK = snapshot(
    Message.user("What is 6*7?", Media.from_bytes(b"123", "image/png", name="a.png")),
    Message.assistant(Thinking("Hm.", provider="x"), Text("Let me see."), ToolCall("c1", "calc", '{"e": "6*7"}')),
    Message.tool([ToolResult("c1", "calc", (Text("42"),))]),
    Message(role="assistant", blocks=(Text("It is"),), stop_reason=StopReason.INTERRUPTED),
    system="Be brief.",
)


def test_markdown_has_all_that_was_said() -> None:
    text = export(TALK, "markdown")
    for part in (
        "# What is 6*7?",
        "## System\n\nBe brief.",
        "## You",
        "Let me see.",
        "```json\n{",
        "```\n42\n```",
        "Hm.",
    ):
        assert part in text
    assert "*(image: a.png)*" in text
    assert "*(interrupted)*" in text


def test_what_a_tool_gave_cannot_leave_its_code_block() -> None:
    text = export(snapshot(Message.user("x"), Message.tool([ToolResult("c", "t", (Text(EVIL),))])), "markdown")
    assert "````\n" + EVIL in text
    assert text.count("````") == 2


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_what_was_said_is_never_markup() -> None:
    page = _Tags()
    page.feed(
        export(
            snapshot(
                Message.user(EVIL),
                Message.assistant(Text(EVIL), ToolCall("c", EVIL, EVIL)),
                Message.tool([ToolResult("c", EVIL, (Text(EVIL),))]),
                system=EVIL,
            ),
            "html",
        )
    )
    assert "script" not in page.tags
    assert page.text.count("alert(1)") >= 6


@given(conversations)
def test_every_conversation_can_be_exported_and_json_comes_back(conversation: Conversation) -> None:
    kept = Snapshot.first(conversation, provider="p", model="m")
    assert export(kept, "markdown").endswith("\n")
    page = _Tags()
    page.feed(export(kept, "html"))
    assert set(page.tags) <= TAGS
    assert snapshot_from_json(export(kept, "json").encode()) == kept


@pytest.mark.parametrize(
    ("name", "format"), [("a.md", "markdown"), ("a", "markdown"), ("a.JSON", "json"), ("a.htm", "html")]
)
def test_the_format_of_a_file(name: str, format: str) -> None:
    assert format_of(Path(name)) == format


def test_the_page_loads_nothing() -> None:
    assert not re.search(r"(src|href)=", export(TALK, "html"))
