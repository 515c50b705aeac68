"""The fleet's side of PostgreSQL: transactions, notices, and the tables.

Owns: PgQueuer and notices in this room. Must not know: what a turn is.

Transactions run on the connections of the store, which lies in the same database. All that is asked there is
`async def` over a connection that blocks and never suspends, so that it can be stepped, PgQueuer's own statements
included. A plain program does so; on an event loop a whole transaction is stepped in a thread of the store. With
psycopg's async connections, which are used for listening alone, four workers on a busy machine carried out half as many
turns (one run each).

Notices (NOTIFY) name what has changed and say nothing else: whoever hears one looks. One that gets lost costs a few
seconds, since everybody also looks without having heard anything. On an event loop all who wait share one connection.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, Unpack, cast
from uuid import UUID

from dragoman._stepping import step
from dragoman._stop import sleep
from dragoman.errors import ConfigurationError, FleetError, StoreUnavailableError
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

    from dragoman.stores import parse_address  # which needs psycopg, too
except ImportError as error:
    message = f"A fleet needs the packages `pgqueuer` and `psycopg` ({error})."
    raise ConfigurationError(message, hint="Install them: pip install 'dragoman[fleet]'.") from error

if TYPE_CHECKING:
    from dragoman.stores import Link

_T = TypeVar("_T")
Row: TypeAlias = dict[str, Any]
Work: TypeAlias = "Callable[[Connection], Coroutine[Any, Any, _T]]"

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

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection: Final = connection

    async def fetch(self, query: str, *values: object) -> list[Row]:
        """The rows that a statement gives; its values are called $1, $2, …."""
        cursor = psycopg.RawCursor(self._connection, row_factory=dict_row)
        cursor.execute(query.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    async def execute(self, query: str, *values: object) -> str:
        """Carry a statement out; what the server says to it."""
        return psycopg.RawCursor(self._connection).execute(query.encode(), values or None).statusmessage or ""


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
        def open_store(store: PostgresStore) -> BlockingStore:
            return AsyncStore(store, threads=options.get("connections", 8)) if on_loop else BlockingStore(store)

        self.store: Final = open_store(PostgresStore(conninfo, **options))
        """The conversations, which lie in the same database."""
        # Connections of the fleet's own: turns that wait for the store must not keep their own heartbeats waiting.
        self._plain: Final = PostgresStore(conninfo, **options)
        self._own: Final = open_store(self._plain)
        self._password: Final = parse_address(conninfo).password
        self.conninfo: Final = conninfo
        self.schema: Final = options.get("schema", "dragoman")
        self.records: Final = Records("fleet", options.get("sealing"))
        self._sleep: Final[Callable[[float], Coroutine[Any, Any, None]]] = asyncio.sleep if on_loop else _sleep
        self._hub: Final[_Hub | None] = _Hub(self) if on_loop else None
        settings = cast("Any", DBSettings)  # all of them are said here: what is not would come from the environment
        names = settings(db_schema=self.schema, channel=f"{self.schema}_queue", **_PGQUEUER)
        builders = (QueryBuilderEnvironment(names), QueryQueueBuilder(names), QuerySchedulerBuilder(names))
        self.queue: Final[Callable[[Connection], Queries]] = lambda link: Queries(cast("Any", link), *builders)
        """PgQueuer's statements over a connection."""

    def named(self, query: str) -> str:
        """The statement with the schema in the place of `{s}`."""
        return query.replace("{s}", f'"{self.schema}".')

    async def run(self, work: Work[_T]) -> _T:
        """What the work gives, in one transaction. It is done again where a connection broke, so it must bear that."""

        def carry_out(link: Link) -> _T:
            try:
                return step(work(Connection(link.connection)))
            except psycopg.errors.UndefinedTable as error:
                message = f"Schema {self.schema} of the database has no tables of a fleet."
                hint = "Make them once: Fleet(url).install(), or `dragoman fleet install`; a worker does so, too."
                raise FleetError(message, hint=hint) from error

        return await self._own.run(lambda: self._plain.transact(carry_out))

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
        return await self.run(lambda link: link.fetch(self.named(query), *values))

    async def close(self) -> None:
        """Close all connections."""
        if self._hub is not None:
            await self._hub.close()
        await self._own.aclose()
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
        self, ids: Collection[str], look: Callable[[], Coroutine[Any, Any, _T]], seconds: float | None = None
    ) -> AsyncGenerator[_T, None]:
        """What `look` finds now, and whenever one of these may have changed, until the time is up."""
        deadline = None if seconds is None else time.monotonic() + seconds
        reached = time.monotonic()
        event = None if self._hub is None else self._hub.subscribe(ids)
        link: psycopg.Connection[Any] | None = None
        try:
            while True:
                is_over = deadline is not None and time.monotonic() >= deadline
                try:
                    if event is None and link is None:
                        link = psycopg.connect(self.conninfo, autocommit=True)
                        link.execute(f'LISTEN "{self.steps}"'.encode())
                    found = await look()
                    reached = time.monotonic()
                    yield found
                    until = time.monotonic() + _LOOK if deadline is None else min(deadline, time.monotonic() + _LOOK)
                    if event is not None:
                        with suppress(TimeoutError):
                            await asyncio.wait_for(event.wait(), until - time.monotonic())
                        event.clear()
                    while link is not None and (left := until - time.monotonic()) > 0:
                        if any(notice.payload in ids for notice in link.notifies(timeout=left, stop_after=1)):
                            break
                except (psycopg.Error, OSError, StoreUnavailableError) as error:
                    if time.monotonic() - reached > _PATIENCE:
                        if isinstance(error, StoreUnavailableError):
                            raise
                        raise Attempt(repeatable=True).typed(error, hide=self._password) from error
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
        if not await self.run(self._make_tables):
            await self._own.run(self._upgrade)

    def _upgrade(self) -> None:
        with psycopg.connect(self.conninfo, autocommit=True) as link:  # some of it goes in no transaction
            # As for the store: functions and operators are the server's own, whatever else lies in the database.
            link.execute("SET search_path = pg_catalog, pg_temp")
            step(self.queue(Connection(link)).upgrade())

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
