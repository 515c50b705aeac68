"""Trouble: a full disk, a directory that is gone or closed. Typed errors, nothing lost, and it goes on afterwards."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dragoman.errors import SnapshotNotFoundError, StoreConflictError, StoreError, StoreUnavailableError
from dragoman.stores.journal import MessageAdded
from dragoman.stores.file import FileStore
from dragoman.stores.file import store as store_module
from dragoman.stores.file.shelf import Shelf, opened
from dragoman.stores.file.troubles import reported
from dragoman.stores.journal import resume
from dragoman.stores.snapshot import Snapshot
from tests.processes import started
from tests.stores.contract import after, chain, first
from tests.stores.file.backend import litter

ROOT = Path(__file__).resolve().parent.parent.parent.parent


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    with FileStore(tmp_path / "store", timeout=0.3) as store:
        yield store


def goes_on(store: FileStore, points: list[Snapshot]) -> None:
    """All is there, and one can go on."""
    for point in points:
        assert store.load(point.id) == point
    last = store.latest(points[0].id)
    assert last == points[-1]
    store.save(after(last, "on"), after=store.journal(last.id).position)
    assert len(store.history(last.id).items) == len(points) + 1
    assert not store.list().unreadable
    assert not litter(store.path.parent)


# --- disks that are full ---------------------------------------------------------------------------------------------


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


def test_files_that_cannot_grow(store: FileStore) -> None:
    points = chain(store, 3)
    large = after(points[-1], "x" * 300_000)
    store.record(points[-1].id, [MessageAdded(points[0].messages[0])], after=0)
    with a_limit_for_files(100_000):
        for _ in range(3):
            with pytest.raises(StoreUnavailableError, match="could not save the snapshot: a file would grow"):
                store.save(large, after=1)
            with pytest.raises(StoreUnavailableError):
                store.save(first("x" * 300_000))
        with pytest.raises(StoreUnavailableError, match="could not record the steps"):
            store.record(points[-1].id, [MessageAdded(large.messages[-1])], after=1)
        assert store.load(points[-1].id) == points[-1]
    assert store.journal(points[-1].id).position == 1
    assert len(store.list().items) == 1
    goes_on(store, points)


@pytest.mark.parametrize("size", [0, 10, 100, 200, 300])
def test_a_limit_at_each_step_of_a_save(store: FileStore, size: int) -> None:
    """The head is the smallest file: with it the last step fails, when the record is there already."""
    points = chain(store, 1)
    room = len(next((store.path / "logs").iterdir()).read_bytes())
    with a_limit_for_files(size or room + 60):
        with pytest.raises(StoreUnavailableError):
            store.save(after(points[-1], "x"))
        with pytest.raises(StoreUnavailableError):
            store.save(first("y" * 1000))
    goes_on(store, points)


FULL_DISK = """
import os, sys
from pathlib import Path
from dragoman.errors import StoreUnavailableError
from dragoman.stores.journal import MessageAdded
from dragoman.stores.file import FileStore
from dragoman.stores.file import store as store_module
from dragoman.stores.file.shelf import Shelf, opened
from tests.stores.contract import after, chain, first
place = Path(sys.argv[1])
with FileStore(place / "store") as store:
    points = chain(store, 3)
    store.record(points[-1].id, [MessageAdded(points[0].messages[0])], after=0)
    filler = os.open(place / "filler", os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(filler, b"x" * 4096)
    except OSError as error:
        print(error.strerror.replace(" ", "-"))
    for work in (
        lambda: store.save(after(points[-1], "x" * 200_000), after=1),
        lambda: store.save(first("x" * 200_000)),
        lambda: store.record(points[-1].id, [MessageAdded(after(points[-1], "x" * 200_000).messages[-1])], after=1),
    ):
        try:
            work()
        except StoreUnavailableError as error:
            assert "disk is full" in str(error), error
            print(type(error).__name__)
    assert store.latest(points[0].id) == points[-1]
    assert len(store.list().items) == 1
    os.truncate(filler, 0)
    store.save(after(points[-1], "x"), after=1)
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
    expected = ["No-space-left-on-device", *["StoreUnavailableError"] * 3, "4"]
    assert ran.stdout.split() == expected, ran.stderr


# --- directories that are closed, gone or something else -------------------------------------------------------------


def as_somebody(work: Callable[[Path], None]) -> None:
    """Run this as a user to whom permissions apply, in a directory of that user's. They do not apply to root."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        place = Path(name)
        if os.geteuid() != 0:
            work(place)
            return
        os.chown(place, 65534, 65534)
        place.chmod(0o755)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                work(place)
                status = 0
            except BaseException:  # noqa: BLE001 - shown, and told by the status
                sys.excepthook(*sys.exc_info())
                sys.stderr.flush()
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0, "see what the child wrote"


def test_permission_lost_and_given_back() -> None:
    def work(place: Path) -> None:
        with FileStore(place / "store") as store:
            points = chain(store, 3)
            for folder, mode in (("", 0o000), ("heads", 0o500), ("logs", 0o000), ("heads", 0o000), ("ids", 0o500)):
                (store.path / folder).chmod(mode)
                for _ in range(2):
                    with pytest.raises(StoreUnavailableError, match="permission was denied"):
                        store.save(after(points[-1], "x"))
                if mode == 0:
                    with pytest.raises(StoreUnavailableError):
                        store.load(points[0].id)
                (store.path / folder).chmod(0o700)
                assert store.latest(points[0].id) == points[-1]
            for path in (store.path / "logs").iterdir():
                path.chmod(0o400)
            with pytest.raises(StoreUnavailableError, match="permission"):
                store.save(after(points[-1], "x"))
            for path in (store.path / "logs").iterdir():
                path.chmod(0o000)
            with pytest.raises(StoreUnavailableError, match="permission"):
                store.load(points[0].id)
            for path in (store.path / "logs").iterdir():
                path.chmod(0o600)
            goes_on(store, points)

    as_somebody(work)


def test_a_store_that_can_only_be_read() -> None:
    def work(place: Path) -> None:
        with FileStore(place / "store") as store:
            points = chain(store, 3)
            store.record(points[-1].id, [MessageAdded(points[0].messages[0])], after=0)
        (place / "store" / "heads" / f"{points[0].id}.head.tmp").touch()  # as if a writer had died
        folders = [place / "store", *(path for path in (place / "store").rglob("*") if path.is_dir())]
        for folder in folders:
            folder.chmod(0o500)
        with FileStore(place / "store") as store:
            assert [store.load(point.id) for point in points] == points
            assert len(store.list().items) == 1
            assert len(store.history(points[0].id).items) == 3
            assert resume(store, points[0].id).position == 1
            with pytest.raises(StoreUnavailableError):
                store.save(first("x"))
            with pytest.raises(StoreUnavailableError):
                store.delete(points[0].id)
            assert store.load(points[1].id) == points[1]
            for folder in folders:
                folder.chmod(0o700)
            goes_on(store, points)

    as_somebody(work)


def test_a_directory_that_goes_away_and_comes_back(store: FileStore, tmp_path: Path) -> None:
    points = chain(store, 3)
    store.path.rename(tmp_path / "away")
    for _ in range(2):
        for ask in (
            store.list,
            lambda: store.load(points[0].id),
            lambda: store.save(after(points[-1], "x")),
            lambda: store.save(first("x")),
            store.reseal,
        ):
            with pytest.raises(StoreUnavailableError, match="is gone"):
                ask()
    assert not store.path.exists()  # an empty one would look as if all had been deleted
    (tmp_path / "away").rename(store.path)
    goes_on(store, points)


def test_another_store_in_its_place(store: FileStore, tmp_path: Path) -> None:
    points = chain(store, 2)
    store.path.rename(tmp_path / "away")
    with FileStore(store.path) as other:
        chain(other, 1)
    with pytest.raises(StoreUnavailableError, match="another is in its place"):
        store.save(after(points[-1], "x"))
    shutil.rmtree(store.path)
    (tmp_path / "away").rename(store.path)
    goes_on(store, points)


def test_a_copy_that_was_put_back(store: FileStore, tmp_path: Path) -> None:
    points = chain(store, 3)
    shutil.copytree(store.path, tmp_path / "copy")
    store.save(after(points[-1], "lost with the old directory"))
    shutil.rmtree(store.path)
    (tmp_path / "copy").rename(store.path)
    goes_on(store, points)


def test_a_copy_made_of_hard_links_does_not_change(store: FileStore, tmp_path: Path) -> None:
    points = chain(store, 2)
    store.record(points[-1].id, [MessageAdded(points[0].messages[0])], after=0)
    shutil.copytree(store.path, tmp_path / "copy", copy_function=os.link)
    before = {path: path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    store.record(points[-1].id, [MessageAdded(points[0].messages[0])], after=1)
    goes_on(store, points)
    assert before == {path: path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    with FileStore(tmp_path / "copy") as copy:
        assert copy.journal(points[0].id).position == 1
        copy.save(after(points[-1], "elsewhere"), after=1)
        assert len(copy.history(points[0].id).items) == 3
    assert len(store.history(points[0].id).items) == 3


def test_a_file_in_the_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with FileStore(path) as store:
            for ask in (store.list, lambda: store.save(first("x"))):
                with pytest.raises(StoreUnavailableError, match="not a directory"):
                    ask()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_lost_marker_is_written_again_from_what_the_store_says(store: FileStore) -> None:
    points = chain(store, 2)
    marker = store.path / "store.json"
    before = marker.read_bytes()
    for damage in (b"", b"{}", b"\xff", b'{"format":"dragoman.files","version":1,"id":"../x","mode":"open"}', None):
        marker.unlink() if damage is None else marker.write_bytes(damage)
        assert store.latest(points[0].id) == points[-1]
        points.append(after(points[-1], "on"))
        store.save(points[-1])
        assert marker.read_bytes() == before
    goes_on(store, points)


def test_a_newer_store_is_refused(store: FileStore) -> None:
    points = chain(store, 1)
    marker = store.path / "store.json"
    before = marker.read_bytes()
    marker.write_bytes(before.replace(b'"version":1', b'"version":2'))
    for ask in (store.list, lambda: store.load(points[0].id), lambda: store.save(first("x"))):
        with pytest.raises(StoreError, match="version 2.*Upgrade"):
            ask()
    marker.write_bytes(before)
    goes_on(store, points)


# --- locks -----------------------------------------------------------------------------------------------------------


def test_a_lock_that_is_held_too_long_is_a_typed_error_and_readers_do_not_wait(store: FileStore) -> None:
    points = chain(store, 2)
    held = [os.open(path, os.O_RDWR) for path in (store.path / "locks").iterdir()]
    for fd in held:
        fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        with pytest.raises(StoreUnavailableError, match="Another process has been writing"):
            store.save(after(points[-1], "x"))
        assert store.latest(points[0].id) == points[-1]
        assert len(store.list().items) == 1
    finally:
        for fd in held:
            os.close(fd)
    goes_on(store, points)


def test_a_lock_dies_with_its_holder(store: FileStore) -> None:
    points = chain(store, 1)
    code = (
        "import fcntl, os, sys, time, pathlib\n"
        "for path in pathlib.Path(sys.argv[1]).iterdir():\n"
        "    fcntl.flock(os.open(path, os.O_RDWR), fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code, store.path / "locks"]
    with started(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(StoreUnavailableError):
            store.save(after(points[-1], "x"))
        child.kill()
    goes_on(store, points)


def test_who_waits_for_a_lock_gets_it(tmp_path: Path) -> None:
    with FileStore(tmp_path / "store") as store:
        points = chain(store, 1)
        [path] = [
            path for path in (store.path / "locks").iterdir() if path.name == f"{int(points[0].id[-2:], 16) % 64:02x}"
        ]
        fd = os.open(path, os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)
        timer = threading.Timer(0.1, os.close, [fd])
        timer.start()
        store.delete(points[0].id)
        timer.join()
        assert not store.list().items


# --- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_every_error_of_the_system_gets_words_and_a_hint(number: int) -> None:
    with (
        pytest.raises(StoreUnavailableError, match="The store could not test it: .+[.] .+") as caught,
        reported("test it"),
    ):
        raise OSError(number, os.strerror(number))
    assert isinstance(caught.value.__cause__, OSError)


def test_other_errors_pass() -> None:
    with pytest.raises(StoreConflictError), reported("test it"):
        raise StoreConflictError("mine")


@pytest.mark.parametrize("doing", ["save", "list", "load"])
def test_a_store_that_another_thread_makes_in_the_meantime_is_not_gone(
    doing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path / "store")
    mine, theirs = first(), first()
    looked: list[bool] = []

    @contextmanager
    def opened_slowly(path: Path) -> Iterator[Shelf | None]:
        with opened(path) as shelf:
            looked.append(shelf is None)
            if len(looked) == 1:  # it is not there yet; now somebody else makes it
                store.save(theirs)
            yield shelf

    monkeypatch.setattr(store_module, "opened", opened_slowly)
    if doing == "save":
        store.save(mine)
        assert store.load(mine.id) == mine
    elif doing == "list":
        assert store.list().items == ()
    else:
        with pytest.raises(SnapshotNotFoundError):
            store.load(mine.id)
    assert looked[0]
    assert store.load(theirs.id) == theirs
    shutil.rmtree(store.path)
    with pytest.raises(StoreUnavailableError, match="is gone"):
        store.load(theirs.id)
