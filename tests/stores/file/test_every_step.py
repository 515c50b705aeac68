"""Each single step of each change fails, is interrupted, or is the last before the process dies.

A change makes a few dozen calls of the operating system. For each of them in turn: that call fails, or the process
ends right before it, or right behind it. Afterwards the change has happened or not, nothing else is different, it can
be made again, and nothing is left lying about.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from dragoman.errors import SnapshotNotFoundError, StoreConflictError, StoreUnavailableError
from dragoman.stores.journal import MessageAdded
from dragoman.stores.file import FileStore
from dragoman.stores.sealing import AesGcmSealing
from dragoman.stores.snapshot import Snapshot
from tests.stores.contract import after, chain, first
from tests.stores.file.backend import litter

pytestmark = pytest.mark.slow

CALLS = ("open", "write", "fsync", "rename", "unlink", "ftruncate", "mkdir", "lseek", "fchmod")
OLD, NEW = b"o" * 32, b"n" * 32
MOST = 400
"""More calls than any change makes."""

Work: TypeAlias = Callable[[FileStore], object]


class Change(NamedTuple):
    """Something that a store does, and how one tells whether it has."""

    do: Work
    happened: Work
    again_is_a_conflict: bool = False


class Story(NamedTuple):
    points: list[Snapshot]
    changes: dict[str, Change]


def _is_there(snapshot: Snapshot) -> Work:
    def look(store: FileStore) -> bool:
        try:
            return store.load(snapshot.id) == snapshot
        except SnapshotNotFoundError:
            return False

    return look


def story(store: FileStore) -> Story:
    """A store with something in it, and changes to it."""
    points, other = chain(store, 3), chain(store, 2)
    step = [MessageAdded(points[0].messages[0])]
    store.record(points[-1].id, step, after=0)
    new, longer, shorter = first("new"), after(points[-1], "more"), points[-1].next(points[-1].conversation.up_to(1))
    return Story(
        points,
        {
            "first save": Change(lambda store: store.save(new), _is_there(new)),
            "next save": Change(lambda store: store.save(longer, after=1), _is_there(longer)),
            "a cut": Change(lambda store: store.save(shorter, after=1), _is_there(shorter)),
            "first record": Change(
                lambda store: store.record(other[-1].id, step, after=0),
                lambda store: store.journal(other[-1].id).position == 1,
                again_is_a_conflict=True,
            ),
            "next record": Change(
                lambda store: store.record(points[-1].id, step, after=1),
                lambda store: store.journal(points[-1].id).position == 2,
                again_is_a_conflict=True,
            ),
            "delete": Change(lambda store: store.delete(other[-1].id), lambda store: not _is_there(other[0])(store)),
        },
    )


NAMES = ("first save", "next save", "a cut", "first record", "next record", "delete")


class End(BaseException):
    pass


@contextmanager
def at_call(number: int, act: Callable[[], None], *, behind: bool = False) -> Iterator[list[int]]:
    """Do this before (or behind) the call of this number. The list counts the calls."""
    count = [0]
    real = {name: getattr(os, name) for name in CALLS}

    def wrapped(name: str) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            count[0] += 1
            if count[0] != number:
                return real[name](*args, **kwargs)
            if behind:
                real[name](*args, **kwargs)
            act()
            raise AssertionError("it was to end here")

        return call

    for name in CALLS:
        setattr(os, name, wrapped(name))
    try:
        yield count
    finally:
        for name, function in real.items():
            setattr(os, name, function)


def check(path: Path, change: Change, points: list[Snapshot], *, sealed: bool) -> None:
    """Happened or not, all else is as it was; done again, it has happened."""
    with opened(path, sealed=sealed) as store:
        assert not store.list().unreadable
        for point in points:
            assert store.load(point.id) == point
        happened = bool(change.happened(store))
        try:
            change.do(store)
        except StoreConflictError:
            assert happened
            assert change.again_is_a_conflict
        except SnapshotNotFoundError:
            assert happened  # deleted
        assert change.happened(store)
        assert not store.list().unreadable
    assert not litter(path.parent)


def opened(path: Path, *, sealed: bool) -> FileStore:
    return FileStore(path, sealing=AesGcmSealing(OLD) if sealed else None)


def each_call(tmp_path: Path, name: str, attempt: Callable[[Path, Change, int], bool], *, sealed: bool = False) -> int:
    """Try the change on a fresh copy of the story, for each of its calls; how many there were."""
    whole = tmp_path / "whole"
    with opened(whole, sealed=sealed) as store:
        points, changes = story(store)
    for number in range(1, MOST):
        place = tmp_path / "try"
        shutil.copytree(whole, place / "store")
        done = attempt(place / "store", changes[name], number)
        if not done:
            with opened(place / "store", sealed=sealed) as store:
                assert not store.list().unreadable
            assert not litter(place), f"after call {number}"
        check(place / "store", changes[name], points, sealed=sealed)
        shutil.rmtree(place)
        if done:
            assert number > 5
            return number - 1
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("name", NAMES)
def test_each_call_fails(tmp_path: Path, name: str) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def attempt(path: Path, change: Change, number: int) -> bool:
        with opened(path, sealed=False) as store, at_call(number, fail) as count:
            try:
                change.do(store)
            except StoreUnavailableError as error:
                told.append(str(error))
        return count[0] < number

    told: list[str] = []
    assert each_call(tmp_path, name, attempt) > 5
    assert len(told) > 5
    assert all("the device reported an error" in each for each in told)


@pytest.mark.parametrize("name", NAMES)
def test_each_call_is_interrupted(tmp_path: Path, name: str) -> None:
    def fail() -> None:
        raise End

    def attempt(path: Path, change: Change, number: int) -> bool:
        behind = bool(number % 2)
        with opened(path, sealed=True) as store, at_call(number, fail, behind=behind) as count, suppress(End):
            change.do(store)
        return count[0] < number

    assert each_call(tmp_path, name, attempt, sealed=True) > 5


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("name", NAMES)
def test_the_process_dies_at_each_call(tmp_path: Path, name: str, behind: bool) -> None:
    def attempt(path: Path, change: Change, number: int) -> bool:
        child = os.fork()
        if child == 0:
            try:
                with at_call(number, lambda: os._exit(9), behind=behind):
                    change.do(opened(path, sealed=False))
            finally:
                os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    assert each_call(tmp_path, name, attempt) > 5


def test_the_process_dies_at_each_call_of_sealing_again(tmp_path: Path) -> None:
    both, new = AesGcmSealing(NEW, older=[OLD]), AesGcmSealing(NEW)
    whole = tmp_path / "whole"
    with opened(whole, sealed=True) as store:
        points, _ = story(store)
    for number in range(1, MOST):
        place = tmp_path / "try"
        shutil.copytree(whole, place / "store")
        child = os.fork()
        if child == 0:
            try:
                with at_call(number, lambda: os._exit(9)):
                    FileStore(place / "store", sealing=both).reseal()
            finally:
                os._exit(0)
        done = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with FileStore(place / "store", sealing=both) as store:
            assert [store.load(point.id) for point in points] == points
            assert not store.list().unreadable
            assert store.journal(points[0].id).position == 1
        assert not litter(place), f"after call {number}"
        with FileStore(place / "store", sealing=both) as store:
            assert not store.reseal().unreadable
        with FileStore(place / "store", sealing=new) as store:
            assert [store.load(point.id) for point in points] == points
            assert store.journal(points[0].id).position == 1
        shutil.rmtree(place)
        if done:
            assert number > 20
            return
    raise AssertionError("it never came to an end")
