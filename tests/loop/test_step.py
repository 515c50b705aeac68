"""What comes next, from data alone."""

from __future__ import annotations

from typing import Any

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
    Step,
    append_tool_results,
    extract_tool_calls,
    next_step,
)
from dragoman.tools import PendingApproval

ONE, TWO = ToolCall("1", "a", "{}"), ToolCall("2", "b", "{}")
ASKED = Conversation().plus(Message.user("Hi"))
CALLED = ASKED.plus(Message.assistant(ONE, TWO))


def _result(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, call.name, (Text("done"),))


def _ended(reason: StopReason, *calls: ToolCall) -> Conversation:
    return ASKED.plus(Message(role="assistant", blocks=(Text("Well"), *calls), stop_reason=reason))


HALF, ALL = [CALLED.plus(Message.tool(map(_result, calls))) for calls in ((ONE,), (ONE, TWO))]
WAITING = (PendingApproval(call=ONE), PendingApproval(call=TWO))
EARLIER = PendingApproval(call=ToolCall("1", "a", '{"x": 1}'))


@pytest.mark.parametrize(
    ("conversation", "given", "step"),
    [
        (ASKED, {}, AskModel(first=True)),
        (ASKED, {"spent": Spent(steps=1)}, AskModel(first=False)),
        (CALLED, {}, RunTools((ONE, TWO))),
        (HALF, {}, RunTools((TWO,))),
        # In the middle of a turn, so that a choice of `required` does not force yet another call after an approval.
        (ALL, {}, AskModel(first=False)),
        (CALLED, {"waiting": WAITING[:1]}, RunTools((TWO,))),
        (CALLED, {"waiting": WAITING}, AwaitApproval(WAITING)),
        # A call that waited earlier under the same id holds nobody up.
        (CALLED, {"waiting": [EARLIER]}, RunTools((ONE, TWO))),
        (CALLED, {"limits": Limits(tool_calls=2)}, RunTools((ONE, TWO))),
        (CALLED, {"limits": Limits(tool_calls=1)}, LimitReached("tool_calls", 1)),
        (CALLED, {"limits": Limits(seconds=1), "spent": Spent(seconds=1)}, LimitReached("seconds", 1)),
        # Who has used all tool calls may still hear the answer.
        (ASKED, {"limits": Limits(tool_calls=2), "spent": Spent(tool_calls=2)}, AskModel(first=True)),
    ],
)
def test_the_next_step(conversation: Conversation, given: dict[str, Any], step: Step) -> None:
    assert next_step(conversation, **{"limits": Limits(), **given}) == step


@pytest.mark.parametrize("reason", [StopReason.END, StopReason.MAX_TOKENS, StopReason.REFUSAL, StopReason.INTERRUPTED])
def test_a_reply_without_calls_or_an_interrupted_one_is_final(reason: StopReason) -> None:
    broken = _ended(StopReason.INTERRUPTED, ONE)
    for conversation in (_ended(reason), broken):
        assert next_step(conversation, Limits()) == Done(conversation.messages[-1])


def test_an_empty_conversation_is_an_error() -> None:
    with pytest.raises(InvalidConversationError, match="no message that a model could answer"):
        next_step(Conversation("Be brief."), Limits())


# --- calls and results ---


def _called(number: int) -> Conversation:
    calls = [ToolCall(str(index), "t", "{}") for index in range(number)]
    return Conversation().plus(Message.user("Hi"), Message.assistant("Wait.", *calls))


def test_a_result_for_an_unknown_call_is_an_error() -> None:
    with pytest.raises(InvalidConversationError, match="no pending tool call"):
        append_tool_results(_called(1), [ToolResult("other", "t")])
    done = append_tool_results(_called(1), [_result(ToolCall("0", "t"))])
    with pytest.raises(InvalidConversationError, match="no pending tool call"):
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
