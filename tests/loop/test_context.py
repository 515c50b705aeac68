"""Keeping a conversation within the model's window without breaking it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given

from dragoman._stepping import step
from dragoman.conversation import Conversation, Media, Message, StopReason, Text, ToolCall, ToolResult, Usage
from dragoman.engines import ScriptedEngine
from dragoman.errors import ConfigurationError, InvalidConversationError, OverloadedError
from dragoman.loop import (
    AskModel,
    Cancelled,
    ContextUse,
    Done,
    DropToolResults,
    LimitReached,
    Limits,
    LoopHooks,
    LoopRun,
    NoAnswer,
    Orchestrator,
    RefuseCalls,
    RunTools,
    Summarise,
    next_step,
)
from dragoman.providers import estimated_tokens
from tests.loop.running import ASKED, add, calls
from tests.strategies import conversations


async def _nobody(_asked: Conversation) -> Message:
    raise AssertionError


FULL = ContextUse(95, 100, _nobody)


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


def _shorten(policy: Summarise, conversation: Conversation, answer: str = "", tokens: int = 95) -> Conversation:
    async def ask(_asked: Conversation) -> Message:
        return Message.assistant(answer)

    return step(policy(conversation, ContextUse(tokens, 100, ask)))


def test_the_size_is_the_reported_usage_plus_what_was_added() -> None:
    reported = Message(role="assistant", blocks=(Text("x"),), usage=Usage(input=900, output=100))
    conversation = Conversation("s" * 400).plus(Message.user("y" * 4000), reported, Message.user("z" * 40))
    assert estimated_tokens(conversation) == 1000 + 4 + 10
    assert estimated_tokens(conversation.up_to(1)) == 100 + 4 + 1000
    assert estimated_tokens(Conversation().plus(Message.user(Media.from_bytes(b"x", "image/png")))) > 1000


def test_the_oldest_results_are_dropped_first() -> None:
    before = _long(5)
    for use in (ContextUse(10, 100, _nobody), ContextUse(10**9, None, _nobody)):
        assert DropToolResults()(before, use) is before
    after = DropToolResults(keep=2)(before, FULL)
    dropped = ["dropped" in message.tool_results[0].text for message in after.messages if message.role == "tool"]
    assert dropped == [True, True, True, False, False]
    assert after.is_valid
    assert DropToolResults(keep=2)(after, FULL) is after  # a second time there is nothing left to do
    assert DropToolResults(keep=9)(before, FULL) is before


def test_the_older_part_becomes_a_summary() -> None:
    before = _long(5)
    assert _shorten(Summarise(), before, tokens=10) is before
    after = _shorten(Summarise(keep=2), before, "We spoke of three things.")
    assert after.is_valid
    assert "We spoke of three things." in after.messages[0].text
    assert after.messages[1:] == before.messages[12:]
    assert after.system == "Be brief."


def test_an_empty_summary_and_a_first_turn_change_nothing() -> None:
    for before in (_long(5), ASKED, Conversation()):
        assert _shorten(Summarise(), before, "  ") is before


CUT_CALL = Message("assistant", (ToolCall("c1", "look", partial=True),), stop_reason=StopReason.MAX_TOKENS)


@given(conversations)
@example(Conversation(messages=(CUT_CALL,)))  # of which nothing is left once it is repaired
def test_every_conversation_has_a_next_step_and_no_policy_breaks_it(conversation: Conversation) -> None:
    if conversation.messages:
        next = next_step(conversation, Limits())
        if isinstance(next, RunTools):
            assert next.calls == conversation.pending_tool_calls
        elif isinstance(next, AskModel):
            assert not conversation.pending_tool_calls
        elif isinstance(next, RefuseCalls | NoAnswer):
            reply = next.reply if isinstance(next, RefuseCalls) else next.message
            assert reply.cut_off
            assert reply.tool_calls
            assert not conversation.pending_tool_calls
            repaired = conversation.repaired().conversation
            assert not repaired.messages or not isinstance(next_step(repaired, Limits()), RefuseCalls)
        else:
            assert next == Done(conversation.messages[-1])
    valid = conversation.repaired().conversation
    assert DropToolResults(keep=0)(valid, FULL).is_valid
    assert _shorten(Summarise(keep=1), valid, "summary").is_valid


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


def _with_policy(script: list[Any], *policies: Any, **options: Any) -> tuple[Any, ScriptedEngine]:
    engine = _small_window(script)
    with Orchestrator(engine, [add], context=policies, on_limit="return", **options) as loop:
        return loop.run(_long(5).plus(Message.user("And now?"))), engine


def test_a_summary_that_reaches_a_limit_is_not_followed_by_a_call_beyond_it() -> None:
    result, engine = _with_policy(["In short.", "Too much."], Summarise(), limits=Limits(model_calls=1))
    assert isinstance(result.ending, LimitReached)
    assert len(engine.calls) == 1
    assert result.conversation.is_valid


def test_a_run_cancelled_during_a_summary_makes_no_further_call() -> None:
    def cancelling(_call: Any) -> str:
        run.cancel()
        return "In short."

    engine = _small_window([cancelling, "Too much."])
    loop = Orchestrator(engine, [add], context=[Summarise()])
    with loop, loop.stream(_long(5).plus(Message.user("And now?"))) as run:
        for _ in run:
            pass
    assert isinstance(run.result.ending, Cancelled)
    assert len(engine.calls) == 1


def test_a_policy_is_called_once_before_each_model_call() -> None:
    asked: list[int] = []

    def watching(conversation: Conversation, use: ContextUse) -> Conversation:
        asked.append(len(conversation.messages))
        return conversation

    engine = ScriptedEngine([calls(1), calls(2), "Done."])
    with Orchestrator(engine, [add], context=[watching]) as loop:
        loop.run(ASKED)
    assert asked == [1, 3, 5]


def test_a_policy_may_catch_a_failed_model_call() -> None:
    async def careful(conversation: Conversation, use: ContextUse) -> Conversation:
        try:
            await use.ask(conversation.plus(Message.user("Summarise.")))
        except OverloadedError:
            return conversation.up_to(0).plus(*conversation.messages[-1:])
        return conversation

    result, _ = _with_policy([OverloadedError("busy"), "Fine."], careful)
    assert [message.text for message in result.conversation.messages] == ["And now?", "Fine."]


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        (lambda conversation, _use: conversation.plus(calls(7), Message.user("x")), InvalidConversationError),
        (lambda _conversation, _use: None, ConfigurationError),
    ],
)
def test_a_policy_must_return_a_conversation(policy: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        _with_policy(["x"], policy)
