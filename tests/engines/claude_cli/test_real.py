"""What only the real program can show. Skipped where it is not installed; docs/claude.md has the command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dragoman.chat import ChatClient
from dragoman.conversation import Conversation, Media, Message, Opaque, Text, TextDelta, ToolCall, ToolResult, ToolSpec
from dragoman.engines import ClaudeEngine, ClaudeSettings
from dragoman.errors import AuthenticationError, ContextTooLongError
from dragoman.providers import ModelOptions, Reasoning
from dragoman.simulator import Cut, Reply, Simulator
from dragoman.tools import Allow, Deny
from tests.engines.claude_cli.programs import CALM
from tests.engines.claude_cli.stages import real_program
from tests.engines.talking import ONCE
from tests.processes import children

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(real_program() is None, reason="the claude program is not installed: see docs/claude.md"),
]

WEATHER = ToolSpec("weather", "What the weather is like.")
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
    "53de0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "CLAUDE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "CLAUDE.md").write_text("Always say CANARY.")
    return tmp_path


def real(simulator: Simulator, home: Path, *, key: str | None = "test-key", **settings: Any) -> ClaudeEngine:
    return ClaudeEngine(
        "claude-sonnet-4-5",
        settings=ClaudeSettings(program=real_program(), directory=str(home / "work"), **settings),
        key=key,
        base_url=simulator.base_url("anthropic"),
        retry=ONCE,
        timeouts=CALM,
    )


def asked(text: str = "Hello", system: str | None = None) -> Conversation:
    return Conversation(system).plus(Message.user(text))


def test_isolation_and_options(home: Path) -> None:
    options = ModelOptions(
        max_tokens=777, reasoning=Reasoning(effort="none"), extra_body={"metadata": {"user_id": "u"}}
    )
    with Simulator(["Hi.", "Hi."]) as simulator, real(simulator, home) as engine:
        engine.reply(asked(system="Be brief."), tools=[WEATHER], options=options)
        engine.reply(asked())
        first, second = [each for each in simulator.requests if each.dialect == "anthropic"]
        assert "CANARY" not in first.raw.decode()
        assert first.tools == ("mcp__dragoman__weather",)
        assert first.system.endswith("Be brief.")
        assert (first.body["max_tokens"], first.body["thinking"]) == (777, {"type": "disabled"})
        assert len(second.system) < 300, second.system  # not the program's own, which has thousands
        assert not list((home / "home").rglob("*.jsonl"))  # no session is kept


def test_large_results_and_images_arrive_complete(home: Path) -> None:
    call = ToolCall("c1", "mcp__dragoman__weather", "{}")
    large, picture = Text("y z " * 100_000), Media.from_bytes(PIXEL, "image/png")
    with Simulator([Reply(call), "Thanks.", "Hi."]) as simulator, real(simulator, home) as engine:
        conversation = engine.run_inference(asked(), tools=[WEATHER])
        conversation = conversation.plus(Message.tool([ToolResult("c1", "weather", (large, picture))]))
        assert engine.reply(conversation, tools=[WEATHER]).message.text == "Thanks."
        assert engine.reply(Conversation().plus(Message.user(large, picture))).message.text == "Hi."
        for request in [each for each in simulator.requests if each.dialect == "anthropic"][1:]:
            assert b"y z " * 100_000 in request.raw
            assert b'"image/png"' in request.raw
        with pytest.raises(ContextTooLongError):
            engine.reply(asked("x" * 3_000_000))


def test_long_descriptions_are_cut(home: Path) -> None:
    with Simulator(["Hi."]) as simulator, real(simulator, home) as engine:
        (note,) = engine.reply(asked(), tools=[ToolSpec("weather", "d" * 5000)]).adaptations
        assert "4096" in note.why
        raw = simulator.requests[-1].raw
        assert b"d" * 2000 in raw  # the program may add a note at the end
        assert b"d" * 4097 not in raw


@pytest.mark.parametrize("allowed", [True, False])
def test_own_tools(allowed: bool, home: Path) -> None:
    calls: list[ToolCall] = []

    def permission(call: ToolCall) -> Allow | Deny:
        calls.append(call)
        return Allow() if allowed else Deny("not here")

    # Reading and listing it would let pass without a question; it is told to ask.
    run = ToolCall("b1", "Bash", '{"command": "ls", "description": "List"}')
    with Simulator([Reply("I look.", run), "Done."]) as simulator:
        with real(simulator, home, own_tools=("Bash",), permission=permission) as engine:
            message = engine.reply(asked()).message
        assert [call.parsed["command"] for call in calls] == ["ls"]
        assert [type(block) for block in message.blocks] == [Text, Opaque, Opaque, Text]
        told = simulator.requests[-1].tool_results[0]
        assert ("CLAUDE.md" if allowed else "not here") in told.text


def test_an_interrupted_reply(home: Path) -> None:
    story = Reply("Once upon a time. " * 200, delta=18)
    with Simulator([story, "The end."]) as simulator, real(simulator, home) as engine:
        before = children()
        with ChatClient(engine) as client:
            client.stream_chat("A story!", lambda event: not isinstance(event, TextDelta))
            assert children() == before
            assert client.chat("Go on.").text == "The end."


def test_arguments_that_are_not_json(home: Path) -> None:
    """The program answers such a call itself, and the conversation continues on both sides."""
    call = ToolCall("c1", "mcp__dragoman__weather", '{"city": bro')
    with (
        Simulator([Reply(call), "Sorry."]) as simulator,
        real(simulator, home) as engine,
        ChatClient(engine, []) as client,
    ):
        assert client.chat("Weather?").text == "Sorry."
        assert client.history[2].tool_results[0].is_error


def test_not_logged_in(home: Path) -> None:
    with Simulator() as simulator, real(simulator, home, key=None) as engine:
        with pytest.raises(AuthenticationError) as caught:
            engine.reply(asked())
        assert "/login" in caught.value.hint


def test_a_broken_stream_is_retried(home: Path) -> None:
    with Simulator([Reply("Half of it", faults=[Cut()]), "Whole."]) as simulator, real(simulator, home) as engine:
        assert engine.reply(asked()).message.text == "Whole."
