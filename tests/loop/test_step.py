"""What comes next, from data alone."""

from __future__ import annotations

import pytest
from hypothesis import given

from dragoman.conversation import Conversation, Message, StopReason, Text, ToolCall, ToolResult
from dragoman.errors import InvalidConversationError
from dragoman.loop.limits import Limits, Spent
from dragoman.loop.step import AskModel, AwaitApproval, Done, LimitReached, RunTools, next_step
from dragoman.tools.permission import PendingApproval
from tests.strategies import conversations

ONE, TWO = ToolCall("1", "a", "{}"), ToolCall("2", "b", "{}")
ASKED = Conversation().plus(Message.user("Hi"))
CALLED = ASKED.plus(Message.assistant(ONE, TWO))


def _result(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, call.name, (Text("done"),))


def _ended(reason: StopReason) -> Conversation:
    return ASKED.plus(Message(role="assistant", blocks=(Text("Well"),), stop_reason=reason))


def test_a_message_of_the_user_is_for_the_model() -> None:
    assert next_step(ASKED, Limits()) == AskModel(first=True)
    assert next_step(ASKED, Limits(), Spent(steps=1)) == AskModel(first=False)


def test_calls_are_run_and_then_the_model_is_asked() -> None:
    assert next_step(CALLED, Limits()) == RunTools((ONE, TWO))
    half = CALLED.plus(Message.tool([_result(ONE)]))
    assert next_step(half, Limits()) == RunTools((TWO,))
    # In the middle of a turn, so that a choice of `required` does not force yet another call after an approval.
    assert next_step(CALLED.plus(Message.tool([_result(ONE), _result(TWO)])), Limits()) == AskModel(first=False)


def test_calls_that_wait_for_a_person_are_not_run() -> None:
    waiting = (PendingApproval(call=ONE), PendingApproval(call=TWO))
    assert next_step(CALLED, Limits(), waiting=waiting[:1]) == RunTools((TWO,))
    assert next_step(CALLED, Limits(), waiting=waiting) == AwaitApproval(waiting)


def test_a_call_that_waited_earlier_under_the_same_id_holds_nobody_up() -> None:
    earlier = PendingApproval(call=ToolCall("1", "a", '{"x": 1}'))
    assert next_step(CALLED, Limits(), waiting=[earlier]) == RunTools((ONE, TWO))


@pytest.mark.parametrize("reason", [StopReason.END, StopReason.MAX_TOKENS, StopReason.REFUSAL, StopReason.INTERRUPTED])
def test_an_answer_without_calls_is_the_end(reason: StopReason) -> None:
    step = next_step(_ended(reason), Limits())
    assert isinstance(step, Done)
    assert step.stop_reason is reason


def test_a_paused_turn_is_asked_again() -> None:
    assert next_step(_ended(StopReason.PAUSED), Limits()) == AskModel(first=False)


def test_the_calls_of_a_reply_that_broke_off_are_not_run() -> None:
    broken = ASKED.plus(Message(role="assistant", blocks=(ONE,), stop_reason=StopReason.INTERRUPTED))
    assert isinstance(next_step(broken, Limits()), Done)


def test_a_call_that_was_cut_is_not_run() -> None:
    cut = ASKED.plus(Message.assistant(ONE, ToolCall("2", "b", '{"x', partial=True)))
    assert next_step(cut, Limits()) == RunTools((ONE,))


def test_an_empty_conversation_is_an_error_that_says_so() -> None:
    with pytest.raises(InvalidConversationError, match="no message that a model could answer"):
        next_step(Conversation("Be brief."), Limits())


@pytest.mark.parametrize(
    ("limits", "spent", "limit"),
    [
        (Limits(steps=2), Spent(steps=2), "steps"),
        (Limits(steps=0), Spent(), "steps"),
        (Limits(model_calls=3), Spent(model_calls=3), "model_calls"),
        (Limits(tokens=100), Spent(tokens=101), "tokens"),
        (Limits(seconds=1.5), Spent(seconds=2.0), "seconds"),
    ],
)
def test_a_limit_stops_before_the_model_is_asked(limits: Limits, spent: Spent, limit: str) -> None:
    step = next_step(ASKED, limits, spent)
    assert isinstance(step, LimitReached)
    assert step.limit == limit


def test_a_limit_stops_before_tools_are_run() -> None:
    assert next_step(CALLED, Limits(tool_calls=2)) == RunTools((ONE, TWO))
    assert next_step(CALLED, Limits(tool_calls=1)) == LimitReached("tool_calls", 1)
    assert next_step(CALLED, Limits(seconds=1), Spent(seconds=1)) == LimitReached("seconds", 1)


def test_who_has_used_all_tool_calls_may_still_hear_the_answer() -> None:
    assert next_step(ASKED, Limits(tool_calls=2), Spent(tool_calls=2)) == AskModel(first=True)


def test_reaching_the_limit_of_steps_is_told_in_these_words() -> None:
    assert str(LimitReached("steps", 20)) == "max iterations (20) reached"
    assert str(LimitReached("tool_calls", 3)) == "The run reached its limit of 3 tool calls."


@given(conversations)
def test_every_conversation_has_a_next_step(conversation: Conversation) -> None:
    if not conversation.messages:
        return
    step = next_step(conversation, Limits())
    if isinstance(step, RunTools):
        assert step.calls == conversation.pending_tool_calls
    elif isinstance(step, AskModel):
        assert not conversation.pending_tool_calls
    else:
        assert isinstance(step, Done)
        assert step.message is conversation.last
