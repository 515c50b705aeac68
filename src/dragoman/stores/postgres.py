"""PostgresStore: a store for many machines on one PostgreSQL database (extra `postgres`).

Owns: the connections, each lent to one thread at a time; which errors are retried, and the others as ours.
Must not know: what is read and written (see sql.py), and psycopg (see postgres_driver.py), which is imported when a
store is opened.

A connection is opened by the caller that needs it. A pool with threads of its own would reconnect in the background at
ever longer intervals, and so notice late that a server is back; and its threads do not survive a fork.
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
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypedDict, TypeVar
from weakref import WeakSet

from dragoman._checks import of_unmade
from dragoman._stop import chance, sleep
from dragoman.errors import ConfigurationError, DragomanError, SnapshotCorruptError, StoreError, StoreUnavailableError

from .protocol import closed_store
from .sealing import AesGcmSealing
from .sql import SqlStore
from .sql_schema import Session, ensure_tables

if TYPE_CHECKING:
    from .postgres_driver import Access, Link

_T = TypeVar("_T")

_SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)
_MAX_IDLE: Final = 300.0
"""Seconds after which an idle connection is not used again: firewalls drop them silently."""
_PAUSE: Final = 0.005
"""Seconds between two checks whether a connection is free."""

# Not `to_regclass`, which remembers within a transaction that a table did not exist.
_TABLE_NAMES: Final = (
    "SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = ? AND c.relname = 'setting'"
)


class PostgresOptions(TypedDict, total=False):
    """The options of a PostgresStore, for what uses the same database."""

    schema: str
    sealing: AesGcmSealing | None
    timeout: float
    connections: int
    prepared_statements: bool


class PostgresStore(SqlStore):
    """Conversations in a PostgreSQL database, for many machines at once (extra `postgres`).

    `conninfo` is a connection string of libpq: postgresql://user@host/database, or host=… dbname=…. The tables have a
    `schema` of their own and are created at the first use. With `sealing` everything in the store is encrypted,
    including what lists show; a sealed store cannot be searched. `timeout` is how many seconds a call may wait in total
    for connections, locks and answers; `connections` how many may be open at once. Behind a pooler that does not
    support prepared statements use `prepared_statements=False`.
    """

    _contains = "position(? IN w.text) > 0"

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
            message = "The name of a schema has only small letters, digits and _, and does not begin with a digit."
            raise ConfigurationError(message, hint="Choose a name such as schema='dragoman'.")
        if not 0 < timeout < 1e6 or connections < 1:
            message = "A store needs a timeout of some seconds and at least one connection."
            raise ConfigurationError(message)
        try:
            from . import postgres_driver as driver
        except ImportError as error:
            message = "A store in PostgreSQL needs the package `psycopg`."
            raise ConfigurationError(message, hint="Install it: pip install 'dragoman[postgres]'.") from error
        super().__init__("postgres", sealing)
        self._driver: Final = driver
        self._address: Final = driver.parse_address(conninfo)
        self._schema: Final = schema
        self._timeout: Final = timeout
        self._max_users: Final = connections
        self._prepared: Final = prepared_statements
        self._has_tables: bool = False
        self._closed: bool = False
        self._reset()
        _open_stores.add(self)

    def _reset(self) -> None:
        """Forget all connections; in the child of a fork they are the parent's, like the threads that hold them."""
        self._idle: deque[tuple[Link, float]] = deque()  # psycopg closes nothing that another process has opened
        self._users: set[object] = set()
        """Who has a connection. Not a semaphore: Ctrl-C while it counts would lose a connection for good."""
        self._lock: threading.Lock = threading.Lock()

    @of_unmade
    def __repr__(self) -> str:
        return f"PostgresStore({self._address.shown!r}, schema={self._schema!r})"

    def close(self) -> None:
        """Close the idle connections; the others are closed when they are given back."""
        self._closed = True
        self._drop_idle()

    # --- transactions ------------------------------------------------------------------------------------------------

    def transact(self, work: Callable[[Link], _T]) -> _T:
        """Run other work, such as a fleet's, in a transaction on the store's connections; it creates no tables.

        It is repeated if the connection breaks, so it must be safe to repeat.
        """
        return self._repeat(work, time.monotonic() + self._timeout)

    def _read(self, work: Callable[[Session], _T]) -> _T:
        return self._run(work, "READ ONLY")

    def _write(self, work: Callable[[Session], _T], *, repeatable: bool = True) -> _T:
        return self._run(work, "READ WRITE", repeatable=repeatable)

    def _run(self, work: Callable[[Session], _T], access: Access, *, repeatable: bool = True) -> _T:
        deadline = time.monotonic() + self._timeout
        if not self._has_tables:  # several threads may do this at once: the server lets in one after the other
            self._repeat(self._ensure_tables, deadline)
            self._has_tables = True
        return self._repeat(work, deadline, access, repeatable=repeatable)

    def _ensure_tables(self, session: Session) -> None:
        schema = self._schema

        def lock() -> None:
            # All programs of a database share its advisory locks, so the number should be unique to us.
            number = zlib.crc32(schema.encode()) | 0x64_72_67_6D << 32
            session.fetch("SELECT pg_advisory_xact_lock(?)", number)
            # `IF NOT EXISTS` would need the right to create schemas even if this one exists.
            if not session.fetch("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = ?", schema):
                session.change(f'CREATE SCHEMA "{schema}"')

        ensure_tables(session, f"schema {schema}", self._records.mode, (_TABLE_NAMES, schema), lock)

    def _repeat(
        self, work: Callable[[Link], _T], deadline: float, access: Access = "READ WRITE", *, repeatable: bool = True
    ) -> _T:
        tries = 0
        while True:
            attempt = Attempt(repeatable=repeatable)
            try:
                return self._try(work, attempt, deadline, access)
            except self._driver.ERRORS as error:
                tries += 1
                over = tries >= _MAX_TRIES or time.monotonic() >= deadline
                if over or not attempt.can_be_repeated(error):
                    raise attempt.store_error(error, hide=self._address.password) from error
            if attempt.lost:
                self._drop_idle()  # what broke one connection has broken the others
            sleep(_FIRST_PAUSE * 2**tries * chance())

    def _try(self, work: Callable[[Link], _T], attempt: Attempt, deadline: float, access: Access) -> _T:
        if self._closed:
            raise closed_store()
        users, user = self._users, object()
        try:
            self._wait_for_turn(user, deadline)
            link = self._take(deadline)
            try:
                attempt.stage = "working"
                link.begin(access, deadline)
                result = work(link)
                if access == "READ WRITE":
                    attempt.stage = "committing"
                    link.commit()
                else:
                    with suppress(*self._driver.ERRORS):  # the result is complete
                        link.rollback()
                return result
            except Exception as error:
                attempt.lost = link.is_lost or isinstance(error, AssertionError)
                with suppress(*self._driver.ERRORS):
                    link.pgconn.finish() if attempt.lost else link.rollback()
                raise
            finally:
                self._give_back(link)
        finally:
            users.discard(user)

    # --- connections -------------------------------------------------------------------------------------------------

    def _wait_for_turn(self, user: object, deadline: float) -> None:
        while True:
            with self._lock:
                if len(self._users) < self._max_users:
                    self._users.add(user)
                    return
            if time.monotonic() >= deadline:
                message = f"All {self._max_users} connections of the store were in use for {self._timeout:g} seconds."
                hint = "Use fewer threads or tasks at once, or open the store with connections=…."
                raise StoreUnavailableError(message, hint=hint)
            sleep(_PAUSE)

    def _take(self, deadline: float) -> Link:
        while self._idle:
            try:
                link, since = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if link.is_idle and time.monotonic() - since < _MAX_IDLE:
                return link
            link.pgconn.finish()
        return self._driver.Link.open(self._address, self._schema, deadline, prepared=self._prepared)

    def _give_back(self, link: Link) -> None:
        if self._closed or not link.is_idle:
            link.pgconn.finish()
        else:
            self._idle.append((link, time.monotonic()))
            if self._closed:  # in the meantime
                self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                self._idle.pop()[0].pgconn.finish()


