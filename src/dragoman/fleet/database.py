"""The fleet's side of PostgreSQL: connections, transactions, notices, and the tables.

Owns: psycopg and PgQueuer in this room. Must not know: what a turn is.

All that is asked of the database is `async def` over a connection that blocks and never suspends, so that it can be
stepped, PgQueuer's own statements included. A plain program does so; on an event loop a whole transaction is stepped in
a worker thread. With psycopg's async connections, which are used for listening alone, four workers on a busy machine
carried out half as many turns (one run each).

Notices (NOTIFY) name what has changed and say nothing else: whoever hears one looks. One that gets lost costs a few
seconds, since everybody also looks without having heard anything. On an event loop all who wait share one connection.
"""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeVar, Unpack, cast
from uuid import UUID

from dragoman._stepping import step
from dragoman._stop import sleep
from dragoman.errors import ConfigurationError, DragomanError, FleetError, StoreUnavailableError
from dragoman.stores import AsyncStore, Attempt, BlockingStore, PostgresOptions, PostgresStore, Records

try:
    import psycopg
    from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder, QuerySchedulerBuilder
    from pgqueuer.domain.settings import DBSettings
    from pgqueuer.models import Job
    from pgqueuer.ports.repository import EntrypointExecutionParameter
    from pgqueuer.queries import Queries
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.rows import dict_row
    from psycopg.types.json import Jsonb

    from dragoman.stores import parse_address  # which needs psycopg, too
except ImportError as error:
    message = f"A fleet needs the packages `pgqueuer` and `psycopg` ({error})."
    raise ConfigurationError(message, hint="Install them: pip install 'dragoman[fleet]'.") from error

_T = TypeVar("_T")
Row: TypeAlias = dict[str, Any]
Work: TypeAlias = "Callable[[Connection], Awaitable[_T]]"

_TRIES: Final = 3
_LOOK: Final = 5.0
"""Seconds after which those who wait look without having heard anything."""
_PATIENCE: Final = 60.0
"""Seconds for which a database that cannot be reached is waited for."""
_PAUSE: Final = 0.2
_DEFAULTS: Final = {"connect_timeout": "10", "application_name": "dragoman-fleet"}
_KEEPALIVES: Final = {"tcp_keepalives_idle": 15, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 3}
"""With which the server notices that a machine is gone, and gives back what its connections held."""

_PGQUEUER: Final = {
    "prefix": "",
    "queue_table": "pgqueuer",
    "queue_table_log": "pgqueuer_log",
    "queue_status_type": "pgqueuer_status",
    "statistics_table": "pgqueuer_statistics",
    "schedules_table": "pgqueuer_schedules",
    "function": "fn_pgqueuer_changed",
    "trigger": "tg_pgqueuer_changed",
    "durability": "balanced",
}
"""What PgQueuer calls its things. `balanced`: what it logs may get lost when the server crashes, the queue does not."""

# --- connections -----------------------------------------------------------------------------------------------------


