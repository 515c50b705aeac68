"""A store in PostgreSQL, for fleets: many machines, one database (extra `postgres`).

Owns: PostgresStore; the connections, each lent to one thread at a time; what PostgreSQL says in
its own way; which of its errors are worth another try, and the others as ours.
Must not know: what is read and written (see sql.py), and psycopg (see postgres_driver.py), which is imported when a
store is opened.

Connections are made by who needs one, at the moment of need. A pool with threads of its own would try again in the
background at ever longer intervals, so that a server that is back would not be noticed for a while, and its threads do
not survive a fork.
"""

from __future__ import annotations

import os
import re
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypedDict, TypeVar, cast
from weakref import WeakSet

from dragoman._stop import chance, sleep
from dragoman.errors import ConfigurationError, DragomanError, SnapshotCorruptError, StoreError, StoreUnavailableError

from .protocol import closed_store
from .sealing import AesGcmSealing, Records
from .sql import SqlStore
from .sql_schema import Session, has_tables, make_tables

if TYPE_CHECKING:
    from .postgres_driver import Access, Link

_T = TypeVar("_T")

# --- the stores ------------------------------------------------------------------------------------------------------


class PostgresOptions(TypedDict, total=False):
    """The options of a PostgresStore, for what stands on the same database."""

    schema: str
    sealing: AesGcmSealing | None
    timeout: float
    connections: int
    prepared_statements: bool


class PostgresStore(SqlStore):
    """Conversations in a PostgreSQL database, for many machines at once (extra `postgres`).

    `conninfo` is a connection string of libpq: postgresql://user@host/database, or host=… dbname=…. The tables lie in
    a `schema` of their own and are made at the first use. With `sealing`, all that is kept is sealed, also what lists
    show; a sealed store cannot be searched. `timeout` is how many seconds a call may wait for connections, locks and
    answers, all in all; `connections` how many may be open at once. Poolers that cannot have them need
    `prepared_statements=False`.
    """

    def __init__(
        self,
        conninfo: str = "",
        *,
        schema: str = "dragoman",
        sealing: AesGcmSealing | None = None,
        timeout: float = 30.0,
        connections: int = 8,
        prepared_statements: bool = True,
    ) -> None:
        if not isinstance(schema, str) or _SCHEMA_NAME.fullmatch(schema) is None:  # pyright: ignore[reportUnnecessaryIsInstance]
            message = "The name of a schema begins with a small letter and has small letters, digits and _ only."
            raise ConfigurationError(message, hint="Give a name such as schema='dragoman'.")
        if not 0 < timeout < 1e6 or connections < 1:
            message = "A store needs a timeout of some seconds and at least one connection."
            raise ConfigurationError(message)
        records = Records("postgres", sealing)
        database = _Database(conninfo, schema, records.mode, timeout, connections, prepared=prepared_statements)
        self._postgres: Final = database
        self._shown: Final = f"PostgresStore({database.shown!r}, schema={schema!r})"
        super().__init__(database, records)

    def __repr__(self) -> str:
        return self._shown

    def transact(self, work: Callable[[Link], _T]) -> _T:
        """Do work of one's own, such as a fleet's, in a transaction on the store's connections; it makes no tables.

        It is done again where a connection broke, so it must bear that.
        """
        return self._postgres.transact(cast("Callable[[Session], _T]", work))


_SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)

# --- the tables ------------------------------------------------------------------------------------------------------

# Not `to_regclass`, which remembers within a transaction that there was no such table.
_TABLES: Final = (
    "SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = ? AND c.relname = 'setting'"
)


def _ensure_tables(session: Session, schema: str, mode: str) -> None:
    """Make the tables. Many programs may do so at once: one does it, the others wait and see it done."""
    if has_tables(session, f"schema {schema}", _TABLES, schema):
        return
    # Advisory locks of a database are shared by all of its programs, so the number should be nobody else's.
    number = zlib.crc32(schema.encode()) | 0x64_72_67_6D << 32
    session.fetch("SELECT pg_advisory_xact_lock(?)", number)
    if has_tables(session, f"schema {schema}", _TABLES, schema):
        return
    # Asking first, since `IF NOT EXISTS` needs the right to create schemas even where there is nothing to do.
    if not session.fetch("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = ?", schema):
        session.execute(f'CREATE SCHEMA "{schema}"')
    make_tables(session, mode)


# --- connections -----------------------------------------------------------------------------------------------------

_MAX_IDLE: Final = 300.0
"""Seconds after which an idle connection is not trusted any more: firewalls forget them without a word."""
_PAUSE: Final = 0.005
"""Seconds between two looks whether a connection is free."""


