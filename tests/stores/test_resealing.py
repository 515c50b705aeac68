"""Sealing a store again: rotation of keys, broken off and continued, while others write; on every store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

import pytest

from dragoman.conversation import Message
from dragoman.errors import (
    ConfigurationError,
    SnapshotCorruptError,
    SnapshotSealError,
)
from dragoman.stores import (
    AesGcmSealing,
    ConversationStore,
    FileStore,
    MessageAdded,
    Resealed,
    Snapshot,
    generate_encryption_key,
)
from tests.stores.backends import SHARED
from tests.stores.cases import after, chain, first, pages

OLD, NEW = generate_encryption_key(), generate_encryption_key()

Opened: TypeAlias = Callable[..., ConversationStore]


@pytest.fixture(params=["file", "sqlite", "postgres"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Opens the same store with another sealing."""
    backend = SHARED[request.param]
    with backend.around(tmp_path):
        yield lambda sealing: backend.open(tmp_path, sealing=sealing)


def filled(store: ConversationStore, conversations: int = 5) -> list[list[Snapshot]]:
    chains = [chain(store, number % 4 + 1, said=f"conversation {number}") for number in range(conversations)]
    for points in chains:
        store.record(points[-1].id, [MessageAdded(Message.user("a step"))] * 2, after=0)
        store.record(points[-1].id, [MessageAdded(Message.user("and one"))], after=2)
    return chains


def check(store: ConversationStore, chains: Iterable[list[Snapshot]]) -> None:
    for points in chains:
        assert [store.load(point.id) for point in points] == points
        assert store.journal(points[0].id).position == 3
        assert len(store.history(points[0].id).items) == len(points)
        assert not store.history(points[0].id).unreadable
    assert len(pages(lambda cursor: store.list(limit=7, cursor=cursor))) == len(list(chains))


def test_without_the_key_nothing_can_be_read_or_added(at: Opened) -> None:
    with at(AesGcmSealing(OLD)) as store:
        points = chain(store, 2)
        store.record(points[1].id, [MessageAdded(Message.user("a step"))], after=0)
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
            blind.reseal,
        ):
            with pytest.raises(SnapshotSealError):
                ask()
    with at(AesGcmSealing(NEW)) as wrong:
        for ask in (lambda: wrong.load(points[0].id), lambda: wrong.journal(points[0].id)):
            with pytest.raises(SnapshotSealError, match=AesGcmSealing(OLD).key_id):
                ask()
        assert [each.id for each in wrong.list().unreadable] == [points[1].id]


def test_modes_do_not_mix_and_a_store_can_be_sealed_for_the_first_time(at: Opened) -> None:
    with at(None) as store:
        chains = filled(store)
    newest = chains[0][-1]
    with at(AesGcmSealing(NEW)) as store:
        with pytest.raises(ConfigurationError, match="not sealed.*reseal"):
            store.save(first("x"))
        with pytest.raises(SnapshotSealError, match="not sealed"):
            store.load(newest.id)
        with pytest.raises(ConfigurationError, match="not sealed"):
            store.record(newest.id, [MessageAdded(Message.user("x"))], after=3)
    with at(AesGcmSealing(NEW, accept_plain=True)) as store:
        store.reseal()
    with at(AesGcmSealing(NEW)) as store:
        check(store, chains)
    with at(None) as store, pytest.raises(SnapshotSealError):
        store.save(first("in the open"))


def test_what_is_of_another_time_or_place_is_not_taken(tmp_path: Path) -> None:
    with FileStore(tmp_path, sealing=AesGcmSealing(OLD)) as store:
        [one], [other] = chain(store, 1), chain(store, 1)
        store.record(one.id, [MessageAdded(Message.user("pay 5"))], after=0)
        [journal] = (tmp_path / one.id).glob("*.jsonl")
        before = journal.read_bytes()
        two = after(one, "pay 5")
        store.save(two, after=1)
        (tmp_path / one.id / f"000002-{two.id}.0.jsonl").unlink()
        (tmp_path / one.id / f"000002-{two.id}.1.jsonl").write_bytes(before)
        with pytest.raises(SnapshotCorruptError):
            store.journal(two.id)
        theirs = (tmp_path / one.id / f"000001-{one.id}.json").read_bytes()
        (tmp_path / other.id / f"000001-{other.id}.json").write_bytes(theirs)
    with FileStore(tmp_path, sealing=AesGcmSealing(NEW, older=[OLD])) as store:
        assert set(store.reseal().unreadable) == {one.id, other.id}
        with pytest.raises(SnapshotCorruptError):
            store.load(other.id)


