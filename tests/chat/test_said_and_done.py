"""What a program says is done or refused, never ignored."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dragoman import (
    AsyncChatClient,
    AsyncScriptedEngine,
    ChatClient,
    Conversation,
    Limits,
    Message,
    ModelOptions,
    Orchestrator,
    ScriptedEngine,
    SqliteStore,
    ToolCall,
    arun_tool_calling_loop,
    async_engine,
    engine,
    run_tool_calling_loop,
    tool,
)
from dragoman.conversation import Completed, Event, Failed, RunEnded, Usage
from dragoman.errors import ConfigurationError, InvalidSnapshotIDError, LimitReachedError, OverloadedError
from dragoman.loop import LoopHooks
from tests.chat.talking import Start

CALLS = Message.assistant(ToolCall("1", "add", '{"a": 1, "b": 2}'))


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(requires_approval=True)
def guarded(a: int) -> int:
    """Do it."""
    return a


# --- names and values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"sytem": "x"}, "Did you mean system"),
        ({"temperature": 0}, r"options=ModelOptions\(temperature=…\)"),
        ({"max_tokens": 3}, r"options=ModelOptions\(max_tokens=…\)"),
        ({"seconds": 3}, r"limits=Limits\(seconds=…\)"),
        ({"max_iterations": 3}, r"tool_config=ToolConfig\(max_iterations=…\)"),
        ({"timeout": 5}, r"timeouts=Timeouts\(total=…\)"),
        ({"api_key": "k"}, "Say key=…"),
        ({"max_retries": 1}, r"retry=RetryPolicy\(max_attempts=…\)"),
        ({"zzz": 1}, "There are: .*system"),
    ],
)
@pytest.mark.parametrize("make", [ChatClient, AsyncChatClient])
def test_an_unknown_option_is_refused_with_its_right_place(make: Any, given: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigurationError, match=hint):
        make("openai:gpt-4o", key="k", **given)
    with pytest.raises(ConfigurationError, match="An orchestrator has no setting"):
        Orchestrator(ScriptedEngine([]), **given)
    for engine_of in (engine, async_engine):
        with pytest.raises(ConfigurationError, match="An engine has no setting"):
            engine_of("openai:gpt-4o", key="k", **given)


def test_an_unknown_turn_option_is_refused(start: Start) -> None:
    talk = start(["Hi."])
    with pytest.raises(ConfigurationError, match="A turn has no setting 'option'. Did you mean options"):
        talk.do("chat", "Hello", option=1)
    for unused in ({"option": 1}, {"tools": [add]}, {"approvals": []}):
        with pytest.raises(ConfigurationError, match="A question has no setting"):
            talk.do("ask", "Hello", int, **unused)


@pytest.mark.parametrize(
    ("make", "model", "store", "says"),
    [
        *[(ChatClient, model, None, "a name or an engine, not") for model in (None, [4], 3)],
        (AsyncChatClient, object(), None, "A model is a name or an engine, not"),
        (ChatClient, AsyncScriptedEngine([]), None, "is async.*AsyncChatClient"),
        (AsyncChatClient, ScriptedEngine([]), None, "is sync.*ChatClient"),
        (ChatClient, ScriptedEngine([]), "talks.db", r"is not a store.*SqliteStore\('talks.db'\)"),
        (ChatClient, ScriptedEngine([]), Path("talks.db"), r"is not a store.*SqliteStore\('talks.db'\)"),
    ],
)
def test_a_wrong_model_or_store_is_refused(make: Any, model: Any, store: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        make(model, store=store)


# --- one turn --------------------------------------------------------------------------------------------------------


def test_turn_options_apply_to_one_turn_field_by_field() -> None:
    counted = structs.replace(CALLS, usage=Usage(input=1, output=1))
    engine = ScriptedEngine(["a", "b", counted, "c"])
    client = ChatClient(engine, options=ModelOptions(temperature=0.5, seed=1), limits=Limits(steps=7, seconds=60))
    client.chat("One", options=ModelOptions(seed=2))
    client.chat("Two")
    result = client.chat("Three", tools=[add], limits=Limits(tokens=1_000_000))
    assert [call.options for call in engine.calls[:2]] == [
        ModelOptions(temperature=0.5, seed=2),
        ModelOptions(temperature=0.5, seed=1),
    ]
    assert [[spec.name for spec in call.tools] for call in engine.calls] == [[], [], ["add"], ["add"]]
    assert result.conversation.messages[-2].tool_results[0].value == 3
    client.close()


def test_limits_of_a_turn_override_those_of_the_client() -> None:
    endless = ScriptedEngine([CALLS] * 20)
    with ChatClient(endless, [add], limits=Limits(steps=3)) as client:
        with pytest.raises(LimitReachedError, match="max iterations .3."):
            client.chat("Go", limits=Limits(seconds=60))
        with pytest.raises(LimitReachedError, match="max iterations .2."):
            client.chat("Go", limits=Limits(steps=2))


def test_the_system_prompt_can_be_changed(start: Start) -> None:
    talk = start(["a", "b"], system="Be brief.")
    assert talk.client.system == "Be brief."
    talk.chat("Hi")
    talk.client.system = "Be long."
    talk.chat("Hi")
    assert [call.conversation.system for call in talk.client.engine.calls] == ["Be brief.", "Be long."]


def test_the_id_of_a_conversation_can_be_chosen(tmp_path: Path) -> None:
    chosen = "0193d1a0-0000-7000-8000-000000000001"
    with SqliteStore(tmp_path / "talks.db") as store:
        with ChatClient(ScriptedEngine(["Hi."]), store=store, id=chosen) as client:
            assert client.id == chosen
            client.chat("Hello")
            assert client.id == chosen
        with ChatClient(ScriptedEngine(["Again."]), store=store) as other:
            other.restore(chosen)
            assert other.history[-1].text == "Hi."
        with pytest.raises(InvalidSnapshotIDError):
            ChatClient(ScriptedEngine([]), store=store, id="mine")


# --- engines of one's own --------------------------------------------------------------------------------------------


class Parrot:
    """The one job of an engine, and nothing else."""

    def run_inference(self, conversation: Conversation) -> Conversation:
        last = conversation.messages[-1]
        if last.text == "Add.":
            return conversation.plus(CALLS)
        return conversation.plus(Message.assistant(f"You said: {last.text or last.tool_results[0].text}"))


class AsyncParrot:
    async def run_inference(self, conversation: Conversation, **_: Any) -> Conversation:
        return Parrot().run_inference(conversation)


def test_an_object_with_only_run_inference_is_an_engine() -> None:
    asked = Conversation().plus(Message.user("Add."))
    assert run_tool_calling_loop(Parrot(), asked, [add]).text == "You said: 3"  # type: ignore[arg-type]
    assert asyncio.run(arun_tool_calling_loop(AsyncParrot(), asked, [add])).text == "You said: 3"  # type: ignore[arg-type]
    with ChatClient(Parrot(), [add]) as client:
        assert str(client.chat("Hi")) == "You said: Hi"
        assert str(client.chat("Add.")) == "You said: 3"
        with client.stream_chat("Hi") as stream:
            assert [type(event) for event in stream][-2:] == [Completed, RunEnded]

    async def main() -> str:
        async with AsyncChatClient(AsyncParrot(), [add]) as client:
            async with client.stream_chat("Add.") as stream:
                assert [event async for event in stream]
            return str(await client.chat("Hi"))

    assert asyncio.run(main()) == "You said: Hi"


def test_the_return_value_of_run_inference_is_checked() -> None:
    class Forgetful:
        def run_inference(self, conversation: Conversation) -> Conversation:
            return conversation

    with ChatClient(Forgetful()) as client, pytest.raises(ConfigurationError, match="with a reply appended"):
        client.chat("Hi")
    with pytest.raises(ConfigurationError, match="run_inference of AsyncParrot is async"):
        ChatClient(AsyncParrot())


# --- how a stream ends, and who is told of a failure ------------------------------------------------------------------


def _events(talk: Any, prompt: str) -> list[Event]:
    seen: list[Event] = []
    with suppress(OverloadedError):
        talk.do("stream_chat", prompt, seen.append)
    return seen


def test_a_stream_ends_with_one_event_that_says_how(start: Start) -> None:
    script = ["Hi.", OverloadedError("busy"), Message.assistant(ToolCall("1", "guarded", '{"a": 1}'))]
    talk = start(script, [guarded])
    first = _events(talk, "Hello")
    assert isinstance(first[-1], RunEnded)
    assert (first[-1].ending, first[-1].answer) == ("done", "Hi.")
    failed = _events(talk, "Hello")
    assert failed == [Failed("OverloadedError", "busy")]
    paused = _events(talk, "Hello")
    assert isinstance(paused[-1], RunEnded)
    assert paused[-1].ending == "await_approval"
    assert sum(isinstance(event, RunEnded | Failed) for event in first + failed + paused) == 3


def test_any_error_that_ends_a_run_is_a_failed_event() -> None:
    class Angry(LoopHooks):
        def after_model(self, *_: Any) -> None:
            raise ValueError("no")

    with ChatClient(ScriptedEngine(["Hi."]), hooks=[Angry()]) as client:
        seen: list[Event] = []
        with pytest.raises(ValueError, match="no"):
            client.stream_chat("Hello", seen.append)
    assert seen[-1] == Failed("ValueError", "no")


def test_hooks_are_called_for_failed_calls_and_questions() -> None:
    heard: list[str] = []

    class Listening(LoopHooks):
        def before_model(self, *_: Any) -> None:
            heard.append("before")

        def after_model(self, *_: Any) -> None:
            heard.append("after")

        def model_failed(self, _run: Any, error: Exception) -> None:
            heard.append(type(error).__name__)

    with ChatClient(ScriptedEngine([OverloadedError("busy"), "3"]), hooks=[Listening()]) as client:
        with pytest.raises(OverloadedError):
            client.chat("Hi")
        assert client.ask("How many?", int) == 3
    assert heard == ["before", "OverloadedError", "before", "after"]


def test_without_asyncio_the_async_client_raises() -> None:
    """As under trio."""
    turn = AsyncChatClient(AsyncScriptedEngine(["Hi."])).chat("Hello")
    with pytest.raises(ConfigurationError, match=r"no running asyncio event loop.*trio\.to_thread"):
        turn.send(None)
