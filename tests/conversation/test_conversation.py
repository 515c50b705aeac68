from __future__ import annotations

import copy
import pickle

import pytest

from dragoman.conversation import (
    Conversation,
    FrozenDict,
    Media,
    Message,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)

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


def test_equality_is_by_value() -> None:
    assert Conversation("s", (Message.user("hi"),), {"a": 1}) == Conversation("s", (Message.user("hi"),), {"a": 1})


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


def test_system_prompt_and_last_message() -> None:
    assert ASKED.with_system(None).system is None
    assert ASKED.last is ASKED.messages[-1]
    assert Conversation().last is None


def test_usage_adds_up_the_replies() -> None:
    assert Conversation().usage == Usage()
    reply = Message(role="assistant", blocks=(Text("x"),), usage=Usage(input=2, output=3))
    assert Conversation().plus(reply, Message.user("y"), reply).usage == Usage(input=4, output=6, total=10)
    assert Conversation().plus(reply, Message.assistant("by hand")).usage.partial


def test_views_on_a_message() -> None:
    message = Message.assistant(Thinking("hm", "p"), "a", ToolCall("1", "f"), "b")
    assert (message.text, message.thinking) == ("ab", "hm")
    assert message.tool_calls == (ToolCall("1", "f"),)
    assert message.tool_results == ()
    picture = Media.from_path("x.png")
    assert Message.user("look", picture).blocks == (Text("look"), picture)


def test_a_message_knows_whether_it_is_whole() -> None:
    assert Message(role="assistant", stop_reason=StopReason.INTERRUPTED).interrupted
    assert not Message(role="assistant", stop_reason=StopReason.END).interrupted
