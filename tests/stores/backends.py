"""The stores under test, by name. Child processes find a store by its directory."""

from __future__ import annotations

import asyncio
import copy
import itertools
import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import psycopg
import pytest

from dragoman.stores import (
    AesGcmSealing,
    AsyncConversationStore,
    AsyncStore,
    ConversationStore,
    FileStore,
    MemoryStore,
    PostgresStore,
    SqliteStore,
    sqlite,
)
from tests.stores.postgres_server import NoServerHereError, shared_server

SEALING = AesGcmSealing(bytes(range(32)))
SEALED = {"sealing": SEALING}


class Backend(NamedTuple):
    open: Callable[..., ConversationStore]
    """Open the store in this directory, as another process would, with options."""
    litter: Callable[[Path], list[str]] = lambda _place: []
    """Leftover files or rows in a store that is not open."""
    around: Callable[[Path], AbstractContextManager[object]] = nullcontext
    """A context for the use of the store, such as a server."""


# --- async stores that look like plain ones, so that one suite tests both ---------------------------------------------


class _Blocking:
    """Runs each call on a new event loop: a store must not be tied to one."""

    def __init__(self, store: AsyncConversationStore) -> None:
        self._store = store
        self.can_search = store.can_search

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            async def work() -> Any:
                return await getattr(self._store, "aclose" if name == "close" else name)(*args, **kwargs)

            return asyncio.run(work())

        return call

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def blocking(store: AsyncConversationStore) -> ConversationStore:
    return cast("ConversationStore", _Blocking(store))


# --- memory ----------------------------------------------------------------------------------------------------------

_memories: dict[Path, MemoryStore] = {}


def _open_memory(place: Path) -> MemoryStore:
    """Another store on the same memory, as several processes have the same file open."""
    store = copy.copy(_memories[place])
    store.close = lambda: setattr(store, "_closed", True)
    return store


@contextmanager
def _memory(place: Path) -> Generator[None]:
    with MemoryStore() as _memories[place]:
        yield
    del _memories[place]


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let SQLite not wait for the disk, which takes most of the time."""
    monkeypatch.setattr(sqlite, "_SETTINGS", (*sqlite._SETTINGS, "PRAGMA synchronous = OFF"))


# --- files -----------------------------------------------------------------------------------------------------------


def file_litter(place: Path) -> list[str]:
    """The files that belong to no conversation, except those that the next writer removes."""
    path = place / "store"
    known = {"store.json", "lock"}
    found = [each.name for each in path.iterdir() if not each.is_dir() and each.name not in known]
    for chain in [each for each in path.iterdir() if each.is_dir() and not each.name.startswith(".")]:
        points = sorted(each.name for each in chain.iterdir() if each.suffix == ".json")
        found += [each.name for each in chain.iterdir() if each.suffix not in {".json", ".jsonl"}]
        found += [] if points else [chain.name]
    return [name for name in found if name not in {".new", ".old"}]


def _sqlite_litter(place: Path) -> list[str]:
    return sorted({each.name for each in place.iterdir()} - {"store.db"})


# --- PostgreSQL ------------------------------------------------------------------------------------------------------

_numbers = itertools.count(1)


@contextmanager
def _schema(place: Path) -> Generator[None]:
    """Create a schema on the shared server for a directory."""
    try:
        conninfo = shared_server().conninfo
    except NoServerHereError as error:
        pytest.skip(str(error))
    schema = f"backend_{os.getpid()}_{next(_numbers)}"
    (place / "address").write_text(f"{conninfo}\n{schema}\n", encoding="utf-8")
    try:
        yield
    finally:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


def _address(place: Path) -> tuple[str, str]:
    conninfo, schema = (place / "address").read_text(encoding="utf-8").splitlines()
    return conninfo, schema


def _postgres(place: Path, **options: Any) -> PostgresStore:
    conninfo, schema = _address(place)
    return PostgresStore(conninfo, schema=schema, **options)


_ORPHANS = {
    "snapshot without chain": "SELECT id FROM {s}.snapshot WHERE root NOT IN (SELECT root FROM {s}.chain)",
    "entry without chain": "SELECT root FROM {s}.journal WHERE root NOT IN (SELECT root FROM {s}.chain)",
    "words without chain": "SELECT root FROM {s}.words WHERE root NOT IN (SELECT root FROM {s}.chain)",
    "chain without snapshot": "SELECT root FROM {s}.chain WHERE newest NOT IN (SELECT id FROM {s}.snapshot)",
    "message without snapshot": (
        "SELECT root FROM {s}.message m WHERE NOT EXISTS (SELECT FROM {s}.snapshot s "
        "WHERE s.root = m.root AND s.line = m.line AND m.position < s.length)"
    ),
}


def _postgres_litter(place: Path) -> list[str]:
    conninfo, schema = _address(place)
    with psycopg.connect(conninfo) as connection:
        return [
            f"{what}: {found}"
            for what, sql in _ORPHANS.items()
            for (found,) in connection.execute(sql.replace("{s}", schema).encode())
        ]


# --- all of them -----------------------------------------------------------------------------------------------------


def _file(place: Path, **options: Any) -> FileStore:
    return FileStore(place / "store", **options)


def _sqlite(place: Path, **options: Any) -> SqliteStore:
    return SqliteStore(place / "store.db", **options)


SHARED = {
    "file": Backend(_file, file_litter),
    "sqlite": Backend(_sqlite, _sqlite_litter),
    "postgres": Backend(_postgres, _postgres_litter, _schema),
}
"""Stores that several processes can share, for tests that kill, fork and interrupt."""

BACKENDS = {
    **SHARED,
    "file-sealed": Backend(partial(_file, **SEALED)),
    "memory": Backend(_open_memory, around=_memory),
    "sqlite-sealed": Backend(partial(_sqlite, **SEALED)),
    "sqlite-async": Backend(lambda place: blocking(AsyncStore(_sqlite(place)))),
}
