"""The journal."""

from __future__ import annotations

import pytest

from dragoman.conversation import Message, ToolCall
from dragoman.errors import (
    ConversationError,
    StoreConflictError,
)
from dragoman.stores.journal import JournalEntry, MessageAdded, ToolCallBegun, ToolCallDone
from dragoman.stores.journal import resume
from dragoman.stores.protocol import ConversationStore
from tests.stores.cases import CALL, NOON, RESULT, Opener, Suite, after, chain, first


class JournalContract(Suite):
    def test_steps_are_recorded_and_put_away_by_the_next_save(self, store: ConversationStore, opener: Opener) -> None:
        [one] = chain(store, 1)
        assert store.journal(one.id).entries == ()
        reply = Message.assistant(CALL)
        steps: list[JournalEntry] = [MessageAdded(reply), ToolCallBegun(CALL, NOON), ToolCallDone(RESULT)]
        assert store.record(one.id, steps[:1], after=0) == 1
        assert store.record(one.id, steps[1:], after=1) == 3
        with opener() as another:
            journal = another.journal(one.id)
        assert (journal.snapshot, journal.entries, journal.position) == (one.id, tuple(steps), 3)
        two = one.next(one.conversation.plus(reply, Message.tool([RESULT])))
        store.save(two, after=3)
        journal = store.journal(one.id)
        assert (journal.snapshot, journal.entries) == (two.id, ())
        assert store.record(two.id, steps[:1], after=0) == 1

    def test_nobody_saves_over_steps_that_they_have_not_seen(self, store: ConversationStore) -> None:
        [one] = chain(store, 1)
        store.record(one.id, [MessageAdded(Message.user("x"))] * 2, after=0)
        two = after(one, "x", "x")
        for seen in (0, 1, 3):
            with pytest.raises(StoreConflictError):
                store.save(two, after=seen)
        assert store.journal(one.id).position == 2
        store.save(two, after=2)
        with pytest.raises(StoreConflictError):
            store.save(after(two, "y"), after=1)

    def test_a_first_snapshot_covers_no_journal(self, store: ConversationStore) -> None:
        with pytest.raises(StoreConflictError):
            store.save(first("x"), after=1)

    def test_of_two_who_record_the_same_step_one_succeeds(self, store: ConversationStore) -> None:
        [one] = chain(store, 1)
        step = [ToolCallBegun(CALL)]
        assert store.record(one.id, step, after=0) == 1
        for position in (0, 2, -1):
            with pytest.raises(StoreConflictError):
                store.record(one.id, step, after=position)
        assert store.journal(one.id).entries == tuple(step)

    def test_who_is_behind_cannot_record(self, store: ConversationStore) -> None:
        one, two = chain(store, 2)
        with pytest.raises(StoreConflictError):
            store.record(one.id, [MessageAdded(Message.user("x"))], after=0)
        assert store.journal(one.id).snapshot == two.id
        assert store.journal(two.id).entries == ()

    def test_all_entries_are_written_or_none(self, store: ConversationStore) -> None:
        [one] = chain(store, 1)
        good, bad = MessageAdded(Message.user("x")), MessageAdded(Message.user("\ud800"))
        with pytest.raises(ConversationError):
            store.record(one.id, [good, bad], after=0)
        assert store.journal(one.id).entries == ()
        assert store.record(one.id, [], after=0) == 0
        with pytest.raises(StoreConflictError):
            store.record(one.id, [], after=1)

    def test_resume_gives_the_conversation_as_far_as_it_came(self, store: ConversationStore) -> None:
        points = chain(store, 2)
        calls = (CALL, ToolCall("call_2", "pay", "{}"))
        reply = Message.assistant(*calls)
        steps: list[JournalEntry] = [
            MessageAdded(reply),
            ToolCallBegun(calls[0]),
            ToolCallBegun(calls[1]),
            ToolCallDone(RESULT),
        ]
        store.record(points[1].id, steps, after=0)
        found = resume(store, points[0].id)
        assert found.snapshot == points[1]
        assert found.conversation == points[1].conversation.plus(reply)
        assert found.done_results == (RESULT,)
        assert found.uncertain_calls == (calls[1],)
        assert found.position == 4

    def test_journals_of_conversations_do_not_meet(self, store: ConversationStore) -> None:
        [one], [two] = chain(store, 1), chain(store, 1)
        store.record(one.id, [MessageAdded(Message.user("1"))], after=0)
        store.record(two.id, [MessageAdded(Message.user("2"))], after=0)
        store.delete(one.id)
        assert store.journal(two.id).entries == (MessageAdded(Message.user("2")),)
