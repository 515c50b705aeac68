"""Replies that were cut off, on the engines that are no HTTP API: the claude program, and the local model's texts.

tests/chat/test_cut_calls.py has the dialects.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.chat import ChatClient
from dragoman.conversation import StopReason, ToolCall
from dragoman.engines import ClaudeEngine
from dragoman.engines.local.prompt import write_call
from dragoman.simulator import Reply, Simulator
from tests.chat.test_cut_calls import WHOLE, Ran, as_sent, take_turn
from tests.engines.claude_cli.programs import Programs, behind
from tests.engines.local.running import Stand
from tests.rounds import stride

every_tool = pytest.mark.parametrize("name", ["purge", "purge_exactly"])
whole_and_streamed = pytest.mark.parametrize("streamed", [False, True])


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    made = Stand(tmp_path, monkeypatch)
    yield made
    made.close()


def _cut(*said: Any) -> Reply:
    return Reply(*said, stop_reason=StopReason.MAX_TOKENS)


@whole_and_streamed
@every_tool
def test_the_local_model(name: str, streamed: bool, stand: Stand) -> None:
    ran, text = Ran(), write_call(name, WHOLE)
    for length in {*range(0, len(text), stride(7)), len(text) - 4, len(text)}:
        with ChatClient(stand.engine([_cut(text[:length]), "Understood."]), [ran.tools[name]]) as client:
            result = take_turn(client, streamed=streamed)
            assert ran.calls == [], text[:length]
            assert client.conversation.is_valid
            # Before the name of a tool it is a text like any other.
            assert result.text == ("Understood." if len(stand.requests) == 2 else text[:length])
            refused = [each for message in client.history for each in message.tool_results]
            assert all(each.is_error and "max_tokens" in each.text for each in refused)
        stand.close()


@whole_and_streamed
@every_tool
def test_the_claude_program(name: str, streamed: bool, tmp_path: Path) -> None:
    """It completes arguments as the API does, and runs none of our tools by itself."""
    ran, programs = Ran(), Programs(tmp_path)
    written = [as_sent(WHOLE[:length], "anthropic", streamed=streamed) for length in range(len(WHOLE) + 1)]
    written = [*written[:: stride(5)], WHOLE]
    script: list[Any] = []
    for number, arguments in enumerate(written):
        script += [_cut(ToolCall(f"c{number}", f"mcp__dragoman__{name}", arguments)), "Understood."]
    with (
        Simulator(script) as simulator,
        ClaudeEngine("m", **behind(simulator, programs)) as engine,
        ChatClient(engine, [ran.tools[name]]) as client,
    ):
        for arguments in written:
            assert str(take_turn(client, streamed=streamed)) == "Understood."
            assert ran.calls == [], arguments
            (refused,) = client.history[-2].tool_results
            assert (refused.is_error, "max_tokens" in refused.text) == (True, True)
        assert client.conversation.is_valid
