"""Results, conversations and streams in IPython, as a notebook shows them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from dragoman import ChatClient, Conversation, Media, Message, ScriptedEngine, Text, Thinking, ToolCall, ToolResult
from tests.web.test_page import HOSTILE


def test_everything_is_escaped() -> None:
    for text in HOSTILE:
        call = ToolCall("c", text, text)
        result = ToolResult("c", text, (Text(text), Media.from_bytes(b"x", "image/svg+xml", name=text)))
        talk = Conversation(
            system=text,
            messages=(
                Message.user(text, Media.from_url("https://evil.example/x.png")),
                Message.assistant(Thinking(text, "p"), Text(text), call),
                Message.tool([result]),
            ),
        )
        shown = talk._repr_html_()
        for bad in ("<script", "<img", "<svg", "<iframe", "<style", "<a ", "<form", "\u202e", "\x1b"):
            assert bad not in shown.lower()
        assert talk.messages[0]._repr_html_() in shown


@pytest.fixture
def shell() -> InteractiveShell:
    InteractiveShell.clear_instance()
    return InteractiveShell.instance()


def test_a_result_and_a_stream_show_themselves(shell: InteractiveShell) -> None:
    shell.user_ns["client"] = ChatClient(ScriptedEngine(["Hello!", "One two three."], piece=2))
    with capture_output() as seen:
        shell.run_cell("display(client.chat('Hi'))")
    [output] = seen.outputs
    assert "Hello!" in output.data["text/html"]
    assert "done" in output.data["text/html"]
    with capture_output() as seen:
        shell.run_cell("display(client.stream_chat('Count'))")
    assert "One" not in seen.outputs[0].data["text/html"], "there is a place for it before anything was said"
    assert "One two three." in seen.outputs[-1].data["text/html"]


def test_an_async_stream_shows_itself(shell: InteractiveShell) -> None:
    code = """
import asyncio
from dragoman import AsyncChatClient, AsyncScriptedEngine
from IPython.display import display
client = AsyncChatClient(AsyncScriptedEngine(["One two three."], piece=2))
stream = client.stream_chat("Count")
display(stream)
await stream._shown
"""
    with capture_output() as seen:
        shell.run_cell(code)
    assert "One two three." in seen.outputs[-1].data["text/html"]


def test_ipython_is_not_required() -> None:
    code = (
        "import sys; from dragoman import ChatClient, ScriptedEngine; "
        "assert 'Hi' in ChatClient(ScriptedEngine(['Hi'])).chat('x')._repr_html_(); "
        "assert not [name for name in sys.modules if name.startswith('IPython')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