_open_stores: Final[WeakSet[PostgresStore]] = WeakSet()


def _after_fork() -> None:
    for store in list(_open_stores):
        store._reset()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)

# --- errors ----------------------------------------------------------------------------------------------------------


class _Problem(NamedTuple):
    kind: type[StoreError] | type[SnapshotCorruptError]
    what: str
    hint: str | None = None


_UNREACHABLE: Final = _Problem(
    StoreUnavailableError,
    "The database cannot be reached",
    "Check that the server runs, and the address, user and password. The store works again once the server is back.",
)
_LOST: Final = _Problem(
    StoreUnavailableError,
    "The connection to the database broke",
    "Try again: the store reconnects by itself. What was saved before is safe.",
)
_UNKNOWN: Final = _Problem(
    StoreUnavailableError,
    "The connection to the database broke during the commit, and it is unknown whether the change was made",
    "Check before you try again, with journal(id) or load(id).",
)
_GONE: Final = _Problem(
    StoreError,
    "The tables of the store are gone, or were changed",
    "Restore the schema, or open a new store.",
)
_SHORT: Final = _Problem(
    StoreUnavailableError,
    "The server is short of space, memory or connections, or its disk failed",
    "See its log and try again. What was saved before is safe.",
)
_BUSY: Final = _Problem(
    StoreUnavailableError,
    "The database was busy for too long",
    "Try again when it is less busy, or raise the store's timeout. Nothing was changed.",
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
    "54": _Problem(StoreError, "It is more than the database can hold", "Keep large media in files."),
    "55": _BUSY,
    "57014": _BUSY,
    "57": _LOST,
    "58": _SHORT,
    "XX": _Problem(SnapshotCorruptError, "The database reports that its data are damaged"),
}