class Connection:
    """A connection that blocks and never suspends, for code that is stepped. PgQueuer takes it for its driver."""

    def __init__(self, conninfo: str) -> None:
        self._connection: Final = psycopg.Connection[Any].connect(conninfo, autocommit=True)

    @property
    def is_lost(self) -> bool:
        """Whether it is of no use any more."""
        return self._connection.closed

    async def fetch(self, query: str, *values: object) -> list[Row]:
        """The rows that a statement gives; its values are called $1, $2, …."""
        cursor = psycopg.RawCursor(self._connection, row_factory=dict_row)
        cursor.execute(query.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    async def execute(self, query: str, *values: object) -> str:
        """Carry a statement out; what the server says to it."""
        return psycopg.RawCursor(self._connection).execute(query.encode(), values or None).statusmessage or ""

    def notices(self, seconds: float) -> Collection[str]:
        """What is said next, at most so many seconds from now."""
        return [notice.payload for notice in self._connection.notifies(timeout=seconds, stop_after=1)]

    def close(self) -> None:
        """Close it."""
        self._connection.close()


def complete_address(conninfo: str, pause: float = 30.0) -> str:
    """The connection string with what a fleet needs: nobody who is frozen or gone keeps others out for long.

    `pause` is how many seconds may pass within a transaction between two statements.
    """
    parse_address(conninfo)  # raises what is wrong with it
    given = {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value is not None}
    of_server = {**_KEEPALIVES, "idle_in_transaction_session_timeout": round(1000 * pause)}
    given["options"] = " ".join(
        [*[f"-c {name}={value}" for name, value in of_server.items()], given.get("options", "")]
    )
    return make_conninfo("", **{**_DEFAULTS, **given})


# --- the database ----------------------------------------------------------------------------------------------------


class Database:
    """Carries out work in transactions, and tells of changes."""

    def __init__(self, conninfo: str, *, on_loop: bool, **options: Unpack[PostgresOptions]) -> None:
        most = options.get("connections", 8)
        store = PostgresStore(conninfo, **options)  # checks what was given; connects to nothing
        self.store: Final = AsyncStore(store, threads=most) if on_loop else BlockingStore(store)
        """The conversations, which lie in the same database."""
        self._password: Final = parse_address(conninfo).password
        self.conninfo: Final = conninfo
        self.schema: Final = options.get("schema", "dragoman")
        self.records: Final = Records("fleet", options.get("sealing"))
        self._timeout: Final = options.get("timeout", 30.0)
        self._sleep: Final[Callable[[float], Awaitable[None]]] = asyncio.sleep if on_loop else _sleep
        self._threads: Final = ThreadPoolExecutor(most, thread_name_prefix="dragoman-fleet") if on_loop else None
        self._is_closed: bool = False
        self._idle: deque[Connection] = deque()
        self._process: int = os.getpid()
        self._hub: Final[_Hub | None] = _Hub(self) if on_loop else None
        settings = cast("Any", DBSettings)  # all of them are said here: what is not would come from the environment
        names = settings(db_schema=self.schema, channel=f"{self.schema}_queue", **_PGQUEUER)
        builders = (QueryBuilderEnvironment(names), QueryQueueBuilder(names), QuerySchedulerBuilder(names))
        self.queue: Final[Callable[[Connection], Queries]] = lambda link: Queries(cast("Any", link), *builders)
        """PgQueuer's statements over a connection."""

    def named(self, query: str) -> str:
        """The statement with the schema in the place of `{s}`."""
        return query.replace("{s}", f'"{self.schema}".')

    async def run(self, work: Work[_T], *, atomic: bool = True) -> _T:
        """What the work gives, in one transaction. It is done again where a connection broke, so it must bear that."""
        if self._threads is None:
            return await self._run(work, atomic=atomic)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: step(self._run(work, atomic=atomic)))

    async def _run(self, work: Work[_T], *, atomic: bool) -> _T:
        for last in [False] * (_TRIES - 1) + [True]:
            attempt, link = Attempt(repeatable=True), None
            try:
                link = await self._take()
                attempt.stage = "working"
                if atomic:
                    await link.execute("BEGIN")
                result = await work(link)
                if atomic:
                    attempt.stage = "committing"
                    await link.execute("COMMIT")
                if not self._is_closed:
                    self._idle.append(link)
                    link = None
                return result
            except (psycopg.Error, OSError) as error:
                attempt.lost = link is None or link.is_lost
                if last or not attempt.may_be_repeated(error):
                    raise self._describe(attempt, error) from error
                self._drop_idle()  # what broke one has broken the others, too
            finally:
                if link is not None:
                    link.close()
        raise AssertionError

    async def take_jobs(
        self, link: Connection, owner: UUID, limits: Mapping[str, int], most: int, lease: timedelta
    ) -> list[Job]:
        """Jobs of these entry points that wait or whose lease is over, for this owner. A limit of 0 is none."""
        return await self.queue(link).dequeue(
            batch_size=most,
            entrypoints=cast("Any", {name: EntrypointExecutionParameter(limit) for name, limit in limits.items()}),
            queue_manager_id=cast("Any", owner),
            global_concurrency_limit=None,
            heartbeat_timeout=lease,
        )

    async def fetch(self, query: str, *values: object) -> list[Row]:
        """The rows that one statement gives."""
        return await self.run(lambda link: link.fetch(self.named(query), *values), atomic=False)

    def _describe(self, attempt: Attempt, error: Exception) -> DragomanError:
        if isinstance(error, DragomanError):
            return error
        if str(getattr(error, "sqlstate", "")) in ("42P01", "3F000"):
            message = f"Schema {self.schema} of the database has no tables of a fleet."
            hint = "Make them once: Fleet(url).install(), or `dragoman fleet install`; a worker does so, too."
            return FleetError(message, hint=hint)
        return attempt.typed(error, hide=self._password)

    async def _connect(self) -> Connection:
        link = Connection(self.conninfo)
        # As for the store: functions and operators are the server's own, whatever else lies in the database.
        settings = {"search_path": "pg_catalog, pg_temp", "statement_timeout": str(round(self._timeout * 1000))}
        try:
            await link.fetch("SELECT set_config(key, value, false) FROM jsonb_each_text($1)", Jsonb(settings))
        except BaseException:
            link.close()
            raise
        return link

    async def _take(self) -> Connection:
        if self._process != os.getpid():  # the connections are the parent's
            self._process, self._idle = os.getpid(), deque()
        while self._idle:
            with suppress(IndexError):  # another thread was faster
                return self._idle.pop()
        return await self._connect()

    def _drop_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        if self._hub is not None:
            await self._hub.close()
        if self._threads is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        self._drop_idle()
        await self.store.aclose()

    # --- notices ---

    @property
    def steps(self) -> str:
        """The channel on which the ids of turns and conversations are said when something about them has changed."""
        return f"{self.schema}_steps"

    @property
    def cancels(self) -> str:
        """The channel on which workers hear of turns that are to be cancelled."""
        return f"{self.schema}_cancel"

    async def follow(
        self, ids: Collection[str], look: Callable[[], Awaitable[_T]], seconds: float | None = None
    ) -> AsyncGenerator[_T, None]:
        """What `look` finds now, and whenever one of these may have changed, until the time is up."""
        deadline = None if seconds is None else time.monotonic() + seconds
        reached = time.monotonic()
        event = None if self._hub is None else self._hub.subscribe(ids)
        link: Connection | None = None
        try:
            while True:
                is_over = deadline is not None and time.monotonic() >= deadline
                try:
                    if event is None and link is None:
                        link = await self._connect()
                        await link.execute(f'LISTEN "{self.steps}"')
                    found = await look()
                    reached = time.monotonic()
                    yield found
                    until = time.monotonic() + _LOOK if deadline is None else min(deadline, time.monotonic() + _LOOK)
                    if event is not None:
                        with suppress(TimeoutError):
                            await asyncio.wait_for(event.wait(), until - time.monotonic())
                        event.clear()
                    while link is not None and (left := until - time.monotonic()) > 0:
                        if not set(ids).isdisjoint(link.notices(left)):
                            break
                except (psycopg.Error, OSError, StoreUnavailableError) as error:
                    if time.monotonic() - reached > _PATIENCE:
                        raise self._describe(Attempt(repeatable=True), error) from error
                    if link is not None:
                        link.close()
                    link = None
                    await self._sleep(_PAUSE)
                if is_over:
                    return
        finally:
            if self._hub is not None and event is not None:
                self._hub.unsubscribe(ids, event)
            if link is not None:
                link.close()

    # --- the tables ---

    async def install(self) -> None:
        """Make the tables of the store, of the fleet and of PgQueuer, or bring PgQueuer's up to its version."""
        await self.store.list(limit=1)  # makes the tables of the store, or finds them
        made = await self.run(self._make_tables)
        if not made:
            await self.run(lambda link: self.queue(link).upgrade(), atomic=False)

    async def _make_tables(self, link: Connection) -> bool:
        number = zlib.crc32(f"fleet {self.schema}".encode()) | 0x64_72_67_6D << 32
        await link.fetch("SELECT pg_advisory_xact_lock($1)", number)
        if await self.has_tables(link):
            return False
        for statement in _TABLES:
            await link.execute(self.named(statement))
        await self.queue(link).install(create_schema=False)
        return True

    async def has_tables(self, link: Connection) -> bool:
        """Whether the tables of the fleet are there."""
        found = await link.fetch(
            "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = $1 AND c.relname = 'fleet_turn'",
            self.schema,
        )
        return bool(found)


