"""Faults of the originals that must not be repeated: loop, ask, streaming, tools. Stores and URLs have theirs too."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman import (
    ChatClient,
    Conversation,
    Limits,
    Message,
    ModelOptions,
    ScriptedEngine,
    TextDelta,
    ToolCall,
    ToolFinished,
    ToolStarted,
    errors,
    tool,
)
from dragoman.conversation import Failed
from dragoman.simulator import Cut, Reply, Simulator

CALL = ToolCall("c1", "add", '{"a": 1, "b": 2}')
DIALECTS = ["openai:gpt-4o", "openai-responses:gpt-5-mini", "anthropic:claude-sonnet-4-5", "gemini:gemini-2.5-flash"]


@tool
def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


@tool
def nothing() -> str:
    """Takes nothing."""
    return "done"


@tool
def crash() -> None:
    """Crashes."""
    raise SystemExit(3)


def _client(model: str, simulator: Simulator, tools: Any = (), **options: Any) -> ChatClient:
    return ChatClient(model, tools, key="k", base_url=simulator.base_url(model.partition(":")[0]), **options)


every_dialect = pytest.mark.parametrize("model", DIALECTS)


# --- tools -----------------------------------------------------------------------------------------------------------


def test_set_tools_replaces_never_merges() -> None:
    client = ChatClient(ScriptedEngine(["x"]), [add])
    client.set_tools([nothing])
    client.chat("x")
    assert [spec.name for spec in client.engine.calls[0].tools] == ["nothing"]  # type: ignore[attr-defined]


@every_dialect
def test_a_tool_without_parameters_works_and_empty_streamed_arguments_mean_an_empty_object(model: str) -> None:
    with (
        Simulator([Reply(ToolCall("c1", "nothing", "")), "Done."] * 2) as simulator,
        _client(model, simulator, [nothing]) as client,
    ):
        client.stream_chat("Go.", lambda _: None)
        client.chat("Go.")
        assert [m.tool_results[0].text for m in client.history if m.role == "tool"] == ["done", "done"]


def test_a_crashing_handler_becomes_an_error_result_never_a_crash_of_the_loop() -> None:
    client = ChatClient(ScriptedEngine([Message.assistant(ToolCall("1", "crash", "{}")), "I see."]), [crash])
    assert str(client.chat("Crash.")) == "I see."


def test_results_keep_call_order_and_tools_are_sent_in_a_stable_order() -> None:
    calls = [ToolCall(str(number), "add", f'{{"a": {number}, "b": 0}}') for number in range(5)]
    engine = ScriptedEngine([Message.assistant(*calls), "x"])
    client = ChatClient(engine, [nothing, add, crash])
    client.chat("Add.")
    assert [result.value for result in client.history[2].tool_results] == [0, 1, 2, 3, 4]
    assert [[spec.name for spec in call.tools] for call in engine.calls] == [["nothing", "add", "crash"]] * 2


@every_dialect
def test_errors_set_the_providers_is_error_flag(model: str) -> None:
    with (
        Simulator([Reply(ToolCall("c1", "crash", "{}")), "I see."]) as simulator,
        _client(model, simulator, [crash]) as client,
    ):
        client.chat("Crash.")
        (result,) = simulator.requests[1].tool_results
        assert result.is_error == client.engine.profile.tool_error_flag


# --- loop ------------------------------------------------------------------------------------------------------------


@every_dialect
def test_text_of_all_steps_is_kept_in_the_history(model: str) -> None:
    with (
        Simulator(
            [Reply("First.", CALL), Reply("Second.", ToolCall("c2", "add", '{"a": 1, "b": 1}')), "Third."]
        ) as simulator,
        _client(model, simulator, [add]) as client,
    ):
        client.chat("Add.")
        assert [m.text for m in client.history if m.role == "assistant"] == ["First.", "Second.", "Third."]


@every_dialect
def test_the_step_limit_leaves_a_history_that_can_be_continued(model: str) -> None:
    with (
        Simulator([Reply(CALL), "Three."]) as simulator,
        _client(model, simulator, [add], limits=Limits(steps=1)) as client,
    ):
        with pytest.raises(errors.StepLimitError):
            client.chat("Add.")
        assert client.conversation.is_valid
        assert str(client.chat()) == "Three."


# --- ask -------------------------------------------------------------------------------------------------------------


def test_ask_is_tool_free() -> None:
    engine = ScriptedEngine(["1"])
    ChatClient(engine, [add]).ask("How many?", int)
    assert engine.calls[0].tools == ()


def test_the_answer_joins_the_history() -> None:
    client = ChatClient(ScriptedEngine(["1"]))
    client.ask("How many?", int)
    assert [message.text for message in client.history] == ["How many?", "1"]


def test_the_schema_applies_to_this_ask_only() -> None:
    engine = ScriptedEngine(["1", "words", "more words"])
    client = ChatClient(engine)
    client.ask("How many?", int)
    client.chat("And?")
    client.ask("In words?")
    formats = [call.options.response_format for call in engine.calls if call.options]
    assert formats[0] is not None
    assert formats[1:] == [None, None]


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


@every_dialect
def test_ids_are_present_on_every_tool_event(model: str) -> None:
    events: list[Any] = []
    with (
        Simulator([Reply(CALL, ToolCall("c2", "add", '{"a": 2, "b": 2}')), "Done."]) as simulator,
        _client(model, simulator, [add]) as client,
    ):
        client.stream_chat("Add.", events.append)
    assert all(event.call.id for event in events if isinstance(event, ToolStarted))
    assert all(event.result.call_id for event in events if isinstance(event, ToolFinished))
    assert all(event.id for event in events if type(event).__name__.startswith("ToolCall"))


def test_never_silently_drop_a_parameter() -> None:
    talk = Conversation().plus(Message.user("Hi"))
    with Simulator(["Hi."]) as simulator, _client("anthropic:claude-sonnet-4-5", simulator) as client:
        with pytest.raises(errors.ConfigurationError, match="seed"):
            client.engine.reply(talk, options=ModelOptions(seed=7))
        adapted = client.engine.reply(talk, options=ModelOptions(seed=7, adapt=True)).adaptations
        assert "seed" in str(adapted)


# --- pending adds ----------------------------------------------------------------------------------------------------


def test_pending_adds_survive_a_failed_call() -> None:
    client = ChatClient(ScriptedEngine([errors.OverloadedError("busy"), "Yes."]))
    client.add("Remember.")
    with pytest.raises(errors.OverloadedError):
        client.chat("Do you?")
    client.chat("Do you?")
    assert [message.text for message in client.history] == ["Remember.", "Do you?", "Yes."]
