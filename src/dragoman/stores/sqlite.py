"""A store in one SQLite file: the default of the command line, with full-text search.

Owns: SqliteStore; the way to the file: two connections, one for reading and one for writing, each used by one thread at
a time; what SQLite says in its own way; its errors as ours.
Must not know: what is read and written (see sql.py).

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
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias, TypeVar
from urllib.parse import quote
from weakref import WeakSet

from dragoman._descriptors import owned
from dragoman._stepping import step
from dragoman.errors import StoreError, StoreUnavailableError

from .protocol import closed_store
from .sealing import Mode, Records, Sealing
from .sql import PlainSqlStore, SqlStore
from .sql_schema import TABLES, Rows, Session

_T = TypeVar("_T")


class SqliteStore(PlainSqlStore):
    """Conversations in one SQLite file, for one machine: many threads and programs may use it at once.

    The file and its directory are made when first needed, for the owner's eyes only. `timeout` is how long to wait, in
    seconds, for another program that writes. With `sealing`, all that is kept is sealed, also what lists show; a sealed
    store cannot be searched.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sealing: Sealing | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.path: Final = Path(path).absolute()  # a program may change its directory
        records = Records("sqlite", sealing)
        self._database: Final = _Database(self.path, timeout=timeout, mode=records.mode)
        super().__init__(SqlStore(self._database, _Dialect(), records))

    def compact(self) -> None:
        """Write the file anew: smaller, and without a trace of what was deleted. Others wait meanwhile."""
        step(self._database.compact())

    def __repr__(self) -> str:
        return f"SqliteStore({str(self.path)!r})"


# --- what SQLite says in its own way ---------------------------------------------------------------------------------

APPLICATION_ID: Final = 0x64_72_67_6D
SCHEMA_VERSION: Final = 1

_WORDS: Final = (
    "CREATE TABLE words (key INTEGER PRIMARY KEY, root TEXT NOT NULL, text TEXT NOT NULL)",
    "CREATE INDEX words_by_root ON words (root)",
)
# Three letters at a time: finds parts of words, and works for languages that put no spaces between them.
_WORD_INDEX: Final = """CREATE VIRTUAL TABLE word_index USING fts5
    (text, content = 'words', content_rowid = 'key', tokenize = 'trigram', columnsize = 0)"""
_HAS_INDEX: Final = "SELECT 1 FROM sqlite_master WHERE name = 'word_index'"


class _Dialect:
    lock_chains: str | None = None

    async def add_words(self, session: Session, root: str, texts: Sequence[str]) -> None:
        [[last]] = await session.fetch("SELECT coalesce(max(key), 0) FROM words")
        await session.execute_many("INSERT INTO words (root, text) VALUES (?, ?)", [(root, text) for text in texts])
        if await session.fetch(_HAS_INDEX):
            await session.execute(
                "INSERT INTO word_index (rowid, text) SELECT key, text FROM words WHERE key > ?", last
            )

    async def remove_words(self, session: Session, root: str) -> None:
        if await session.fetch(_HAS_INDEX):
            await session.execute(
                "INSERT INTO word_index (word_index, rowid, text) SELECT 'delete', key, text FROM words WHERE root = ?",
                root,
            )
        await session.execute("DELETE FROM words WHERE root = ?", root)

    async def find_words(self, session: Session, words: Sequence[str]) -> tuple[str, Sequence[object]]:
        """The index answers for words of three letters and more.

        What it finds is looked at again, since it folds letters by rules of its own.
        """
        words = [word.encode("utf-8", "replace").decode() for word in words]
        tests, values = ["instr(w.text, ?) > 0"] * len(words), [*words]
        indexed = [word for word in words if len(word) >= 3]
        if indexed and await session.fetch(_HAS_INDEX):
            tests.insert(0, "w.key IN (SELECT rowid FROM word_index WHERE word_index MATCH ?)")
            values.insert(0, " AND ".join(['"' + word.replace('"', '""') + '"' for word in indexed]))
        return " AND ".join(tests), values