_AGAIN: Final = frozenset({"40001", "40P01"})
"""Two transactions blocked each other, and the server ended this one."""
_MAX_TRIES: Final = 8
_FIRST_PAUSE: Final = 0.01
_LONGEST_TEXT: Final = 300


class Attempt:
    """How far one attempt got, and what its error means."""

    def __init__(self, *, repeatable: bool) -> None:
        self._repeatable: Final = repeatable
        self.stage: Literal["connecting", "working", "committing"] = "connecting"
        self.lost: bool = True
        """Whether the connection broke."""

    def can_be_repeated(self, error: Exception) -> bool:
        safe = self.stage == "working" or (self.stage == "committing" and self._repeatable)
        return _code(error) in _AGAIN or (self.lost and safe)

    def store_error(self, error: Exception, *, hide: str) -> DragomanError:
        """Our error for this one, without the password."""
        code = _code(error)
        default = _UNREACHABLE if self.stage == "connecting" else _LOST if self.lost else _OTHER
        problem = _PROBLEMS.get(code) or _PROBLEMS.get(code[:2]) or default
        if self.lost and self.stage == "committing" and not self._repeatable:
            problem = _UNKNOWN
        # Only the server's first line: the rest quotes statements and values.
        text = " ".join(str(getattr(getattr(error, "diag", None), "message_primary", None) or error).split())
        if hide:
            text = text.replace(hide, "…")
        reason = f" ({text[:_LONGEST_TEXT].rstrip('.')})" if text else ""
        return problem.kind(f"{problem.what}{reason}.", hint=problem.hint)


def _code(error: Exception) -> str:
    return str(getattr(error, "sqlstate", None) or "")
