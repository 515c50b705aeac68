"""What a client does with its conversation, in both colours."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import pytest

from dragoman.chat import AsyncChatClient, ChatClient
from dragoman.conversation import Conversation, Media, Message, TextDelta, Thinking, ToolCall
from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from dragoman.errors import (
    ConcurrentUseError,
    ConfigurationError,
    LossyConversionError,
    OverloadedError,
)
from tests.chat.scenarios import add
from tests.chat.talking import Start

ADDING = Message.assistant(ToolCall("c1", "add", '{"a": 1, "b": 2}'))
DELETING = Message.assistant(ToolCall("c1", "delete", '{"path": "a"}'))


# --- both colours are one client -------------------------------------------------------------------------------------


def test_both_colours_have_the_same_surface() -> None:
    def surface(kind: type) -> dict[str, list[str]]:
        names = {"aclose": "close", "__aenter__": "__enter__", "__aexit__": "__exit__"}
        found: dict[str, list[str]] = {}
        for name, member in inspect.getmembers(kind):
            if name.startswith("_") and name not in names and name not in names.values():
                continue
            parameters = list(inspect.signature(member).parameters) if inspect.isfunction(member) else []
            found[names.get(name, name)] = parameters
        return found

    plain, on_loop = surface(ChatClient), surface(AsyncChatClient)
    assert plain == on_loop
    assert inspect.getdoc(ChatClient.ask) == inspect.getdoc(AsyncChatClient.ask)


# --- add, chat, history ----------------------------------------------------------------------------------------------


def test_added_messages_are_read_with_the_next_prompt(start: Start) -> None:
    talk = start(["Blue.", "Yes."])
    talk.client.add("My favourite colour is blue.")
    talk.client.add(["Look:", Media.from_bytes(b"x", "image/png")])
    talk.client.add(Message.assistant("I see."))  # an example in the model's mouth
    assert str(talk.chat("Which is it?")) == "Blue."
    assert [message.text for message in talk.client.history] == [
        "My favourite colour is blue.",
        "Look:",
        "I see.",
        "Which is it?",
        "Blue.",
    ]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_failed_turn_keeps_only_what_was_done(start: Start, streamed: bool) -> None:
    talk = start([OverloadedError("busy"), "Hi."], streamed=streamed)
    talk.client.add("Note this.")
    with pytest.raises(OverloadedError) as caught:
        talk.chat("Hello")
    assert caught.value.conversation is not None
    assert caught.value.conversation.messages[-1].text == "Hello"
    assert [message.text for message in talk.client.history] == ["Note this."]  # pending adds survive
    talk.chat("Hello")
    assert [message.text for message in talk.client.history] == ["Note this.", "Hello", "Hi."]
    # What was done before a failure stays.
    talk = start([ADDING, OverloadedError("busy"), "Three."], [add], streamed=streamed)
    with pytest.raises(OverloadedError):
        talk.chat("Add.")
    assert [message.role for message in talk.client.history] == ["user", "assistant", "tool"]
    assert talk.chat().text == "Three."  # without a prompt it goes on from where it stands


# --- one caller at a time --------------------------------------------------------------------------------------------


def test_a_second_caller_meanwhile_gets_an_error_and_nothing_is_corrupted() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(_call: Any) -> str:
        inside.set()
        go_on.wait(30)
        return "Hi."

    with ChatClient(ScriptedEngine([slow, "again"])) as client:
        first = threading.Thread(target=client.chat, args=("Hello",))
        first.start()
        inside.wait(30)
        for use in (
            lambda: client.chat("x"),
            lambda: client.ask("x"),
            client.save,
            client.fork,
            lambda: client.set_tools([]),
            lambda: list(client.stream_chat("x")),
            lambda: client.switch(ScriptedEngine([])),
        ):
            with pytest.raises(ConcurrentUseError, match="busy with another turn"):
                use()
        client.add("While you are at it.")  # this is steering, and allowed
        go_on.set()
        first.join()
        assert [message.text for message in client.history] == ["Hello", "Hi.", "While you are at it.", "again"]
        assert client.conversation.is_valid


def test_a_stateless_client_is_shared_freely() -> None:
    def echo(call: Any) -> str:
        return call.conversation.messages[-1].text

    with ChatClient(ScriptedEngine([echo] * 200), system="Be brief.", stateless=True) as client:
        said: list[str] = []

        def talk(number: int) -> None:
            said.extend([str(client.chat(f"{number}.{turn}")) for turn in range(10)])

        threads = [threading.Thread(target=talk, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(said) == sorted(f"{number}.{turn}" for number in range(20) for turn in range(10))
        assert client.history == ()


def test_only_a_stateless_client_takes_a_conversation(start: Start) -> None:
    talk = start(["One.", "Two."], stateless=True)
    first = talk.chat("Count.")
    second = talk.do("chat", "More.", conversation=first.conversation)
    assert [message.text for message in second.conversation.messages] == ["Count.", "One.", "More.", "Two."]
    talk = start(["x"])
    with pytest.raises(ConfigurationError, match="conversation of its own"):
        talk.do("chat", "x", conversation=Conversation())
    assert talk.chat("x").text == "x"  # and the client is free again


# --- streams ---------------------------------------------------------------------------------------------------------


def test_a_stream_that_nobody_iterates_does_not_block_the_client() -> None:
    with ChatClient(ScriptedEngine(["Hi."])) as client:
        stream = client.stream_chat("Hello")
        assert client.history == ()
        assert str(client.chat("Hello")) == "Hi."
        with pytest.raises(ConfigurationError, match="has not started"):
            _ = stream.result


def test_a_callback_that_raises_stops_the_turn_with_its_error(start: Start) -> None:
    def stop(event: Any) -> None:
        if isinstance(event, TextDelta):
            message = "enough"
            raise RuntimeError(message)

    talk = start(["A long story.", "Fine."], streamed=True)
    with pytest.raises(RuntimeError, match="enough"):
        talk.chat("Tell.", callback=stop)
    assert talk.client.conversation.last is not None
    assert talk.client.conversation.last.interrupted
    assert talk.chat("Go on.").text == "Fine."


def test_an_async_callback_is_awaited() -> None:
    async def main() -> int:
        heard = 0

        async def hear(_event: Any) -> None:
            nonlocal heard
            await asyncio.sleep(0)
            heard += 1

        async with AsyncChatClient(AsyncScriptedEngine(["Hi."])) as client:
            await client.stream_chat("Hello", hear)
        return heard

    assert asyncio.run(main()) == 6


# --- other models, branches ------------------------------------------------------------------------------------------


class Forgetful(ScriptedEngine):
    """Does not get the thoughts of others."""

    def losses(self, conversation: Conversation) -> Any:
        thoughts = [
            block for message in conversation.messages for block in message.blocks if isinstance(block, Thinking)
        ]
        return tuple(f"thought {thought.text!r}" for thought in thoughts)


def test_a_switch_reports_what_is_lost_or_refuses() -> None:
    thinking = Message.assistant(Thinking("hm", "scripted"), "Hi.")
    with ChatClient(ScriptedEngine([thinking])) as client:
        client.chat("Hello")
        with pytest.raises(LossyConversionError):
            client.switch(Forgetful(["x"], name="other:model"), strict=True)
        assert client.model == "scripted:model"
        assert client.switch(Forgetful(["Still here."], name="other:model")) == ("thought 'hm'",)
        assert client.model == "other:model"
        assert str(client.chat("And now?")) == "Still here."
