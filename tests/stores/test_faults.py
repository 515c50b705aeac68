"""Problems of the disk (full, gone, read-only, locked): typed errors, nothing lost, and the store works again."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import SnapshotNotFoundError, StoreError, StoreUnavailableError
from dragoman.stores import ConversationStore, FileStore, MessageAdded, Snapshot, SqliteStore, resume
from dragoman.stores.sqlite import SqliteSession
from tests.stores.backends import SEALING, SHARED
from tests.stores.cases import after, chain, first, goes_on, in_child

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(params=["file", "sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def store(backend: str, tmp_path: Path) -> Iterator[ConversationStore]:
    with SHARED[backend].open(tmp_path / "place", timeout=0.3) as store:
        yield store


def asked(store: ConversationStore, points: list[Snapshot]) -> list[Callable[[], object]]:
    return [
        store.list,
        lambda: store.load(points[0].id),
        lambda: store.save(after(points[-1], "x")),
        lambda: store.save(first("x")),
    ]


# --- where it is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_only_the_owner_can_read_the_files_whatever_the_umask(backend: str, tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with SHARED[backend].open(tmp_path / "deep" / "er") as store:
            points = chain(store, 3)
            store.record(points[-1].id, [MessageAdded(points[0].messages[0])], after=0)
            for path in (tmp_path / "deep", *(tmp_path / "deep").rglob("*")):
                assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    finally:
        os.umask(before)


def test_a_relative_path_stays_where_it_was(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with SHARED[backend].open(Path(), sealing=SEALING) as store:
        [one] = chain(store, 1)
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.save(after(one, "x"))
        assert store.load(one.id) == one
        assert repr(store) == f"{type(store).__name__}({str(store.path)!r})"  # and not the key
    assert not list((tmp_path / "elsewhere").iterdir())


# --- disks that are full ---------------------------------------------------------------------------------------------


@contextmanager
def a_limit_for_files(size: int) -> Generator[None]:
    """Limit the size of files, which looks like a full disk to a program."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def survive_a_full_disk(store: ConversationStore, full: AbstractContextManager[object]) -> None:
    points = chain(store, 3)
    large = after(points[-1], "x" * 3_000_000)
    step = [MessageAdded(points[0].messages[0])]
    store.record(points[-1].id, step, after=0)
    with full:
        for _ in range(3):
            for ask in (
                lambda: store.save(large, after=1),
                lambda: store.save(first("x" * 3_000_000)),
                lambda: store.record(points[-1].id, [MessageAdded(large.messages[-1])], after=1),
            ):
                with pytest.raises(StoreUnavailableError):
                    ask()
        assert store.latest(points[0].id) == points[-1]
        assert len(store.list().items) == 1
    assert store.journal(points[-1].id).entries == tuple(step)
    goes_on(store, points)


def test_a_file_size_limit_loses_nothing(store: ConversationStore) -> None:
    survive_a_full_disk(store, a_limit_for_files(1_000_000))


FULL_DISK = """
import contextlib, os, sys
from pathlib import Path
from tests.stores.backends import SHARED
from tests.stores.test_faults import survive_a_full_disk

@contextlib.contextmanager
def full(filler):
    try:
        while True:
            filler.write(b"x" * 4096)
    except OSError as error:
        print(error.strerror)
    yield
    os.truncate(filler.fileno(), 0)

place = Path(sys.argv[1])
with SHARED[sys.argv[2]].open(place) as store, open(place / "filler", "wb", buffering=0) as filler:
    survive_a_full_disk(store, full(filler))
"""