class _Session:
    """A connection in a transaction."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection: sqlite3.Connection = connection

    async def fetch(self, sql: str, *values: object) -> Rows:
        return self._connection.execute(_rendered(sql), values).fetchall()

    async def execute(self, sql: str, *values: object) -> int:
        return self._connection.execute(_rendered(sql), values).rowcount

    async def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        self._connection.executemany(_rendered(sql), rows)


def _rendered(sql: str) -> str:
    return sql.replace("{s}", "").replace("{lock}", "").replace("{blob}", "blob")


def _make_tables(connection: sqlite3.Connection, path: Path, mode: Mode) -> None:
    """Make the tables in an empty file, and refuse the file of another program or of a newer version."""
    if _has_tables(connection, path):
        return
    try:
        connection.execute("BEGIN IMMEDIATE")
        if not _has_tables(connection, path):  # again: another program may have been first
            for statement in (*TABLES, *_WORDS):
                connection.execute(_rendered(statement))
            with suppress(sqlite3.OperationalError):  # without full-text search every text is looked at
                connection.execute(_WORD_INDEX)
            connection.execute("INSERT INTO setting VALUES ('mode', ?)", (mode,))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _has_tables(connection: sqlite3.Connection, path: Path) -> bool:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    [application] = connection.execute("PRAGMA application_id").fetchone()
    if version == 0 and application == 0:
        if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise _foreign(path, "it holds the tables of another program")
        return False
    if application != APPLICATION_ID or version < 1:
        raise _foreign(path, "it belongs to another program")
    if version > SCHEMA_VERSION:
        message = f"The database {path.name} was written by a newer dragoman (tables of version {version})."
        raise StoreError(message, hint="Upgrade dragoman to use it: pip install --upgrade dragoman.")
    return True


# --- connections -----------------------------------------------------------------------------------------------------

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


class _Database:
    """An SQLite file: connections and transactions that survive forks, faults and a file that comes and goes."""

    def __init__(self, path: Path, *, timeout: float, mode: Mode) -> None:
        self.path: Final = path
        self._timeout: Final = timeout
        self._mode: Final = mode
        self._reader: Final = _Line()
        self._writer: Final = _Line()
        self._was_there: bool = False
        self._closed: bool = False
        _open_databases.add(self)

    async def read(self, work: Callable[[Session], Awaitable[_T]]) -> _T:
        """What the work finds in a transaction that sees the database at one moment."""
        return await self._transaction(self._reader, "BEGIN", work)

    async def write(self, work: Callable[[Session], Awaitable[_T]], *, repeatable: bool = True) -> _T:
        """Do the work in a transaction that writes."""
        return await self._transaction(self._writer, "BEGIN IMMEDIATE", work)

    async def compact(self) -> None:
        """Write the file anew, without what was deleted."""

        async def work(connection: sqlite3.Connection) -> None:
            if connection.execute(_HAS_INDEX).fetchone():
                # The index marks words as deleted and drops them when it is next put in order: do that now.
                connection.execute("INSERT INTO word_index (word_index) VALUES ('optimize')")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        await self._with_connection(self._writer, work)

    def close(self) -> None:
        """Close both connections, after what is under way."""
        self._closed = True
        for line in (self._reader, self._writer):
            with line.lock:
                line.drop()

    async def _transaction(self, line: _Line, begin: str, work: Callable[[Session], Awaitable[_T]]) -> _T:
        async def transaction(connection: sqlite3.Connection) -> _T:
            try:
                connection.execute(begin)
                result = await work(_Session(connection))
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

        return await self._with_connection(line, transaction)

    async def _with_connection(self, line: _Line, work: Callable[[sqlite3.Connection], Awaitable[_T]]) -> _T:
        """Do the work with the line's connection; afterwards the line has one that is in no transaction, or none."""
        with line.lock:
            if self._closed:
                raise closed_store()
            try:
                connection = self._connected(line)
                line.connection = None
                try:
                    result = await work(connection)
                finally:
                    if connection.in_transaction:
                        connection.close()
                    else:
                        line.connection = connection
            except _FAULTS as error:
                if isinstance(error, OSError) or _code(error) in _REOPEN:
                    line.drop()
                raise _typed(error, self.path) from error
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
            _make_tables(connection, self.path, self._mode)
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
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_WAL_PAUSE)
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

