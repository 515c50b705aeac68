"""What is particular to a store in a directory: its layout, its modes, what it reads and writes."""

from __future__ import annotations

import builtins
import multiprocessing
import os
import stat
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.conversation import Message
from dragoman.errors import (
    ConfigurationError,
    SnapshotCorruptError,
    SnapshotError,
    SnapshotNotFoundError,
    StoreError,
)
from dragoman.stores.journal import MessageAdded
from dragoman.stores.file import FileStore, catalogue
from dragoman.stores.file.frames import (
    BATCH_BYTES,
    Head,
    batch_from_bytes,
    batch_to_bytes,
    head_from_bytes,
    head_to_bytes,
    journal_origin,
    log_origin,
    record_from_bytes,
    record_to_bytes,
)
from dragoman.stores.ids import new_id
from dragoman.stores.sealing import AesGcmSealing
from dragoman.stores.snapshot import Snapshot
from tests.stores.contract import NOON, after, chain, first, pages

STEPS = [MessageAdded(Message.user("a step"))]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    with FileStore(tmp_path / "store") as store:
        yield store


def files(store: FileStore) -> list[str]:
    found = [path for path in store.path.rglob("*") if path.is_file() and path.parent.name != "locks"]
    return sorted(str(path.relative_to(store.path)) for path in found)


# --- on the disk -----------------------------------------------------------------------------------------------------


def test_a_missing_directory_is_an_empty_store_and_reading_makes_none(store: FileStore) -> None:
    assert store.list().items == ()
    assert store.reseal().total == 0
    assert not store.path.exists()


def test_the_layout(store: FileStore) -> None:
    one, two = chain(store, 2)
    assert files(store) == sorted([
        "store.json",
        f"heads/{one.id}.head",
        f"logs/{one.id}.1.log",
        f"ids/{two.id[-2:]}/{two.id}.{one.id}",
    ])  # fmt: skip
    store.record(two.id, STEPS, after=0)
    assert f"logs/{one.id}.journal" in files(store)
    store.save(after(two, "x"), after=1)
    assert f"logs/{one.id}.journal" not in files(store)
    store.delete(one.id)
    assert files(store) == ["store.json"]


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_directories_are_0700_and_files_0600_whatever_the_mask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with FileStore(tmp_path / "deep" / "store") as store:
            points = chain(store, 3)
            store.record(points[-1].id, STEPS, after=0)
    finally:
        os.umask(before)
    for path in (tmp_path / "deep" / "store", *(tmp_path / "deep" / "store").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_directory_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o750)
    (tmp_path / "store" / "notes.txt").write_text("mine")
    with FileStore(tmp_path / "store") as store:
        chain(store, 1)
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o750
    assert (tmp_path / "store" / "notes.txt").read_text() == "mine"


def test_a_turn_writes_only_what_is_new(store: FileStore) -> None:
    snapshot = first("x" * 100_000)
    store.save(snapshot)
    [log] = (store.path / "logs").iterdir()
    sizes: list[int] = []
    for number in range(30):
        before = log.stat().st_size
        snapshot = after(snapshot, f"turn {number:>4}")
        store.save(snapshot)
        sizes.append(log.stat().st_size - before)
    assert max(sizes) < 2_000
    assert max(sizes) - min(sizes) < 10
    assert store.latest(snapshot.id) == snapshot


def test_nothing_readable_is_written_under_a_seal(tmp_path: Path) -> None:
    words = "the quick brown fox"
    with FileStore(tmp_path, sealing=AesGcmSealing(b"k" * 32)) as store:
        one = first(words, provider="secretive", title=words)
        store.save(one)
        store.record(one.id, [MessageAdded(Message.user(words))], after=0)
        everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert not [word for word in (*words.split(), "secretive", "gpt-5", "role") if word.encode() in everything]
    with FileStore(tmp_path / "plain", sealing=AesGcmSealing(b"k" * 32), listing="plain") as store:
        store.save(first("quick", title="shown"))
        everything = b"".join(path.read_bytes() for path in (tmp_path / "plain").rglob("*") if path.is_file())
        assert b"shown" in everything
        assert b"quick" not in everything


def test_what_a_store_was_made_for_must_not_change_unasked(tmp_path: Path) -> None:
    with FileStore(tmp_path / "open") as store:
        [one] = chain(store, 1)
    with FileStore(tmp_path / "open", sealing=AesGcmSealing(b"k" * 32)) as store:
        with pytest.raises(ConfigurationError, match="not sealed.*reseal"):
            store.save(after(one, "on"))
        with pytest.raises(SnapshotError, match="not sealed"):
            store.load(one.id)
    with FileStore(tmp_path / "plain", sealing=AesGcmSealing(b"k" * 32), listing="plain") as store:
        [one] = chain(store, 1)
    with FileStore(tmp_path / "plain", sealing=AesGcmSealing(b"k" * 32)) as store:
        with pytest.raises(ConfigurationError, match="listing='plain'"):
            store.save(after(one, "on"))
        assert store.load(one.id) == one
    with pytest.raises(ConfigurationError, match="'plain' or 'sealed'"):
        FileStore(tmp_path, listing="open")  # type: ignore[arg-type]


