"""S3: the chat client, its configuration and its snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman import (
    ChatClient,
    Completed,
    Message,
    ScriptedEngine,
    TextDelta,
    ToolCall,
    ToolFinished,
    ToolStarted,
    errors,
    load_config,
    tool,
)
from dragoman.chat import Config
from dragoman.simulator import Simulator

CALL = ToolCall("c1", "add", '{"a": 1, "b": 2}')


@tool
def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


def _client(*script: Any, **options: Any) -> ChatClient:
    return ChatClient(ScriptedEngine(script), [add], **options)


def test_add_chat_ask_set_tools_save_and_restore() -> None:
    client = _client(Message.assistant(CALL), "Three.", "3", "Yes.")
    client.add("Remember this.")
    assert str(client.chat("Add.")) == "Three."
    assert client.ask("How many?", int) == 3
    client.set_tools([])
    other = _client("Two.")
    other.restore(client.save())
    assert other.history == client.history
    client.chat("Do you?")
    assert client.engine.calls[-1].tools == ()  # type: ignore[attr-defined]
    assert str(other.chat("More.")) == "Two."


def test_stream_chat_text_delta_tool_call_start_tool_call_end_complete() -> None:
    events: list[Any] = []
    result = _client(Message.assistant(CALL), "Three.").stream_chat("Add.", events.append)
    kinds = [type(event) for event in events]
    for kind in (TextDelta, ToolStarted, ToolFinished, Completed):
        assert kind in kinds
    (started,) = [event for event in events if isinstance(event, ToolStarted)]
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (started.call.id, started.call.name, started.call.arguments) == ("c1", "add", CALL.arguments)
    assert (finished.result.call_id, finished.result.text) == ("c1", "3")
    assert result.text == "Three."


FIELDS = {
    *("provider", "model", "token", "base_url", "system_prompt", "response_schema", "schema_name"),
    *("schema_description", "max_steps", "max_tokens", "parallel_tools", "max_parallel_tools"),
}


def test_config_fields() -> None:
    assert set(Config.__struct_fields__) >= FIELDS


@pytest.mark.parametrize("hook", ["transport", "find_program", "allow_insecure_base_url"])
def test_test_hooks_are_never_settable_from_a_config_file(hook: str, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f"{hook} = true\n")
    with pytest.raises(errors.ConfigurationError):
        load_config(file=file, environment={})


def test_snapshot_fields_and_tokens_are_never_saved() -> None:
    with (
        Simulator(["Hi."]) as simulator,
        ChatClient("openai:gpt-4o", [add], key="sk-very-secret", base_url=simulator.base_url("openai")) as client,
    ):
        client.chat("Hello")
        snapshot = client.save()
    assert (snapshot.provider, snapshot.model, len(snapshot.messages)) == ("openai", "gpt-4o", 2)
    assert [spec.name for spec in snapshot.tools] == ["add"]
    assert snapshot.created_at.tzinfo is not None
    assert snapshot.version == 1
    from dragoman.stores import snapshot_to_json

    assert b"sk-very-secret" not in snapshot_to_json(snapshot)
