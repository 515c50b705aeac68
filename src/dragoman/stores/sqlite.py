"""Stores on SQLite: SqliteStore in a file, the default of the command line, and MemoryStore.

Owns: connections, transactions, waiting for other writers, forks, and SQLite's errors as ours.
Must not know: what is read and written (see sql.py).

Ctrl-C can arrive between any two steps. Whoever uses a connection therefore takes it out of its slot, and only a
connection without a transaction is put back; any other is closed, and the next user opens a new one. Work under the
lock is a function call, not the body of a `with` over our own context manager: that could be interrupted before it
releases the lock, and whoever handles the interrupt would wait for the lock for ever.

A file has two connections, so that readers do not wait while a writer waits for the disk. There is no connection per
thread, because nobody would close those of threads that ended. A connection cannot cross a fork, because the child
would believe that it holds the parent's locks. Both connections are therefore closed before a fork, after their current
transactions, and parent and child open their own. Nobody may be inside SQLite at that moment, for its own locks are
copied as they are: a MemoryStore lets nobody in either.

SQLite's own wait for another program cannot be interrupted. It is kept short, and longer waits happen here, where
Ctrl-C and a Stop end them.
"""

from __future__ import annotations

import os
import sqlite3
import sysconfig
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias, TypeVar
from urllib.parse import quote
from weakref import WeakValueDictionary, finalize

from dragoman._checks import of_unmade
from dragoman._descriptors import owned
from dragoman._stop import sleep
from dragoman.errors import StoreError, StoreUnavailableError

from . import directory
from .protocol import closed_store
from .sealing import AesGcmSealing
from .sql import SqlStore
from .sql_schema import Rows, Session, create_tables, ensure_tables

_T = TypeVar("_T")

_FORK_TIMEOUT: Final = 30.0
"""Seconds that a fork waits for the transaction of another thread."""
_FIRST_PAUSE: Final = 0.005
"""Seconds that SQLite itself waits for another program, and the length of our first pause."""
_LONGEST_PAUSE: Final = 0.02

_CACHED_STATEMENTS: Final = 0 if sysconfig.get_config_var("Py_GIL_DISABLED") else 128
"""How many statements a connection keeps for their next use, which saves about 50 µs for each.

SQLite keeps the files of a closed connection open, locks included, until its last statement is gone. Where threads run
free, a statement goes when the thread that prepared it is next ready to let it go, and not when another thread closes
the connection: a fork would copy it.
"""

_CONTAINS: Final = "instr(w.text, ?) > 0"

# UnicodeError: text in a damaged file need not be UTF-8, and errors quote it.
_FAULTS: Final = (sqlite3.Error, sqlite3.Warning, OSError, OverflowError, UnicodeError)


