"""What the design documents ask for, through the public names; every room's own tests look closer."""

from __future__ import annotations

from typing import Any

import pytest

import dragoman
from dragoman import (
    ChatClient,
    Conversation,
    Message,
    ModelOptions,
    ScriptedEngine,
    ToolCall,
    ToolRegistry,
    errors,
    run_tool_calling_loop,
    tool,
)
from dragoman.chat import Config
from dragoman.conversation import ToolExample
from dragoman.loop import append_tool_results, execute_tool_calls, extract_tool_calls
from dragoman.providers import profile_of
from dragoman.simulator import Reply, Simulator
from dragoman.stores import snapshot_to_json

ASKED = Conversation().plus(Message.user("Add."))
CALL = ToolCall("c1", "add", '{"a": 1, "b": 2}')
DIALECTS = ["openai:gpt-4o", "openai-responses:gpt-5-mini", "anthropic:claude-sonnet-4-5", "gemini:gemini-2.5-flash"]


@tool(examples=[ToolExample({"a": 1, "b": 2}, 3, "a small sum")], tags=["maths"], version="1.2")
def add(a: int, b: int = 2) -> int:
    """The sum of two numbers."""
    return a + b


@tool
def nothing() -> str:
    """Takes nothing."""
    return "done"


@tool
def crash() -> None:
    """Crashes."""
    raise SystemExit(3)


def _client(model: str, simulator: Simulator, tools: Any = ()) -> ChatClient:
    return ChatClient(model, tools, key="sk-very-secret", base_url=simulator.base_url(model.partition(":")[0]))


def test_s1_a_tool_definition_and_the_limits_of_providers() -> None:
    spec = add.spec
    assert (spec.name, spec.tags, spec.version, spec.examples[0].output) == ("add", ("maths",), "1.2", 3)
    assert spec.schema["required"] == ["a"]
    assert dragoman.check([add.renamed("no good name!").spec], "openai:gpt-4o")
    assert profile_of("openai", "gpt-4o").tool_limits.max_tools == 128
    assert profile_of("anthropic", "claude-sonnet-4-5").tool_limits.max_name_length == 128
    assert profile_of("gemini", "gemini-2.5-flash").tool_limits.max_tools == 512


def test_s3_add_chat_ask_set_tools_save_and_restore() -> None:
    engine = ScriptedEngine([Message.assistant(CALL), "Three.", "3", "Yes."])
    client = ChatClient(engine, [add])
    client.add("Remember this.")
    assert str(client.chat("Add.")) == "Three."
    assert client.ask("How many?", int) == 3
    client.set_tools([])
    other = ChatClient(ScriptedEngine(["Two."]), [add])
    other.restore(client.save())
    assert other.history == client.history
    client.chat("Do you?")
    assert [[spec.name for spec in call.tools] for call in engine.calls] == [["add"], ["add"], [], []]
    assert str(other.chat("More.")) == "Two."


def test_s3_configuration() -> None:
    fields = """provider model token base_url system_prompt response_schema schema_name schema_description max_steps
    max_tokens parallel_tools max_parallel_tools"""
    assert set(Config.__struct_fields__) >= set(fields.split())
    limits: dict[str, int] = {}
    for name in ("openai", "claude", "gemini"):
        with Simulator(["Hi."]) as simulator:
            with dragoman.new(Config(provider=name, token="k", base_url=simulator.base_url(name))) as client:
                client.chat("Hello")
            body = simulator.requests[0].body
            told = body.get("generationConfig", body)
            limits[name] = next(value for key, value in told.items() if "max" in key.lower())  # type: ignore[union-attr]
    assert limits == {"openai": 4096, "claude": 8192, "gemini": 8192}


def test_s3_a_snapshot_has_all_but_the_token() -> None:
    with Simulator(["Hi."]) as simulator, _client("openai:gpt-4o", simulator, [add]) as client:
        client.chat("Hello")
        snapshot = client.save()
    assert (snapshot.provider, snapshot.model, len(snapshot.messages)) == ("openai", "gpt-4o", 2)
    assert [spec.name for spec in snapshot.tools] == ["add"]
    assert snapshot.created_at.tzinfo is not None
    assert snapshot.version == 1
    assert b"sk-very-secret" not in snapshot_to_json(snapshot)


def test_s4_the_helpers_in_a_loop_of_ones_own_and_in_one_call() -> None:
    engine, talk = ScriptedEngine([Message.assistant(CALL), "Three."]), ASKED
    while calls := extract_tool_calls(talk := engine.run_inference(talk, tools=[add.spec])):
        assert talk.pending_tool_calls == calls == (CALL,), "an engine leaves calls as they are"
        talk = append_tool_results(talk, execute_tool_calls(calls, ToolRegistry([add])))
        assert talk.messages[-1].tool_results[0].value == 3
    again = run_tool_calling_loop(ScriptedEngine([Message.assistant(CALL), "Three."]), ASKED, ToolRegistry([add]))
    assert [message.text for message in talk.messages] == [message.text for message in again.messages]


# --- faults of the originals that must not be repeated --------------------------------------------------------------


@pytest.mark.parametrize("model", DIALECTS)
def test_a_tool_without_parameters_works_and_one_that_crashes_is_an_error_result(model: str) -> None:
    empty, crashing = [Reply(ToolCall("c1", name, "")) for name in ("nothing", "crash")]
    with (
        Simulator([empty, "Done.", empty, "Done.", crashing, "I see."]) as simulator,
        _client(model, simulator, [nothing, crash]) as client,
    ):
        client.stream_chat("Go.", lambda _: None)
        client.chat("Go.")
        assert str(client.chat("Crash.")) == "I see."
        results = [message.tool_results[0] for message in client.history if message.role == "tool"]
    assert [result.text for result in results[:2]] == ["done", "done"]
    assert results[2].is_error


def test_no_parameter_is_dropped_silently() -> None:
    with Simulator(["Hi."]) as simulator, _client("anthropic:claude-sonnet-4-5", simulator) as client:
        with pytest.raises(errors.ConfigurationError, match="seed"):
            client.engine.reply(ASKED, options=ModelOptions(seed=7))
        assert "seed" in str(client.engine.reply(ASKED, options=ModelOptions(seed=7, adapt=True)).adaptations)
