"""Sealed stores and their keys, on every store; and copying, which seals a store or changes its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from dragoman.conversation import Message
from dragoman.errors import ConfigurationError, SnapshotCorruptError, SnapshotSealError, StoreConflictError
from dragoman.stores import (
    AesGcmSealing,
    ConversationStore,
    FileStore,
    MemoryStore,
    MessageAdded,
    Snapshot,
    copy_conversations,
    generate_encryption_key,
)
from tests.stores.backends import SHARED
from tests.stores.cases import after, chain, first

OLD, NEW = generate_encryption_key(), generate_encryption_key()
STEP = MessageAdded(Message.user("a step"))

Opened: TypeAlias = Callable[..., ConversationStore]


@pytest.fixture(params=["file", "sqlite", "postgres"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Opens the same store, with any sealing."""
    backend = SHARED[request.param]
    with backend.around(tmp_path):
        yield lambda sealing: backend.open(tmp_path, sealing=sealing)


def filled(store: ConversationStore) -> list[list[Snapshot]]:
    chains = [chain(store, number % 4 + 1, said=f"conversation {number}") for number in range(5)]
    for points in chains:
        store.record(points[-1].id, [STEP, STEP], after=0)
    return chains


def check(store: ConversationStore, chains: list[list[Snapshot]]) -> None:
    for points in chains:
        assert [store.load(point.id) for point in points] == points
        assert store.journal(points[0].id).entries == (STEP, STEP)
        assert [item.id for item in store.history(points[0].id).items] == [point.id for point in reversed(points)]
    assert {item.root for item in store.list().items} == {points[0].id for points in chains}


def test_without_the_key_nothing_can_be_read_or_added(at: Opened) -> None:
    with at(AesGcmSealing(OLD)) as store:
        points = chain(store, 2)
        store.record(points[1].id, [STEP], after=0)
    with at(None) as blind:
        for ask in (
            lambda: blind.load(points[0].id),
            lambda: blind.latest(points[0].id),
            lambda: blind.journal(points[0].id),
            lambda: blind.history(points[0].id),
            blind.list,
            lambda: blind.search("x"),
            lambda: blind.save(first("x")),
            lambda: blind.save(after(points[1], "x"), after=1),
            lambda: blind.record(points[1].id, [], after=1),
        ):
            with pytest.raises(SnapshotSealError):
                ask()
    with at(AesGcmSealing(NEW)) as wrong:
        for ask in (lambda: wrong.load(points[0].id), lambda: wrong.journal(points[0].id)):
            with pytest.raises(SnapshotSealError, match=AesGcmSealing(OLD).key_id):
                ask()
        assert [each.id for each in wrong.list().unreadable] == [points[1].id]
    with at(AesGcmSealing(NEW, older=[OLD])) as both:
        assert both.latest(points[0].id) == points[1]
        three = after(points[1], "under the new key")
        both.save(three, after=1)
        assert both.latest(points[0].id) == three
    with at(AesGcmSealing(OLD)) as store:
        assert store.load(points[0].id) == points[0]
        with pytest.raises(SnapshotSealError, match=AesGcmSealing(NEW).key_id):
            store.latest(points[0].id)


def test_an_open_store_is_sealed_by_copying_it(at: Opened, tmp_path: Path) -> None:
    with at(None) as store:
        chains = filled(store)
    newest = chains[0][-1]
    with at(AesGcmSealing(NEW)) as store:
        with pytest.raises(ConfigurationError, match="not sealed.*copy"):
            store.save(first("x"))
        with pytest.raises(SnapshotSealError, match="not sealed.*copy"):
            store.load(newest.id)
        with pytest.raises(ConfigurationError, match="not sealed"):
            store.record(newest.id, [STEP], after=2)
    with at(None) as store, FileStore(tmp_path / "new", sealing=AesGcmSealing(NEW)) as sealed:
        for _ in range(2):  # twice, as after an interruption
            assert copy_conversations(store, sealed) == ()
            check(sealed, chains)
        longer = after(newest, "meanwhile")
        store.save(longer, after=2)
        store.record(longer.id, [STEP], after=0)
        copy_conversations(store, sealed)
        assert sealed.latest(newest.id) == longer
        assert sealed.journal(newest.id).entries == (STEP,)


def test_copying_works_into_every_store(at: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.stores.blocking._PAGE_SIZE", 5)
    with MemoryStore() as source, at(AesGcmSealing(NEW)) as target:
        [own] = chain(target, 1)
        long = chain(source, 12)  # more than a page
        assert copy_conversations(source, target) == ()
        assert [target.load(point.id) for point in long] == long
        assert [item.root for item in target.list().items] == [long[0].id, own.id]


def test_unreadable_conversations_are_skipped_and_named(tmp_path: Path) -> None:
    with FileStore(tmp_path, sealing=AesGcmSealing(OLD)) as store:
        [lost] = chain(store, 1)
    with FileStore(tmp_path, sealing=AesGcmSealing(NEW)) as store, MemoryStore() as target:
        [one], [kept] = chain(store, 1), chain(store, 1)
        store.record(one.id, [MessageAdded(Message.user("pay 5"))], after=0)
        [journal] = (tmp_path / one.id).glob("*.jsonl")
        before = journal.read_bytes()
        two = after(one, "pay 5")
        store.save(two, after=1)
        (tmp_path / one.id / f"000002-{two.id}.0.jsonl").unlink()
        (tmp_path / one.id / f"000002-{two.id}.1.jsonl").write_bytes(before)
        with pytest.raises(SnapshotCorruptError):
            store.journal(two.id)
        assert {each.id for each in copy_conversations(store, target)} == {lost.id, two.id}
        assert target.load(kept.id) == kept


def test_a_conversation_that_continued_in_both_stores_is_a_conflict(tmp_path: Path) -> None:
    with MemoryStore() as source, FileStore(tmp_path) as target:
        [one] = chain(source, 1)
        copy_conversations(source, target)
        here, there = after(one, "here"), after(one, "there")
        source.save(here)
        target.save(there)
        with pytest.raises(StoreConflictError):
            copy_conversations(source, target)
        assert target.latest(one.id) == there
