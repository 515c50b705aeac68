"""SqliteStore: its file, the rows that it writes, its settings."""

from __future__ import annotations

import gc
import os
import sqlite3
from pathlib import Path

import pytest

from dragoman.errors import StoreError
from dragoman.stores import AesGcmSealing, MemoryStore, SqliteStore
from tests.stores.cases import after, chain, first, pages


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_the_settings_of_the_connection(path: Path) -> None:
    with SqliteStore(path) as store:
        chain(store, 1)
        wanted = {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "trusted_schema": 0}
        for name, value in wanted.items():
            assert ask(store, f"PRAGMA {name}") == value


def ask(store: SqliteStore, sql: str) -> object:
    """Query the store's own connection for writing."""
    [[found], *_] = store._write(lambda session: session.fetch(sql))
    return found


def rows(store: SqliteStore, table: str) -> object:
    return ask(store, f"SELECT COUNT(*) FROM {table}")


def test_a_message_is_written_once(path: Path) -> None:
    with SqliteStore(path) as store:
        points = chain(store, 30)
        assert rows(store, "message") == 30
        # Loaded and continued, as another process would.
        loaded = store.load(points[-1].id)
        store.save(after(loaded, "more"))
        assert rows(store, "message") == 31
        # Cut: the remaining messages are written again as a new line, which then grows.
        newest = store.latest(points[0].id)
        cut = newest.next(newest.conversation.up_to(10))
        store.save(cut)
        assert rows(store, "message") == 41
        other = after(cut, "another way")
        store.save(other)
        assert rows(store, "message") == 42
        assert [store.load(each.id) for each in (newest, cut, other)] == [newest, cut, other]


def test_deleting_leaves_nothing_behind(path: Path) -> None:
    with SqliteStore(path) as store:
        kept = chain(store, 2)[-1]
        gone = chain(store, 3, said="an unforgettable secret")[-1]
        store.record(gone.id, [], after=0)
        store.delete(gone.id)
        for table, count in (("chain", 1), ("snapshot", 2), ("message", 2), ("words", 2)):
            assert rows(store, table) == count
        assert store.load(kept.id) == kept
    assert b"unforgettable secret" not in path.read_bytes()


def test_compacting_shrinks_the_file_and_keeps_the_data(path: Path) -> None:
    with SqliteStore(path) as store:
        kept = chain(store, 2, said="remember me")[-1]
        [gone] = chain(store, 1, said="xyzzyplugh " * 20_000)
        store.compact()
        before = path.stat().st_size
        store.delete(gone.id)
        store.compact()
        assert path.stat().st_size < before
        assert path.with_name("store.db-wal").stat().st_size == 0
        assert [item.id for item in store.search("remember").items] == [kept.id]
        assert store.load(kept.id) == kept
        store.save(after(kept, "on"))


def test_foreign_files_are_not_changed(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    databases = {"another program": path.read_bytes(), "not a database": b"Dear diary, " * 1000}
    for says, before in databases.items():
        path.write_bytes(before)
        with SqliteStore(path) as store:
            for ask in (store.list, lambda: store.save(first("x"))):
                with pytest.raises(StoreError, match=says):
                    ask()
            assert path.read_bytes()[100:] == before[100:]
            path.unlink()
            chain(store, 1)  # the store had not existed yet
        for each in path.parent.iterdir():
            each.unlink()


def test_a_newer_or_damaged_database_is_refused(path: Path) -> None:
    with SqliteStore(path) as store:
        chain(store, 1)
    for damage, says in (
        ("UPDATE setting SET value = '2' WHERE name = 'version'", "version 2.*upgrade dragoman"),
        ("DELETE FROM setting", "version None"),
        ("PRAGMA writable_schema = ON; DELETE FROM sqlite_master", "or is damaged"),
    ):
        other = sqlite3.connect(path)
        other.executescript(damage)
        other.close()
        with SqliteStore(path) as store, pytest.raises(StoreError, match=says):
            store.list()


def test_a_page_with_rare_matches_is_short_and_has_a_cursor(path: Path) -> None:
    with SqliteStore(path, sealing=AesGcmSealing(b"k" * 32)) as store:
        saved = [first("needle" if number in {0, 57} else "hay") for number in range(60)]
        for snapshot in saved:
            store.save(snapshot)
        short = store.list(text="needle", limit=1)
        assert [item.id for item in short.items] == [saved[57].id]
        rest = pages(lambda cursor: store.list(text="needle", limit=1, cursor=cursor))
        assert [item.id for item in rest] == [saved[57].id, saved[0].id]


def test_odd_file_names_work(tmp_path: Path) -> None:
    for name in ("a b.db", "a?mode=ro.db", "a%20.db", "ä#.db", "file:x", os.fsdecode(b"\xff.db")):
        with SqliteStore(tmp_path / name) as store:
            [one] = chain(store, 1)
        with SqliteStore(tmp_path / name) as store:
            assert store.load(one.id) == one
        assert (tmp_path / name).is_file()


def test_a_store_in_memory_is_closed_when_nobody_has_it() -> None:
    store = MemoryStore()
    store.save(first("one"))
    connection = store._connection
    del store
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
