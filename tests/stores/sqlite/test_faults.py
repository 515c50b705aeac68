"""Trouble: a full disk, a file that is gone, read-only or locked. Typed errors, nothing lost, and it goes on later."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dragoman.errors import StoreError, StoreUnavailableError
from dragoman.stores.journal import MessageAdded
from dragoman.stores.snapshot import Snapshot
from dragoman.stores.sqlite import SqliteStore
from tests.stores.contract import after, chain, first

ROOT = Path(__file__).resolve().parent.parent.parent.parent


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "store.db", timeout=0.2) as store:
        yield store


def goes_on(store: SqliteStore, points: list[Snapshot]) -> None:
    """All is there, and one can go on."""
    for point in points:
        assert store.load(point.id) == point
    last = store.latest(points[0].id)
    assert last == points[-1]
    store.save(after(last, "on"))
    assert len(store.history(last.id).items) == len(points) + 1


@contextmanager
def a_limit_for_files(size: int) -> Iterator[None]:
    """No file may grow beyond this: a full disk, as far as a program can tell."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_files_that_cannot_grow(store: SqliteStore) -> None:
    points = chain(store, 3)
    large = after(points[-1], "x" * 3_000_000)
    with a_limit_for_files(1_000_000):
        for _ in range(3):
            with pytest.raises(StoreUnavailableError):
                store.save(large)
        with pytest.raises(StoreUnavailableError):
            store.record(points[-1].id, [MessageAdded(large.messages[-1])], after=0)
        assert store.load(points[-1].id) == points[-1]
    goes_on(store, points)


def test_a_database_that_is_full(store: SqliteStore) -> None:
    points = chain(store, 3)
    [pages] = store._database.write(lambda connection: connection.execute("PRAGMA page_count").fetchone())
    with store._database._writer.lock:
        store._database._writer.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreUnavailableError, match="disk is full.*Free space"):
        store.save(after(points[-1], "x" * 100_000))
    with store._database._writer.lock:
        store._database._writer.connection.execute("PRAGMA max_page_count = 100000")
    goes_on(store, points)


FULL_DISK = """
import os, sys
from pathlib import Path
from dragoman.errors import StoreUnavailableError
from dragoman.stores.sqlite import SqliteStore
from tests.stores.contract import after, chain
place = Path(sys.argv[1])
with SqliteStore(place / "store.db") as store:
    points = chain(store, 3)
    filler = os.open(place / "filler", os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(filler, b"x" * 4096)
    except OSError as error:
        print(error.strerror.replace(" ", "-"))
    for _ in range(2):
        try:
            store.save(after(points[-1], "x" * 200_000))
        except StoreUnavailableError as error:
            print(type(error).__name__)
    assert store.latest(points[0].id) == points[-1]
    os.truncate(filler, 0)
    store.save(after(points[-1], "x"))
    print(len(store.history(points[0].id).items))
"""


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """On a small disk of its own, which only the child can see and which goes away with it."""
    script = 'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    try:
        probe = subprocess.run(
            [*command, 'mount -t tmpfs tmpfs "$1"', "sh", tmp_path], check=False, capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("there is no unshare here; files that cannot grow are tested above")
    if probe.returncode:
        pytest.skip("no file system can be mounted here; files that cannot grow are tested above")
    ran = subprocess.run(
        [*command, script, "sh", tmp_path, sys.executable, FULL_DISK],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    expected = ["No-space-left-on-device", "StoreUnavailableError", "StoreUnavailableError", "4"]
    assert ran.stdout.split() == expected, ran.stderr


def test_a_file_that_goes_away_and_comes_back(store: SqliteStore, tmp_path: Path) -> None:
    points = chain(store, 3)
    away = tmp_path / "away"
    away.mkdir()
    for part in ("store.db", "store.db-wal", "store.db-shm"):
        (tmp_path / part).rename(away / part)
    for _ in range(2):
        for ask in (store.list, lambda: store.load(points[0].id), lambda: store.save(after(points[-1], "x"))):
            with pytest.raises(StoreUnavailableError, match="gone"):
                ask()
    assert not (tmp_path / "store.db").exists()  # an empty one would look as if all had been deleted
    for part in away.iterdir():
        part.rename(tmp_path / part.name)
    goes_on(store, points)


def test_another_file_in_its_place(store: SqliteStore, tmp_path: Path) -> None:
    """A copy that was put back: what is written must go there, and not to the file that has lost its name."""
    points = chain(store, 3)
    store._database.write(lambda connection: connection.execute("SELECT 1"))
    copy = tmp_path / "copy.db"
    source = sqlite3.connect(tmp_path / "store.db")
    target = sqlite3.connect(copy)
    source.backup(target)
    source.close()
    target.close()
    later = after(points[-1], "lost with the old file")
    store.save(later)
    for part in ("store.db-wal", "store.db-shm"):
        (tmp_path / part).unlink()
    copy.rename(tmp_path / "store.db")
    goes_on(store, points)
    with SqliteStore(tmp_path / "store.db") as another:
        assert another.latest(points[0].id) == store.latest(points[0].id)


def test_a_file_that_goes_away_in_the_middle_of_a_save(store: SqliteStore, tmp_path: Path) -> None:
    points = chain(store, 2)
    away = tmp_path / "away.db"

    # The file of the commit is not the one at the path: nobody may believe that it is saved.
    with pytest.raises(StoreUnavailableError, match="gone"):
        store._database.write(lambda _connection: (tmp_path / "store.db").rename(away))
    away.rename(tmp_path / "store.db")
    goes_on(store, points)


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    place = tmp_path / "place"
    with SqliteStore(place / "store.db") as store:
        points = chain(store, 2)
        place.rename(tmp_path / "elsewhere")
        with pytest.raises(StoreUnavailableError):
            store.save(after(points[-1], "x"))
        (tmp_path / "elsewhere").rename(place)
        goes_on(store, points)


def test_a_file_in_the_way_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "place").write_text("not a directory")
    with SqliteStore(tmp_path / "place" / "store.db") as store:
        for ask in (store.list, lambda: store.save(first("x"))):
            with pytest.raises(StoreUnavailableError):
                ask()
        (tmp_path / "place").unlink()
        chain(store, 1)


def test_a_directory_in_the_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir()
    with SqliteStore(tmp_path / "store.db") as store, pytest.raises(StoreUnavailableError):
        store.list()


def test_a_database_that_somebody_holds(store: SqliteStore, tmp_path: Path) -> None:
    points = chain(store, 2)
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailableError, match="locked by another program"):
        store.save(after(points[-1], "x"))
    assert store.load(points[-1].id) == points[-1]  # readers do not wait for writers
    other.execute("ROLLBACK")
    other.close()
    goes_on(store, points)