async def _sleep(seconds: float) -> None:
    sleep(seconds)


class _Hub:
    """One connection that listens for all who wait on an event loop."""

    def __init__(self, database: Database) -> None:
        self._database: Final = database
        self._waiting: Final[defaultdict[str, set[asyncio.Event]]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, ids: Collection[str]) -> asyncio.Event:
        """What is set when one of these has changed."""
        event = asyncio.Event()
        for id in ids:
            self._waiting[id].add(event)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(listen(self._database, [self._database.steps], self._hear))
        return event

    def unsubscribe(self, ids: Collection[str], event: asyncio.Event) -> None:
        for id in ids:
            self._waiting[id].discard(event)
            if not self._waiting[id]:
                del self._waiting[id]

    def _hear(self, id: str | None) -> None:
        events = self._waiting.get(id, ()) if id is not None else set[asyncio.Event]().union(*self._waiting.values())
        for event in events:
            event.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task


async def listen(database: Database, channels: Sequence[str], hear: Callable[[str | None], None]) -> None:
    """Tell `hear` what is said on these channels, for ever; None: something may have been missed."""
    while True:
        with suppress(psycopg.Error, OSError):
            async with await psycopg.AsyncConnection[Any].connect(database.conninfo, autocommit=True) as link:
                for channel in channels:
                    await link.execute(f'LISTEN "{channel}"'.encode())
                hear(None)
                async for notice in link.notifies():
                    hear(notice.payload)
        await asyncio.sleep(_PAUSE)