class _Database:
    """Carries out work on the server at this address."""

    contains: str = "position(? IN w.text) > 0"

    def __init__(
        self, conninfo: str, schema: str, mode: str, timeout: float, connections: int, *, prepared: bool
    ) -> None:
        try:
            from . import postgres_driver as driver
        except ImportError as error:
            message = "A store in PostgreSQL needs the package `psycopg`."
            raise ConfigurationError(message, hint="Install it: pip install 'dragoman[postgres]'.") from error
        self._driver: Final = driver
        self._address: Final = driver.parse_address(conninfo)
        self.shown: Final = self._address.shown
        self._schema: Final = schema
        self._mode: Final = mode
        self._timeout: Final = timeout
        self._most: Final = connections
        self._prepared: Final = prepared
        self._has_tables: bool = False
        self._closed: bool = False
        self._start_anew()
        _databases.add(self)

    def read(self, work: Callable[[Session], _T]) -> _T:
        return self._run(work, "READ ONLY")

    def write(self, work: Callable[[Session], _T], *, repeatable: bool = True) -> _T:
        return self._run(work, "READ WRITE", repeatable=repeatable)

    def transact(self, work: Callable[[Session], _T]) -> _T:
        """Work that has nothing to do with the tables of the store."""
        return self._repeat(work, time.monotonic() + self._timeout)

    def close(self) -> None:
        """Close the connections that nobody uses; the others follow when they are given back."""
        self._closed = True
        self._drop_idle()

    def _run(self, work: Callable[[Session], _T], access: Access, *, repeatable: bool = True) -> _T:
        deadline = time.monotonic() + self._timeout
        if not self._has_tables:  # several threads may make them at once: the server lets them in one after the other
            self._repeat(lambda session: _ensure_tables(session, self._schema, self._mode), deadline)
            self._has_tables = True
        return self._repeat(work, deadline, access, repeatable=repeatable)

    def _repeat(
        self, work: Callable[[Session], _T], deadline: float, access: Access = "READ WRITE", *, repeatable: bool = True
    ) -> _T:
        tries = 0
        while True:
            attempt = Attempt(repeatable=repeatable)
            try:
                return self._try(work, attempt, deadline, access)
            except self._driver.ERRORS as error:
                tries += 1
                over = tries >= _MOST_TRIES or time.monotonic() >= deadline
                if over or not attempt.may_be_repeated(error):
                    raise attempt.typed(error, hide=self._address.password) from error
            if attempt.lost:
                self._drop_idle()  # what broke one has broken the others, too
            sleep(_FIRST_PAUSE * 2**tries * chance())

    def _try(self, work: Callable[[Session], _T], attempt: Attempt, deadline: float, access: Access) -> _T:
        if self._closed:
            raise closed_store()
        users, user = self._users, object()
        try:
            self._wait_for_place(user, deadline)
            link = self._take(deadline)
            try:
                attempt.stage = "working"
                link.begin(access, deadline)
                result = work(link)
                if access == "READ WRITE":
                    attempt.stage = "committing"
                    link.commit()
                else:
                    with suppress(*self._driver.ERRORS):  # what was read is read
                        link.rollback()
                return result
            except Exception as error:
                attempt.lost = link.is_lost or isinstance(error, AssertionError)
                with suppress(*self._driver.ERRORS):
                    link.finish() if attempt.lost else link.rollback()
                raise
            finally:
                self._give_back(link)
        finally:
            users.discard(user)

    def _wait_for_place(self, user: object, deadline: float) -> None:
        while True:
            with self._lock:
                if len(self._users) < self._most:
                    self._users.add(user)
                    return
            if time.monotonic() >= deadline:
                used = f"All {self._most} connections of the store were in use"
                hint = "Use fewer threads or tasks at once, or open it with connections=…."
                raise StoreUnavailableError(f"{used} for {self._timeout:g} seconds.", hint=hint)
            sleep(_PAUSE)

    def _take(self, deadline: float) -> Link:
        while self._idle:
            try:
                link, since = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if link.is_usable and time.monotonic() - since < _MAX_IDLE:
                return link
            link.finish()
        return self._driver.Link.connect(self._address, self._schema, deadline, prepared=self._prepared)

    def _give_back(self, link: Link) -> None:
        if self._closed or not link.is_usable:
            link.finish()
        else:
            self._idle.append((link, time.monotonic()))
            if self._closed:  # meanwhile
                self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                self._idle.pop()[0].finish()

    def _start_anew(self) -> None:
        """Also in the child of a fork: the connections are the parent's, and so are the threads that hold them."""
        self._idle: deque[tuple[Link, float]] = deque()  # psycopg closes nothing that another process has opened
        self._users: set[object] = set()
        """Who has a connection. Not a semaphore: Ctrl-C in the middle of its count would cost a place for good."""
        self._lock: threading.Lock = threading.Lock()


