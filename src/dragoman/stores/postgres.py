"""A store in PostgreSQL, for fleets: many machines, one database (extra `postgres`).

Owns: PostgresStore and AsyncPostgresStore; the connections, each lent to one thread or task at a time; what PostgreSQL
says in its own way; which of its errors are worth another try, and the others as ours.
Must not know: what is read and written (see sql.py), and psycopg (see postgres_driver.py), which is imported when a
store is opened.

Connections are made by who needs one, at the moment of need. A pool with threads of its own would try again in the
background at ever longer intervals, so that a server that is back would not be noticed for a while, and its threads do
not survive a fork. Idle connections belong to no event loop, so a program may call `asyncio.run` several times with one
store.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar
from weakref import WeakSet

from dragoman._chance import chance
from dragoman.errors import ConfigurationError, DragomanError, SnapshotCorruptError, StoreError, StoreUnavailableError

from .protocol import closed_store
from .sealing import Mode, Records, Sealing
from .sql import PlainSqlStore, SqlStore
from .sql_schema import TABLES, Session

if TYPE_CHECKING:
    from .postgres_driver import Link

_T = TypeVar("_T")

# --- the stores ------------------------------------------------------------------------------------------------------


class AsyncPostgresStore(SqlStore):
    """PostgresStore for asyncio, with the same options."""

    def __init__(
        self,
        conninfo: str = "",
        *,
        schema: str = "dragoman",
        sealing: Sealing | None = None,
        timeout: float = 30.0,
        connections: int = 8,
        prepared_statements: bool = True,
    ) -> None:
        records = Records("postgres", sealing)
        options = _Options(schema, timeout, connections, prepared_statements, records.mode)
        database = _Database(conninfo, options, on_loop=True)
        self._shown: Final = f"AsyncPostgresStore({database.shown!r}, schema={schema!r})"
        super().__init__(database, _Dialect(), records)

    def __repr__(self) -> str:
        return self._shown


class PostgresStore(PlainSqlStore):
    """Conversations in a PostgreSQL database, for many machines at once (extra `postgres`).

    `conninfo` is a connection string of libpq: postgresql://user@host/database, or host=… dbname=…. The tables lie in
    a schema of their own and are made at the first use. `timeout` is how long to wait, in
    seconds, for a connection, a lock or an answer; `connections` is how many may be open at once. With `sealing`, all
    that is kept is sealed, also what lists show; a sealed store cannot be searched.
    `prepared_statements=False` is for poolers that cannot have them.
    """

    def __init__(
        self,
        conninfo: str = "",
        *,
        schema: str = "dragoman",
        sealing: Sealing | None = None,
        timeout: float = 30.0,
        connections: int = 8,
        prepared_statements: bool = True,
    ) -> None:
        records = Records("postgres", sealing)
        options = _Options(schema, timeout, connections, prepared_statements, records.mode)
        database = _Database(conninfo, options, on_loop=False)
        self._shown: Final = f"PostgresStore({database.shown!r}, schema={schema!r})"
        super().__init__(SqlStore(database, _Dialect(), records))

    def __repr__(self) -> str:
        return self._shown


class _Options(NamedTuple):
    schema: str
    timeout: float
    connections: int
    prepared_statements: bool
    mode: Mode


_SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)


def _check(options: _Options) -> None:
    name = options.schema
    if not isinstance(name, str) or _SCHEMA_NAME.fullmatch(name) is None:  # pyright: ignore[reportUnnecessaryIsInstance]
        message = "The name of a schema begins with a small letter and has small letters, digits and _ only."
        raise ConfigurationError(message, hint="Give a name such as schema='dragoman'.")
    if not 0 < options.timeout < 1e6 or options.connections < 1:
        message = "A store needs a timeout of some seconds and at least one connection."
        raise ConfigurationError(message)


# --- what PostgreSQL says in its own way -----------------------------------------------------------------------------

SCHEMA_VERSION: Final = 1

_WORDS: Final = (
    "CREATE TABLE {s}words (root text NOT NULL, text bytea NOT NULL, grams int4[] NOT NULL)",
    "CREATE INDEX words_by_root ON {s}words (root)",
    "CREATE INDEX words_by_gram ON {s}words USING gin (grams)",
)


class _Dialect:
    """Texts are kept as bytes: PostgreSQL's own text cannot hold a NUL, and its idea of case depends on the locale."""

    lock_chains: str | None = "LOCK TABLE {s}chain IN EXCLUSIVE MODE"

    async def add_words(self, session: Session, root: str, texts: Sequence[str]) -> None:
        rows = [(root, text.encode(), _grams_of_text(text)) for text in texts]
        await session.execute_many("INSERT INTO {s}words (root, text, grams) VALUES (?, ?, ?::int4[])", rows)

    async def remove_words(self, session: Session, root: str) -> None:
        await session.execute("DELETE FROM {s}words WHERE root = ?", root)

    async def find_words(self, session: Session, words: Sequence[str]) -> tuple[str, Sequence[object]]:
        tests = ["w.grams @> ?::int4[]", *["position(? IN w.text) > 0"] * len(words)]
        return " AND ".join(tests), [_grams_of_words(words), *[word.encode("utf-8", "surrogatepass") for word in words]]


