"""Stores on SQLite: one file, the default of the command line; or memory, for short programs.

Owns: SqliteStore and MemoryStore; connections, transactions, waiting for others, forks; SQLite's errors as ours.
Must not know: what is read and written (see sql.py).

Ctrl-C may come between any two steps. So whoever uses a connection takes it off its line, and only one that is outside
of a transaction comes back; any other is closed, and the next user opens a new one. What is done with a connection is
a function that is called while the lock is held, not the body of a `with`: a context manager written in Python can be
interrupted before it releases the lock, and whoever handles that interrupt would wait for it.

A file has two connections: readers must not wait behind a writer who waits for the disk. Not one per thread: threads
end without a word, and their connections would stay. SQLite cannot carry a connection over a fork: its locks would be
forgotten in the child. So before a fork both are closed, which waits for what is under way; each half opens its own.

SQLite's own waiting for another program cannot be interrupted. So it waits for a moment only, and the longer waits are
here, where Ctrl-C and a Stop end them.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote
from weakref import WeakSet

from dragoman._descriptors import owned
from dragoman._stop import sleep
from dragoman.errors import StoreError, StoreUnavailableError

from . import directory
from .protocol import closed_store
from .sealing import AesGcmSealing, Records
from .sql import SqlStore
from .sql_schema import Rows, Session, has_tables, make_tables

_T = TypeVar("_T")

# --- the stores ------------------------------------------------------------------------------------------------------


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
        self._file: Final = _File(self.path, timeout, records.mode)
        super().__init__(self._file, records)

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
        super().__init__(_Memory(), Records("memory", None))

    def __repr__(self) -> str:
        return "MemoryStore()"


# --- connections -----------------------------------------------------------------------------------------------------

_CONTAINS: Final = "instr(w.text, ?) > 0"


class SqliteSession:
    """A connection in a transaction."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection: sqlite3.Connection = connection

    def fetch(self, sql: str, *values: object) -> Rows:
        return self._connection.execute(_rendered(sql), values).fetchall()

    def execute(self, sql: str, *values: object) -> int:
        return self._connection.execute(_rendered(sql), values).rowcount

    def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        self._connection.executemany(_rendered(sql), rows)


def _rendered(sql: str) -> str:
    return sql.replace("{s}", "").replace("{lock}", "").replace("{blob}", "blob")


# --- a file ----------------------------------------------------------------------------------------------------------

_FORK_PATIENCE: Final = 30.0
"""Seconds that a fork waits for a transaction of another thread."""
_MOMENT: Final = 0.005
"""Seconds for which SQLite itself waits for another program, and then we do for the first time."""
_LONGEST_PAUSE: Final = 0.02

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


