"""FileStore: its layout, what a crash leaves, and damaged or swapped files."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.conversation import Message
from dragoman.errors import (
    SnapshotCorruptError,
    SnapshotNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from dragoman.stores import AesGcmSealing, FileStore, MessageAdded, Snapshot, resume
from tests.stores.cases import after, chain, first

SEALING = AesGcmSealing(b"k" * 32)


def step(text: str) -> MessageAdded:
    return MessageAdded(Message.user(text))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    with FileStore(tmp_path / "store") as store:
        yield store


def files(store: FileStore) -> list[str]:
    return sorted(str(path.relative_to(store.path)) for path in store.path.rglob("*") if path.is_file())


def file_of(store: FileStore, snapshot: Snapshot, place: int = 1) -> Path:
    return store.path / snapshot.root / f"{place:06}-{snapshot.id}.json"


def journal_of(store: FileStore, snapshot: Snapshot) -> Path:
    [found] = (store.path / snapshot.root).glob(f"*-{snapshot.id}.*.jsonl")
    return found


# --- on the disk -----------------------------------------------------------------------------------------------------


def test_a_missing_directory_is_an_empty_store_and_reading_does_not_create_it(store: FileStore) -> None:
    assert store.list().items == ()
    with pytest.raises(SnapshotNotFoundError):
        store.delete(first("x").id)
    assert not store.path.exists()


def test_the_layout_of_the_directory(store: FileStore) -> None:
    one, two = chain(store, 2)
    points = [f"{one.id}/000001-{one.id}.json", f"{one.id}/000002-{two.id}.json"]
    assert files(store) == sorted([*points, f"{one.id}/000002-{two.id}.0.jsonl", "lock", "store.json"])
    store.record(two.id, [step("a"), step("b")], after=0)
    journal = journal_of(store, two)
    assert journal.name == f"000002-{two.id}.2.jsonl"
    assert [json.loads(line)["record"]["type"] for line in journal.read_text().splitlines()] == ["message_added"] * 2
    store.save(after(two, "x"), after=2)
    assert not journal.exists()
    document = json.loads(file_of(store, one).read_text())
    assert document["record"]["title"] == "hello"
    store.delete(one.id)
    assert files(store) == ["lock", "store.json"]


def test_an_existing_directory_keeps_its_mode_and_files(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o750)
    (tmp_path / "store" / "notes.txt").write_text("mine")
    with FileStore(tmp_path / "store") as store:
        [one] = chain(store, 1)
        (store.path / one.root / ".DS_Store").write_text("theirs")
        assert store.load(one.id) == one
        assert len(store.list().items) == 1
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o750
    assert (tmp_path / "store" / "notes.txt").read_text() == "mine"


def test_a_sealed_store_writes_no_plain_text(tmp_path: Path) -> None:
    words = "quickest brownish foxglove"
    with FileStore(tmp_path / "sealed", sealing=SEALING) as store:
        one = first(words, provider="secretive", title=words)
        store.save(one)
        store.record(one.id, [step(words)], after=0)
        everything = b"".join(path.read_bytes() for path in store.path.rglob("*") if path.is_file())
        assert not [word for word in (*words.split(), "secretive", "gpt-5", "message") if word.encode() in everything]
        assert [item.id for item in store.search("QUICK fox").items] == [one.id]


def test_a_conversation_can_be_copied_by_its_directory(store: FileStore, tmp_path: Path) -> None:
    points = chain(store, 3)
    with FileStore(tmp_path / "other") as other:
        chain(other, 1)
        shutil.copytree(store.path / points[0].root, other.path / points[0].root)
        assert [other.load(point.id) for point in points] == points
        other.save(after(points[-1], "elsewhere"))
    assert len(store.history(points[0].id).items) == 3


# --- what a crash leaves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealing", [None, SEALING], ids=["open", "sealed"])
def test_unacknowledged_entries_are_ignored(tmp_path: Path, sealing: AesGcmSealing | None) -> None:
    """Entries of one call are valid together or not at all, and the next writer appends after the valid ones."""
    with FileStore(tmp_path / "store", sealing=sealing) as store:
        [one] = chain(store, 1)
        store.record(one.id, [step("acknowledged")], after=0)
        journal = journal_of(store, one)
        before = journal.read_bytes()
        store.record(one.id, [step("b"), step("c")], after=1)
        whole = journal_of(store, one).read_bytes()
        journal_of(store, one).rename(journal)  # the writer died before the rename
        for size in range(len(before), len(whole) + 1, 7):
            journal.write_bytes(whole[:size])
            assert store.journal(one.id).entries == (step("acknowledged"),)
        assert store.record(one.id, [step("d")], after=1) == 2
        assert store.journal(one.id).entries == (step("acknowledged"), step("d"))


@pytest.mark.parametrize("sealing", [None, SEALING], ids=["open", "sealed"])
def test_a_damaged_or_missing_journal_is_noticed(tmp_path: Path, sealing: AesGcmSealing | None) -> None:
    """Otherwise calls that had started would be forgotten, and run again."""
    with FileStore(tmp_path / "store", sealing=sealing) as store:
        [one] = chain(store, 1)
        store.record(one.id, [step("a")], after=0)
        store.record(one.id, [step("b"), step("c")], after=1)
        journal = journal_of(store, one)
        whole = journal.read_bytes()
        damages = [whole[:size] for size in range(0, len(whole), 5)]
        damages += [bytes(len(whole)), whole[:50] + bytes(len(whole) - 50), None]
        for damage in damages:
            journal.unlink() if damage is None else journal.write_bytes(damage)
            for ask in (
                lambda: store.journal(one.id),
                lambda: resume(store, one.id),
                lambda: store.record(one.id, [step("x")], after=0),
                lambda: store.save(after(one, "x")),
            ):
                with pytest.raises(SnapshotCorruptError, match=r"latest\(id\)\.fork"):
                    ask()
        fork = store.latest(one.id).fork()  # as the hint says
        store.save(fork)
        assert store.journal(fork.id).position == 0
        journal.write_bytes(whole)
        assert store.journal(one.id).position == 3


def test_leftovers_of_a_killed_writer_are_removed(store: FileStore) -> None:
    points = chain(store, 2)
    (store.path / ".old").mkdir()
    (store.path / ".old" / "x.json").write_text("half deleted")
    (store.path / ".new").write_text("half written")
    (store.path / points[0].root / f"000003-{first('x').id}.0.jsonl").write_bytes(b"")  # of an unfinished save
    (store.path / points[0].root / f"000001-{points[0].id}.1.jsonl").write_bytes(b"obsolete")
    assert len(store.list().items) == 1
    assert store.journal(points[0].id).entries == ()
    store.save(after(points[-1], "on"))
    assert {path.name for path in store.path.iterdir()} == {"lock", "store.json", points[0].root}
    assert len(list((store.path / points[0].root).glob("*.jsonl"))) == 1


def test_a_repeated_save_waits_for_the_disk(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    [one] = chain(store, 1)
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    store.save(one)  # the first try may have failed at the last moment
    assert len(synced) == 2


# --- damage ----------------------------------------------------------------------------------------------------------


def test_errors_for_damaged_and_swapped_files_name_the_file(store: FileStore) -> None:
    one, two = chain(store, 2)
    store.record(two.id, [step("a"), step("b")], after=0)
    for path, ask in (
        (file_of(store, one), lambda: store.load(one.id)),
        (file_of(store, two, 2), lambda: store.latest(one.id)),
        (journal_of(store, two), lambda: store.journal(one.id)),
        (journal_of(store, two), lambda: store.record(two.id, [step("c")], after=2)),
        (journal_of(store, two), lambda: store.save(after(two, "x"), after=2)),
    ):
        whole = path.read_bytes()
        for at in (1, len(whole) // 3, len(whole) - 1):  # the last is the end of a line
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            with pytest.raises(SnapshotCorruptError, match=path.name):
                ask()
        path.write_bytes(whole)
    [other] = chain(store, 1, said="another")
    shutil.copy(file_of(store, other), file_of(store, one))
    with pytest.raises(SnapshotCorruptError, match="another place"):
        store.load(one.id)
    [unreadable] = store.history(one.id).unreadable
    assert file_of(store, one).name in unreadable.problem
    file_of(store, one).unlink()
    assert "is missing" in store.history(two.id).unreadable[0].problem
    assert store.latest(two.id) == two
    file_of(store, two, 2).rename(file_of(store, one))  # an older one is not taken for the newest
    with pytest.raises(SnapshotCorruptError, match="is missing"):
        store.journal(one.id)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/etc/passwd"), Path.mkdir])
def test_links_pipes_and_directories_are_not_read(store: FileStore, make: object) -> None:
    one, two = chain(store, 2)
    file_of(store, two, 2).unlink()
    make(file_of(store, two, 2))  # type: ignore[operator]
    with pytest.raises((SnapshotCorruptError, StoreUnavailableError)):
        store.latest(one.id)
    assert store.load(one.id) == one
    assert len(store.list().unreadable) == 1 if not file_of(store, two, 2).is_dir() else True


def test_a_lost_damaged_or_newer_marker_is_refused(store: FileStore) -> None:
    points = chain(store, 2)
    marker = store.path / "store.json"
    before = marker.read_bytes()
    for damage, says in (
        (b"", "damaged"),
        (b"{}", "damaged"),
        (before.replace(b":1", b":2"), "newer dragoman"),
        (None, "lost"),
    ):
        marker.unlink() if damage is None else marker.write_bytes(damage)
        with FileStore(store.path) as other:
            for ask in (other.list, lambda: other.load(points[0].id), lambda: other.save(first("x"))):
                with pytest.raises(StoreError, match=says):
                    ask()
    marker.write_bytes(before)
    assert store.latest(points[0].id) == points[-1]
