"""Several processes on one store, forks with an open store, and killed processes."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from contextlib import closing, suppress
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from dragoman.conversation import Conversation, Message
from dragoman.errors import StoreConflictError
from dragoman.stores import MemoryStore, MessageAdded, Snapshot, SqliteStore, conversation_id
from tests.processes import may_fork
from tests.rounds import rounds
from tests.stores.backends import SHARED
from tests.stores.cases import NOON, after, chain, first, in_child, pages
from tests.stores.crash import kill_many

PROCESSES, ROUNDS = 8, 4
TOGETHER = Snapshot.first(Conversation(), provider="p", model="m", id=conversation_id("together"), created_at=NOON)


def compete(backend: str, place: Path, start: Barrier, name: str) -> list[str]:
    """Save to an own conversation and to a shared one, until enough rounds are won."""
    with SHARED[backend].open(place) as store:
        start.wait(60)
        store.save(TOGETHER)  # one of them creates the store
        own = [first(f"process {name}")]
        store.save(own[0])
        won = 0
        while won < ROUNDS:
            own.append(after(own[-1], "more"))
            store.save(own[-1])
            newest = store.latest(TOGETHER.id)
            with suppress(StoreConflictError):
                at = store.record(newest.id, [MessageAdded(Message.user(name))], after=0)
                store.save(newest.next(newest.conversation.plus(Message.user(name))), after=at)
                won += 1
    return [each.id for each in own]


@pytest.mark.slow
@pytest.mark.parametrize("backend", SHARED)
def test_eight_processes_save_to_one_store(backend: str, tmp_path: Path) -> None:
    with SHARED[backend].around(tmp_path):
        forking = get_context("fork")
        made, start = forking.Queue(), forking.Barrier(PROCESSES)
        work = [lambda n=n: made.put(compete(backend, tmp_path, start, str(n))) for n in range(PROCESSES)]
        children = [forking.Process(target=each) for each in work]
        with may_fork():
            for child in children:
                child.start()
        everybody = [made.get(timeout=240) for _ in children]
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0] * PROCESSES
        with SHARED[backend].open(tmp_path) as store:
            for own in everybody:
                assert [len(store.load(id).messages) for id in own] == list(range(1, len(own) + 1))
                assert store.latest(own[0]).id == own[-1]
            # Each round that was won is one message, and none was overwritten.
            said = [message.text for message in store.latest(TOGETHER.id).messages]
            assert sorted(said) == sorted([str(n) for n in range(PROCESSES) for _ in range(ROUNDS)])
            assert len(pages(lambda cursor: store.history(TOGETHER.id, cursor=cursor))) == 1 + PROCESSES * ROUNDS
            assert len(pages(lambda cursor: store.list(limit=3, cursor=cursor))) == 1 + PROCESSES


@pytest.mark.parametrize("backend", SHARED)
def test_parent_and_child_of_a_fork_can_use_the_store(backend: str, tmp_path: Path) -> None:
    with SHARED[backend].around(tmp_path), SHARED[backend].open(tmp_path) as store:
        one = chain(store, 2)[-1]
        theirs = Snapshot.first(Conversation(), provider="p", model="m")

        def child() -> None:
            assert store.load(one.id) == one
            store.save(theirs)
            store.record(theirs.id, [MessageAdded(Message.user("x"))], after=0)

        assert in_child(child) == 0
        assert store.load(theirs.id) == theirs
        two = after(one, "the parent goes on")
        store.save(two)
        assert in_child(lambda: store.save(after(two, "and the child"))) == 0
        with pytest.raises(StoreConflictError):
            store.save(after(two, "too late"))
        assert len(store.history(one.id).items) == 4


@pytest.mark.parametrize("backend", SHARED)
def test_a_fork_while_threads_are_saving(backend: str, tmp_path: Path) -> None:
    with SHARED[backend].around(tmp_path), SHARED[backend].open(tmp_path) as store:
        stop = threading.Event()
        made: list[list[Snapshot]] = []

        def talk() -> None:
            while not stop.is_set():
                made.append(chain(store, 3))

        threads = [threading.Thread(target=talk) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            ends = [in_child(lambda: chain(store, 2)) for _ in range(8)]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert ends == [0] * 8
        for points in made:
            assert store.latest(points[0].id) == points[-1]
        assert len(pages(lambda cursor: store.list(limit=500, cursor=cursor))) == len(made) + 8


def test_no_descriptor_of_a_database_crosses_a_fork_and_every_database_stays_whole(tmp_path: Path) -> None:
    """Locks of files belong to a process: a child that closes a copied descriptor, or believes in copied locks, can
    destroy a database that its parent writes to. 400 forks in a thorough run."""
    for round_ in range(rounds(50, 10)):
        path = tmp_path / f"{round_}.db"
        files = [path, Path(f"{path}-wal"), Path(f"{path}-shm")]
        with SqliteStore(path) as store, MemoryStore() as memory:
            chain(store, 1)
            stop = threading.Event()
            made: list[list[Snapshot]] = []

            def talk(*, store: SqliteStore = store, memory: MemoryStore = memory, stop: threading.Event = stop) -> None:
                while not stop.is_set():
                    made.append(chain(store, 3))  # noqa: B023 -- the threads of a round end in it
                    chain(memory, 1)

            def child(*, store: SqliteStore = store, memory: MemoryStore = memory) -> None:
                ours = {_file(each) for each in files} - {None}  # noqa: B023
                assert ours
                assert not ours & {_file(descriptor) for descriptor in range(256)}
                chain(store, 2)
                chain(memory, 2)

            threads = [threading.Thread(target=talk) for _ in range(8)]
            for thread in threads:
                thread.start()
            try:
                ends = [in_child(child) for _ in range(8)]
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
            assert ends == [0] * 8
            assert [store.latest(points[0].id) for points in made] == [points[-1] for points in made]
        with closing(sqlite3.connect(path)) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def _file(place: Path | int) -> tuple[int, int] | None:
    try:
        found = os.stat(place)  # noqa: PTH116 -- of a descriptor, too
    except OSError:
        return None
    return found.st_dev, found.st_ino


def test_stores_that_other_threads_make_during_a_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails in a hook of a fork is told to nobody, and the connections would cross."""
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    stop = threading.Event()

    def make() -> None:
        while not stop.is_set():
            SqliteStore(tmp_path / "none.db")

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=make)
    kept = [SqliteStore(tmp_path / "none.db") for _ in range(300)]
    thread.start()
    try:
        ends = [in_child(lambda: None) for _ in range(20)]
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)
    assert (ends, told) == ([0] * len(ends), [])
    assert len(kept) == 300


@pytest.mark.slow
@pytest.mark.parametrize("backend", SHARED)
def test_nothing_acknowledged_is_lost(backend: str, tmp_path: Path) -> None:
    """At a few random points; `python -m tests.stores.crash` can kill more often."""
    assert kill_many(backend, tmp_path, 12) > 0
