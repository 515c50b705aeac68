"""What stores cost: `python bench/stores.py [--backend sqlite] [--many 100000]` in the development environment.

- scale: a list of the newest 50, a load of one, a save and a journalled step, on a store of 1,000 snapshots and on one
  of 100,000. Measured in turns and compared as a ratio. Wanted: list and load at most 2 times as much.
- growth: bytes written for each of the first and of the last hundred turns of a conversation of a thousand. Wanted: the
  same.

A backend is a row of `BACKENDS`. Filling the large store takes a few minutes; without waiting for the disk where the
backend can do that.
"""

from __future__ import annotations

import argparse
import atexit
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dragoman.conversation import Conversation, Message
from dragoman.stores import ConversationStore, FileStore, MessageAdded, Snapshot, SqliteStore, sqlite

if TYPE_CHECKING:
    from tests.stores.postgres_server import Server

FEW = 1_000
TURNS = 10
"""Snapshots of each conversation."""
ROUNDS = 200
START = datetime(2026, 1, 1, tzinfo=UTC)


class Backend(NamedTuple):
    open: Callable[[Path], ConversationStore]
    written: Callable[[Path], int] | None
    """Bytes that the store in this directory has written so far, if it can tell."""
    filling: Callable[[], object]
    """Around filling a store: without waiting for the disk, if that can be."""


# --- backends --------------------------------------------------------------------------------------------------------


@contextmanager
def _sqlite_in_a_hurry() -> Iterator[None]:
    before = sqlite._SETTINGS
    sqlite._SETTINGS = (*before, "PRAGMA synchronous = OFF")
    try:
        yield
    finally:
        sqlite._SETTINGS = before


def _log_size(place: Path) -> int:
    return (place / "store.db-wal").stat().st_size


def _open_sqlite(place: Path) -> SqliteStore:
    return SqliteStore(place / "store.db")


@contextmanager
def _files_in_a_hurry() -> Iterator[None]:
    before = os.fsync
    os.fsync = lambda _fd: None
    try:
        yield
    finally:
        os.fsync = before


def _bytes_written(_place: Path) -> int:
    """By this process, as Linux counts them."""
    return int(Path("/proc/self/io").read_text(encoding="ascii").split("wchar:")[1].split()[0])


def _open_files(place: Path) -> FileStore:
    return FileStore(place / "store")


def _postgres() -> Server:
    """A server of its own, with the settings of a server: it waits for the disk."""
    global _server  # noqa: PLW0603 - one for the whole run, and only if it is asked for
    if _server is None:
        sys.path.append(str(Path(__file__).resolve().parent.parent))
        from tests.stores.postgres_server import Server

        _server = Server({"fsync": None, "shared_buffers": "256MB"})
        atexit.register(_server.close)
    return _server


_server: Server | None = None


def _ask_postgres(*statements: str) -> list[tuple[object, ...]]:
    import psycopg

    with psycopg.connect(_postgres().conninfo, autocommit=True) as connection:
        return [connection.execute(statement.encode()) for statement in statements][-1].fetchall()


