"""The way to the file: connections and transactions that survive forks, faults and a file that comes and goes.

Owns: two connections, one for reading and one for writing, each used by one thread at a time; opening them; noticing
that the file they have open is no longer the one at the path.
Must not know: the tables.

Ctrl-C may come between any two steps. So whoever uses a connection takes it off its line, and only one that is outside
of a transaction comes back; any other is closed, and the next user opens a new one. What is done with a connection is
a function that is called while the lock is held, not the body of a `with`: a context manager written in Python can be
interrupted before it lets go of the lock, and whoever handles that interrupt would wait for it.

Why two: readers must not wait behind a writer who waits for the disk. Why not one per thread: threads end without a
word, and their connections would stay. SQLite cannot carry a connection over a fork: its locks would be forgotten in
the child. So before a fork both are closed, which waits for what is under way, and each half opens its own.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote
from weakref import WeakSet

from dragoman._descriptors import owned
from dragoman.errors import StoreError, StoreUnavailableError

from .troubles import UNREACHABLE, code_of, gone, typed

__all__ = ["Database"]

_T = TypeVar("_T")

_FORK_PATIENCE: Final = 30.0
"""Seconds that a fork waits for a transaction of another thread."""
_WAL_PAUSE: Final = 0.02

# UnicodeError: of a text that is none, and of a damaged file whose errors quote it.
_FAULTS: Final = (sqlite3.Error, sqlite3.Warning, OSError, OverflowError, UnicodeError)


class _Line:
    """The connection of one kind of work, used by who holds the lock."""

    __slots__ = ("connection", "file", "lock")

    def __init__(self) -> None:
        # Re-entrant: a signal handler may use the store in the middle of a transaction, and gets another connection.
        self.lock: threading.RLock = threading.RLock()
        self.connection: sqlite3.Connection | None = None
        """Outside of a transaction; None while somebody uses it."""
        self.file: tuple[int, int] | None = None
        """Which file the connection has open."""

    def drop(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


class Database:
    """An SQLite file. `prepare` is called on every new connection, inside the error handling."""

    def __init__(
        self,
        path: Path,
        *,
        timeout: float,
        prepare: Callable[[sqlite3.Connection, Path], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.path: Final = path
        self._timeout: Final = timeout
        self._prepare: Final = prepare
        self._sleep: Final = sleep
        self._reader: Final = _Line()
        self._writer: Final = _Line()
        self._was_there: bool = False
        self._closed: bool = False
        _open_databases.add(self)

    def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """What the work finds in a transaction that sees the database at one moment."""
        return self._transaction(self._reader, "BEGIN", work)

    def write(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do the work in a transaction that writes. When this has returned, it is on the disk."""
        return self._transaction(self._writer, "BEGIN IMMEDIATE", work)

    def compact(self) -> None:
        """Write the file anew, without what was deleted."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        self._with_connection(self._writer, work)

    def close(self) -> None:
        """Close both connections, after what is under way."""
        self._closed = True
        for line in (self._reader, self._writer):
            with line.lock:
                line.drop()

    def _transaction(self, line: _Line, begin: str, work: Callable[[sqlite3.Connection], _T]) -> _T:
        def transaction(connection: sqlite3.Connection) -> _T:
            try:
                connection.execute(begin)
                result = work(connection)
                connection.execute("COMMIT")
            except Exception:
                # After some errors SQLite has rolled back by itself.
                with suppress(sqlite3.Error):
                    connection.rollback()
                raise
            # Whatever was written to a file that had been replaced meanwhile is not in the store.
            if line is self._writer and self._file() != line.file:
                raise gone(self.path)
            return result

        return self._with_connection(line, transaction)

    def _with_connection(self, line: _Line, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do the work with the line's connection; afterwards the line has one that is in no transaction, or none."""
        with line.lock:
            if self._closed:
                message = f"The store in {self.path.name} is closed."
                raise StoreError(message, hint="Open it again to use it.")
            try:
                connection = self._connected(line)
                line.connection = None
                try:
                    result = work(connection)
                finally:
                    if connection.in_transaction:
                        connection.close()
                    else:
                        line.connection = connection
            except _FAULTS as error:
                if isinstance(error, OSError) or code_of(error) in UNREACHABLE:
                    line.drop()
                raise typed(error, self.path) from error
            return result

    # --- opening -----------------------------------------------------------------------------------------------------

    def _file(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _connected(self, line: _Line) -> sqlite3.Connection:
        file = self._file()
        if line.connection is not None and file == line.file:
            return line.connection
        line.drop()
        if file is None:
            if self._was_there:
                # A new, empty store in the place of the old one would look as if everything had been deleted.
                raise gone(self.path)
            _create(self.path)
            file = self._file()
        connection = self._open()
        try:
            self._prepare(connection, self.path)
            if self._file() != file:
                raise gone(self.path)
        except BaseException:
            connection.close()
            raise
        line.connection, line.file, self._was_there = connection, file, True
        return connection

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(self.path))}?mode=rw",
            uri=True,
            timeout=self._timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            # Text of a damaged file need not be UTF-8; what is wrong with it shows when it is read as JSON.
            connection.text_factory = _text
            for setting in _SETTINGS:
                connection.execute(setting)
            self._use_wal(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        # Several programs that open a new file at once: SQLite does not wait for this lock as it does for others.
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                [mode] = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            except sqlite3.OperationalError as error:
                if code_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                self._sleep(_WAL_PAUSE)
                continue
            if mode != "wal":
                message = f"The database {self.path.name} lies where SQLite cannot keep a write-ahead log ({mode})."
                raise StoreUnavailableError(message, hint="Use a local, writable directory.")
            return

    # --- forks -------------------------------------------------------------------------------------------------------

    def _pause(self) -> None:
        for line in (self._reader, self._writer):
            if line.lock.acquire(timeout=_FORK_PATIENCE):
                line.drop()

    def _go_on(self) -> None:
        for line in (self._reader, self._writer):
            with suppress(RuntimeError):  # not ours: another thread has used it for too long
                line.lock.release()

    def _start_anew(self) -> None:
        for line in (self._reader, self._writer):
            if line.connection is not None:
                # Closing it here would take the parent's locks for the child's: it is kept, and never used.
                _abandoned.append(line.connection)
                line.connection = None
            line.lock = threading.RLock()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


_SETTINGS: Final = (
    "PRAGMA trusted_schema = OFF",
    "PRAGMA foreign_keys = ON",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # where a plain fsync leaves data in the disk's own cache: macOS
    "PRAGMA secure_delete = ON",
    "PRAGMA cell_size_check = ON",
    "PRAGMA journal_size_limit = 67108864",
)

_open_databases: Final[WeakSet[Database]] = WeakSet()
_abandoned: Final[list[sqlite3.Connection]] = []


def _each(work: Callable[[Database], None]) -> Callable[[], None]:
    def at_fork() -> None:
        for database in list(_open_databases):
            work(database)

    return at_fork


os.register_at_fork(
    before=_each(Database._pause),  # pyright: ignore[reportPrivateUsage]
    after_in_parent=_each(Database._go_on),  # pyright: ignore[reportPrivateUsage]
    after_in_child=_each(Database._start_anew),  # pyright: ignore[reportPrivateUsage]
)


def _create(path: Path) -> None:
    """An empty file that only its owner can read, in a directory that only its owner can enter."""
    missing = [parent for parent in (path.parent, *path.parent.parents) if not parent.exists()]
    for parent in reversed(missing):
        with suppress(FileExistsError):
            parent.mkdir(mode=0o700)
    # Never open a file that is there: closing it again would end all locks that SQLite holds on it in this process.
    with suppress(FileExistsError):
        owned(os.open, path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600).close()
    with owned(os.open, path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as directory:
        os.fsync(directory.number)
