"""Keeping a conversation within the model's window without breaking it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given

from dragoman.conversation import Conversation, Media, Message, Text, ToolCall, ToolResult, Usage
from dragoman.engines.scripted import ScriptedEngine
from dragoman.errors import ConfigurationError, InvalidConversationError, OverloadedError
from dragoman.loop.context import ContextUse, DropToolResults, Summarise, estimated_tokens
from dragoman.loop.hooks import LoopHooks
from dragoman.loop.limits import Limits
from dragoman.loop.orchestrator import Orchestrator
from dragoman.loop.run import Cancelled, LoopRun
from dragoman.loop.step import LimitReached
from tests.loop.running import ASKED, add, calls
from tests.strategies import conversations

FULL = ContextUse(tokens=95, window=100)


def _turn(number: int, length: int = 400) -> list[Message]:
    call = ToolCall(f"c{number}", "t", "{}")
    return [
        Message.user(f"question {number}"),
        Message.assistant(call),
        Message.tool([ToolResult(call.id, "t", (Text("x" * length),))]),
        Message.assistant(f"answer {number}"),
    ]


def _long(turns: int) -> Conversation:
    return Conversation("Be brief.").plus(*[message for number in range(turns) for message in _turn(number)])


def _drained(shortening: Any, answer: str) -> Conversation:
    assert isinstance(shortening, Generator)
    next(shortening)
    try:
        shortening.send(Message.assistant(answer))
    except StopIteration as stop:
        return stop.value
    raise AssertionError


def test_the_size_is_the_models_own_report_and_what_came_since() -> None:
    reported = Message(role="assistant", blocks=(Text("x"),), usage=Usage(input=900, output=100))
    conversation = Conversation("s" * 400).plus(Message.user("y" * 4000), reported, Message.user("z" * 40))
    assert estimated_tokens(conversation) == 1000 + 4 + 10
    assert estimated_tokens(conversation.up_to(1)) == 100 + 4 + 1000
    assert estimated_tokens(Conversation().plus(Message.user(Media.from_bytes(b"x", "image/png")))) > 1000


def test_an_unknown_window_is_never_full() -> None:
    assert not ContextUse(tokens=10**9, window=None).beyond(0.1)


def test_the_oldest_results_are_dropped_first() -> None:
    before = _long(5)
    assert DropToolResults()(before, ContextUse(tokens=10, window=100)) is before
    after = DropToolResults(keep=2)(before, FULL)
    dropped = ["dropped" in message.tool_results[0].text for message in after.messages if message.role == "tool"]
    assert dropped == [True, True, True, False, False]
    assert after.is_valid
    assert DropToolResults(keep=2)(after, FULL) is after  # a second time there is nothing left to do
    assert DropToolResults(keep=9)(before, FULL) is before


def test_the_older_part_becomes_a_summary() -> None:
    before = _long(5)
    assert Summarise()(before, ContextUse(tokens=10, window=100)) is before
    after = _drained(Summarise(keep=2)(before, FULL), "We spoke of three things.")
    assert after.is_valid
    assert "We spoke of three things." in after.messages[0].text
    assert after.messages[1:] == before.messages[12:]
    assert after.system == "Be brief."


def test_a_summary_that_is_empty_changes_nothing() -> None:
    before = _long(5)
    assert _drained(Summarise()(before, FULL), "  ") is before


def test_there_is_nothing_to_summarise_in_a_first_turn() -> None:
    assert Summarise()(ASKED, FULL) is ASKED
    assert Summarise()(Conversation(), FULL) == Conversation()


@given(conversations)
def test_no_policy_breaks_a_conversation(conversation: Conversation) -> None:
    valid = conversation.repaired().conversation
    assert DropToolResults(keep=0)(valid, FULL).is_valid
    shortened = Summarise(keep=1)(valid, FULL)
    if isinstance(shortened, Generator):
        shortened = _drained(shortened, "summary")
    assert shortened.is_valid


def _small_window(script: list[Any]) -> ScriptedEngine:
    engine = ScriptedEngine(script)
    engine.profile = engine.profile.with_changes(context_window=200)
    return engine


def test_the_loop_has_the_model_summarise_without_tools_and_counts_it() -> None:
    told: list[Conversation] = []

    class Watching(LoopHooks):
        def compacted(self, run: LoopRun, before: Conversation) -> None:
            assert run.conversation is not before
            told.append(before)

    engine = _small_window(["In short: things.", "Fine."])
    before = _long(5).plus(Message.user("And now?"))
    with Orchestrator(engine, [add], context=[Summarise()], hooks=[Watching()]) as loop, loop.stream(before) as stream:
        texts = "".join([getattr(event, "text", "") for event in stream])
    assert texts == "Fine."  # the summary is not part of the conversation that the caller sees
    assert engine.calls[0].tools == ()
    assert "In short: things." in engine.calls[1].conversation.messages[0].text
    assert (stream.result.spent.steps, stream.result.spent.model_calls) == (1, 2)
    assert told == [before]


def test_calls_for_a_summary_count_against_the_limit_of_model_calls() -> None:
    engine = _small_window(["In short.", "Fine."])
    with Orchestrator(engine, context=[Summarise()], limits=Limits(model_calls=2)) as loop:
        assert loop.run(_long(5).plus(Message.user("And?"))).spent.model_calls == 2


def test_a_policy_that_breaks_the_conversation_is_refused() -> None:
    def careless(conversation: Conversation, use: ContextUse) -> Conversation:
        return conversation.plus(calls(7)).plus(Message.user("x"))

    loop = Orchestrator(ScriptedEngine(["x"]), [add], context=[careless])
    with loop, pytest.raises(InvalidConversationError):
        loop.run(ASKED)


def _with_policy(script: list[Any], *policies: Any, **options: Any) -> tuple[Any, ScriptedEngine]:
    engine = _small_window(script)
    with Orchestrator(engine, [add], context=policies, on_limit="return", **options) as loop:
        return loop.run(_long(5).plus(Message.user("And now?"))), engine


def test_a_summary_that_reaches_a_limit_is_not_followed_by_a_call_beyond_it() -> None:
    result, engine = _with_policy(["In short.", "Too much."], Summarise(), limits=Limits(model_calls=1))
    assert isinstance(result.ending, LimitReached)
    assert len(engine.calls) == 1
    assert result.conversation.is_valid


def test_a_run_that_is_cancelled_while_a_summary_is_made_asks_nothing_more() -> None:
    def cancelling(_call: Any) -> str:
        run.cancel()
        return "In short."

    engine = _small_window([cancelling, "Too much."])
    with Orchestrator(engine, [add], context=[Summarise()]) as loop:
        run = loop.start(_long(5).plus(Message.user("And now?")))
        for _ in loop.drive(run):
            pass
    assert isinstance(run.result.ending, Cancelled)
    assert len(engine.calls) == 1


def test_a_policy_is_asked_once_before_each_call_of_the_model() -> None:
    asked: list[int] = []

    def watching(conversation: Conversation, use: ContextUse) -> Conversation:
        asked.append(len(conversation.messages))
        return conversation

    engine = ScriptedEngine([calls(1), calls(2), "Done."])
    with Orchestrator(engine, [add], context=[watching]) as loop:
        loop.run(ASKED)
    assert asked == [1, 3, 5]


def test_a_policy_may_do_without_the_model_when_that_fails() -> None:
    def careful(conversation: Conversation, use: ContextUse) -> Any:
        try:
            yield conversation.plus(Message.user("Summarise."))
        except OverloadedError:
            return conversation.up_to(0).plus(*conversation.messages[-1:])
        return conversation

    result, _ = _with_policy([OverloadedError("busy"), "Fine."], careful)
    assert [message.text for message in result.conversation.messages] == ["And now?", "Fine."]


def test_a_summary_that_fails_ends_the_run_with_its_error() -> None:
    with pytest.raises(OverloadedError):
        _with_policy([OverloadedError("busy"), "Fine."], Summarise())


def test_a_policy_that_forgets_to_return_something_is_told_so() -> None:
    with pytest.raises(ConfigurationError, match="policy gave back a NoneType"):
        _with_policy(["x"], lambda _conversation, _use: None)