_open_databases: Final[WeakSet[_Database]] = WeakSet()
_abandoned: Final[list[sqlite3.Connection]] = []


def _each(work: Callable[[_Database], None]) -> Callable[[], None]:
    def at_fork() -> None:
        for database in list(_open_databases):
            work(database)

    return at_fork


os.register_at_fork(
    before=_each(_Database._pause),  # pyright: ignore[reportPrivateUsage]
    after_in_parent=_each(_Database._go_on),  # pyright: ignore[reportPrivateUsage]
    after_in_child=_each(_Database._start_anew),  # pyright: ignore[reportPrivateUsage]
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


# --- errors ----------------------------------------------------------------------------------------------------------


_Problem: TypeAlias = tuple[type[StoreError], str, str | None]

_DAMAGED: Final = "Restore it from a copy. `sqlite3 FILE .recover` can save what is left; the file was not touched."
_SAFE: Final = "and try again; what was saved before is safe."
_UNREACHABLE: Final[_Problem] = (StoreUnavailableError, "cannot be opened", "Check that its directory can be written.")
_OTHER: Final[_Problem] = (StoreError, "cannot be used", None)

# By primary result code: https://sqlite.org/rescode.html
_PROBLEMS: Final[dict[int, _Problem]] = {
    sqlite3.SQLITE_PERM: (StoreUnavailableError, "may not be opened", "Check the permissions of the file."),
    sqlite3.SQLITE_BUSY: (
        StoreUnavailableError,
        "is locked by another program",
        "Try again when the other program is done, or raise the store's timeout.",
    ),
    sqlite3.SQLITE_LOCKED: (StoreUnavailableError, "is locked", "Try again in a moment."),
    sqlite3.SQLITE_NOMEM: (StoreUnavailableError, "needs more memory than there is", f"Free memory {_SAFE}"),
    sqlite3.SQLITE_READONLY: (
        StoreUnavailableError,
        "cannot be written",
        f"Make the file and its directory writable {_SAFE}",
    ),
    sqlite3.SQLITE_IOERR: (StoreUnavailableError, "cannot be read or written", f"Check the disk {_SAFE}"),
    sqlite3.SQLITE_CORRUPT: (StoreError, "is damaged", _DAMAGED),
    sqlite3.SQLITE_FULL: (StoreUnavailableError, "cannot grow: the disk is full", f"Free space {_SAFE}"),
    sqlite3.SQLITE_CANTOPEN: _UNREACHABLE,
    sqlite3.SQLITE_TOOBIG: (StoreError, "cannot hold a message of this size", "Keep large media in files."),
    sqlite3.SQLITE_NOTADB: (StoreError, "is not a database of this library", "Give the path of another file."),
}

_REOPEN: Final = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOTADB,
    }
)
"""Codes after which a connection is opened anew: what it remembers of the file may be wrong."""


def _code(error: Exception) -> int:
    """The primary result code, 0 where Python found the fault itself."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _typed(error: Exception, path: Path) -> StoreError:
    """The error of ours that says the same."""
    kind, what, hint = _UNREACHABLE if isinstance(error, OSError) else _PROBLEMS.get(_code(error), _OTHER)
    reason = (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
    return kind(f"The database {path.name} {what} ({reason}).", hint=hint)


def _gone(path: Path) -> StoreUnavailableError:
    """The file was there and is not any more."""
    message = f"The database {path.name} is gone, or another file has taken its place."
    return StoreUnavailableError(message, hint="Put it back; this store goes on as soon as it is there.")


def _foreign(path: Path, why: str) -> StoreError:
    """The file is something else."""
    message = f"The file {path.name} is not a database of this library: {why}."
    return StoreError(message, hint="Give the path of another file.")