OTHER_USER = """
import os, sys
from dragoman.errors import StoreUnavailableError
from dragoman.stores.sqlite import SqliteStore
from tests.stores.contract import after, first
os.setgid(65534), os.setuid(65534)
for _ in range(2):
    with SqliteStore(sys.argv[1]) as store:
        for ask in (lambda: store.save(first("x")), store.list):
            try:
                ask()
            except StoreUnavailableError as error:
                print(type(error).__name__)
"""


def test_who_may_not_open_it_is_told(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    try:
        with SqliteStore(place / "store.db") as store:
            chain(store, 1)
            ran = subprocess.run(
                [sys.executable, "-c", OTHER_USER, str(place / "store.db")],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            assert ran.stdout.split() == ["StoreUnavailableError"] * 4, ran.stderr
    finally:
        shutil.rmtree(place)


READ_ONLY = """
import os, sys
from pathlib import Path
from dragoman.errors import StoreUnavailableError
from dragoman.stores.sqlite import SqliteStore
from tests.stores.contract import after, chain
place = Path(sys.argv[1])
os.setgid(65534), os.setuid(65534)
with SqliteStore(place / "store.db") as store:
    points = chain(store, 1)
    os.chmod(place, 0)
    for ask in (lambda: store.save(after(points[-1], "x")), lambda: store.load(points[0].id)):
        try:
            ask()
        except StoreUnavailableError as error:
            print(type(error).__name__)
    os.chmod(place, 0o700)
    points.append(after(points[0], "x"))
    store.save(points[-1])
    assert store.load(points[0].id) == points[0]
os.chmod(place / "store.db", 0o400), os.chmod(place, 0o500)
with SqliteStore(place / "store.db") as store:
    for _ in range(2):
        try:
            store.save(after(points[-1], "x"))
        except StoreUnavailableError as error:
            print(type(error).__name__)
    os.chmod(place, 0o700), os.chmod(place / "store.db", 0o600)
    store.save(after(points[-1], "x"))
    print(len(store.history(points[0].id).items))
"""


def test_permission_that_is_lost_and_comes_back(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    place = Path(tempfile.mkdtemp())
    os.chown(place, 65534, 65534)
    try:
        ran = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(place)], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert ran.stdout.split() == ["StoreUnavailableError"] * 4 + ["3"], ran.stderr
    finally:
        shutil.rmtree(place)


def test_a_transaction_that_fails_in_the_middle_leaves_nothing(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = chain(store, 2)

    class Interrupted(BaseException):
        pass

    def interrupted(*_: object) -> None:
        raise Interrupted

    monkeypatch.setattr("dragoman.stores.sqlite.writing._add_messages", interrupted)
    with pytest.raises(Interrupted):
        store.save(after(points[-1], "x"))
    monkeypatch.undo()
    goes_on(store, points)


def test_the_store_says_what_sqlite_says(store: SqliteStore) -> None:
    chain(store, 1)
    store._database.write(lambda connection: connection.execute("DROP TABLE journal"))
    with pytest.raises(StoreError, match="no such table"):
        store.journal(store.list().items[0].id)
