from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given

from dragoman.conversation import (
    Conversation,
    FrozenDict,
    Media,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from tests.strategies import usages

ASKED = Conversation("Be brief.").plus(
    Message.user("Weather?"),
    Message.assistant("Let me see.", ToolCall("1", "weather"), ToolCall("2", "time"), ToolCall("3", "x", partial=True)),
)


def test_plus_returns_a_new_conversation_and_branches_share_messages() -> None:
    base = Conversation().plus(Message.user("hi"))
    left, right = base.plus(Message.assistant("a")), base.plus(Message.assistant("b"))
    assert len(base.messages) == 1
    assert left.messages[0] is right.messages[0]
    assert left != right
    assert left.up_to(1) == base == right.up_to(1)


def test_metadata_cannot_be_changed_in_place() -> None:
    conversation = Conversation(metadata={"a": 1})
    with pytest.raises(TypeError, match="frozen"):
        conversation.metadata["b"] = 2
    for change in (dict.clear, dict.popitem):
        with pytest.raises(TypeError):
            getattr(conversation.metadata, change.__name__)()
    assert conversation.with_metadata({"b": 2}).metadata == {"b": 2}
    assert pickle.loads(pickle.dumps(conversation.metadata)) == {"a": 1}
    assert type(copy.deepcopy(conversation.metadata)) is FrozenDict


def test_text_is_the_latest_answer() -> None:
    assert Conversation().text == ""
    assert ASKED.text == "Let me see."
    assert ASKED.plus(Message.user("thanks")).text == "Let me see."


def test_pending_calls_are_those_without_a_result() -> None:
    assert [call.id for call in ASKED.pending_tool_calls] == ["1", "2"]
    half = ASKED.plus(Message.tool([ToolResult("2", "time", (Text("noon"),))]))
    assert [call.id for call in half.pending_tool_calls] == ["1"]
    assert half.plus(Message.tool([ToolResult("1", "weather")])).pending_tool_calls == ()
    assert Conversation().pending_tool_calls == ()
    assert Conversation().plus(Message.user("x")).pending_tool_calls == ()
    assert Conversation().plus(Message.tool([])).pending_tool_calls == ()


def test_usage_adds_up_the_replies() -> None:
    assert Conversation().usage == Usage()
    reply = Message(role="assistant", blocks=(Text("x"),), usage=Usage(input=2, output=3))
    assert Conversation().plus(reply, Message.user("y"), reply).usage == Usage(input=4, output=6, total=10)
    assert Conversation().plus(reply, Message.assistant("by hand")).usage.partial


def test_the_properties_of_a_message() -> None:
    message = Message.assistant(Thinking("hm", "p"), "a", ToolCall("1", "f"), "b")
    assert (message.text, message.thinking) == ("ab", "hm")
    assert message.tool_calls == (ToolCall("1", "f"),)
    assert message.tool_results == ()
    picture = Media.from_path("x.png")
    assert Message.user("look", picture).blocks == (Text("look"), picture)


def test_unknown_usage_is_not_zero() -> None:
    assert not Usage().known
    assert Usage().tokens is None
    assert Usage(input=3, output=0).known
    assert Usage(input=3, output=4).tokens == 7
    assert Usage(input=3, output=4, total=9).tokens == 9


def test_a_sum_with_unreported_usage_is_partial() -> None:
    total = Usage(input=1, output=2) + Usage()
    assert (total.input, total.output, total.partial) == (1, 2, True)
    assert not (Usage(input=1, output=2) + Usage(input=3, output=4, cache_read=1)).partial
    assert (Usage(input=1) + Usage(output=2)).partial  # each has one half only: both counts are lower bounds


@given(usages, usages, usages)
def test_addition_of_usage_is_associative_and_commutative(a: Usage, b: Usage, c: Usage) -> None:
    def counts(u: Usage) -> tuple[int | None, ...]:
        return (u.input, u.output, u.cache_read, u.cache_write, u.reasoning)

    assert counts((a + b) + c) == counts(a + (b + c)) == counts(c + (b + a))
