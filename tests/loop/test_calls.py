"""Taking calls out of a conversation and putting results in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.conversation import Conversation, Message, Text, ToolCall, ToolResult
from dragoman.errors import InvalidConversationError
from dragoman.loop.calls import append_tool_results, extract_tool_calls


def _called(number: int) -> Conversation:
    calls = [ToolCall(str(index), "t", "{}") for index in range(number)]
    return Conversation().plus(Message.user("Hi"), Message.assistant("Wait.", *calls))


def _result(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, call.name, (Text(f"result {call.id}"),))


def test_without_calls_there_is_nothing_to_extract() -> None:
    assert extract_tool_calls(Conversation()) == ()
    assert extract_tool_calls(Conversation().plus(Message.user("Hi"))) == ()


def test_no_results_change_nothing() -> None:
    conversation = _called(2)
    assert append_tool_results(conversation, []) is conversation


def test_a_result_that_answers_nothing_is_an_error() -> None:
    with pytest.raises(InvalidConversationError, match="answers no call"):
        append_tool_results(_called(1), [ToolResult("other", "t")])
    done = append_tool_results(_called(1), [_result(ToolCall("0", "t"))])
    with pytest.raises(InvalidConversationError, match="answers no call"):
        append_tool_results(done, [_result(ToolCall("0", "t"))])


@given(st.data(), st.integers(1, 6))
def test_results_may_come_in_any_order_and_in_any_parts(data: st.DataObject, number: int) -> None:
    conversation = _called(number)
    left = data.draw(st.permutations(extract_tool_calls(conversation)))
    while left:
        part = data.draw(st.integers(1, len(left)))
        conversation = append_tool_results(conversation, map(_result, left[:part]))
        left = left[part:]
        assert set(extract_tool_calls(conversation)) == set(left)
    assert conversation.is_valid
    assert [result.call_id for result in conversation.messages[-1].tool_results] == [str(i) for i in range(number)]
    assert len(conversation.messages) == 3
