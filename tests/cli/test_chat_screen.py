"""The chat's view of a turn, and which part of a growing Markdown text is complete."""

from __future__ import annotations

import io
import re

from hypothesis import given, strategies as st

from dragoman.cli.chat_screen import Blocks, Screen
from dragoman.cli.terminal import Terminal
from dragoman.conversation import (
    Text,
    TextDelta,
    TextEnded,
    TextStarted,
    ThinkingDelta,
    ToolCall,
    ToolFinished,
    ToolResult,
    ToolStarted,
)

SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(*pieces: str, environ: dict[str, str] | None = None) -> tuple[str, str]:
    """The raw output of an answer in pieces, and what can be read of it."""
    out = Tty()
    screen = Screen(Terminal(stdin=io.StringIO(), stdout=out, stderr=Tty(), environ=environ or {}))
    screen.wait()
    screen.show(TextStarted(0, ""))
    for piece in pieces:
        screen.show(TextDelta(0, "", piece))
    screen.show(TextEnded(0, ""))
    screen.pause()
    return out.getvalue(), SEQUENCE.sub("", out.getvalue())


def test_markdown_is_rendered() -> None:
    raw, plain = shown("# Head\n\nSome **bo", "ld** text.\n\n```py\nx = 1\n```\n")
    assert "**" not in plain
    assert "bold" in plain
    assert "x = 1" in plain
    assert "\x1b[1m" in raw


def test_escape_sequences_of_a_model_are_not_obeyed() -> None:
    raw, plain = shown("a\x1b]0;title\x07b\x1b[2Jc")
    assert "\x1b]0;" not in raw
    assert "\x1b[2J" not in raw
    assert "a\\u001b]0;title" in plain


def test_addresses_of_links_are_shown() -> None:
    raw, plain = shown("[bank](https://evil.test/)\n")
    assert "https://evil.test/" in plain
    assert "\x1b]8;" not in raw


def test_the_last_line_is_there_without_a_line_end() -> None:
    assert "the end" in shown("one\n\n", "two\n\nthe", " end")[1]


def test_tools_are_shown_with_their_time() -> None:
    err = Tty()
    now = [0.0]
    terminal = Terminal(stdin=io.StringIO(), stdout=Tty(), stderr=err, environ={})
    screen = Screen(terminal, clock=lambda: now[0])
    screen.wait()
    screen.show(ThinkingDelta(0, "", "I should look."))
    screen.show(ToolStarted(ToolCall("c1", "Bash", '{"command": "ls"}')))
    now[0] = 1.5
    screen.show(ToolFinished(ToolResult("c1", "Bash", (Text("a\nb"),), duration=1.5)))
    screen.show(ToolFinished(ToolResult("c2", "Read", (Text("no"),), is_error=True, duration=0.1)))
    screen.pause()
    seen = SEQUENCE.sub("", err.getvalue())
    assert 'Bash {"command": "ls"} 1.5 s' in seen
    assert "← Bash 1.5 s: a b" in seen
    assert "← Read 0.1 s failed: no" in seen


TEXT = st.lists(
    st.sampled_from(["```", "```py", "~~~~", "\n", "\n\n", "a line", "- item", "    code", "`", " ", "# head"])
).map("".join)


def fed(pieces: list[str]) -> list[str]:
    blocks = Blocks()
    found = [block for piece in pieces for block in blocks.feed(piece)]
    return [*found, blocks.end()]


def test_a_block_ends_with_an_empty_line() -> None:
    assert fed(["One\nstill one\n\nTw", "o\n"]) == ["One\nstill one\n\n", "Two\n"]


def test_a_code_block_is_not_cut() -> None:
    text = "```py\na = 1\n\nb = 2\n```\n\nbehind\n"
    assert fed([text]) == ["```py\na = 1\n\nb = 2\n```\n\n", "behind\n"]
    assert fed(["~~~\n```\n\n~~~\n\nx"]) == ["~~~\n```\n\n~~~\n\n", "x"]
    assert fed(["````\n```\n\n````\n\nx"]) == ["````\n```\n\n````\n\n", "x"]


def test_inline_code_opens_no_block() -> None:
    assert fed(["```not a fence``` here\n\nx"]) == ["```not a fence``` here\n\n", "x"]


@given(TEXT, st.randoms())
def test_nothing_is_lost_and_the_pieces_do_not_matter(text: str, random: object) -> None:
    cuts = sorted(random.sample(range(len(text) + 1), k=min(3, len(text) + 1)))  # type: ignore[attr-defined]
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert "".join(fed(pieces)) == text
    assert fed(pieces) == fed([text])