# A gram is a run of one, two or three characters within a word; its number is a checksum. A text that contains a word
# has all of the word's grams, so an index over the numbers (GIN, which every server has) leads to the few texts that
# are worth reading. The extension pg_trgm does the same, but is not everywhere, and leaves out words of one or two
# characters, which are most words of some languages.


def _grams_of_text(text: str) -> list[int]:
    """The grams of all words of a text."""
    found: set[str] = set()
    for word in set(text.split()):
        found.update(word)
        found.update(map("".join, pairwise(word)))
        found.update(map("".join, zip(word, word[1:], word[2:], strict=False)))
    return _numbers(found)


def _grams_of_words(words: Iterable[str]) -> list[int]:
    """The grams that a text with these words must have: the longest ones, which say the most."""
    found: set[str] = set()
    for word in words:
        size = min(len(word), 3)
        found.update(word[start : start + size] for start in range(len(word) - size + 1))
    return _numbers(found)


def _numbers(grams: Iterable[str]) -> list[int]:
    # As signed numbers of 32 bits, which is what the column holds.
    return sorted({zlib.crc32(gram.encode("utf-8", "surrogatepass")) - 0x8000_0000 for gram in grams})


async def _make_tables(session: Session, options: _Options) -> None:
    """Make the tables. Many programs may do so at once: one does it, the others wait and see it done."""
    if await _has_tables(session, options.schema):
        return
    # Advisory locks of a database are shared by all of its programs, so the number should be nobody else's.
    number = zlib.crc32(options.schema.encode()) | 0x64_72_67_6D << 32
    await session.fetch("SELECT pg_advisory_xact_lock(?)", number)
    if await _has_tables(session, options.schema):  # another program was first
        return
    # Asking first, since `IF NOT EXISTS` needs the right to create schemas even where there is nothing to do.
    if not await session.fetch("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = ?", options.schema):
        await session.execute(f'CREATE SCHEMA "{options.schema}"')
    for statement in (*TABLES, *_WORDS):
        await session.execute(statement)
    await session.execute("INSERT INTO {s}setting VALUES ('mode', ?)", options.mode)
    await session.execute("INSERT INTO {s}setting VALUES ('version', ?)", str(SCHEMA_VERSION))


# Not `to_regclass`, which remembers within a transaction that there was no such table.
_HAS_TABLES: Final = (
    "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = ? AND c.relname = 'setting'"
)


async def _has_tables(session: Session, schema: str) -> bool:
    if not await session.fetch(_HAS_TABLES, schema):
        return False
    rows = await session.fetch("SELECT value FROM {s}setting WHERE name = 'version'")
    version = rows[0][0] if rows else None
    if version != str(SCHEMA_VERSION):
        message = f"The tables in schema {schema} are of version {version}, and this dragoman knows {SCHEMA_VERSION}."
        raise StoreError(message, hint="If they are newer, upgrade dragoman: pip install --upgrade dragoman.")
    return True


# --- connections -----------------------------------------------------------------------------------------------------

_MAX_IDLE: Final = 300.0
"""Seconds after which an idle connection is not trusted any more: firewalls forget them without a word."""
_PAUSE: Final = 0.005
"""Seconds between two looks whether a connection is free."""


