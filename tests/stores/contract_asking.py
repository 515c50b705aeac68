"""Ids, lists, histories and searches."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dragoman.conversation import Message
from dragoman.errors import (
    InvalidCursorError,
    InvalidSnapshotIDError,
    SnapshotNotFoundError,
    StoreError,
)
from dragoman.stores.journal import MessageAdded
from dragoman.stores.ids import new_id
from dragoman.stores.protocol import ConversationStore
from dragoman.stores.summary import Page, summary_of
from tests.stores.cases import NOON, Suite, after, chain, first, pages
from tests.stores.hostile import HOSTILE_IDS, hostile_ids


class AskingContract(Suite):
    @pytest.mark.parametrize("name", ["load", "latest", "history", "delete", "journal"])
    def test_hostile_ids_are_refused(self, store: ConversationStore, name: str) -> None:
        chain(store, 1)
        for text in HOSTILE_IDS:
            with pytest.raises(InvalidSnapshotIDError):
                getattr(store, name)(text)
        with pytest.raises(InvalidSnapshotIDError):
            store.record("../x", [MessageAdded(Message.user("x"))], after=0)
        assert len(store.list().items) == 1

    def test_two_thousand_of_them(self, store: ConversationStore) -> None:
        for text in hostile_ids(2000):
            with pytest.raises(InvalidSnapshotIDError):
                store.load(text)

    def test_unknown_ids_are_not_found(self, store: ConversationStore) -> None:
        for _ in range(2):  # of an empty store, then of one that holds something
            for ask in (store.load, store.latest, store.history, store.delete, store.journal):
                with pytest.raises(SnapshotNotFoundError):
                    ask(new_id())
            with pytest.raises(SnapshotNotFoundError):
                store.record(new_id(), [MessageAdded(Message.user("x"))], after=0)
            chain(store, 1)

    def test_an_empty_store_lists_nothing(self, store: ConversationStore) -> None:
        assert store.list() == Page()

    def test_a_list_shows_the_newest_of_each_conversation(self, store: ConversationStore) -> None:
        one = first("the first", at=NOON)
        two = first("the second", at=NOON + timedelta(minutes=1), provider="gemini")
        store.save(one)
        store.save(two)
        assert store.list().items == (summary_of(two), summary_of(one))
        later = after(one, "again", at=NOON + timedelta(minutes=2))
        store.save(later)
        assert store.list().items == (summary_of(later), summary_of(two))
        assert store.list().items[0].message_count == 2
        assert store.list().items[0].title == "the first"

    def test_pages_hold_everything_once(self, store: ConversationStore) -> None:
        # Five of each minute: the order must not depend on times alone.
        saved = [first(f"{n}", at=NOON + timedelta(minutes=n // 5)) for n in range(23)]
        for snapshot in saved:
            store.save(snapshot)
        for limit in (1, 4, 23, 100):
            found = pages(lambda cursor, limit=limit: store.list(limit=limit, cursor=cursor))
            assert [item.created_at for item in found] == sorted([s.created_at for s in saved], reverse=True)
            assert {item.id for item in found} == {s.id for s in saved}
            assert len(found) == 23

    def test_filters(self, store: ConversationStore) -> None:
        for number in range(12):
            provider = "gemini" if number % 3 else "openai"
            store.save(first(f"Größe {number}", provider=provider, at=NOON + timedelta(hours=number)))
        assert len(store.list(provider="openai").items) == 4
        assert not store.list(provider="open").items
        assert [item.title for item in store.list(text="größe 1").items] == ["Größe 11", "Größe 10", "Größe 1"]
        assert [item.title for item in store.list(text="GRÖßE 1", provider="gemini").items] == [
            "Größe 11",
            "Größe 10",
            "Größe 1",
        ]
        assert [item.title for item in store.list(since=NOON + timedelta(hours=10)).items] == ["Größe 11", "Größe 10"]
        assert [item.title for item in store.list(until=NOON + timedelta(hours=2)).items] == ["Größe 1", "Größe 0"]
        within = store.list(since=NOON + timedelta(hours=3), until=NOON + timedelta(hours=4), provider="openai")
        assert [item.title for item in within.items] == ["Größe 3"]
        found = pages(lambda cursor: store.list(text="größe", provider="gemini", limit=3, cursor=cursor))
        assert len(found) == 8
        assert store.list(text="100%").items == ()
        assert store.list(text="_").items == ()

    def test_histories_come_in_pages(self, store: ConversationStore) -> None:
        points = chain(store, 11)
        chain(store, 2)
        expected = [summary_of(point) for point in reversed(points)]
        assert list(store.history(points[4].id).items) == expected
        for limit in (1, 3, 11):
            found = pages(lambda cursor, limit=limit: store.history(points[0].id, limit=limit, cursor=cursor))
            assert found == expected

    @pytest.mark.parametrize("limit", [0, -1, 100_000, True])
    def test_limits_are_checked(self, store: ConversationStore, limit: int) -> None:
        [one] = chain(store, 1)
        for ask in (lambda: store.list(limit=limit), lambda: store.history(one.id, limit=limit)):
            with pytest.raises(InvalidCursorError):
                ask()

    def test_cursors_are_checked(self, store: ConversationStore) -> None:
        one, *_ = chain(store, 3)
        chain(store, 1)
        good = store.list(limit=1).cursor
        assert good is not None
        of_history = store.history(one.id, limit=1).cursor
        assert of_history is not None
        for bad in ("", "x", good[:-4], "é", "\x00", good + "AAAA", of_history, "W10=", "x" * 5000):
            with pytest.raises(InvalidCursorError):
                store.list(cursor=bad)
        with pytest.raises(InvalidCursorError):
            store.history(one.id, cursor=good)
        with pytest.raises(InvalidCursorError):
            store.list(cursor=good, provider="openai")

    def test_search(self, store: ConversationStore) -> None:
        if not store.can_search:
            with pytest.raises(StoreError):
                store.search("x")
            return
        weather = chain(store, 2, said="What is the weather in Lyon?")[-1]
        cooking = chain(store, 2, said='How do I cook "rice" for 20 people? 100% sure')[-1]
        chinese = chain(store, 1, said="今天天气怎么样")[-1]

        def found(text: str) -> set[str]:
            return {item.id for item in pages(lambda cursor: store.search(text, limit=1, cursor=cursor))}

        assert found("weather") == {weather.id}
        assert found("WEATH lyon") == {weather.id}
        assert found("lyon rice") == set()
        assert found('"rice"') == {cooking.id}
        assert found("turn 1") == {weather.id, cooking.id}
        assert found("天气") == {chinese.id}
        assert found("20") == {cooking.id}
        assert found("100%") == {cooking.id}
        assert found("NOT weather") == set()
        for odd in ('"', "*", "AND", "a OR b", "(", "\x00", "col:x", "-", "'; DROP TABLE x", "", "  ", "\ud800"):
            found(odd)
        store.delete(weather.id)
        assert found("weather") == set()
