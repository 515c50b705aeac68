"""Saving, loading, deleting."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from msgspec import Raw, structs

from dragoman.conversation import Conversation, Message, Opaque, Thinking
from dragoman.errors import (
    ConversationError,
    SnapshotNotFoundError,
    StoreConflictError,
)
from dragoman.stores.journal import MessageAdded
from dragoman.stores.ids import new_id
from dragoman.stores.protocol import ConversationStore
from dragoman.stores.snapshot import Snapshot
from tests.stores.cases import CALL, NOON, RESULT, TOOL, Opener, Suite, after, chain, first
from tests.strategies import conversations


class SavingContract(Suite):
    def test_what_was_saved_is_loaded(self, store: ConversationStore, opener: Opener) -> None:
        said = Conversation("Be brief.", metadata={"user": 7, "tags": ["a"]}).plus(
            Message.user("What is the weather?"),
            Message.assistant(Thinking("hm", "anthropic", signature="s"), CALL),
            Message.tool([RESULT]),
            Message.assistant(Opaque("gemini", Raw(b'{"x":  1.50}')), "21 degrees."),
        )
        snapshot = Snapshot.first(said, provider="anthropic", model="claude", tools=[TOOL])
        store.save(snapshot)
        assert store.load(snapshot.id) == snapshot
        with opener() as another:
            loaded = another.load(snapshot.id)
        assert loaded == snapshot
        assert bytes(loaded.tools[0].parameters) == bytes(TOOL.parameters)
        assert loaded.messages[3].blocks[0] == Opaque("gemini", Raw(b'{"x":  1.50}'))
        assert loaded.created_at == snapshot.created_at

    def test_any_conversation_survives(self, store: ConversationStore) -> None:
        @settings(max_examples=30)
        @given(before=conversations, later=conversations)
        def survives(before: Conversation, later: Conversation) -> None:
            one = Snapshot.first(before, provider="p", model="m")
            two = one.next(later)
            three = two.next(before.plus(*later.messages))
            for snapshot in (one, two, three):
                store.save(snapshot)
            assert [store.load(each.id) for each in (one, two, three)] == [one, two, three]

        survives()

    def test_every_point_of_a_chain_can_be_loaded(self, store: ConversationStore) -> None:
        points = chain(store, 6)
        for point in points:
            assert store.load(point.id) == point
            assert store.latest(point.id) == points[-1]

    def test_a_history_may_be_cut_or_replaced(self, store: ConversationStore) -> None:
        points = chain(store, 5)
        shorter = points[-1].next(points[-1].conversation.up_to(2))
        store.save(shorter)
        branched = after(shorter, "another way")
        store.save(branched)
        other = branched.next(Conversation("New rules.", (Message.user("a summary"),)))
        store.save(other)
        regrown = after(other, "and on")
        store.save(regrown)
        back = regrown.next(points[-1].conversation)
        store.save(back)
        for point in [*points, shorter, branched, other, regrown, back]:
            assert store.load(point.id) == point
        assert store.latest(points[0].id) == back

    def test_a_fork_is_a_conversation_of_its_own(self, store: ConversationStore) -> None:
        points = chain(store, 3)
        fork = points[1].fork()
        store.save(fork)
        longer = after(fork, "elsewhere")
        store.save(longer)
        assert store.latest(fork.id) == longer
        assert store.latest(points[0].id) == points[2]
        assert store.load(longer.id).forked_from == points[1].id
        store.delete(points[0].id)
        assert store.load(fork.id) == fork
        assert store.load(longer.id) == longer

    def test_saving_the_same_again_does_nothing(self, store: ConversationStore) -> None:
        points = chain(store, 3)
        store.record(points[2].id, [MessageAdded(Message.user("x"))], after=0)
        for point in points:
            store.save(point)
        assert store.latest(points[0].id) == points[2]
        assert len(store.history(points[0].id).items) == 3
        assert store.journal(points[0].id).position == 1

    def test_another_snapshot_under_a_taken_id_is_a_conflict(self, store: ConversationStore) -> None:
        one, two = chain(store, 2)
        other = one.conversation.plus(Message.user("other"))
        for changed in (
            Snapshot.first(other, provider="p", model="m", ids=lambda: one.id),
            Snapshot.first(other, provider="p", model="m", ids=lambda: two.id),
            one.next(other, ids=lambda: two.id),
            structs.replace(two, title="other"),
        ):
            with pytest.raises(StoreConflictError):
                store.save(changed)
        assert store.load(one.id) == one
        assert store.load(two.id) == two

    def test_only_the_newest_can_be_followed(self, store: ConversationStore) -> None:
        one, two = chain(store, 2)
        rival = after(one, "something else")
        with pytest.raises(StoreConflictError):
            store.save(rival)
        with pytest.raises(SnapshotNotFoundError):
            store.load(rival.id)
        assert store.latest(one.id) == two

    def test_a_parent_that_is_not_there_is_a_conflict(self, store: ConversationStore) -> None:
        with pytest.raises(StoreConflictError):
            store.save(after(first("hi"), "there"))
        assert store.list().items == ()

    def test_a_parent_of_another_chain_is_a_conflict(self, store: ConversationStore) -> None:
        one, two = first("one"), first("two")
        store.save(one)
        store.save(two)
        odd = Snapshot(
            id=new_id(),
            root=one.id,
            parent=two.id,
            provider="p",
            model="m",
            conversation=Conversation(),
            created_at=NOON,
        )
        with pytest.raises(StoreConflictError):
            store.save(odd)
        assert (store.latest(one.id), store.latest(two.id)) == (one, two)

    def test_what_json_cannot_carry_is_refused_and_changes_nothing(self, store: ConversationStore) -> None:
        [one] = chain(store, 1)
        for conversation in (Conversation("\ud800"), Conversation(metadata={"a": object()})):
            with pytest.raises(ConversationError):
                store.save(one.next(conversation))
        with pytest.raises(ConversationError):
            store.save(after(one, "fine", "\ud800"))
        assert store.latest(one.id) == one

    def test_a_deleted_conversation_is_gone(self, store: ConversationStore) -> None:
        points = chain(store, 3)
        [kept] = chain(store, 1)
        store.record(points[2].id, [MessageAdded(Message.user("x"))], after=0)
        store.delete(points[1].id)
        for point in points:
            for ask in (store.load, store.latest, store.history, store.journal, store.delete):
                with pytest.raises(SnapshotNotFoundError):
                    ask(point.id)
        with pytest.raises(StoreConflictError):
            store.save(after(points[2], "too late"))
        assert [item.id for item in store.list().items] == [kept.id]
        store.save(points[0])  # and its id may be used again
        assert store.journal(points[0].id).position == 0

    def test_a_long_history_and_large_messages(self, store: ConversationStore) -> None:
        snapshot = first(*[f"message {number}" for number in range(300)], "x" * 3_000_000)
        store.save(snapshot)
        longer = after(snapshot, "y" * 1_000_000)
        store.save(longer)
        assert store.load(snapshot.id) == snapshot
        assert store.latest(snapshot.id) == longer