def test_the_store_shows_its_path_and_no_key(tmp_path: Path) -> None:
    assert repr(FileStore(tmp_path, sealing=AesGcmSealing(b"k" * 32))) == f"FileStore({str(tmp_path)!r})"


def test_a_directory_cannot_be_searched(store: FileStore) -> None:
    assert not store.can_search
    with pytest.raises(StoreError, match="cannot be searched"):
        store.search("x")


# --- lists -----------------------------------------------------------------------------------------------------------


def test_a_list_reads_each_head_once_and_no_log(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_SETTLED", -10_000_000_000)  # as if all had been written long ago
    points = [first(f"{number}") for number in range(20)]
    for point in points:
        store.save(point)
    opened: list[str] = []
    real = os.open

    def watched(path: str, *args: object, **kwargs: object) -> int:
        opened.append(str(path))
        return real(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", watched)
    store.list()
    assert sum(name.endswith(".head") for name in opened) == 20
    assert not [name for name in opened if name.endswith(".log")]
    opened.clear()
    store.list()
    store.list(provider="openai", text="1")
    assert not [name for name in opened if name.endswith(".head")]
    store.save(after(points[3], "on"))
    store.delete(points[4].id)
    opened.clear()
    assert len(store.list().items) == 19
    assert [name for name in opened if name.endswith(".head")] == [f"{points[3].id}.head"]


def test_a_list_sees_what_others_just_saved(store: FileStore) -> None:
    with FileStore(store.path) as other:
        point = first("x")
        other.save(point)
        for number in range(50):
            assert [item.id for item in store.list().items] == [point.id], number
            point = after(point, "y")
            other.save(point)
        other.delete(point.id)
        assert store.list().items == ()


def test_pages_hold_what_stays_while_others_save(store: FileStore) -> None:
    points = [first(f"{number}", at=NOON + timedelta(minutes=number)) for number in range(20)]
    for point in points:
        store.save(point)
    seen: list[str] = []
    page = store.list(limit=4)
    for _ in range(20):
        seen += [item.root for item in page.items]
        if page.cursor is None:
            break
        store.save(first("new", at=NOON + timedelta(days=1)))
        page = store.list(limit=4, cursor=page.cursor)
    assert seen == [point.id for point in reversed(points)]


def test_filters_need_a_time_zone(store: FileStore) -> None:
    with pytest.raises(ConfigurationError, match="time zone"):
        store.list(since=NOON.replace(tzinfo=None))


def test_readers_see_whole_snapshots_while_others_write_delete_and_seal(tmp_path: Path) -> None:
    """Without locks: what they find is a snapshot that was saved, or that there is none."""
    sealing = AesGcmSealing(b"n" * 32, older=[b"o" * 32])
    with FileStore(tmp_path, sealing=AesGcmSealing(b"o" * 32)) as store:
        points = chain(store, 4)
    stop, troubles = threading.Event(), list[BaseException]()
    saved = {point.id: point for point in points}

    def read() -> None:
        try:
            with FileStore(tmp_path, sealing=sealing) as store:
                while not stop.is_set():
                    for id, point in builtins.list(saved.items()):
                        try:
                            assert store.load(id) == point
                            assert store.latest(id).root == point.root
                            assert store.journal(id).position in {0, 1}
                            assert not store.list().unreadable
                        except SnapshotNotFoundError:
                            continue  # deleted, for a moment
        except BaseException as error:  # noqa: BLE001 - shown by the test
            troubles.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        with FileStore(tmp_path, sealing=sealing) as store:
            for number in range(15):
                store.reseal()
                store.record(points[-1].id, STEPS, after=0)
                points.append(after(points[-1], f"{number}"))
                saved[points[-1].id] = points[-1]
                store.save(points[-1], after=1)
                if number % 5 == 4:
                    store.delete(points[0].id)
                    for point in points:
                        store.save(point)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not troubles


def test_many_threads_make_the_same_store(tmp_path: Path) -> None:
    start, made = threading.Barrier(8), list[Snapshot]()

    def work(number: int) -> None:
        with FileStore(tmp_path / "store") as store:
            start.wait(30)
            made.extend(chain(store, 3, said=f"{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with FileStore(tmp_path / "store") as store:
        assert [store.load(point.id) for point in made] == made
        assert len(made) == 24
        assert len(pages(lambda cursor: store.list(limit=3, cursor=cursor))) == 8


def _save_once(path: Path, snapshot: Snapshot) -> None:
    with FileStore(path) as store:
        store.save(snapshot)


def test_the_same_id_under_two_roots_is_taken_once(store: FileStore) -> None:
    one, two = first("one"), first("two")
    store.save(one)
    store.save(two)
    id = new_id()
    rivals = [root.next(root.conversation, ids=lambda: id) for root in (one, two)]
    outcomes: list[bool] = []

    def save(rival: Snapshot) -> None:
        try:
            store.save(rival)
        except StoreError:
            outcomes.append(False)
        else:
            outcomes.append(True)

    threads = [threading.Thread(target=save, args=(rival,)) for rival in rivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False, True]
    assert store.load(id) in rivals


def test_a_forked_process_uses_the_store(store: FileStore) -> None:
    [one] = chain(store, 1)
    longer = after(one, "from the child")
    process = multiprocessing.get_context("spawn").Process(target=_save_once, args=(store.path, longer))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert store.latest(one.id) == longer


# --- bytes -----------------------------------------------------------------------------------------------------------

ids = st.uuids().map(str)
blobs = st.binary(max_size=60)
numbers = st.integers(0, 2**32 - 1)


@given(ids, ids, ids, numbers, st.integers(0, 2**64 - 1), st.binary(min_size=16, max_size=16), blobs)
def test_heads_are_read_as_written(
    store: str, root: str, newest: str, number: int, length: int, digest: bytes, summary: bytes
) -> None:
    head = Head(
        store=store,
        root=root,
        newest=newest,
        generation=number,
        length=length,
        last=length,
        count=number,
        digest=digest,
        summary=summary,
    )
    assert head_from_bytes(head_to_bytes(head)) == head


@given(ids, ids, ids, numbers, blobs, blobs, blobs)
def test_records_are_read_as_written(
    store: str, root: str, id: str, position: int, summary: bytes, body: bytes, messages: bytes
) -> None:
    origin, parts = log_origin(store, root), (summary, body, messages)
    data, digest = record_to_bytes(id, position=position, base=7, parts=parts, before=bytes(16), origin=origin)
    record = record_from_bytes(data)
    record.check(origin, parts)
    assert (record.id, record.position, record.base, record.digest) == (id, position, 7, digest)
    assert record.size == len(data)
    for wrong in ((messages, body, summary), (summary + b"x", body, messages), (summary, body, messages + b"x")):
        if wrong != parts:
            with pytest.raises(SnapshotCorruptError):
                record.check(origin, wrong)


@given(ids, ids, numbers, numbers, blobs)
def test_batches_are_read_as_written(store: str, snapshot: str, position: int, count: int, payload: bytes) -> None:
    before = journal_origin(store, snapshot)
    data, digest = batch_to_bytes(snapshot, after=position, count=count, payload=payload, before=before)
    batch = batch_from_bytes(data)
    assert (batch.snapshot, batch.after, batch.count) == (snapshot, position, count)
    assert (batch.digest, batch.size) == (digest, len(data))
    batch.check(store, None, payload)
    batch.check(store, before, payload)
    for wrong in ((store, b"another batch", payload), (new_id(), None, payload), (store, None, payload + b"x")):
        with pytest.raises(SnapshotCorruptError):
            batch.check(*wrong)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_value_or_a_typed_error(data: bytes) -> None:
    for start in (b"", b"DGMH\1\0\0\0", b"DGMR\1\0\0\0", b"DGMJ\1\0\0\0"):
        for read in (
            head_from_bytes,
            record_from_bytes,
            lambda data: batch_from_bytes(data.ljust(BATCH_BYTES, b"x")),
        ):
            try:
                read(start + data)
            except SnapshotError:
                continue


def test_a_step_does_not_read_the_steps_before_it(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    one = first("x")
    store.save(one)
    for number in range(20):
        store.record(one.id, [MessageAdded(Message.user("x" * 50_000))], after=number)
    read: list[int] = []
    real = os.pread

    def watched(fd: int, size: int, offset: int) -> bytes:
        data = real(fd, size, offset)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", watched)
    store.record(one.id, STEPS, after=20)
    assert sum(read) < 60_000  # the last one, and the beginnings of the others


def test_a_dead_writers_note_does_not_hide_the_snapshot_of_that_id(store: FileStore) -> None:
    one, two = first("one"), first("two")
    store.save(one)
    store.save(two)
    later = after(two, "on")
    store.save(later)
    (store.path / "ids" / later.id[-2:] / f"{later.id}.{one.id}").touch()
    assert store.load(later.id) == later
    assert store.latest(later.id) == later
    store.record(later.id, STEPS, after=0)
    store.delete(later.id)
    assert [item.id for item in store.list().items] == [one.id]