_TABLES: Final = (
    """CREATE TABLE {s}fleet_turn (
        number bigint GENERATED ALWAYS AS IDENTITY,
        id text PRIMARY KEY,
        conversation text NOT NULL,
        agent text NOT NULL,
        provider text NOT NULL,
        existed boolean NOT NULL,
        ask bytea NOT NULL,
        state text NOT NULL DEFAULT 'queued',
        cancel boolean NOT NULL DEFAULT false,
        attempts integer NOT NULL DEFAULT 0,
        handed integer NOT NULL DEFAULT 0,
        outcome bytea,
        submitted timestamptz NOT NULL DEFAULT now(),
        began timestamptz,
        ended timestamptz
    )""",
    "CREATE INDEX fleet_turn_by_conversation ON {s}fleet_turn (conversation, number)",
    "CREATE INDEX fleet_turn_unfinished ON {s}fleet_turn (agent) WHERE state IN ('queued', 'running')",
    "CREATE INDEX fleet_turn_by_end ON {s}fleet_turn (ended) WHERE ended IS NOT NULL",
    "CREATE TABLE {s}fleet_agent (name text PRIMARY KEY, provider text NOT NULL, seen timestamptz NOT NULL)",
    "CREATE TABLE {s}fleet_rate (provider text PRIMARY KEY, next timestamptz NOT NULL)",
)
"""`number` is the order of turns; `existed` says whether the conversation was in the store when the turn was handed in;
`handed` is how many of the attempts ended because a worker was told to stop, which does not count against the turn. In
`state` stands `queued`, `running`, how the turn ended (see turns.py), or `failed`."""