class SqliteSession:
    """A connection as a Session."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection: sqlite3.Connection = connection

    def fetch(self, sql: str, *values: object) -> Rows:
        return self._connection.execute(_render(sql), values).fetchall()

    def change(self, sql: str, *values: object) -> int:
        return self._connection.execute(_render(sql), values).rowcount

    def change_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        self._connection.executemany(_render(sql), rows)


def _render(sql: str) -> str:
    return sql.replace("{s}", "").replace("{lock}", "").replace("{blob}", "blob")


class _Slot:
    """A place for one connection, used by whoever holds the lock."""

    __slots__ = ("connection", "file", "lock")

    def __init__(self) -> None:
        # Re-entrant: a signal handler may use the store during a transaction, and gets another connection.
        self.lock: threading.RLock = threading.RLock()
        self.connection: sqlite3.Connection | None = None
        """Without a transaction; None while somebody uses it."""
        self.file: tuple[int, int] | None = None
        """The file that the connection has open: device and inode."""

    def drop(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


# --- a file ----------------------------------------------------------------------------------------------------------


class SqliteStore(SqlStore):
    """Conversations in one SQLite file, for any number of threads and programs on one machine.

    The file and its directory are created when first needed, accessible only to their owner. `timeout` is how many
    seconds to wait for another program that writes. With `sealing` everything in the store is encrypted, including what
    lists show; a sealed store cannot be searched.
    """

    _contains = _CONTAINS

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sealing: AesGcmSealing | None = None,
        timeout: float = 30.0,
    ) -> None:
        super().__init__("sqlite", sealing)
        self.path: Final = Path(path).absolute()  # the program may change its working directory
        self._timeout: Final = timeout
        self._reader: Final = _Slot()
        self._writer: Final = _Slot()
        self._existed: bool = False
        self._closed: bool = False
        _open_stores[id(self)] = self

    def compact(self) -> None:
        """Rewrite the file: smaller, and without a trace of deleted data. Other writers wait meanwhile."""

        def checkpoint(connection: sqlite3.Connection) -> None:
            [busy, _, _] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:  # somebody still reads from the log
                error = sqlite3.OperationalError("the write-ahead log is in use")
                error.sqlite_errorcode = sqlite3.SQLITE_BUSY
                raise error

        self._with_connection(self._writer, lambda connection: connection.execute("VACUUM"))
        self._with_connection(self._writer, checkpoint)

    def close(self) -> None:
        """Close both connections, after their current transactions."""
        self._closed = True
        for slot in (self._reader, self._writer):
            with slot.lock:
                slot.drop()

    @of_unmade
    def __repr__(self) -> str:
        return f"SqliteStore({str(self.path)!r})"

    # --- transactions ------------------------------------------------------------------------------------------------

    def _read(self, work: Callable[[Session], _T]) -> _T:
        return self._transaction(self._reader, "BEGIN", work)

    def _write(self, work: Callable[[Session], _T], *, repeatable: bool = True) -> _T:
        return self._transaction(self._writer, "BEGIN IMMEDIATE", work)

    def _transaction(self, slot: _Slot, begin: str, work: Callable[[Session], _T]) -> _T:
        def transaction(connection: sqlite3.Connection) -> _T:
            try:
                connection.execute(begin)
                result = work(SqliteSession(connection))
                connection.execute("COMMIT")
            except Exception:
                # After some errors SQLite has already rolled back.
                with suppress(sqlite3.Error):
                    connection.rollback()
                raise
            # Data written to a file that was replaced in the meantime is not in the store.
            if slot is self._writer and self._file() != slot.file:
                raise _gone(self.path)
            return result

        return self._with_connection(slot, transaction)

    def _with_connection(self, slot: _Slot, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run the work with the slot's connection; repeat it until the timeout if another program is in the way."""
        deadline, pause, retried = time.monotonic() + self._timeout, _FIRST_PAUSE, False
        while True:
            try:
                return self._try(slot, work)
            except _FAULTS as error:
                if _code(error) == sqlite3.SQLITE_CORRUPT and not retried:
                    retried = True  # SQLite also reports damage if the disk failed once
                    continue
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise _store_error(error, self.path) from error
            sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _try(self, slot: _Slot, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run the work once; afterwards the slot has a connection without a transaction, or none."""
        with slot.lock:
            if self._closed:
                raise closed_store()
            try:
                connection = self._connect(slot)
                slot.connection = None
                try:
                    result = work(connection)
                finally:
                    if connection.in_transaction:
                        connection.close()
                    else:
                        slot.connection = connection
            except _FAULTS as error:
                if _code(error) != sqlite3.SQLITE_BUSY:
                    slot.drop()  # its cache of the file may be wrong
                raise
            return result

    # --- opening -----------------------------------------------------------------------------------------------------

    def _file(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _connect(self, slot: _Slot) -> sqlite3.Connection:
        file = self._file()
        if slot.connection is not None and file == slot.file:
            return slot.connection
        slot.drop()
        if file is None:
            if self._existed:
                # A new, empty store in its place would look as if everything had been deleted.
                raise _gone(self.path)
            _create_file(self.path)
            file = self._file()
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(self.path))}?mode=rw",
            uri=True,
            timeout=_FIRST_PAUSE,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_CACHED_STATEMENTS,
        )
        try:
            self._prepare(connection)
            if self._file() != file:
                raise _gone(self.path)
        except BaseException:
            connection.close()
            raise
        slot.connection, slot.file, self._existed = connection, file, True
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # Text in a damaged file need not be UTF-8; reading it as JSON finds the damage.
        connection.text_factory = _decode_text
        for setting in _SETTINGS:
            connection.execute(setting)
        [journal] = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if journal != "wal":
            message = f"SQLite cannot keep a write-ahead log beside the database {self.path.name} ({journal})."
            raise StoreUnavailableError(message, hint="Use a local, writable directory.")
        with connection:  # ends the transaction that `lock` begins
            ensure_tables(
                SqliteSession(connection),
                self.path.name,
                self._records.mode,
                (_TABLE_NAMES,),
                lock=lambda: connection.execute("BEGIN IMMEDIATE"),
            )

    # --- forks -------------------------------------------------------------------------------------------------------

    def _before_fork(self) -> None:
        for slot in (self._reader, self._writer):
            if slot.lock.acquire(timeout=_FORK_TIMEOUT):
                slot.drop()

    def _after_fork_in_parent(self) -> None:
        for slot in (self._reader, self._writer):
            with suppress(RuntimeError):  # another thread still holds it after the timeout
                slot.lock.release()

    def _after_fork_in_child(self) -> None:
        for slot in (self._reader, self._writer):
            if slot.connection is not None:
                # Closing it here would release the parent's locks: it is kept, and never used.
                _abandoned.append(slot.connection)
                slot.connection = None
            slot.lock = threading.RLock()


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


_SETTINGS: Final = (
    "PRAGMA trusted_schema = OFF",
    "PRAGMA foreign_keys = ON",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS, where a plain fsync leaves data in the cache of the disk
    "PRAGMA secure_delete = ON",
    "PRAGMA cell_size_check = ON",
    "PRAGMA journal_size_limit = 67108864",
)

# A file with pages but without tables is damaged or belongs to another program: it does not count as empty.
_TABLE_NAMES: Final = (
    "SELECT name FROM sqlite_master WHERE type = 'table' "
    "UNION ALL SELECT page_count FROM pragma_page_count WHERE page_count > 1"
)

_abandoned: Final[list[sqlite3.Connection]] = []


def _create_file(path: Path) -> None:
    """Create an empty file that only its owner can read, in a directory that only its owner can enter."""
    directory.make_directory(path.parent)
    # Never open an existing file: closing it would release all locks that SQLite holds on it in this process.
    with suppress(FileExistsError):
        owned(os.open, path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600).close()
    directory.sync_directory(path.parent)


# --- memory ----------------------------------------------------------------------------------------------------------


class MemoryStore(SqlStore):
    """Conversations in the memory of this process, until it is closed or nobody has it any more.

    It follows the rules of the other stores, and refuses what they could not write. Any number of threads may use it;
    for asyncio wrap it: `AsyncStore(MemoryStore())`.
    """

    _contains = _CONTAINS

    def __init__(self) -> None:
        super().__init__("memory", None)
        # Re-entrant, so that a signal handler during a transaction gets an error and does not hang.
        self._lock: threading.RLock = threading.RLock()
        self._connection: Final = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        finalize(self, self._connection.close)  # nobody needs to close it, and Python warns of connections left open
        self._closed: bool = False
        create_tables(SqliteSession(self._connection), "open")
        _open_stores[id(self)] = self

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._connection.close()

    def __repr__(self) -> str:
        return "MemoryStore()"

    def _read(self, work: Callable[[Session], _T]) -> _T:
        return self._write(work)

    def _write(self, work: Callable[[Session], _T], *, repeatable: bool = True) -> _T:
        with self._lock:
            if self._closed:
                raise closed_store()
            if self._connection.in_transaction:
                message = "A signal handler cannot use a MemoryStore while the store is in use."
                raise StoreUnavailableError(message, hint="Set a flag in the handler, and use the store afterwards.")
            try:
                with self._connection:  # commits or rolls back, in one step that Ctrl-C cannot divide
                    self._connection.execute("BEGIN")
                    found = work(SqliteSession(self._connection))
                return found  # noqa: RET504 -- within the block, Ctrl-C would come between the work and its end
            except _FAULTS as error:
                raise _store_error(error, Path(":memory:")) from error

    def _before_fork(self) -> None:
        self._lock.acquire(timeout=_FORK_TIMEOUT)

    def _after_fork_in_parent(self) -> None:
        with suppress(RuntimeError):  # another thread still holds it after the timeout
            self._lock.release()

    def _after_fork_in_child(self) -> None:
        self._lock = threading.RLock()


# --- forks -----------------------------------------------------------------------------------------------------------

_Local: TypeAlias = SqliteStore | MemoryStore

# Not a WeakSet: to list one takes many steps, and fails if another thread makes a store meanwhile.
_open_stores: Final[WeakValueDictionary[int, _Local]] = WeakValueDictionary()


def _for_each_store(work: Callable[[_Local], None]) -> Callable[[], None]:
    def at_fork() -> None:
        for reference in _open_stores.valuerefs():
            store = reference()
            if store is not None:
                work(store)

    return at_fork


os.register_at_fork(
    before=_for_each_store(lambda store: store._before_fork()),  # pyright: ignore[reportPrivateUsage]
    after_in_parent=_for_each_store(lambda store: store._after_fork_in_parent()),  # pyright: ignore[reportPrivateUsage]
    after_in_child=_for_each_store(lambda store: store._after_fork_in_child()),  # pyright: ignore[reportPrivateUsage]
)


# --- errors ----------------------------------------------------------------------------------------------------------


# By primary result code: https://sqlite.org/rescode.html. The store works again once these are over:
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
    sqlite3.SQLITE_CORRUPT: "Restore the file from a backup; `sqlite3 FILE .recover` may help.",
    sqlite3.SQLITE_TOOBIG: "Keep large media in files.",
    sqlite3.SQLITE_NOTADB: "Choose another file.",
}


def _code(error: Exception) -> int:
    """The primary result code; 0 if the error does not come from SQLite."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _store_error(error: Exception, path: Path) -> StoreError:
    code = sqlite3.SQLITE_CANTOPEN if isinstance(error, OSError) else _code(error)
    if code == sqlite3.SQLITE_CORRUPT and not _can_be_read(path):
        code = sqlite3.SQLITE_IOERR
    reason = (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
    message = f"The database {path.name} cannot be used: {reason}."
    if code in _UNAVAILABLE:
        return StoreUnavailableError(message, hint=f"{_UNAVAILABLE[code]} What was saved before is safe.")
    return StoreError(message, hint=_UNUSABLE.get(code))


def _can_be_read(path: Path) -> bool:
    """Whether the disk can read the file; SQLite also reports damage if it cannot (EIO)."""
    with suppress(OSError):
        found = path.stat()
        file = _open_for_ever(path, found.st_dev, found.st_ino)
        return all(os.pread(file, 1 << 20, position) for position in range(0, found.st_size, 1 << 20))
    return False


@cache  # never closed: that would release all locks that SQLite holds on the file in this process
def _open_for_ever(path: Path, _device: int, _inode: int) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _gone(path: Path) -> StoreUnavailableError:
    message = f"The database {path.name} is gone, or was replaced by another file."
    return StoreUnavailableError(message, hint="Put it back; the store works again as soon as it is there.")
