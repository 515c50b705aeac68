"""The chat's view of a turn, and which part of a growing Markdown text is complete."""

from __future__ import annotations

import io
import re
import time

import pytest
from hypothesis import example, given, strategies as st
from msgspec import Raw

import devtools.terminal_screen
from dragoman.cli.chat_screen import Screen, find_end
from dragoman.cli.failures import report
from dragoman.cli.output import TextView, print_list
from dragoman.cli.terminal import Terminal
from dragoman.conversation import (
    BlockReceived,
    Opaque,
    ServerToolUse,
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
from dragoman.errors import ConfigurationError
from tests.cli.running import Tty

SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def shown(*pieces: str) -> tuple[str, str]:
    """The raw output of an answer in pieces, and what can be read of it."""
    out = Tty()
    screen = Screen(Terminal(stdin=io.StringIO(), stdout=out, stderr=Tty(), environ={}))
    screen.wait()
    screen.show(TextStarted(0, ""))
    for piece in pieces:
        screen.show(TextDelta(0, "", piece))
    screen.show(TextEnded(0, ""))
    screen.pause()
    return out.getvalue(), SEQUENCE.sub("", out.getvalue())


def test_markdown_is_rendered_and_links_show_their_addresses() -> None:
    raw, plain = shown(
        "# Head\n\nSome **bo", "ld** text.\n\n```py\nx = 1\n```\n\n[bank](https://evil.test/)\n\nthe", " end"
    )
    assert "**" not in plain
    assert [word for word in ("bold", "x = 1", "https://evil.test/", "the end") if word not in plain] == []
    assert "\x1b[1m" in raw
    assert "\x1b]8;" not in raw, "no address hides behind its words"


SEQUENCES = r"\x1b[2J \x1b[9A \x1b[7;5m \x1b]52;c;QQ==\x07 \x9b2J \x9d0;t\x9c \x1bc \r \b \0 \u202e \u2066"
DECODED = "<http://a/%1b[2J%1b]52;c;QQ==%07> <http://a/%9b2J> [b](http://c/%1b[9A) &#27;[2J &#x1b; %1b &#x202e;"
MARKDOWN = ["\n", "\n\n", "```\n", "`", "# ", "- ", "> ", "**", "|a|b|\n|-|-|\n", "a", " "]
PIECES = [*SEQUENCES.encode().decode("unicode_escape").split(" "), *DECODED.split(), *MARKDOWN]
HOSTILE = st.lists(st.sampled_from(PIECES) | st.text(max_size=3)).map("".join)
OWN = re.compile(r"\x1b\[(?!7;5m)[0-9;]*m|\x1b\[\?25[lh]|\x1b\[1A|\x1b\[2K|\r")
"""What we ourselves tell a terminal: colours, and the cursor of what is painted again."""


def is_harmless(raw: str) -> bool:
    return all(letter.isprintable() or letter in "\n\t\u200d" for letter in OWN.sub("", raw))


@given(HOSTILE, st.integers(1, 7))
@example("<http://a/%1b[2J%1b]52;c;QQ==%07>", 100)
def test_no_text_controls_the_terminal(text: str, piece: int) -> None:
    out, err = Tty(), Tty()
    terminal = Terminal(stdin=io.StringIO(), stdout=out, stderr=err, environ={})
    call, failed = ToolCall(text, text, text), ToolResult(text, text, (Text(text),), is_error=True, duration=1.0)
    for view in (Screen(terminal), TextView(terminal)):
        view.wait()
        view.show(ThinkingDelta(0, "", text))
        for start in range(0, len(text), piece):
            view.show(TextDelta(0, "", text[start : start + piece]))
        view.show(TextEnded(0, ""))
        view.show(ToolStarted(call))
        view.show(ToolFinished(failed))
        view.show(BlockReceived(1, "", Opaque("p", Raw(b"{}"), ServerToolUse(text, "both", name=text, input=text))))
        view.pause()
        view.end([text])
    terminal.ask(text)
    report(ConfigurationError(text, hint=text), terminal, debug=True)
    print_list(terminal, [{"a": text, "b": text}], dict, as_json=False)
    terminal.line(text)
    assert is_harmless(out.getvalue()), repr(out.getvalue())
    assert is_harmless(err.getvalue()), repr(err.getvalue())


def test_tools_are_shown_with_their_duration() -> None:
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


def test_tools_run_by_the_provider_are_shown() -> None:
    used = ServerToolUse("web_search", "both", input="Dom tower\nheight", is_error=True)
    for kind in (Screen, TextView):
        err = Tty()
        view = kind(Terminal(stdin=io.StringIO(), stdout=Tty(), stderr=err, environ={}))
        view.show(BlockReceived(0, "", Opaque("p", Raw(b"{}"), used)))
        view.show(BlockReceived(1, "", Opaque("p", Raw(b"{}"))))
        view.end()
        assert SEQUENCE.sub("", err.getvalue()).count("→ at the provider: web_search failed: Dom tower") == 1


def test_other_messages_get_their_own_line() -> None:
    tty = Tty()
    terminal = Terminal(stdin=io.StringIO(), stdout=tty, stderr=tty, environ={})
    screen = Screen(terminal)
    screen.wait()
    time.sleep(0.3)  # it is being painted
    terminal.say("Careful.")
    time.sleep(0.3)
    screen.show(TextDelta(0, "", "Hel"))
    time.sleep(0.3)
    terminal.say("Again.")
    screen.show(TextDelta(0, "", "lo."))
    screen.pause()
    painted = devtools.terminal_screen.Screen(80)
    painted.write(tty.getvalue().replace("\n", "\r\n"))
    assert painted.lines() == ["Careful.", "Again.", "Hello."]


WORDS = ["```", "```py", "~~~~", "\n", "\n\n", "a line", "- item", "    code", "`", " ", "# head"]
TEXT = st.lists(st.sampled_from(WORDS)).map("".join)


@pytest.mark.parametrize(
    "blocks",
    [
        ["One\nstill one\n\n", "Two\n"],
        ["```py\na = 1\n\nb = 2\n```\n\n", "behind\n"],
        ["~~~\n```\n\n~~~\n\n", "x"],
        ["````\n```\n\n````\n\n", "x"],
        ["```not a fence``` here\n\n", "x"],
    ],
    ids=lambda blocks: blocks[0].split("\n")[0],
)
def test_a_block_ends_with_an_empty_line_outside_of_code(blocks: list[str]) -> None:
    assert find_end("".join(blocks)) == len(blocks[0])


@given(TEXT, TEXT)
def test_complete_blocks_stay_complete(text: str, further: str) -> None:
    end = find_end(text)
    assert find_end(text[:end]) == end
    assert find_end(text + further) == end + find_end(text[end:] + further)