_databases: Final[WeakSet[_Database]] = WeakSet()


def _after_fork() -> None:
    for database in list(_databases):
        database._start_anew()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)

# --- errors ----------------------------------------------------------------------------------------------------------


class _Problem(NamedTuple):
    kind: type[StoreError] | type[SnapshotCorruptError]
    what: str
    hint: str | None = None


_UNREACHABLE: Final = _Problem(
    StoreUnavailableError,
    "The database cannot be reached",
    "Check that the server runs, and the address, user and password. The store goes on as soon as it is there.",
)
_LOST: Final = _Problem(
    StoreUnavailableError,
    "The connection to the database broke",
    "Try again: the store connects anew by itself; what was saved before is safe.",
)
_UNKNOWN: Final = _Problem(
    StoreUnavailableError,
    "The connection to the database broke at the last moment, and nobody knows whether the change was made",
    "Look before you try again: journal(id) and load(id) tell.",
)
_GONE: Final = _Problem(
    StoreError,
    "The tables of the store are gone, or not as they were made",
    "Restore the schema, or open a new store.",
)
_SHORT: Final = _Problem(
    StoreUnavailableError,
    "The server is short of space, memory or connections, or has trouble with its disk",
    "See its log, free what is short and try again; what was saved before is safe.",
)
_BUSY: Final = _Problem(
    StoreUnavailableError,
    "The database was busy for too long",
    "Try again when it is less busy, or raise the store's timeout; nothing was changed.",
)
_OTHER: Final = _Problem(StoreError, "The database refused", "If it persists, report it with this text.")

# By SQLSTATE, else by its class, the first two characters: https://www.postgresql.org/docs/current/errcodes-appendix.html
_PROBLEMS: Final[dict[str, _Problem]] = {
    "08": _LOST,
    "25006": _Problem(
        StoreUnavailableError,
        "The database is read-only",
        "Connect to the primary server, or wait until it is writable.",
    ),
    "25P03": _LOST,
    "25P04": _BUSY,
    "3F": _GONE,
    "40": _BUSY,
    "42501": _Problem(StoreError, "The database does not allow it", "Grant the user the rights on the schema."),
    "42P01": _GONE,
    "42703": _GONE,
    "53": _SHORT,
    "54": _Problem(StoreError, "It is more than the database can hold", "Keep large media in files of their own."),
    "55": _BUSY,
    "57014": _BUSY,
    "57": _LOST,
    "58": _SHORT,
    "XX": _Problem(SnapshotCorruptError, "The database says that its data are damaged"),
}

_AGAIN: Final = frozenset({"40001", "40P01"})
"""Two transactions got in each other's way, and the server chose this one to begin again."""
_MOST_TRIES: Final = 8
_FIRST_PAUSE: Final = 0.01
_LONGEST_TEXT: Final = 300


class Attempt:
    """How far one try came, and what its error means."""

    def __init__(self, *, repeatable: bool) -> None:
        self._repeatable: Final = repeatable
        self.stage: Literal["connecting", "working", "committing"] = "connecting"
        self.lost: bool = True
        """Whether the connection is gone."""

    def may_be_repeated(self, error: Exception) -> bool:
        safe = self.stage == "working" or (self.stage == "committing" and self._repeatable)
        return _code(error) in _AGAIN or (self.lost and safe)

    def typed(self, error: Exception, *, hide: str) -> DragomanError:
        """The error of ours that says the same, without the password."""
        code = _code(error)
        usual = _UNREACHABLE if self.stage == "connecting" else _LOST if self.lost else _OTHER
        problem = _PROBLEMS.get(code) or _PROBLEMS.get(code[:2]) or usual
        if self.lost and self.stage == "committing" and not self._repeatable:
            problem = _UNKNOWN
        # The server's one line, where there is one: the rest quotes statements and values.
        text = " ".join(str(getattr(getattr(error, "diag", None), "message_primary", None) or error).split())
        if hide:
            text = text.replace(hide, "…")
        reason = f" ({text[:_LONGEST_TEXT].rstrip('.')})" if text else ""
        return problem.kind(f"{problem.what}{reason}.", hint=problem.hint)


def _code(error: Exception) -> str:
    return str(getattr(error, "sqlstate", None) or "")
