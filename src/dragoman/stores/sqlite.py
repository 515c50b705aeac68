"""Stores on SQLite: one file, the default of the command line; or memory, for short programs.

Owns: SqliteStore and MemoryStore, and whose file it is.
Must not know: what is read and written (see sql.py), and connections (see sqlite_driver.py).
"""

from __future__ import annotations

import os
import sqlite3
from functools import partial
from pathlib import Path
from typing import Final

from dragoman.errors import StoreError

from .protocol import Progress, Resealed
from .sealing import AesGcmSealing, Mode, Records
from .sql import SqlStore
from .sql_schema import TABLES
from .sqlite_driver import File, Memory, rendered


class SqliteStore(SqlStore):
    """Conversations in one SQLite file, for one machine: many threads and programs may use it at once.

    The file and its directory are made when first needed, for the owner's eyes only. `timeout` is how long to wait, in
    seconds, for another program that writes. With `sealing`, all that is kept is sealed, also what lists show; a sealed
    store cannot be searched.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sealing: AesGcmSealing | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.path: Final = Path(path).absolute()  # a program may change its directory
        records = Records("sqlite", sealing)
        make_tables = partial(_make_tables, name=self.path.name, mode=records.mode)
        self._file: Final = File(self.path, timeout, make_tables)
        super().__init__(self._file, records)

    def reseal(self, *, progress: Progress | None = None) -> Resealed:
        report = super().reseal(progress=progress)
        if self._records.mode == "sealed":
            self.compact()  # what was there before must not be readable in a free page or in the log
        return report

    def compact(self) -> None:
        """Write the file anew: smaller, and without a trace of what was deleted. Others wait meanwhile."""
        self._file.vacuum()

    def __repr__(self) -> str:
        return f"SqliteStore({str(self.path)!r})"


class MemoryStore(SqlStore):
    """Conversations in the memory of this process; they end with it, or when the store is closed.

    It keeps the same rules as the other stores, and refuses what they could not write down. Many threads may use it;
    for asyncio wrap it: `AsyncStore(MemoryStore())`.
    """

    def __init__(self) -> None:
        super().__init__(Memory(partial(_make_tables, name=":memory:", mode="open")), Records("memory", None))

    def __repr__(self) -> str:
        return "MemoryStore()"


# --- the tables ------------------------------------------------------------------------------------------------------

APPLICATION_ID: Final = 0x64_72_67_6D
SCHEMA_VERSION: Final = 1


def _make_tables(connection: sqlite3.Connection, name: str, mode: Mode) -> None:
    """Make the tables in an empty file, and refuse the file of another program or of a newer version."""
    if _has_tables(connection, name):
        return
    try:
        connection.execute("BEGIN IMMEDIATE")
        if not _has_tables(connection, name):  # again: another program may have been first
            for statement in TABLES:
                connection.execute(rendered(statement))
            connection.execute("INSERT INTO setting VALUES ('mode', ?)", (mode,))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _has_tables(connection: sqlite3.Connection, name: str) -> bool:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    [application] = connection.execute("PRAGMA application_id").fetchone()
    if version == 0 and application == 0:
        if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise _foreign(name, "it holds the tables of another program")
        return False
    if application != APPLICATION_ID or version < 1:
        raise _foreign(name, "it belongs to another program")
    if version > SCHEMA_VERSION:
        message = f"The database {name} was written by a newer dragoman (tables of version {version})."
        raise StoreError(message, hint="Upgrade dragoman to use it: pip install --upgrade dragoman.")
    return True


def _foreign(name: str, why: str) -> StoreError:
    """The file is something else."""
    message = f"The file {name} is not a database of this library: {why}."
    return StoreError(message, hint="Give the path of another file.")
