"""S3: the chat client, its configuration and its snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman import (
    ChatClient,
    Completed,
    Conversation,
    FileStore,
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
from dragoman.chat import Config, generate_schema
from dragoman.engines import ProviderFactory, register_provider
from dragoman.simulator import Simulator
from dragoman.stores import AesGcmSealing, Snapshot, validate_snapshot_id
from dragoman.transport import validate_base_url

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


@pytest.mark.parametrize(
    "name",
    ["openai:gpt-5", "openai-compatible:any", "claude:claude-sonnet-4-5", "gemini:gemini-3-flash-preview"],
)
def test_providers(name: str) -> None:
    extra = {"base_url": "https://llm.internal.test/v1"} if "compatible" in name else {}
    with dragoman.engine(name, key="k", **extra) as engine:  # type: ignore[arg-type]
        assert engine.name.endswith(name.partition(":")[2])


def test_register_provider() -> None:
    class Mine(ProviderFactory):
        def engine(self, model: str, **options: Any) -> Any:
            return ScriptedEngine(["Mine."], name=f"mine:{model}")

    register_provider("seed-mine", Mine(), replace=True)
    with ChatClient("seed-mine:x") as client:
        assert str(client.chat("Whose?")) == "Mine."


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


def test_defaults() -> None:
    assert Config().max_steps == 20
    assert Config().max_parallel_tools == 5
    limits: dict[str, int] = {}
    for name in ("openai", "claude", "gemini"):
        with Simulator(["Hi."]) as simulator, dragoman.new(_here(simulator, name)) as client:
            client.chat("Hello")
            body = simulator.requests[0].body
            told = body.get("generationConfig", body)
            limits[name] = next(value for key, value in told.items() if "max" in key.lower())  # type: ignore[union-attr]
    assert limits == {"openai": 4096, "claude": 8192, "gemini": 8192}


def _here(simulator: Simulator, provider: str) -> Config:
    return Config(provider=provider, token="k", base_url=simulator.base_url(provider))


def test_conversation_store_save_load_list_delete(tmp_path: Path) -> None:
    with FileStore(tmp_path / "talks") as store:
        snapshot = Snapshot.first(Conversation().plus(Message.user("Hi")), provider="openai", model="gpt-5")
        store.save(snapshot)
        assert store.load(snapshot.id) == snapshot
        assert [item.id for item in store.list().items] == [snapshot.id]
        store.delete(snapshot.id)
        with pytest.raises(errors.SnapshotNotFoundError):
            store.load(snapshot.id)


def test_file_store_modes_and_encryption(tmp_path: Path) -> None:
    key = dragoman.generate_encryption_key()
    with FileStore(tmp_path / "talks", sealing=AesGcmSealing(key)) as store:
        store.save(Snapshot.first(Conversation().plus(Message.user("a secret")), provider="openai", model="gpt-5"))
    files = [path for path in (tmp_path / "talks").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert (tmp_path / "talks").stat().st_mode & 0o777 == 0o700
    assert not any(b"a secret" in path.read_bytes() for path in files)


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


def test_validate_base_url_validate_snapshot_id_generate_schema() -> None:
    with pytest.raises(errors.InvalidBaseURLError):
        validate_base_url("https://example.com")
    with pytest.raises(errors.InvalidSnapshotIDError):
        validate_snapshot_id("../etc/passwd")
    assert generate_schema(int) == {"type": "integer"}
