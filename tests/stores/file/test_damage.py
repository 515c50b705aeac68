"""Damaged, exchanged and planted files: what comes out is what was written, or a typed error; and nothing is moved."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.conversation import Message
from dragoman.errors import (
    DragomanError,
    InvalidSnapshotIDError,
    SnapshotCorruptError,
    SnapshotError,
    SnapshotNotFoundError,
    SnapshotSealError,
    SnapshotVersionError,
    StoreError,
)
from dragoman.stores.journal import MessageAdded
from dragoman.stores.file import FileStore
from dragoman.stores.file.frames import (
    head_from_bytes,
    head_to_bytes,
    log_origin,
    record_from_bytes,
    record_to_bytes,
)
from dragoman.stores.sealing import AesGcmSealing, Sealing
from dragoman.stores.snapshot import Snapshot
from tests.rounds import rounds
from tests.stores.contract import after, chain, first
from tests.stores.hostile import hostile_ids

STEPS = [MessageAdded(Message.user("a step"))]
SEALINGS = [None, AesGcmSealing(bytes(range(32)))]
IDS = ["open", "sealed"]
DAMAGES = rounds(1000)
"""For each of the two ways to keep records."""


def made(path: Path, sealing: Sealing | None) -> list[Snapshot]:
    with FileStore(path, sealing=sealing) as store:
        points = chain(store, 3, said="the weather in Lyon") + chain(store, 1)
        cut = points[2].next(points[2].conversation.up_to(1))
        store.save(cut)
        store.record(cut.id, STEPS, after=0)
        return [*points, cut]


def use(path: Path, points: list[Snapshot], sealing: Sealing | None) -> int:
    """Try everything; the number of errors, which are ours."""
    failed = 0
    with FileStore(path, sealing=sealing, timeout=1) as store:

        def ask(work: Callable[[], object]) -> object:
            nonlocal failed
            try:
                return work()
            except DragomanError:
                failed += 1
                return None

        for point in points:
            loaded = ask(lambda point=point: store.load(point.id))
            assert loaded is None or loaded == point
        page = ask(store.list)
        failed += len(page.unreadable) if page else 0  # type: ignore[attr-defined]
        ask(lambda: store.list(text="weather", provider="openai"))
        page = ask(lambda: store.history(points[0].id))
        failed += len(page.unreadable) if page else 0  # type: ignore[attr-defined]
        newest = ask(lambda: store.latest(points[0].id))
        journal = ask(lambda: store.journal(points[0].id))
        assert journal is None or journal.position in {0, 1}  # type: ignore[attr-defined]
        failed += journal is not None and journal.position == 0  # type: ignore[attr-defined]
        ask(lambda: store.record(points[-1].id, STEPS, after=1))
        if isinstance(newest, Snapshot) and journal is not None:
            ask(lambda: store.save(after(newest, "on"), after=2))
        ask(store.reseal)
        ask(lambda: store.delete(points[3].id))
    return failed


def damage(path: Path, draw: random.Random) -> Path:
    """Change one file of the store."""
    files = sorted(each for each in path.rglob("*") if each.is_file() and each.parent.name != "locks")
    file = draw.choice([each for each in files if each.stat().st_size] if draw.random() < 0.9 else files)
    data = bytearray(file.read_bytes())
    for _ in range(draw.choice([1, 1, 3, 40])):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(7):
            case 0 if data:
                data[at % len(data)] ^= 1 << draw.randrange(8)
            case 1:
                data[at : at + 8] = draw.randbytes(8)
            case 2:
                del data[at:]
            case 3:
                data[at:at] = draw.randbytes(draw.randrange(1, 40))
            case 4:
                data += draw.randbytes(draw.randrange(1, 200))
            case 5:
                data[at : at + 64] = bytes(64)
            case _:
                other = draw.choice(files).read_bytes()
                data[:] = other if draw.random() < 0.5 else data[:at] + other[at:]
    if draw.random() < 0.1:
        file.unlink()
    else:
        file.write_bytes(data)
    return file


@pytest.mark.slow
@pytest.mark.parametrize("sealing", SEALINGS, ids=IDS)
def test_damage_is_a_typed_error(tmp_path: Path, sealing: Sealing | None) -> None:
    whole, place = tmp_path / "whole", tmp_path / "try"
    points = made(whole, sealing)
    failures = []
    for seed in range(DAMAGES):
        shutil.copytree(whole, place)
        if seed:
            damage(place, random.Random(seed))
        failures.append(use(place, points, sealing))
        shutil.rmtree(place)
    assert failures[0] == 0
    # Most damage is noticed; the rest hit bytes behind what counts, or a file that is made again.
    assert sum(map(bool, failures)) > DAMAGES // 2


@pytest.mark.parametrize("sealing", SEALINGS, ids=IDS)
def test_every_flipped_bit_of_a_head_a_log_and_a_journal_is_noticed(tmp_path: Path, sealing: Sealing | None) -> None:
    with FileStore(tmp_path, sealing=sealing) as store:
        one = first("hello")
        store.save(one)
        store.record(one.id, STEPS, after=0)
        for file in (*(tmp_path / "heads").iterdir(), *(tmp_path / "logs").iterdir()):
            whole = file.read_bytes()
            for place in range(0, len(whole) * 8, 13):  # every bit of a byte has its turn
                data = bytearray(whole)
                data[place // 8] ^= 1 << place % 8
                file.write_bytes(data)
                with pytest.raises(SnapshotError):  # noqa: PT012 - which of the two depends on the file
                    assert store.load(one.id) == one
                    assert store.journal(one.id).position == 1
            file.write_bytes(whole)
        assert store.load(one.id) == one


@pytest.mark.parametrize("sealing", SEALINGS, ids=IDS)
def test_every_cut_is_noticed_or_torn(tmp_path: Path, sealing: Sealing | None) -> None:
    with FileStore(tmp_path, sealing=sealing) as store:
        one = first("hello")
        store.save(one)
        for file in (*(tmp_path / "heads").iterdir(), *(tmp_path / "logs").iterdir()):
            whole = file.read_bytes()
            for length in range(0, len(whole), 9):
                file.write_bytes(whole[:length])
                with pytest.raises(SnapshotCorruptError):
                    store.load(one.id)
            file.write_bytes(whole)
        store.record(one.id, STEPS, after=0)
        store.record(one.id, STEPS, after=1)
        [journal] = (tmp_path / "logs").glob("*.journal")
        whole = journal.read_bytes()
        for length in range(0, len(whole), 3):
            journal.write_bytes(whole[:length])
            assert store.journal(one.id).position == (length >= len(whole) / 2)
            if length < len(whole) - 16:
                journal.write_bytes(whole[:length] + bytes(len(whole) - length))  # grown before its content came
                assert store.journal(one.id).position == (length >= len(whole) / 2)


def test_a_torn_journal_is_continued(tmp_path: Path) -> None:
    with FileStore(tmp_path) as store:
        one = first("hello")
        store.save(one)
        store.record(one.id, STEPS, after=0)
        [journal] = (tmp_path / "logs").glob("*.journal")
        whole = journal.read_bytes()
        journal.write_bytes(whole + whole[: len(whole) // 2])
        assert store.journal(one.id).position == 1
        assert store.record(one.id, STEPS, after=1) == 2
        assert store.journal(one.id).entries == (*STEPS, *STEPS)


def test_two_thousand_hostile_ids(tmp_path: Path) -> None:
    with FileStore(tmp_path / "store") as store:
        chain(store, 2)
        before = sorted(tmp_path.rglob("*"))
        for id in hostile_ids(2000):
            for ask in (store.load, store.latest, store.history, store.journal, store.delete):
                with pytest.raises(InvalidSnapshotIDError):
                    ask(id)
            with pytest.raises(InvalidSnapshotIDError):
                store.record(id, STEPS, after=0)
        assert sorted(tmp_path.rglob("*")) == before


def contents(path: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in path.rglob("*") if each.is_file() and each.parent.name != "locks"}


# --- lists -----------------------------------------------------------------------------------------------------------


def test_a_list_names_what_cannot_be_read_and_leaves_it(tmp_path: Path) -> None:
    with FileStore(tmp_path) as store:
        good, bad, other = first("good"), first("bad"), first("other")
        for each in (good, bad, other):
            store.save(each)
        (tmp_path / "heads" / f"{bad.id}.head").write_bytes(b"nonsense")
        (tmp_path / "heads" / "notes.head").write_bytes(b"mine")
        (tmp_path / "heads" / "readme.txt").write_bytes(b"mine")
        files = contents(tmp_path)
        page = store.list(limit=1)
        assert [each.id for each in page.unreadable] == [bad.id, "notes"]
        assert "cut" in page.unreadable[0].problem
        rest = store.list(limit=1, cursor=page.cursor)
        assert (rest.unreadable, rest.cursor) == ((), None)
        assert {page.items[0].id, rest.items[0].id} == {good.id, other.id}
        with pytest.raises(SnapshotCorruptError):
            store.load(bad.id)
        with pytest.raises(SnapshotCorruptError):
            store.save(after(bad, "on"))
        assert files == contents(tmp_path)
        store.delete(bad.id)
        assert [each.id for each in store.list().unreadable] == ["notes"]
        store.save(bad)
        assert store.load(bad.id) == bad


def test_a_history_names_what_cannot_be_read(tmp_path: Path) -> None:
    with FileStore(tmp_path) as store:
        points = chain(store, 4)
        [log] = (tmp_path / "logs").iterdir()
        data = log.read_bytes()
        # The title in the second record's summary.
        at = data.index(b'"title"', data.index(points[1].id.encode()))
        log.write_bytes(data[:at] + b'"eltit"' + data[at + 7 :])
        page = store.history(points[0].id)
        assert [each.id for each in page.items] == [points[index].id for index in (3, 2, 0)]
        assert [each.id for each in page.unreadable] == [points[1].id]
        with pytest.raises(SnapshotCorruptError):
            store.load(points[1].id)
        assert store.load(points[0].id) == points[0]
        assert store.latest(points[0].id) == points[3]  # the messages are whole


def test_a_damaged_newest_snapshot_can_be_followed_and_its_history_lives_on(tmp_path: Path) -> None:
    with FileStore(tmp_path) as store:
        points = chain(store, 3)
        [log] = (tmp_path / "logs").iterdir()
        data = bytearray(log.read_bytes())
        data[-5] ^= 1
        log.write_bytes(data)
        with pytest.raises(SnapshotCorruptError):
            store.latest(points[0].id)
        assert store.load(points[1].id) == points[1]
        whole = after(points[2], "on")
        store.save(whole)
        assert store.latest(points[0].id) == whole


def test_a_lost_head_is_made_again(tmp_path: Path) -> None:
    with FileStore(tmp_path) as store:
        points = chain(store, 3)
    (tmp_path / "heads" / f"{points[0].id}.head").unlink()
    with FileStore(tmp_path) as store:
        assert [each.id for each in store.list().items] == [points[2].id]
        assert [store.load(point.id) for point in points] == points
    (tmp_path / "heads" / f"{points[0].id}.head").unlink()
    log = tmp_path / "logs" / f"{points[0].id}.1.log"
    data = bytearray(log.read_bytes())
    data[300] ^= 1
    log.write_bytes(data)
    with FileStore(tmp_path) as store:
        for _ in range(2):
            page = store.list()
            assert (page.items, [each.id for each in page.unreadable]) == ((), [points[0].id])
    assert log.read_bytes() == data


# --- records in another's place --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealing", SEALINGS, ids=IDS)
def test_a_file_in_the_place_of_another(tmp_path: Path, sealing: Sealing | None) -> None:
    with FileStore(tmp_path / "one", sealing=sealing) as store, FileStore(tmp_path / "two", sealing=sealing) as other:
        a, b, foreign = first("a"), first("b"), first("foreign")
        store.save(a)
        store.save(b)
        other.save(foreign)

        def copy(source: FileStore, origin: Snapshot, target: Snapshot, *ends: str) -> None:
            for end in ends:
                folder = "heads" if end == ".head" else "logs"
                data = (source.path / folder / (origin.id + end)).read_bytes()
                (store.path / folder / (target.id + end)).write_bytes(data)

        copy(store, b, a, ".head", ".1.log")
        with pytest.raises(SnapshotCorruptError, match="that of another"):
            store.load(a.id)
        assert [each.id for each in store.list().unreadable] == [a.id]
        store.delete(a.id)
        store.save(a)
        copy(store, b, a, ".1.log")
        with pytest.raises(SnapshotCorruptError):
            store.load(a.id)
        copy(other, foreign, foreign, ".head", ".1.log")
        with pytest.raises(SnapshotCorruptError, match="belongs to another store"):
            store.load(foreign.id)
        assert store.load(b.id) == b


def test_a_forged_file_around_a_genuine_sealed_record(tmp_path: Path) -> None:
    """Without the key one can make digests, but not put a sealed record under another id, position or store."""
    sealing = AesGcmSealing(b"k" * 32)
    with FileStore(tmp_path, sealing=sealing) as store:
        a, b = first("a"), first("b")
        store.save(a)
        store.save(b)
        data = (tmp_path / "logs" / f"{b.id}.1.log").read_bytes()
        record = record_from_bytes(data)
        start = len(data) - sum(record.sizes)
        one, two = start + record.sizes[0], start + record.sizes[0] + record.sizes[1]
        head = head_from_bytes((tmp_path / "heads" / f"{b.id}.head").read_bytes())
        origin = log_origin(head.store, a.id)
        forged, digest = record_to_bytes(
            a.id, position=0, base=0, parts=(data[start:one], data[one:two], data[two:]), before=origin, origin=origin
        )
        (tmp_path / "logs" / f"{a.id}.1.log").write_bytes(forged)
        (tmp_path / "heads" / f"{a.id}.head").write_bytes(
            head_to_bytes(structs.replace(head, root=a.id, newest=a.id, digest=digest, length=len(forged)))
        )
        with pytest.raises(SnapshotCorruptError, match="does not open it"):
            store.load(a.id)
        assert [each.id for each in store.list().unreadable] == [a.id]


def test_wrong_key_no_key_and_a_newer_form(tmp_path: Path) -> None:
    with FileStore(tmp_path, sealing=AesGcmSealing(b"k" * 32)) as store:
        [one] = chain(store, 1)
    with FileStore(tmp_path, sealing=AesGcmSealing(b"x" * 32)) as store:
        with pytest.raises(SnapshotSealError, match=AesGcmSealing(b"k" * 32).key_id):
            store.load(one.id)
        with pytest.raises(SnapshotSealError):
            store.save(after(one, "on"))
        assert AesGcmSealing(b"k" * 32).key_id in store.list().unreadable[0].problem
    with FileStore(tmp_path) as store:
        for ask in (
            lambda: store.load(one.id),
            store.list,
            lambda: store.save(after(one, "on")),
            lambda: store.save(first("in the open")),
            lambda: store.record(one.id, STEPS, after=0),
        ):
            with pytest.raises(SnapshotSealError):
                ask()
    for file, at in (("heads", 4), ("logs", 4)):
        [path] = (tmp_path / file).iterdir()
        whole = path.read_bytes()
        path.write_bytes(whole[:at] + b"\2" + whole[at + 1 :])
        with FileStore(tmp_path, sealing=AesGcmSealing(b"k" * 32)) as store, pytest.raises(SnapshotVersionError):
            store.load(one.id)
        path.write_bytes(whole)


# --- planted links, pipes and devices --------------------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A directory that no store has any business with; nothing in it changes."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "secret").write_text("outside")
    yield place
    assert [path.name for path in place.iterdir()] == ["secret"]
    assert (place / "secret").read_text() == "outside"


def plants(outside: Path) -> dict[str, Callable[[Path], None]]:
    def a_socket(path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):  # the path must be short
            made.bind("s")
            Path("s").rename(path.name)

    return {
        "a link to a file": lambda path: path.symlink_to(outside / "secret"),
        "a link to nowhere": lambda path: path.symlink_to(outside / "new"),
        "a link to a directory": lambda path: path.symlink_to(outside),
        "a link to itself": lambda path: path.symlink_to(path.name),
        "a pipe": os.mkfifo,
        "a directory": Path.mkdir,
        "a socket": a_socket,
    }


@pytest.mark.parametrize("name", list(plants(Path())))
@pytest.mark.parametrize("where", ["head", "log", "journal", "note", "head.tmp"])
def test_what_is_planted_in_the_place_of_a_file(tmp_path: Path, outside: Path, name: str, where: str) -> None:
    with FileStore(tmp_path / "store", timeout=1) as store:
        points = chain(store, 2)
        [kept] = chain(store, 1)
        store.record(points[-1].id, STEPS, after=0)
        root = points[0].id
        target = {
            "head": store.path / "heads" / f"{root}.head",
            "head.tmp": store.path / "heads" / f"{root}.head.tmp",
            "log": store.path / "logs" / f"{root}.1.log",
            "journal": store.path / "logs" / f"{root}.journal",
            "note": store.path / "ids" / points[1].id[-2:] / f"{points[1].id}.{root}",
        }[where]
        target.unlink(missing_ok=True)
        plants(outside)[name](target)
        for ask in (
            lambda: store.load(points[1].id),
            lambda: store.latest(root),
            lambda: store.journal(root),
            lambda: store.record(points[1].id, STEPS, after=1),
            lambda: store.save(after(points[1], "on"), after=1),
            store.list,
            store.reseal,
            lambda: store.delete(root),
        ):
            try:
                ask()
            except (SnapshotError, StoreError):
                continue
        assert store.load(kept.id) == kept


@pytest.mark.parametrize("folder", ["heads", "logs", "ids", "locks"])
def test_a_link_in_the_place_of_a_directory_is_not_followed(tmp_path: Path, outside: Path, folder: str) -> None:
    with FileStore(tmp_path / "store") as store:
        points = chain(store, 2)
        (store.path / folder).rename(tmp_path / "aside")
        (store.path / folder).symlink_to(outside)
        for ask in (lambda: store.save(after(points[-1], "on")), lambda: store.save(first("x")), store.list):
            with pytest.raises(StoreError, match="not a directory|symbolic link"):
                ask()
        (store.path / folder).unlink()
        (tmp_path / "aside").rename(store.path / folder)
        assert store.latest(points[0].id) == points[-1]


def test_a_link_in_the_place_of_a_lock_or_the_marker_is_not_followed(tmp_path: Path, outside: Path) -> None:
    with FileStore(tmp_path / "store") as store:
        [one] = chain(store, 1)
        for path in (store.path / "locks").iterdir():
            path.unlink()
        for number in range(64):
            (store.path / "locks" / f"{number:02x}").symlink_to(outside / "new")
        with pytest.raises(StoreError):
            store.save(after(one, "on"))
        shutil.rmtree(store.path / "locks")
        (store.path / "store.json").unlink()
        (store.path / "store.json").symlink_to(outside / "secret")
        assert store.load(one.id) == one
        store.save(after(one, "on"))
        assert not (store.path / "store.json").is_symlink()


def test_the_path_itself_may_lead_through_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with FileStore(tmp_path / "link" / "store") as store:
        [one] = chain(store, 1)
    with FileStore(tmp_path / "real" / "store") as store:
        assert store.load(one.id) == one


def test_a_note_that_lies_is_not_believed(tmp_path: Path) -> None:
    with FileStore(tmp_path) as store:
        one, two = chain(store, 2)
        [other] = chain(store, 1)
        ghost = first("ghost")
        for root in (one.id, other.id, "../../outside", "x", ""):
            name = f"{ghost.id}.{root}".replace("/", "_")
            (tmp_path / "ids" / ghost.id[-2:]).mkdir(exist_ok=True)
            (tmp_path / "ids" / ghost.id[-2:] / name).touch()
        for ask in (store.load, store.latest, store.history, store.journal, store.delete):
            with pytest.raises(SnapshotNotFoundError):
                ask(ghost.id)
        store.save(ghost)
        assert store.load(ghost.id) == ghost
        assert store.latest(two.id) == two