def test_after_resealing_the_old_key_is_no_longer_needed(at: Opened) -> None:
    with at(AesGcmSealing(OLD)) as store:
        chains = filled(store)
    with at(AesGcmSealing(NEW, older=[OLD])) as store:
        check(store, chains)  # both keys are read, before
        report = store.reseal()
        assert report == Resealed(done=5, total=5)
        check(store, chains)
    with at(AesGcmSealing(NEW)) as store:
        check(store, chains)
        longer = after(chains[3][-1], "going on")
        store.save(longer, after=3)
        assert store.latest(longer.id) == longer
    with at(AesGcmSealing(OLD)) as store:
        with pytest.raises(SnapshotSealError, match=AesGcmSealing(NEW).key_id):
            store.load(chains[0][0].id)
        assert len(store.list().unreadable) == 5
        with pytest.raises(SnapshotSealError):
            store.journal(chains[0][0].id)


@pytest.mark.parametrize("backend", ["file", "sqlite"])
def test_when_it_is_done_no_plain_text_is_left_in_any_file(backend: str, tmp_path: Path) -> None:
    """Also not in free pages, logs, and what a dead writer left; and without the store being closed."""

    def files_with(text: bytes) -> list[str]:
        return [str(path) for path in tmp_path.rglob("*") if path.is_file() and text in path.read_bytes()]

    with SHARED[backend].open(tmp_path) as store:
        points = chain(store, 3, said="planted words " * 500)
        store.record(points[-1].id, [MessageAdded(Message.user("planted step"))], after=0)
        store.delete(chain(store, 2, said="planted and deleted " * 500)[0].id)
        assert files_with(b"planted")
        if backend == "file":
            (tmp_path / "store" / ".new").write_text("planted by a writer that died")
            (tmp_path / "store" / points[0].root / f"000001-{points[0].id}.1.jsonl").write_text("planted, too")
        with SHARED[backend].open(tmp_path, sealing=AesGcmSealing(NEW, accept_plain=True)) as sealed:
            sealed.reseal()
            assert not files_with(b"planted")
            assert sealed.latest(points[0].id) == points[-1]
            assert sealed.journal(points[0].id).entries == (MessageAdded(Message.user("planted step")),)


@pytest.mark.parametrize("fails_at", range(0, 60, 7))
def test_it_can_be_broken_off_anywhere_and_begun_again(at: Opened, fails_at: int) -> None:
    count = 0

    def random_bytes(size: int) -> bytes:
        nonlocal count
        count += 1
        if count == fails_at:
            raise KeyboardInterrupt
        return generate_encryption_key()[:size]

    with at(AesGcmSealing(OLD)) as store:
        chains = filled(store)
    with at(AesGcmSealing(NEW, older=[OLD], random_bytes=random_bytes)) as store:
        try:
            store.reseal()
        except KeyboardInterrupt:
            check(store, chains)  # each conversation is whole
        assert store.reseal() == Resealed(done=5, total=5)
    with at(AesGcmSealing(NEW)) as store:
        check(store, chains)


def test_others_may_save_meanwhile(at: Opened) -> None:
    keys = AesGcmSealing(NEW, older=[OLD])
    with at(AesGcmSealing(OLD)) as store:
        starts = [chain(store, 3)[-1] for _ in range(8)]
    stop = threading.Event()

    def write(snapshot: Snapshot) -> Snapshot:
        with at(keys) as mine:
            while not stop.is_set():
                snapshot = after(snapshot, "more")
                mine.save(snapshot)
                assert mine.latest(snapshot.id) == snapshot
        return snapshot

    with ThreadPoolExecutor(3) as threads:
        writing = [threads.submit(write, start) for start in starts[:3]]
        try:
            with at(keys) as store:
                for _ in range(3):
                    assert not store.reseal().unreadable
        finally:
            stop.set()
    with at(AesGcmSealing(NEW)) as store:
        for start, each in zip(starts, writing, strict=False):
            assert store.latest(start.id) == each.result()


def test_what_no_key_opens_is_named_and_left(at: Opened) -> None:
    with at(AesGcmSealing(OLD)) as store:
        [lost], [kept] = chain(store, 1), chain(store, 1)
        store.delete(kept.id)
    with at(AesGcmSealing(NEW)) as store:
        store.save(kept)
        report = store.reseal()
        assert report.unreadable == (lost.id,)
        assert report.done == 2
        assert store.load(kept.id) == kept
    with at(AesGcmSealing(OLD)) as store:
        assert store.load(lost.id) == lost
