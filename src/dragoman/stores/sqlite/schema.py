"""The tables, and how older ones are brought up to date.

Owns: the schema, its version (`user_version`), and the settings that a file was made with.
Must not know: what is read and written.

    chain        one row a conversation: which snapshot is its newest, and where it stands in lists
    snapshot     one row a save: the body without messages, the summary, which messages (generation and count)
    generation   a history; a new one begins when a save does not just add messages, and shares the first `shared`
                 messages with the generation `base`
    message      one row a message, written once
    journal      what happened since the newest snapshot
    message_text the words of messages, folded to one case, for search; empty where the store is sealed
    setting      whether the file is sealed

`rank` is what lists are sorted by: the time of the newest snapshot in microseconds, or, where the times are sealed, a
number that counts saves.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dragoman.errors import StoreError

from .troubles import foreign

__all__ = ["SCHEMA_VERSION", "prepared"]

APPLICATION_ID: Final = 0x64_72_67_6D
SCHEMA_VERSION: Final = 1

_VERSION_1: Final = (
    """CREATE TABLE setting (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE chain (
        key INTEGER PRIMARY KEY,
        root TEXT NOT NULL UNIQUE,
        newest TEXT NOT NULL,
        rank INTEGER NOT NULL,
        provider TEXT
    )""",
    "CREATE INDEX chain_by_rank ON chain (rank, key)",
    "CREATE INDEX chain_by_provider ON chain (provider, rank, key)",
    """CREATE TABLE generation (
        chain INTEGER NOT NULL REFERENCES chain ON DELETE CASCADE,
        number INTEGER NOT NULL,
        base INTEGER,
        shared INTEGER NOT NULL,
        PRIMARY KEY (chain, number)
    ) WITHOUT ROWID""",
    """CREATE TABLE snapshot (
        id TEXT NOT NULL UNIQUE,
        chain INTEGER NOT NULL REFERENCES chain ON DELETE CASCADE,
        place INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        summary BLOB NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (chain, place)
    )""",
    """CREATE TABLE message (
        key INTEGER PRIMARY KEY,
        chain INTEGER NOT NULL REFERENCES chain ON DELETE CASCADE,
        generation INTEGER NOT NULL,
        position INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (chain, generation, position)
    )""",
    """CREATE TABLE journal (
        chain INTEGER NOT NULL REFERENCES chain ON DELETE CASCADE,
        position INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (chain, position)
    ) WITHOUT ROWID""",
)


def _make_version_1(connection: sqlite3.Connection) -> None:
    for statement in _VERSION_1:
        connection.execute(statement)
    try:
        # Three letters at a time: finds parts of words, and works for languages that put no spaces between them.
        connection.execute("CREATE VIRTUAL TABLE message_text USING fts5 (text, tokenize = 'trigram', columnsize = 0)")
    except sqlite3.OperationalError:
        connection.execute("CREATE TABLE message_text (text TEXT NOT NULL)")


_MIGRATIONS: Final[dict[int, Callable[[sqlite3.Connection], None]]] = {0: _make_version_1}
"""`_MIGRATIONS[n]` makes version n + 1 of version n; the empty file is version 0."""


def prepared(connection: sqlite3.Connection, path: Path, settings: dict[str, str]) -> None:
    """Make the tables, or bring them up to date, and see that the file was made with these settings."""
    if _version(connection, path) < SCHEMA_VERSION:
        try:
            connection.execute("BEGIN IMMEDIATE")
            _migrate(connection, path, settings)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _version(connection: sqlite3.Connection, path: Path) -> int:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    [application] = connection.execute("PRAGMA application_id").fetchone()
    if version == 0 and application == 0:
        if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise foreign(path, "it holds the tables of another program")
    elif application != APPLICATION_ID or version < 1:
        raise foreign(path, "it belongs to another program")
    elif version > SCHEMA_VERSION:
        message = f"The database {path.name} was written by a newer dragoman (tables of version {version})."
        raise StoreError(message, hint="Upgrade dragoman to use it: pip install --upgrade dragoman.")
    return version


def _migrate(connection: sqlite3.Connection, path: Path, settings: dict[str, str]) -> None:
    version = _version(connection, path)  # again: another program may have been first
    new = version == 0
    while version < SCHEMA_VERSION:
        _MIGRATIONS[version](connection)
        version += 1
    if new:
        connection.executemany("INSERT INTO setting VALUES (?, ?)", settings.items())
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {version}")
