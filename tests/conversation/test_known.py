"""What is kept beside a conversation saves work in later turns, and is no part of it."""

from __future__ import annotations

import copy
import pickle

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.conversation import Conversation, Message, ToolCall, ToolResult, conversation_to_json, validity
from dragoman.errors import InvalidConversationError
from tests.strategies import conversations

USER, MODEL = Message.user("Hi"), Message.assistant("Hello")
CALLS = Message.assistant(ToolCall("1", "f"), ToolCall("2", "f"))
RESULTS = Message.tool([ToolResult("1", "f"), ToolResult("2", "f")])


def fresh(conversation: Conversation) -> Conversation:
    """An equal one of which nothing is known."""
    return msgspec.structs.replace(conversation)


@settings(max_examples=300)
@given(conversations, st.lists(st.integers(0, 20), max_size=4))
def test_what_was_found_valid_before_never_changes_the_answer(whole: Conversation, places: list[int]) -> None:
    grown, at = whole.up_to(0), 0
    for place in sorted({min(place, len(whole.messages)) for place in places} | {len(whole.messages)}):
        grown, at = grown.plus(*whole.messages[at:place]), place
        assert grown.is_valid == fresh(grown).is_valid == (not fresh(grown).problems)
        assert grown.problems == fresh(grown).problems


@given(st.lists(st.sampled_from([USER, MODEL, CALLS, RESULTS, Message(role="user")]), max_size=8))
def test_asked_after_every_message(messages: list[Message]) -> None:
    grown = Conversation()
    for message in messages:
        grown = grown.plus(message)
        assert grown.is_valid == fresh(grown).is_valid


def test_a_call_at_the_end_waits_for_its_results() -> None:
    asked = Conversation().plus(USER)
    asked.ensure_valid()
    called = asked.plus(CALLS)
    assert not called.is_valid
    assert called.plus(RESULTS).is_valid
    assert called.plus(RESULTS, MODEL).is_valid
    # What is known of one branch says nothing about another.
    assert not called.plus(USER).is_valid
    done = called.plus(RESULTS)
    done.ensure_valid()
    assert not done.plus(RESULTS).is_valid
    assert not done.up_to(2).is_valid
    with pytest.raises(InvalidConversationError, match="message 1"):
        called.plus(MODEL).ensure_valid()


def test_only_new_messages_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Message] = []
    is_plain = validity._is_plain
    monkeypatch.setattr(validity, "_is_plain", lambda message: looked.append(message) or is_plain(message))
    long = Conversation().plus(*[USER, MODEL] * 500)
    long.ensure_valid()
    assert len(looked) == 1000
    looked.clear()
    longer = long.plus(USER)
    longer.ensure_valid()
    longer.with_system("Be brief.").with_metadata({"a": 1}).plus(MODEL, USER).ensure_valid()
    assert len(looked) < 10


def test_it_is_no_part_of_the_value() -> None:
    known = Conversation("s").plus(USER, MODEL)
    known.ensure_valid()
    assert known.__dict__
    same = fresh(known)
    assert not same.__dict__
    assert known == same
    assert repr(known) == repr(same)
    assert conversation_to_json(known) == conversation_to_json(same)
    for copied in (copy.copy(known), copy.deepcopy(known), pickle.loads(pickle.dumps(known))):
        assert copied == known
        assert not copied.__dict__
    assert msgspec.structs.astuple(known) == msgspec.structs.astuple(same)