class _File:
    """An SQLite file: connections and transactions that survive forks, faults and a file that comes and goes."""

    contains: str = _CONTAINS

    def __init__(self, path: Path, timeout: float, mode: str) -> None:
        self.path: Final = path
        self._timeout: Final = timeout
        self._mode: Final = mode
        self._reader: Final = _Line()
        self._writer: Final = _Line()
        self._was_there: bool = False
        self._closed: bool = False
        _open_databases.add(self)

    def read(self, work: Callable[[Session], _T]) -> _T:
        """What the work finds in a transaction that sees the database at one moment."""
        return self._transaction(self._reader, "BEGIN", work)

    def write(self, work: Callable[[Session], _T], *, repeatable: bool = True) -> _T:
        return self._transaction(self._writer, "BEGIN IMMEDIATE", work)

    def vacuum(self) -> None:
        """Write the file anew, without what was deleted, and empty the write-ahead log."""

        def checkpoint(connection: sqlite3.Connection) -> None:
            [busy, _, _] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:  # somebody still reads from the log
                error = sqlite3.OperationalError("the write-ahead log is in use")
                error.sqlite_errorcode = sqlite3.SQLITE_BUSY
                raise error

        self._with_connection(self._writer, lambda connection: connection.execute("VACUUM"))
        self._with_connection(self._writer, checkpoint)

    def close(self) -> None:
        """Close both connections, after what is under way."""
        self._closed = True
        for line in (self._reader, self._writer):
            with line.lock:
                line.drop()

    def _transaction(self, line: _Line, begin: str, work: Callable[[Session], _T]) -> _T:
        def transaction(connection: sqlite3.Connection) -> _T:
            try:
                connection.execute(begin)
                result = work(SqliteSession(connection))
                connection.execute("COMMIT")
            except Exception:
                # After some errors SQLite has rolled back by itself.
                with suppress(sqlite3.Error):
                    connection.rollback()
                raise
            # Whatever was written to a file that had been replaced meanwhile is not in the store.
            if line is self._writer and self._file() != line.file:
                raise _gone(self.path)
            return result

        return self._with_connection(line, transaction)

    def _with_connection(self, line: _Line, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do the work with the line's connection; again, for a while, where another program is in the way."""
        deadline, pause, damaged = time.monotonic() + self._timeout, _MOMENT, False
        while True:
            try:
                return self._try(line, work)
            except _FAULTS as error:
                if _code(error) == sqlite3.SQLITE_CORRUPT and not damaged:
                    damaged = True  # or the disk failed once, which SQLite takes for damage: look again
                    continue
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise _typed(error, self.path) from error
            sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _try(self, line: _Line, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do the work once; afterwards the line has a connection that is in no transaction, or none."""
        with line.lock:
            if self._closed:
                raise closed_store()
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
                if _code(error) != sqlite3.SQLITE_BUSY:
                    line.drop()  # what it remembers of the file may be wrong
                raise
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
                raise _gone(self.path)
            _create(self.path)
            file = self._file()
        connection = self._open()
        try:
            _ensure_tables(connection, self.path.name, self._mode)
            if self._file() != file:
                raise _gone(self.path)
        except BaseException:
            connection.close()
            raise
        line.connection, line.file, self._was_there = connection, file, True
        return connection

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(self.path))}?mode=rw",
            uri=True,
            timeout=_MOMENT,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            # Text of a damaged file need not be UTF-8; what is wrong with it shows when it is read as JSON.
            connection.text_factory = _text
            for setting in _SETTINGS:
                connection.execute(setting)
            [mode] = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                message = f"The database {self.path.name} lies where SQLite cannot keep a write-ahead log ({mode})."
                raise StoreUnavailableError(message, hint="Use a local, writable directory.")
        except BaseException:
            connection.close()
            raise
        return connection

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

_open_databases: Final[WeakSet[_File]] = WeakSet()
_abandoned: Final[list[sqlite3.Connection]] = []


def _each(work: Callable[[_File], None]) -> Callable[[], None]:
    def at_fork() -> None:
        for database in list(_open_databases):
            work(database)

    return at_fork


os.register_at_fork(
    before=_each(_File._pause),  # pyright: ignore[reportPrivateUsage]
    after_in_parent=_each(_File._go_on),  # pyright: ignore[reportPrivateUsage]
    after_in_child=_each(_File._start_anew),  # pyright: ignore[reportPrivateUsage]
)


def _create(path: Path) -> None:
    """An empty file that only its owner can read, in a directory that only its owner can enter."""
    directory.make_directory(path.parent)
    # Never open a file that is there: closing it again would end all locks that SQLite holds on it in this process.
    with suppress(FileExistsError):
        owned(os.open, path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600).close()
    directory.sync_directory(path.parent)


# A file with pages and without tables is a damaged one, or another's: it is not taken for an empty one.
_TABLES: Final = (
    "SELECT name FROM sqlite_master WHERE type = 'table' "
    "UNION ALL SELECT page_count FROM pragma_page_count WHERE page_count > 1"
)


def _ensure_tables(connection: sqlite3.Connection, name: str, mode: str) -> None:
    """Make the tables in an empty file; another program may do so at the same moment."""
    session = SqliteSession(connection)
    if has_tables(session, name, _TABLES):
        return
    try:
        connection.execute("BEGIN IMMEDIATE")
        if not has_tables(session, name, _TABLES):
            make_tables(session, mode)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


# --- memory ----------------------------------------------------------------------------------------------------------


class _Memory:
    """A database in memory: one connection, used by one thread at a time."""

    contains: str = _CONTAINS

    def __init__(self) -> None:
        # Re-entrant, so that a signal handler in the middle of a transaction gets an error and does not hang.
        self._lock: Final = threading.RLock()
        self._connection: Final = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._closed: bool = False
        make_tables(SqliteSession(self._connection), "open")

    def read(self, work: Callable[[Session], _T]) -> _T:
        return self.write(work)

    def write(self, work: Callable[[Session], _T], *, repeatable: bool = True) -> _T:
        with self._lock:
            if self._closed:
                raise closed_store()
            if self._connection.in_transaction:
                message = "A signal handler cannot use a MemoryStore in the middle of another use."
                raise StoreUnavailableError(message, hint="Let it set a flag, and use the store afterwards.")
            try:
                with self._connection:  # which commits or rolls back, in one step that Ctrl-C cannot divide
                    self._connection.execute("BEGIN")
                    return work(SqliteSession(self._connection))
            except _FAULTS as error:
                raise _typed(error, Path(":memory:")) from error

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._connection.close()


# --- errors ----------------------------------------------------------------------------------------------------------


# By primary result code: https://sqlite.org/rescode.html. What the store can be used in spite of, once it is over:
_UNAVAILABLE: Final = {
    sqlite3.SQLITE_PERM: "Check the permissions of the file.",
    sqlite3.SQLITE_BUSY: "Another program is using it: try again when it is done, or raise the store's timeout.",
    sqlite3.SQLITE_LOCKED: "Try again in a moment.",
    sqlite3.SQLITE_NOMEM: "Free memory and try again.",
    sqlite3.SQLITE_READONLY: "Make the file and its directory writable and try again.",
    sqlite3.SQLITE_IOERR: "Check the disk and try again.",
    sqlite3.SQLITE_FULL: "Free space and try again.",
    sqlite3.SQLITE_CANTOPEN: "Check that its directory can be written.",
}
_UNUSABLE: Final = {
    sqlite3.SQLITE_CORRUPT: "Restore it from a copy. `sqlite3 FILE .recover` can save what is left.",
    sqlite3.SQLITE_TOOBIG: "Keep large media in files.",
    sqlite3.SQLITE_NOTADB: "Give the path of another file.",
}


def _code(error: Exception) -> int:
    """The primary result code, 0 where Python found the fault itself."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _typed(error: Exception, path: Path) -> StoreError:
    code = sqlite3.SQLITE_CANTOPEN if isinstance(error, OSError) else _code(error)
    if code == sqlite3.SQLITE_CORRUPT and not _can_be_read(path):
        code = sqlite3.SQLITE_IOERR
    reason = (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
    message = f"The database {path.name} cannot be used: {reason}."
    if code in _UNAVAILABLE:
        return StoreUnavailableError(message, hint=f"{_UNAVAILABLE[code]} What was saved before is safe.")
    return StoreError(message, hint=_UNUSABLE.get(code))


def _can_be_read(path: Path) -> bool:
    """Whether the disk gives the file; SQLite calls a file damaged also where the disk fails (EIO)."""
    with suppress(OSError):
        found = path.stat()
        raw = _opened(path, found.st_dev, found.st_ino)
        return all(os.pread(raw, 1 << 20, position) for position in range(0, found.st_size, 1 << 20))
    return False


@cache  # it stays open: closing it would end all locks that SQLite holds on it in this process
def _opened(path: Path, _device: int, _inode: int) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _gone(path: Path) -> StoreUnavailableError:
    message = f"The database {path.name} is gone, or another file has taken its place."
    return StoreUnavailableError(message, hint="Put it back; this store goes on as soon as it is there.")
