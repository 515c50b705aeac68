"""What comes next, from data alone."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from dragoman.conversation import Conversation, Message, StopReason, Text, ToolCall, ToolResult
from dragoman.errors import InvalidConversationError
from dragoman.loop import (
    AskModel,
    AwaitApproval,
    Done,
    LimitReached,
    Limits,
    RunTools,
    Spent,
    append_tool_results,
    extract_tool_calls,
    next_step,
)
from dragoman.tools import PendingApproval
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
def test_an_result_without_calls_is_the_end(reason: StopReason) -> None:
    step = next_step(_ended(reason), Limits())
    assert isinstance(step, Done)
    assert step.stop_reason is reason


def test_the_calls_of_a_reply_that_broke_off_are_not_run() -> None:
    broken = ASKED.plus(Message(role="assistant", blocks=(ONE,), stop_reason=StopReason.INTERRUPTED))
    assert isinstance(next_step(broken, Limits()), Done)


def test_an_empty_conversation_is_an_error_that_says_so() -> None:
    with pytest.raises(InvalidConversationError, match="no message that a model could answer"):
        next_step(Conversation("Be brief."), Limits())


def test_a_limit_stops_before_tools_are_run() -> None:
    assert next_step(CALLED, Limits(tool_calls=2)) == RunTools((ONE, TWO))
    assert next_step(CALLED, Limits(tool_calls=1)) == LimitReached("tool_calls", 1)
    assert next_step(CALLED, Limits(seconds=1), Spent(seconds=1)) == LimitReached("seconds", 1)
    # Who has used all tool calls may still hear the answer.
    assert next_step(ASKED, Limits(tool_calls=2), Spent(tool_calls=2)) == AskModel(first=True)


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


# --- calls and results ---


def _called(number: int) -> Conversation:
    calls = [ToolCall(str(index), "t", "{}") for index in range(number)]
    return Conversation().plus(Message.user("Hi"), Message.assistant("Wait.", *calls))


def test_a_result_that_results_nothing_is_an_error() -> None:
    with pytest.raises(InvalidConversationError, match="answers no call"):
        append_tool_results(_called(1), [ToolResult("other", "t")])
    done = append_tool_results(_called(1), [_result(ToolCall("0", "t"))])
    with pytest.raises(InvalidConversationError, match="answers no call"):
        append_tool_results(done, [_result(ToolCall("0", "t"))])


@given(st.data(), st.integers(1, 6))
def test_results_may_come_in_any_order_and_in_any_parts(data: st.DataObject, number: int) -> None:
    conversation = _called(number)
    assert append_tool_results(conversation, []) is conversation
    left = data.draw(st.permutations(extract_tool_calls(conversation)))
    while left:
        part = data.draw(st.integers(1, len(left)))
        conversation = append_tool_results(conversation, map(_result, left[:part]))
        left = left[part:]
        assert set(extract_tool_calls(conversation)) == set(left)
    assert conversation.is_valid
    assert [result.call_id for result in conversation.messages[-1].tool_results] == [str(i) for i in range(number)]
    assert len(conversation.messages) == 3