@contextmanager
def _postgres_in_a_hurry() -> Iterator[None]:
    _ask_postgres("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
    yield
    _ask_postgres("ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()")
    _ask_postgres("VACUUM ANALYZE", "CHECKPOINT", "SELECT 1")


def _log_position(_place: Path) -> int:
    return int(str(_ask_postgres("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0][0]))


def _open_postgres(place: Path) -> ConversationStore:
    from dragoman.stores import PostgresStore

    return PostgresStore(_postgres().conninfo, schema=f"bench_{place.name}")


BACKENDS = {
    "postgres": Backend(_open_postgres, _log_position, _postgres_in_a_hurry),
    "sqlite": Backend(_open_sqlite, _log_size, _sqlite_in_a_hurry),
    "file": Backend(_open_files, _bytes_written, _files_in_a_hurry),
}

# --- scale -----------------------------------------------------------------------------------------------------------


def fill(backend: Backend, place: Path, count: int) -> list[str]:
    """A store of so many snapshots; the ids of the newest of each conversation."""
    place.mkdir()
    newest: list[str] = []
    start = time.perf_counter()
    with backend.filling(), backend.open(place) as store:  # type: ignore[attr-defined]
        for number in range(count // TURNS):
            at = START + timedelta(seconds=number)
            said = Conversation("Be brief.").plus(
                Message.user(f"Question {number}: what is the weather in Lyon today?")
            )
            snapshot = Snapshot.first(said, provider=f"p{number % 2}", model="m", created_at=at)
            store.save(snapshot)
            for turn in range(1, TURNS):
                said = said.plus(Message.assistant(f"Answer {turn} of {number}, in a sentence of a usual length."))
                snapshot = snapshot.next(said, created_at=at)
                store.save(snapshot)
            newest.append(snapshot.id)
    print(f"{count:>9,} snapshots in {time.perf_counter() - start:.0f} s")
    return newest


def microseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e6


def scale(backend: Backend, place: Path, many: int) -> dict[str, list[float]]:
    """Microseconds of each work, on the small and on the large store."""
    sizes = (FEW, many)
    ids = {size: fill(backend, place / str(size), size) for size in sizes}
    stores = {size: backend.open(place / str(size)) for size in sizes}
    samples: dict[tuple[str, int], list[float]] = {}
    for number in range(ROUNDS):
        for size in sizes:
            store, chosen = stores[size], ids[size][number * 7919 % len(ids[size])]
            for name, work in _works(store, chosen).items():
                samples.setdefault((name, size), []).append(microseconds(work))
    found: dict[str, list[float]] = {}
    for name in dict.fromkeys(name for name, _ in samples):
        few, large = found[name] = [statistics.median(samples[name, size]) for size in sizes]
        wanted = "(≤ 2)" if name.startswith(("list", "load")) else ""
        print(f"{name:<28}{few:9.0f} µs {large:9.0f} µs   × {large / few:.2f} {wanted}")
    for store in stores.values():
        store.close()
    return found


def _works(store: ConversationStore, id: str) -> dict[str, Callable[[], object]]:
    works: dict[str, Callable[[], object]] = {
        "list, the newest 50": store.list,
        "list, of one provider": lambda: store.list(provider="p1"),
        "load": lambda: store.load(id),
        "history": lambda: store.history(id),
        "save, a first": lambda: store.save(Snapshot.first(Conversation(), provider="p", model="m")),
    }
    if store.can_search:
        works["search, one hit"] = lambda: store.search("Question 99:", limit=1)
    return works


# --- growth ----------------------------------------------------------------------------------------------------------


def growth(backend: Backend, place: Path) -> None:
    if backend.written is None:
        print("bytes per turn: this backend does not tell")
        return
    place.mkdir()
    with backend.open(place) as store:
        snapshot = Snapshot.first(Conversation("Be brief."), provider="p", model="m")
        store.save(snapshot)
        if isinstance(store, SqliteStore):
            store._write(lambda session: session.fetch("PRAGMA wal_autocheckpoint = 0"))
        sizes: list[int] = []
        for turn in range(1000):
            before = backend.written(place)
            reply = Message.assistant(f"Answer {turn}: " + "some words of a usual length " * 20)
            at = store.record(snapshot.id, [MessageAdded(reply)], after=0)
            snapshot = snapshot.next(snapshot.conversation.plus(reply))
            store.save(snapshot, after=at)
            sizes.append(backend.written(place) - before)
    early, late = statistics.mean(sizes[:100]), statistics.mean(sizes[-100:])
    print(f"bytes per turn              {early:9.0f}    {late:9.0f}      × {late / early:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=BACKENDS, default="sqlite")
    parser.add_argument("--many", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        growth(BACKENDS[options.backend], Path(directory) / "growth")
        scale(BACKENDS[options.backend], Path(directory), options.many)


if __name__ == "__main__":
    main()
