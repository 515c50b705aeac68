from __future__ import annotations

import copy
import pickle

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from dragoman.conversation import (
    Block,
    Conversation,
    Message,
    Text,
    ToolCall,
    ToolResult,
    conversation as whole,
    conversation_to_json,
)
from dragoman.errors import InvalidConversationError
from tests.rounds import rounds
from tests.strategies import conversations

USER = Message.user("hi")
CALLS = Message.assistant("ok", ToolCall("1", "f"), ToolCall("2", "g"))
ONE, TWO = ToolResult("1", "f", (Text("one"),)), ToolResult("2", "g", (Text("two"),))
GOOD = Message.tool([ONE, TWO])
MODEL = Message.assistant("done")


def conversation(*messages: Message) -> Conversation:
    return Conversation(messages=messages)


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (USER,),
        (USER, CALLS, GOOD),
        (USER, CALLS, Message.tool([ONE]), Message.tool([TWO])),  # results may be spread over messages
        (USER, CALLS, GOOD, USER, MODEL),
    ],
)
def test_valid_conversations_are_not_changed(messages: tuple[Message, ...]) -> None:
    whole = conversation(*messages)
    assert whole.is_valid
    assert whole.problems == ()
    whole.ensure_valid()
    repaired, changes = whole.repaired()
    assert repaired is whole
    assert changes == ()


CASES = {
    "missing results": ((USER, CALLS), ["added_result", "added_result"], ["1", "2"]),
    "one missing": ((USER, CALLS, Message.tool([ONE])), ["added_result"], ["2"]),
    "wrong order": ((CALLS, Message.tool([TWO, ONE])), ["moved_result", "moved_result"], ["2", "1"]),
    "twice": ((CALLS, Message.tool([ONE, TWO, ONE])), ["removed_result"], ["1"]),
    "no such call": ((CALLS, Message.tool([ONE, TWO, ToolResult("9", "h")])), ["removed_result"], ["9"]),
    "result without any call": ((USER, Message.tool([ONE])), ["removed_result"], ["1"]),
    "results first": ((Message.tool([ONE]), USER), ["removed_result"], ["1"]),
    "partial call": ((Message.assistant("x", ToolCall("1", "f", '{"a', partial=True)),), ["removed_call"], ["1"]),
    "no id": ((Message.assistant("x", ToolCall("", "f")),), ["removed_call"], [""]),
    "same id twice": (
        (Message.assistant(ToolCall("1", "f"), ToolCall("1", "f")), Message.tool([ONE])),
        ["removed_call"],
        ["1"],
    ),
    "call of the user": ((Message.user("x", ToolCall("1", "f")),), ["removed_call"], ["1"]),
    "result in a reply": ((Message.assistant("x", ONE),), ["removed_result"], ["1"]),
    "empty message": ((USER, Message.assistant()), ["removed_message"], [""]),
    "empty tool message": ((CALLS, GOOD, Message.tool([])), ["removed_message"], [""]),
    "text among results": ((CALLS, Message(role="tool", blocks=(ONE, Text("x"), TWO))), ["removed_result"], [""]),
    "somebody spoke meanwhile": ((CALLS, USER, GOOD), ["moved_result", "moved_result"], ["1", "2"]),
    "somebody spoke in between": ((CALLS, Message.tool([ONE]), USER, Message.tool([TWO])), ["moved_result"], ["2"]),
}


@pytest.mark.parametrize("case", CASES)
def test_each_problem_is_named_and_repaired(case: str) -> None:
    messages, kinds, call_ids = CASES[case]
    broken = conversation(*messages)
    assert not broken.is_valid
    repaired, changes = broken.repaired()
    assert [change.kind for change in changes] == kinds
    assert [change.call_id for change in changes] == call_ids
    assert repaired.is_valid
    assert broken.problems == tuple(map(str, changes))
    with pytest.raises(InvalidConversationError, match="repaired") as caught:
        broken.ensure_valid()
    assert caught.value.problems == broken.problems


def test_results_are_moved_to_their_calls_and_missing_ones_added() -> None:
    repaired, _ = conversation(CALLS, USER, GOOD, MODEL).repaired()
    assert repaired.messages == (CALLS, GOOD, USER, MODEL)
    repaired, _ = conversation(CALLS, Message.tool([TWO])).repaired()
    added, kept = repaired.messages[1].tool_results
    assert kept is TWO
    assert added.is_error
    assert added.error_type == "cancelled"


few_ids = st.sampled_from(["1", "2", "3", ""])
tangled_blocks: st.SearchStrategy[Block] = st.one_of(
    st.just(Text("x")),
    st.builds(ToolCall, id=few_ids, name=st.just("f"), partial=st.booleans()),
    st.builds(ToolResult, call_id=few_ids, name=st.just("f")),
)
tangled = st.builds(
    lambda messages: Conversation(messages=tuple(messages)),
    st.lists(
        st.builds(
            Message,
            role=st.sampled_from(["user", "assistant", "tool"]),
            blocks=st.lists(tangled_blocks, max_size=4).map(tuple),
        ),
        max_size=6,
    ),
)


@given(tangled | conversations)
def test_repairing_twice_changes_nothing(broken: Conversation) -> None:
    repaired, changes = broken.repaired()
    assert repaired.is_valid
    assert repaired.repaired() == (repaired, ())
    assert bool(changes) == (not broken.is_valid)
    expected: list[str] = []
    for message in repaired.messages:  # every call has exactly one result, in order
        if message.role == "tool":
            for result in message.tool_results:
                assert expected
                assert expected.pop(0) == result.call_id
        else:
            assert not expected
            expected = [call.id for call in message.tool_calls]
    assert not expected


# --- what is known of a conversation saves work in later turns, and is no part of it ---


def fresh(conversation: Conversation) -> Conversation:
    """An equal conversation without memory."""
    return msgspec.structs.replace(conversation)


@settings(max_examples=rounds(400))
@given(tangled | conversations, st.lists(st.integers(0, 20), max_size=4))
def test_the_memory_of_validity_never_changes_the_answer(whole: Conversation, places: list[int]) -> None:
    grown, at = whole.up_to(0), 0
    for place in sorted({min(place, len(whole.messages)) for place in places} | {len(whole.messages)}):
        grown, at = grown.plus(*whole.messages[at:place]), place
        assert grown.is_valid == fresh(grown).is_valid == (not fresh(grown).problems)
        assert grown.problems == fresh(grown).problems


def test_only_new_messages_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Message] = []
    is_plain = whole._is_plain
    monkeypatch.setattr(whole, "_is_plain", lambda message: looked.append(message) or is_plain(message))
    long = Conversation().plus(*[USER, MODEL] * 500)
    long.ensure_valid()
    assert len(looked) == 1000
    looked.clear()
    longer = long.plus(USER)
    longer.ensure_valid()
    longer.with_system("Be brief.").with_metadata({"a": 1}).plus(MODEL, USER).ensure_valid()
    assert len(looked) < 10


def test_the_memory_is_no_part_of_the_value() -> None:
    known = Conversation("s").plus(USER, MODEL)
    known.ensure_valid()
    same = fresh(known)
    assert not same.__dict__
    assert known == same
    assert repr(known) == repr(same)
    assert conversation_to_json(known) == conversation_to_json(same)
    for copied in (copy.copy(known), copy.deepcopy(known), pickle.loads(pickle.dumps(known))):
        assert copied == known
        assert not copied.__dict__