def test_a_full_disk_loses_nothing(backend: str, tmp_path: Path) -> None:
    """Uses a small file system that only the child sees."""
    script = 'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" -c "$3" "$1" "$4"'
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    try:
        subprocess.run([*command, 'mount -t tmpfs tmpfs "$1"', "sh", tmp_path], check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here; files that cannot grow are tested above")
    command += [script, "sh", str(tmp_path), sys.executable, FULL_DISK, backend]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("No space left on device\n", 0), ran.stderr


def test_a_disk_failure_at_any_step_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unacknowledged write is visible to everybody or to nobody, and can be repeated."""
    left = -1

    def failing(work: Callable[..., object]) -> Callable[..., object]:
        def call(*args: Any, **options: Any) -> object:
            nonlocal left
            left -= 1
            if left == -1:
                raise OSError(errno.EIO, "Input/output error")
            return work(*args, **options)

        return call

    for owner, names in ((os, ("fsync", "pwrite", "ftruncate")), (Path, ("rename", "mkdir", "unlink"))):
        for name in names:
            monkeypatch.setattr(owner, name, failing(getattr(owner, name)))
    step = [MessageAdded(first("x").messages[0])]
    for at in range(200):
        with FileStore(tmp_path / str(at)) as store:
            [one] = chain(store, 1)
            two, new = after(one, "two"), first("new")
            left = at
            try:
                store.save(new)
                store.save(two)
                store.record(two.id, step, after=0)
                break
            except StoreUnavailableError:
                left = -1
            with FileStore(store.path) as other:
                known = {item.id for item in (*other.list().items, *other.history(one.id).items)}
                for snapshot in (one, two, new):
                    with nullcontext() if snapshot.id in known else pytest.raises(SnapshotNotFoundError):
                        assert other.load(snapshot.id) == snapshot
                for snapshot in (one, two, new):
                    other.save(snapshot)
                position = other.journal(two.id).position
                assert other.record(two.id, step, after=position) == position + 1
    assert 10 < at < 200


# --- directories that are closed, gone or something else -------------------------------------------------------------


def test_the_store_works_again_when_its_directory_is_back(store: ConversationStore, tmp_path: Path) -> None:
    points = chain(store, 3)
    (tmp_path / "place").rename(tmp_path / "away")
    for _ in range(2):
        for ask in asked(store, points):
            with pytest.raises(StoreUnavailableError, match="is gone"):
                ask()
    assert not (tmp_path / "place").exists()  # it would look as if everything had been deleted
    (tmp_path / "away").rename(tmp_path / "place")
    goes_on(store, points)


def test_the_store_uses_a_restored_copy(store: ConversationStore, tmp_path: Path) -> None:
    """Later writes must go to the copy, not to the deleted files."""
    points = chain(store, 3)
    if isinstance(store, SqliteStore):
        store.compact()
    shutil.copytree(tmp_path / "place", tmp_path / "copy")
    store.save(after(points[-1], "lost with the old directory"))
    shutil.rmtree(tmp_path / "place")
    (tmp_path / "copy").rename(tmp_path / "place")
    goes_on(store, points)


def test_a_file_in_place_of_the_directory_is_an_error(backend: str, tmp_path: Path) -> None:
    (tmp_path / "place").write_text("not a directory")
    with SHARED[backend].open(tmp_path / "place") as store:
        for ask in (store.list, lambda: store.save(first("x"))):
            with pytest.raises(StoreUnavailableError):
                ask()
        assert (tmp_path / "place").read_text() == "not a directory"
        (tmp_path / "place").unlink()
        chain(store, 1)


def as_somebody(work: Callable[[Path], None]) -> None:
    """Run this as an ordinary user in a new directory: permissions do not apply to root."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        place = Path(name)
        if os.geteuid() != 0:
            work(place)
            return
        os.chown(place, 65534, 65534)
        place.chmod(0o755)

        def child() -> None:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            work(place)

        assert in_child(child) == 0, "see what the child wrote"


def test_the_store_works_again_when_permission_is_restored(backend: str) -> None:
    def work(place: Path) -> None:
        with SHARED[backend].open(place / "deep") as store:
            points = chain(store, 3)
            for _ in range(2):
                (place / "deep").chmod(0)
                for ask in asked(store, points):
                    with pytest.raises(StoreUnavailableError):
                        ask()
                (place / "deep").chmod(0o700)
                assert store.latest(points[0].id) == points[-1]
            goes_on(store, points)

    as_somebody(work)


def test_read_only_files_can_be_read() -> None:
    def work(place: Path) -> None:
        with FileStore(place / "store") as store:
            points = chain(store, 3)
            store.record(points[-1].id, [MessageAdded(points[0].messages[0])], after=0)
        directories = [place / "store", place / "store" / points[0].root]
        for each in directories:
            each.chmod(0o500)
        with FileStore(place / "store") as store:
            assert [store.load(point.id) for point in points] == points
            assert len(store.list().items) == 1
            assert len(store.history(points[0].id).items) == 3
            assert resume(store, points[0].id).position == 1
            for ask in (lambda: store.save(first("x")), lambda: store.delete(points[0].id)):
                with pytest.raises(StoreUnavailableError, match="Permission denied"):
                    ask()
            for each in directories:
                each.chmod(0o700)
            goes_on(store, points)

    as_somebody(work)


# --- disks that fail -------------------------------------------------------------------------------------------------


def test_a_disk_that_fails_is_not_taken_for_a_damaged_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite reports SQLITE_CORRUPT for EIO."""
    fails = 0
    fetch = SqliteSession.fetch

    def failing(self: SqliteSession, sql: str, *values: object) -> Any:
        nonlocal fails
        if fails:
            fails -= 1
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        return fetch(self, sql, *values)

    def pread(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(SqliteSession, "fetch", failing)
    with SqliteStore(tmp_path / "store.db") as store:
        points = chain(store, 2)
        fails = 1
        assert store.load(points[0].id) == points[0]
        fails = 2
        with pytest.raises(StoreError, match="malformed.*Restore the file") as caught:
            store.load(points[0].id)
        assert not isinstance(caught.value, StoreUnavailableError)
        fails = 2
        with monkeypatch.context() as disk:
            disk.setattr("os.pread", pread)
            with pytest.raises(StoreUnavailableError, match="Check the disk"):
                store.save(after(points[-1], "x"))
        goes_on(store, points)


# --- locks -----------------------------------------------------------------------------------------------------------


@contextmanager
def held(backend: str, place: Path) -> Generator[None]:
    """Hold the lock of the store, as another writer would."""
    if backend == "file":
        with (place / "store" / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    else:
        other = sqlite3.connect(place / "store.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        yield
        other.close()


def test_waiting_for_a_lock_ends_at_the_timeout(store: ConversationStore, backend: str, tmp_path: Path) -> None:
    points = chain(store, 2)
    with held(backend, tmp_path / "place"):
        with pytest.raises(StoreUnavailableError, match="nother (process|program)"):
            store.save(after(points[-1], "x"))
        assert store.latest(points[0].id) == points[-1]  # readers do not wait for writers
        assert len(store.list().items) == 1
    goes_on(store, points)
