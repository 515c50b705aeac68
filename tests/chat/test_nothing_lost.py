"""What was said to a client is in its history once, whatever else happens at that moment."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dragoman.chat.async_client import AsyncChatClient
from dragoman.chat.client import ChatClient
from dragoman.conversation import Conversation, Message, StopReason, Text, TextDelta, ToolCall, ToolCallDelta, Usage
from dragoman.engines.scripted import AsyncScriptedEngine, ScriptedEngine
from dragoman.errors import ConfigurationError, OverloadedError
from dragoman.loop.context import Summarise
from dragoman.loop.run import LoopRun
from dragoman.loop.settings import LoopHooks
from dragoman.tools.definition import tool
from dragoman.tools.permission import approve, deny
from tests.chat.talking import AsyncTalk, PlainTalk, Talk

DELETING = Message.assistant(ToolCall("c1", "delete", '{"path": "a"}'))
TWICE = Message.assistant(ToolCall("c1", "delete", '{"path": "a"}'), ToolCall("c2", "delete", '{"path": "b"}'))


@tool(requires_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@pytest.fixture(params=["plain", "async"])
def colour(request: pytest.FixtureRequest) -> str:
    return request.param


def _talk(colour: str, script: list[Any], tools: Any = (delete,), *, streamed: bool = False, **options: Any) -> Talk:
    if colour == "plain":
        return PlainTalk(ScriptedEngine(script, piece=4), tools, streamed=streamed, **options)
    return AsyncTalk(AsyncScriptedEngine(script, piece=4), tools, streamed=streamed, **options)


def _users(talk: Talk) -> list[str]:
    return [message.text for message in talk.client.history if message.role == "user"]


# --- a turn that fails -----------------------------------------------------------------------------------------------


def test_what_was_added_during_a_pause_survives_a_turn_that_fails(colour: str) -> None:
    talk = _talk(colour, [DELETING, OverloadedError("busy"), "As you like."])
    talk.chat("Delete a.")
    talk.client.add("It is big.")
    with pytest.raises(OverloadedError):
        talk.chat("Never mind.")
    assert [pending.call.id for pending in talk.client.pending] == ["c1"]
    talk.chat("Leave it.")
    assert _users(talk) == ["Delete a.", "It is big.", "Leave it."]
    assert talk.client.conversation.is_valid
    talk.close()


def test_what_was_said_meanwhile_stays_and_the_failed_prompt_goes(colour: str) -> None:
    talk: Talk

    class Steering(LoopHooks):
        def before_model(self, run: LoopRun) -> None:
            if not said:
                said.append("Hurry.")
                talk.client.add("Hurry.")
                run.add(Message.user("Please."))

    said: list[str] = []
    busy = OverloadedError("busy")
    talk = _talk(colour, [busy, "Hi."], hooks=[Steering()])
    with pytest.raises(OverloadedError):
        talk.chat("Hello")
    assert _users(talk) == ["Hurry.", "Please."]
    talk.chat("Hello")
    assert _users(talk) == ["Hurry.", "Please.", "Hello"]
    talk.close()


def test_a_turn_that_fails_after_the_history_was_shortened_leaves_no_trace_either(colour: str) -> None:
    full = Message(role="assistant", blocks=(Text("One."),), usage=Usage(input=90, output=9))
    talk = _talk(colour, [full, "A summary.", OverloadedError("busy")], context=[Summarise(keep=1)])
    talk.client.engine.profile = talk.client.engine.profile.with_changes(context_window=100)  # type: ignore[misc]
    talk.chat("a")
    before = talk.client.conversation
    with pytest.raises(OverloadedError) as caught:
        talk.chat("b")
    assert caught.value.conversation is not None
    assert [message.text for message in caught.value.conversation.messages][1:] == ["b"]
    assert talk.client.conversation == before
    talk.close()


def test_a_pause_survives_a_turn_in_which_nothing_was_run(colour: str) -> None:
    class Failing(LoopHooks):
        def before_tools(self, run: LoopRun, calls: tuple[ToolCall, ...]) -> None:
            if failing:
                failing.pop()
                message = "not now"
                raise OSError(message)

    failing: list[int] = []
    talk = _talk(colour, [DELETING, "Gone."], hooks=[Failing()])
    (pending,) = talk.chat("Delete a.").pending
    failing.append(1)
    with pytest.raises(OSError, match="not now"):
        talk.do("resume", approve(pending.call))
    assert [each.call for each in talk.client.pending] == [pending.call]
    assert talk.do("resume", approve(pending.call)).text == "Gone."
    talk.close()


# --- a question ------------------------------------------------------------------------------------------------------


def test_what_is_added_during_a_question_follows_its_answer(colour: str) -> None:
    talk: Talk

    def answer(_call: Any) -> str:
        talk.client.add("By the way.")
        return "42"

    talk = _talk(colour, [answer, "Fine."])
    assert talk.do("ask", "How many?", int) == 42
    assert [message.text for message in talk.client.history] == ["How many?", "42", "By the way."]
    talk.close()


def test_what_is_added_during_a_question_in_a_pause_is_there_too(colour: str) -> None:
    talk: Talk

    def answer(_call: Any) -> str:
        talk.client.add("By the way.")
        return "42"

    talk = _talk(colour, [DELETING, answer, "Fine."])
    talk.chat("Delete a.")
    talk.client.add("Before.")
    assert talk.do("ask", "How many?", int) == 42
    assert _users(talk) == ["Delete a.", "Before.", "How many?", "By the way."]
    assert talk.client.conversation.is_valid
    talk.close()


def test_a_correction_that_nobody_answered_leaves_no_trace(colour: str) -> None:
    talk = _talk(colour, ["many", OverloadedError("busy")])
    with pytest.raises(OverloadedError):
        talk.do("ask", "How many?", int)
    assert [message.text for message in talk.client.history] == ["How many?", "many"]
    talk.close()


# --- answers about pending calls -------------------------------------------------------------------------------------


def test_a_prompt_together_with_answers_follows_the_results(colour: str) -> None:
    talk = _talk(colour, [TWICE, "Half done."])
    first, second = talk.chat("Delete both.").pending
    assert talk.chat("And then stop.", approve(first.call)).text == "Half done."
    assert [result.is_error for result in talk.client.history[2].tool_results] == [False, True]
    assert _users(talk) == ["Delete both.", "And then stop."]
    assert talk.client.pending == ()
    assert talk.client.conversation.is_valid
    assert second.call.id == "c2"
    talk.close()


def test_the_reason_of_a_refusal_reaches_the_model(colour: str) -> None:
    talk = _talk(colour, [DELETING, "I see."])
    (pending,) = talk.chat("Delete a.").pending
    talk.do("resume", deny(pending.call, reason="it is Ada's"))
    assert "it is Ada's" in talk.client.history[2].tool_results[0].text
    talk.close()


def test_an_old_answer_does_not_hold_for_a_later_call_that_looks_the_same(colour: str) -> None:
    talk = _talk(colour, [DELETING, "Gone.", DELETING, "Gone again."])
    (pending,) = talk.chat("Delete a.").pending
    answer = approve(pending.call)
    talk.do("resume", answer)
    assert talk.chat("Once more.", answer).pending == (pending,)
    talk.close()


# --- several at once -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["turns", "questions"])
def test_whatever_another_thread_adds_is_there_once_and_in_order(what: str) -> None:
    with ChatClient(ScriptedEngine(["Yes."] * 300)) as client:
        done = threading.Event()
        added = 0

        def keep_adding() -> None:
            nonlocal added
            while not done.is_set() and added < 20_000:
                client.add(f"note {added}")
                added += 1

        adding = threading.Thread(target=keep_adding)
        adding.start()
        for number in range(60):
            client.chat(f"turn {number}") if what == "turns" else client.ask(f"turn {number}")
        done.set()
        adding.join()
        notes = [message.text for message in client.history if message.text.startswith("note")]
        assert notes == [f"note {number}" for number in range(added)]
        assert client.conversation.is_valid


def test_a_save_while_another_thread_adds_is_what_it_says(tmp_path: Any) -> None:
    from dragoman.stores.sqlite import SqliteStore

    with SqliteStore(tmp_path / "talks.db") as store, ChatClient(ScriptedEngine(["Yes."]), store=store) as client:
        done = threading.Event()

        def keep_adding() -> None:
            for number in range(5000):
                client.add(f"note {number}")
                if done.is_set():
                    return

        adding = threading.Thread(target=keep_adding)
        adding.start()
        for _ in range(40):
            saved = client.save()
            assert store.load(saved.id) == saved
        done.set()
        adding.join()
        client.save()
        assert store.latest(client.id or "").conversation == client.conversation


# --- replies that broke off ------------------------------------------------------------------------------------------


def test_speaking_into_a_call_that_is_cut_short_leaves_a_valid_history(colour: str) -> None:
    talk: Talk

    def stop(event: Any) -> bool | None:
        if isinstance(event, ToolCallDelta):
            talk.client.add("Stop it.")
            talk.client.cancel()
        return None

    talk = _talk(colour, [Message.assistant("I delete.", *DELETING.blocks), "Fine."], streamed=True)
    talk.chat("Delete a.", callback=stop)
    assert talk.client.conversation.is_valid
    assert talk.chat("Go on.").text == "Fine."
    assert _users(talk) == ["Delete a.", "Stop it.", "Go on."]
    talk.close()


def test_a_reply_that_was_nothing_but_a_cut_call_was_no_reply(colour: str) -> None:
    talk = _talk(colour, [DELETING, "Fine."], streamed=True)
    talk.chat("Delete a.", callback=lambda event: not isinstance(event, ToolCallDelta))
    assert talk.client.history == ()
    talk.close()


@pytest.mark.parametrize("streamed", [False, True])
def test_calls_that_no_result_could_name_are_not_run(colour: str, streamed: bool) -> None:
    ran: list[int] = []

    @tool
    def note(a: int) -> int:
        """Note it."""
        ran.append(a)
        return a

    odd = Message.assistant(
        ToolCall("same", "note", '{"a": 1}'), ToolCall("same", "note", '{"a": 2}'), ToolCall("", "note", '{"a": 3}')
    )
    talk = _talk(colour, [odd, "Done."], [note], streamed=streamed)
    assert talk.chat("Go.").text == "Done."
    assert ran == [1]
    assert talk.client.conversation.is_valid
    talk.close()


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
        [""],
        Text(""),
        {"role": "user", "content": "Hello"},
        b"Hello",
        42,
    ],
    ids=lambda odd: str(odd)[:60],
)
def test_a_message_that_would_spoil_the_history_is_refused(colour: str, odd: Any) -> None:
    talk = _talk(colour, ["Hi."])
    with pytest.raises(ConfigurationError):
        talk.client.add(odd)
    with pytest.raises(ConfigurationError):
        talk.chat(odd)
    assert talk.client.history == ()
    assert talk.chat("Hello").text == "Hi."
    talk.close()


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


def test_a_reply_that_ended_in_an_error_has_no_result_but_its_words_stay() -> None:
    cut = Message(role="assistant", blocks=(Text("Once upon"),), stop_reason=StopReason.INTERRUPTED)
    with ChatClient(ScriptedEngine([cut, "Fine."])) as client:
        client.chat("Tell.")
        assert client.history[-1].interrupted
        with client.stream_chat("Go on.") as stream:
            for _ in stream:
                pass
        assert stream.result.text == "Fine."
