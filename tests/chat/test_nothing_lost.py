"""What was said to a client is in its history once, whatever else happens at that moment."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dragoman.chat import AsyncChatClient, ChatClient
from dragoman.conversation import Conversation, Message, Text, TextDelta, ToolCall, ToolCallDelta, Usage
from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from dragoman.errors import ConfigurationError, OverloadedError
from dragoman.loop import LimitReached, Limits, LoopHooks, LoopRun, Summarise
from dragoman.tools import approve
from tests.chat.scenarios import delete
from tests.chat.talking import Start, Talk

DELETING = Message.assistant(ToolCall("c1", "delete", '{"path": "a"}'))
TWICE = Message.assistant(ToolCall("c1", "delete", '{"path": "a"}'), ToolCall("c2", "delete", '{"path": "b"}'))


TOOLS = (delete,)


def _users(talk: Talk) -> list[str]:
    return [message.text for message in talk.client.history if message.role == "user"]


# --- a turn that fails -----------------------------------------------------------------------------------------------


def test_what_was_said_meanwhile_stays_and_the_failed_prompt_goes(start: Start) -> None:
    talk: Talk

    class Steering(LoopHooks):
        def before_model(self, run: LoopRun) -> None:
            if not said:
                said.append("Hurry.")
                talk.client.add("Hurry.")
                run.add(Message.user("Please."))

    said: list[str] = []
    busy = OverloadedError("busy")
    talk = start([busy, "Hi."], hooks=[Steering()])
    with pytest.raises(OverloadedError):
        talk.chat("Hello")
    assert _users(talk) == ["Hurry.", "Please."]
    talk.chat("Hello")
    assert _users(talk) == ["Hurry.", "Please.", "Hello"]


def test_a_turn_that_fails_after_the_history_was_shortened_leaves_no_trace_either(start: Start) -> None:
    full = Message(role="assistant", blocks=(Text("One."),), usage=Usage(input=90, output=9))
    talk = start([full, "A summary.", OverloadedError("busy")], context=[Summarise(keep=1)])
    talk.client.engine.profile = talk.client.engine.profile.with_changes(context_window=100)  # type: ignore[misc]
    talk.chat("a")
    before = talk.client.conversation
    with pytest.raises(OverloadedError) as caught:
        talk.chat("b")
    assert caught.value.conversation is not None
    assert [message.text for message in caught.value.conversation.messages][1:] == ["b"]
    assert talk.client.conversation == before


def test_whoever_leaves_with_the_last_event_cuts_nothing_short(start: Start) -> None:
    talk = start([], streamed=True, limits=Limits(steps=0), on_limit="return")
    result = talk.chat("Hello", callback=lambda _event: False)
    assert isinstance(result.ending, LimitReached)
    assert _users(talk) == ["Hello"]


# --- a question ------------------------------------------------------------------------------------------------------


def test_what_is_added_during_a_question_in_a_pause_is_there_too(start: Start) -> None:
    talk: Talk

    def answer(_call: Any) -> str:
        talk.client.add("By the way.")
        return "42"

    talk = start([DELETING, answer, "Fine."])
    talk.chat("Delete a.")
    talk.client.add("Before.")
    assert talk.do("ask", "How many?", int) == 42
    assert _users(talk) == ["Delete a.", "Before.", "How many?", "By the way."]
    assert talk.client.conversation.is_valid


# --- answers about pending calls -------------------------------------------------------------------------------------


def test_a_prompt_together_with_answers_follows_the_results(start: Start) -> None:
    talk = start([TWICE, "Half done."])
    first, second = talk.chat("Delete both.").pending
    assert talk.chat("And then stop.", approve(first.call)).text == "Half done."
    assert [result.is_error for result in talk.client.history[2].tool_results] == [False, True]
    assert _users(talk) == ["Delete both.", "And then stop."]
    assert talk.client.pending == ()
    assert talk.client.conversation.is_valid
    assert second.call.id == "c2"


# --- replies that broke off ------------------------------------------------------------------------------------------


def test_speaking_into_a_call_that_is_cut_short_leaves_a_valid_history(start: Start) -> None:
    talk: Talk

    def stop(event: Any) -> bool | None:
        if isinstance(event, ToolCallDelta):
            talk.client.add("Stop it.")
            talk.client.cancel()
        return None

    talk = start([Message.assistant("I delete.", *DELETING.blocks), "Fine."], streamed=True)
    talk.chat("Delete a.", callback=stop)
    assert talk.client.conversation.is_valid
    assert talk.chat("Go on.").text == "Fine."
    assert _users(talk) == ["Delete a.", "Stop it.", "Go on."]
    # One that was nothing but a cut call was no reply.
    talk = start([DELETING, "Fine."], streamed=True)
    talk.chat("Delete a.", callback=lambda event: not isinstance(event, ToolCallDelta))
    assert talk.client.history == ()


# --- what a client may be told ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "odd",
    [
        Message.user(),
        Message.assistant(),
        Message.tool([]),
        Message.user(ToolCall("c1", "delete", "{}")),
        Message.assistant(ToolCall("c1", "delete", '{"pa', partial=True)),
        Message.assistant(ToolCall("", "delete", "{}")),
        "",
        [],
        (),
        [""],
        Text(""),
        {"role": "user", "content": "Hello"},
        b"Hello",
        42,
    ],
    ids=lambda odd: str(odd)[:60],
)
def test_a_message_that_would_spoil_the_history_is_refused(start: Start, odd: Any) -> None:
    talk = start(["Hi."])
    with pytest.raises(ConfigurationError):
        talk.client.add(odd)
    with pytest.raises(ConfigurationError):
        talk.chat(odd)
    assert talk.client.history == ()
    assert talk.chat("Hello").text == "Hi."


# --- a stream in other hands -----------------------------------------------------------------------------------------


def test_a_stream_may_be_read_and_closed_by_other_threads() -> None:
    with ChatClient(ScriptedEngine(["A long story.", "Fine."], piece=2)) as client:
        stream = client.stream_chat("Tell.")
        events = iter(stream)
        next(events)
        reader = threading.Thread(target=next, args=(events,))
        reader.start()
        reader.join()
        closer = threading.Thread(target=stream.close)
        closer.start()
        closer.join()
        assert str(client.chat("Go on.")) == "Fine."
        assert client.conversation.is_valid


def test_closing_a_stream_that_another_thread_reads_stops_the_turn() -> None:
    reading, go_on = threading.Event(), threading.Event()

    def slow(_call: Any) -> str:
        reading.set()
        go_on.wait(30)
        return "A long story."

    with ChatClient(ScriptedEngine([slow, "Fine."], piece=2)) as client:
        stream = client.stream_chat("Tell.")
        heard: list[Any] = []
        reader = threading.Thread(target=lambda: heard.extend(stream))
        reader.start()
        reading.wait(30)
        stream.close()
        go_on.set()
        reader.join()
        assert not any(isinstance(event, TextDelta) for event in heard)
        assert str(client.chat("Go on.")) == "Fine."


def test_a_stream_that_is_dropped_half_way_frees_the_client() -> None:
    with ChatClient(ScriptedEngine(["A long story.", "Fine."], piece=2)) as client:
        for event in client.stream_chat("Tell."):
            if isinstance(event, TextDelta):
                break
        assert str(client.chat("Go on.")) == "Fine."
        assert [message.text for message in client.history] == ["Tell.", "A ", "Go on.", "Fine."]


def test_an_async_stream_that_is_dropped_half_way_frees_the_client() -> None:
    async def main() -> Conversation:
        async with AsyncChatClient(AsyncScriptedEngine(["A long story.", "Fine."], piece=2)) as client:
            async for event in client.stream_chat("Tell."):
                if isinstance(event, TextDelta):
                    break
            for _ in range(10):  # asyncio closes what was dropped a little later
                await asyncio.sleep(0)
            await client.chat("Go on.")
            return client.conversation

    assert [message.text for message in asyncio.run(main()).messages] == ["Tell.", "A ", "Go on.", "Fine."]
