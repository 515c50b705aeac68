"""Faults of the originals that must not be repeated, in tools and streams; the other rooms have theirs."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman import (
    ChatClient,
    Conversation,
    Message,
    ModelOptions,
    TextDelta,
    ToolCall,
    errors,
    tool,
)
from dragoman.conversation import Failed
from dragoman.simulator import Cut, Reply, Simulator

DIALECTS = ["openai:gpt-4o", "openai-responses:gpt-5-mini", "anthropic:claude-sonnet-4-5", "gemini:gemini-2.5-flash"]


@tool
def nothing() -> str:
    """Takes nothing."""
    return "done"


def _client(model: str, simulator: Simulator, tools: Any = (), **options: Any) -> ChatClient:
    return ChatClient(model, tools, key="k", base_url=simulator.base_url(model.partition(":")[0]), **options)


every_dialect = pytest.mark.parametrize("model", DIALECTS)


# --- tools -----------------------------------------------------------------------------------------------------------


@every_dialect
def test_a_tool_without_parameters_works_and_empty_streamed_arguments_mean_an_empty_object(model: str) -> None:
    with (
        Simulator([Reply(ToolCall("c1", "nothing", "")), "Done."] * 2) as simulator,
        _client(model, simulator, [nothing]) as client,
    ):
        client.stream_chat("Go.", lambda _: None)
        client.chat("Go.")
        assert [m.tool_results[0].text for m in client.history if m.role == "tool"] == ["done", "done"]


# --- streaming -------------------------------------------------------------------------------------------------------


@every_dialect
def test_error_events_are_really_emitted(model: str) -> None:
    events: list[Any] = []
    with (
        Simulator([Reply("A long story, and then …" * 9, faults=[Cut("reset")])]) as simulator,
        _client(model, simulator) as client,
        pytest.raises(errors.ProviderError),
    ):
        client.stream_chat("Tell.", events.append)
    assert isinstance(events[-1], Failed)
    assert any(isinstance(event, TextDelta) for event in events)


@every_dialect
def test_a_cancelled_stream_closes_its_connection(model: str) -> None:
    with Simulator([Reply("A long story. " * 500)]) as simulator, _client(model, simulator) as client:
        client.stream_chat("Tell.", lambda event: not isinstance(event, TextDelta))
        assert simulator.wait_until_idle()
        assert client.conversation.last is not None
        assert client.conversation.last.interrupted


def test_never_silently_drop_a_parameter() -> None:
    talk = Conversation().plus(Message.user("Hi"))
    with Simulator(["Hi."]) as simulator, _client("anthropic:claude-sonnet-4-5", simulator) as client:
        with pytest.raises(errors.ConfigurationError, match="seed"):
            client.engine.reply(talk, options=ModelOptions(seed=7))
        adapted = client.engine.reply(talk, options=ModelOptions(seed=7, adapt=True)).adaptations
        assert "seed" in str(adapted)