async def _block(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - of plain programs


class _Database:
    """Carries out work on the server at this address, on an event loop or, stepped, in a plain program."""

    def __init__(self, conninfo: str, options: _Options, *, on_loop: bool) -> None:
        _check(options)
        try:
            from . import postgres_driver as driver
        except ImportError as error:
            message = "A store in PostgreSQL needs the package `psycopg`."
            raise ConfigurationError(message, hint="Install it: pip install 'dragoman[postgres]'.") from error
        self._driver: Final = driver
        self._address: Final = driver.parse_address(conninfo, options.timeout, prepared=options.prepared_statements)
        self.shown: Final = self._address.shown
        self._options: Final = options
        self._on_loop: Final = on_loop
        self._sleep: Final[Callable[[float], Awaitable[None]]] = asyncio.sleep if on_loop else _block
        self._has_tables: bool = False
        self._closed: bool = False
        self._start_anew()
        _databases.add(self)

    async def read(self, work: Callable[[Session], Awaitable[_T]]) -> _T:
        return await self._run(work, writing=False, repeatable=True)

    async def write(self, work: Callable[[Session], Awaitable[_T]], *, repeatable: bool = True) -> _T:
        return await self._run(work, writing=True, repeatable=repeatable)

    def close(self) -> None:
        """Close the connections that nobody uses; the others follow when they are given back."""
        self._closed = True
        self._drop_idle()

    async def _run(self, work: Callable[[Session], Awaitable[_T]], *, writing: bool, repeatable: bool) -> _T:
        if not self._has_tables:  # several threads may make them at once: the server lets them in one after the other
            await self._repeat(lambda session: _make_tables(session, self._options), writing=True, repeatable=True)
            self._has_tables = True
        return await self._repeat(work, writing=writing, repeatable=repeatable)

    async def _repeat(self, work: Callable[[Session], Awaitable[_T]], *, writing: bool, repeatable: bool) -> _T:
        """Carry the work out; again where that is safe and may help."""
        retries = Retries(repeatable=repeatable, hide=self._address.password)
        while True:
            attempt = Attempt()
            try:
                return await self._try(work, attempt, writing=writing)
            except self._driver.ERRORS as error:
                attempt.silent = self._driver.is_silent(error)
                seconds = retries.pause(error, attempt)
            if attempt.lost:
                self._drop_idle()  # what broke one has broken the others, too
            await self._sleep(seconds)

    async def _try(self, work: Callable[[Session], Awaitable[_T]], attempt: Attempt, *, writing: bool) -> _T:
        if self._closed:
            raise closed_store()
        users, user = self._users, object()
        try:
            await self._wait_for_place(user)
            link = await self._take()
            try:
                attempt.stage = "working"
                if not writing:
                    return await work(link)
                await link.begin()
                result = await work(link)
                attempt.stage = "committing"
                await link.commit()
                return result
            except Exception:
                attempt.lost = link.is_lost
                with suppress(*self._driver.ERRORS):
                    if not attempt.lost:
                        await link.rollback()
                raise
            finally:
                self._give_back(link)
        finally:
            users.discard(user)

    async def _wait_for_place(self, user: object) -> None:
        deadline = time.monotonic() + self._options.timeout
        while True:
            with self._lock:
                if len(self._users) < self._options.connections:
                    self._users.add(user)
                    return
            if time.monotonic() >= deadline:
                used = f"All {self._options.connections} connections of the store were in use"
                hint = "Use fewer threads or tasks at once, or open it with connections=…."
                raise StoreUnavailableError(f"{used} for {self._options.timeout:g} seconds.", hint=hint)
            await self._sleep(_PAUSE)

    async def _take(self) -> Link:
        while self._idle:
            try:
                link, since = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if link.is_usable and time.monotonic() - since < _MAX_IDLE:
                return link
            link.finish()
        options = self._options
        return await self._driver.Link.connect(self._address, options.schema, options.timeout, on_loop=self._on_loop)

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


class Attempt:
    """How far one try came."""

    def __init__(self, stage: Literal["connecting", "working", "committing"] = "connecting") -> None:
        self.stage: Literal["connecting", "working", "committing"] = stage
        self.lost: bool = True
        """Whether the connection is gone."""
        self.silent: bool = False
        """Whether it is gone because the server did not answer for too long."""


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
_MOST_AGAIN: Final = 10
_MOST_LOST: Final = 3
_FIRST_PAUSE: Final = 0.01
_LONGEST_TEXT: Final = 300


class Retries:
    """How often one piece of work has been tried, and whether to try again."""

    def __init__(self, *, repeatable: bool, hide: str, random: Callable[[], float] = chance) -> None:
        self._repeatable: bool = repeatable
        self._hide: str = hide
        self._random: Callable[[], float] = random
        self._again: int = 0
        self._lost: int = 0

    def pause(self, error: Exception, attempt: Attempt) -> float:
        """How many seconds to wait before the next try. Raises the typed error where there should be none."""
        if _code(error) in _AGAIN and self._again < _MOST_AGAIN:
            self._again += 1
            return _FIRST_PAUSE * 2**self._again * self._random()
        unsure = attempt.lost and attempt.stage == "committing" and not self._repeatable
        if attempt.lost and not (unsure or attempt.silent or attempt.stage == "connecting") and self._lost < _MOST_LOST:
            self._lost += 1
            return 0.0
        raise self._typed(error, attempt, _UNKNOWN if unsure else None) from error

    def _typed(self, error: Exception, attempt: Attempt, problem: _Problem | None) -> DragomanError:
        code = _code(error)
        if problem is None:
            usual = _UNREACHABLE if attempt.stage == "connecting" else _LOST if attempt.lost else _OTHER
            problem = _PROBLEMS.get(code) or _PROBLEMS.get(code[:2]) or usual
        # The server's one line, where there is one: the rest quotes statements and values.
        text = " ".join(str(getattr(getattr(error, "diag", None), "message_primary", None) or error).split())
        if self._hide:
            text = text.replace(self._hide, "…")
        reason = f" ({text[:_LONGEST_TEXT].rstrip('.')})" if text else ""
        return problem.kind(f"{problem.what}{reason}.", hint=problem.hint)


def _code(error: Exception) -> str:
    return str(getattr(error, "sqlstate", None) or "")
