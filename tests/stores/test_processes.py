"""Several processes on one store, forks of one that has it open, and processes that are killed."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from dragoman.conversation import Conversation, Message
from dragoman.errors import StoreConflictError
from dragoman.stores import MessageAdded, Snapshot, conversation_id
from tests.processes import started
from tests.stores.backends import SHARED
from tests.stores.cases import NOON, after, chain, in_child, pages
from tests.stores.crash import kill_many

ROOT = Path(__file__).resolve().parent.parent.parent
PROCESSES, ROUNDS = 8, 6

CHILD = """
import sys
from pathlib import Path
from dragoman.conversation import Message
from dragoman.errors import StoreConflictError
from dragoman.stores.journal import MessageAdded
from tests.stores.backends import SHARED
from tests.stores.cases import after, first
from tests.stores.test_processes import TOGETHER

backend, place, rounds, name = sys.argv[1:]
with SHARED[backend].open(Path(place)) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    store.save(TOGETHER)  # which one of them makes the store for
    own = first(f"process {name}")
    store.save(own)
    print("saved", own.id, flush=True)
    won = recorded = 0
    while won < int(rounds):
        own = after(own, "more")
        store.save(own)
        print("saved", own.id, flush=True)
        newest = store.latest(TOGETHER.id)
        try:
            at = store.record(newest.id, [MessageAdded(Message.user(name))], after=0)
            store.save(newest.next(newest.conversation.plus(Message.user(name))), after=at)
        except StoreConflictError:
            print("conflict", flush=True)
        else:
            won += 1
            print("won", flush=True)
"""

TOGETHER = Snapshot.first(Conversation(), provider="p", model="m", id=conversation_id("together"), created_at=NOON)


@pytest.mark.slow
@pytest.mark.parametrize("backend", SHARED)
def test_eight_processes_save_to_one_store(backend: str, tmp_path: Path) -> None:
    with SHARED[backend].around(tmp_path), SHARED[backend].open(tmp_path) as store:
        command = [sys.executable, "-c", CHILD, backend, str(tmp_path), str(ROUNDS)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with ExitStack() as running:
            children = [running.enter_context(started([*command, str(n)], cwd=ROOT, **pipes)) for n in range(PROCESSES)]
            for child in children:
                assert child.stdout.readline() == "ready\n"
            for child in children:
                child.stdin.write("go\n")
                child.stdin.flush()
            outputs = [child.communicate(timeout=240)[0].splitlines() for child in children]
        assert [child.returncode for child in children] == [0] * PROCESSES
        for lines in outputs:
            own = [line.split()[1] for line in lines if line.startswith("saved")]
            for count, id in enumerate(own, 1):
                assert len(store.load(id).messages) == count
            assert store.latest(own[0]).id == own[-1]
        # Each round that was won is one message, and none was overwritten.
        newest = store.latest(TOGETHER.id)
        said = [message.text for message in newest.messages]
        assert sorted(said) == sorted([str(n) for n in range(PROCESSES) for _ in range(ROUNDS)])
        assert len(pages(lambda cursor: store.history(TOGETHER.id, cursor=cursor))) == 1 + PROCESSES * ROUNDS
        assert len(pages(lambda cursor: store.list(limit=3, cursor=cursor))) == 1 + PROCESSES


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("backend", SHARED)
def test_both_halves_of_a_fork_can_use_the_store(backend: str, tmp_path: Path) -> None:
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


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
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


@pytest.mark.slow
@pytest.mark.parametrize("backend", SHARED)
def test_nothing_acknowledged_is_lost(backend: str, tmp_path: Path) -> None:
    """At a few random points; `python -m tests.stores.crash` kills as often as one likes."""
    assert kill_many(backend, tmp_path, 12) > 0
