"""Ctrl-C at any moment: the store stays intact and unlocked."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from dragoman._stop import Stop, stopping
from dragoman.conversation import Message
from dragoman.errors import StoppedError
from dragoman.stores import AsyncStore, ConversationStore, MemoryStore, MessageAdded, Snapshot
from tests.chat.interrupting import Interrupting, in_a_thread_of_its_own
from tests.rounds import PROFILE, stride
from tests.stores.backends import SHARED, hurry
from tests.stores.cases import after, chain, first
from tests.stores.test_faults import held

# --- at a chosen moment ----------------------------------------------------------------------------------------------


def files() -> int:
    """The number of open files and directories, without pipes and sockets."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the directory itself, while it was read
            count += str(link.readlink()).startswith("/")
    return count


def _use(store: ConversationStore) -> None:
    one = first("one")
    store.save(one)
    at = store.record(one.id, [MessageAdded(Message.user("noted"))], after=0)
    two = after(one, "two")
    store.save(two, after=at)
    assert store.latest(one.id) == two


def _free_sqlite(place: Path) -> None:
    """Take the lock as another process would, without waiting."""
    connection = sqlite3.connect(place / "store.db", timeout=0, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.close()


def _free_file(place: Path) -> None:
    with (place / "store" / "lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


FREE: dict[str, Callable[[Path], None]] = {"sqlite": _free_sqlite, "file": _free_file, "memory": lambda _: None}
PLACES = {"sqlite": ("stores/sql",), "file": ("stores/file", "stores/directory"), "memory": ("stores/sql",)}


def _interrupt_at(at: int, backend: str, store: ConversationStore, place: Path) -> bool:
    interrupting = Interrupting(at, PLACES[backend])
    try:
        with interrupting.at_work():
            _use(store)
    except KeyboardInterrupt:
        # Here, while the traceback still exists: what it references must not keep a lock.
        try:
            FREE[backend](place)
            store.save(first("at once"))
        except Exception as error:
            error.add_note(f"interrupted at {interrupting.where}")
            raise
        return True
    return False


def _every_moment(backend: str, step: int, place: Path) -> None:
    at, interrupted = 0, True
    while interrupted:
        here = place / str(at)  # a new one each time: a growing store has more steps
        with MemoryStore() if backend == "memory" else SHARED[backend].open(here, timeout=5) as store:
            _use(store)
            interrupted = _interrupt_at(at, backend, store, here)
            _use(store)
        shutil.rmtree(here, ignore_errors=backend == "memory")
        at += step
    assert at > 100


# Python does not check for signals between creating and starting a coroutine, but the trace function interrupts there.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize(
    ("backend", "step"), [("sqlite", stride(7)), ("file", 3 if PROFILE == "thorough" else 17), ("memory", stride(3))]
)
def test_ctrl_c_at_any_moment_releases_everything(
    backend: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    before = files()
    in_a_thread_of_its_own(lambda: _every_moment(backend, step, tmp_path))
    gc.collect()
    assert files() <= before


# --- while another program writes ------------------------------------------------------------------------------------


@contextmanager
def somebody_writes(backend: str, place: Path) -> Generator[None]:
    if backend == "postgres":
        conninfo, schema = (place / "address").read_text(encoding="utf-8").splitlines()
        with psycopg.connect(conninfo) as other:
            other.execute(f"LOCK TABLE {schema}.chain".encode())
            yield
    else:
        with held(backend, place):
            yield


def by_ctrl_c(store: ConversationStore, snapshot: Snapshot) -> None:
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            store.save(snapshot)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def by_cancelling(store: ConversationStore, snapshot: Snapshot) -> None:
    stop = Stop()
    threading.Timer(0.2, stop.cancel).start()
    with stopping(stop), pytest.raises(StoppedError, match="cancelled"):
        store.save(snapshot)


def by_a_deadline(store: ConversationStore, snapshot: Snapshot) -> None:
    with stopping(Stop(time.monotonic() + 0.2)), pytest.raises(StoppedError, match="time is up"):
        store.save(snapshot)


def by_cancelling_a_task(store: ConversationStore, snapshot: Snapshot) -> None:
    async def main() -> None:
        waiting = asyncio.create_task(on_loop.save(snapshot))
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    on_loop = AsyncStore(store)
    asyncio.run(main())
    on_loop._threads.shutdown()


@pytest.mark.parametrize("backend", ["file", "sqlite", "postgres"])
@pytest.mark.parametrize("end", [by_ctrl_c, by_cancelling, by_a_deadline, by_cancelling_a_task])
def test_waiting_for_another_writer_ends_at_once(
    backend: str, end: Callable[[ConversationStore, Snapshot], None], tmp_path: Path
) -> None:
    with SHARED[backend].around(tmp_path), SHARED[backend].open(tmp_path, timeout=30) as store:
        one, two = chain(store, 2)
        with somebody_writes(backend, tmp_path):
            began = time.monotonic()
            end(store, after(two, "given up"))
            assert time.monotonic() - began < 5  # far from 30, also on a busy machine
        assert store.latest(one.id) == two
        store.save(after(two, "on"))
