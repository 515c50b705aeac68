"""The fleet's side of PostgreSQL: transactions, notifications, and the tables.

Owns: PgQueuer and notifications in this room. Must not know: what a turn is.

Transactions run on connections of the store's kind, in the same database. Work in them, PgQueuer's statements included,
is `async def` over a blocking connection and never suspends. A sync program steps it; on an event loop a whole
transaction is stepped in a thread. With psycopg's async connections four workers ran half as many turns; they are used
for listening only.

A notification (NOTIFY) names what has changed and carries no data: the listener looks. A lost one costs a few seconds,
because everybody also looks from time to time. On an event loop all waiting tasks share one connection.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, Unpack, cast
from uuid import UUID

from dragoman._stepping import step
from dragoman._stop import sleep
from dragoman.errors import ConfigurationError, FleetError
from dragoman.stores import AsyncStore, BlockingStore, PostgresOptions, PostgresStore, Records

from .carrying import PATIENCE, PAUSE, Sleep, patiently

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
"""Seconds after which a waiting caller looks without a notification."""
_LONGEST_INTERVAL: Final = 1.0
"""Seconds between two looks of a sync program that has waited for long."""
_DEFAULTS: Final = {"connect_timeout": "10", "application_name": "dragoman-fleet"}
_KEEPALIVES: Final = {"tcp_keepalives_idle": 15, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 3}
"""With these the server notices that a machine is gone, and releases the locks of its connections."""

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
"""PgQueuer's names. `balanced`: its log may get lost when the server crashes, the queue does not."""

# --- connections -----------------------------------------------------------------------------------------------------


class Connection:
    """A blocking connection that never suspends, for code that is stepped. PgQueuer uses it as its driver."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection: Final = connection

    async def fetch(self, query: str, *values: object) -> list[Row]:
        """The rows of a statement; its values are named $1, $2, …."""
        cursor = psycopg.RawCursor(self._connection, row_factory=dict_row)
        cursor.execute(query.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    async def execute(self, query: str, *values: object) -> str:
        """Execute a statement; returns the server's status message."""
        return psycopg.RawCursor(self._connection).execute(query.encode(), values or None).statusmessage or ""


def complete_address(conninfo: str, pause: float = 30.0) -> str:
    """The connection string with timeouts, so that a frozen or lost client does not block others for long.

    `pause` is how many seconds may pass between two statements of a transaction.
    """
    parse_address(conninfo)  # raises if it is invalid
    given = {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value is not None}
    of_server = {**_KEEPALIVES, "idle_in_transaction_session_timeout": round(1000 * pause)}
    given["options"] = " ".join(
        [*[f"-c {name}={value}" for name, value in of_server.items()], given.get("options", "")]
    )
    return make_conninfo("", **{**_DEFAULTS, **given})


# --- the database ----------------------------------------------------------------------------------------------------


class Database:
    """Runs work in transactions, and waits for changes."""

    def __init__(self, conninfo: str, *, on_loop: bool, **options: Unpack[PostgresOptions]) -> None:
        def open_store(store: PostgresStore) -> BlockingStore:
            return AsyncStore(store, threads=options.get("connections", 8)) if on_loop else BlockingStore(store)

        self.store: Final = open_store(PostgresStore(conninfo, **options))
        """The conversations, in the same database."""
        # Separate connections: turns that wait for the store must not delay their heartbeats.
        self._plain: Final = PostgresStore(conninfo, **options)
        self._own: Final = open_store(self._plain)
        self.conninfo: Final = conninfo
        self.schema: Final = options.get("schema", "dragoman")
        self.records: Final = Records("fleet", options.get("sealing"))
        self._sleep: Final[Sleep] = asyncio.sleep if on_loop else _sleep
        self._hub: Final[_Hub | None] = _Hub(self) if on_loop else None
        settings = cast("Any", DBSettings)  # all are set here, or they would come from the environment
        names = settings(db_schema=self.schema, channel=f"{self.schema}_queue", **_PGQUEUER)
        builders = (QueryBuilderEnvironment(names), QueryQueueBuilder(names), QuerySchedulerBuilder(names))
        self.queue: Final[Callable[[Connection], Queries]] = lambda link: Queries(cast("Any", link), *builders)
        """PgQueuer's statements over a connection."""

    def named(self, query: str) -> str:
        """The statement with the schema in the place of `{s}`."""
        return query.replace("{s}", f'"{self.schema}".')

    async def run(self, work: Work[_T]) -> _T:
        """The result of the work, in one transaction. It is repeated if the connection breaks."""

        def carry_out(link: Link) -> _T:
            try:
                return step(work(Connection(link)))
            except psycopg.errors.UndefinedTable as error:
                message = f"Schema {self.schema} of the database has no fleet tables."
                hint = "Create them once: Fleet(url).install(), or `dragoman fleet install`; a worker does so, too."
                raise FleetError(message, hint=hint) from error

        return await self._own.run(lambda: self._plain.transact(carry_out))

    async def take_jobs(
        self, link: Connection, owner: UUID, limits: Mapping[str, int], most: int, lease: timedelta
    ) -> list[Job]:
        """Jobs of these entry points that wait or whose lease has expired. A limit of 0 means no limit."""
        return await self.queue(link).dequeue(
            batch_size=most,
            entrypoints=cast("Any", {name: EntrypointExecutionParameter(limit) for name, limit in limits.items()}),
            queue_manager_id=cast("Any", owner),
            global_concurrency_limit=None,
            heartbeat_timeout=lease,
        )

    async def fetch(self, query: str, *values: object) -> list[Row]:
        """The rows of one statement, in a transaction of its own."""
        return await self.run(lambda link: link.fetch(self.named(query), *values))

    async def close(self) -> None:
        """Close all connections."""
        if self._hub is not None:
            await self._hub.close()
        await self._own.aclose()
        await self.store.aclose()

    # --- notifications ---

    @property
    def steps(self) -> str:
        """The channel for ids of turns and conversations that have changed."""
        return f"{self.schema}_steps"

    @property
    def cancels(self) -> str:
        """The channel for ids of turns that are to be cancelled."""
        return f"{self.schema}_cancel"

    async def follow(
        self, ids: Collection[str], look: Callable[[], Coroutine[Any, Any, _T]], seconds: float | None = None
    ) -> AsyncGenerator[_T, None]:
        """The result of `look` now, and whenever one of these may have changed, until the time is up.

        On an event loop a notification is awaited. A sync program looks at growing intervals instead.
        """
        deadline = inf if seconds is None else time.monotonic() + seconds
        event = None if self._hub is None else self._hub.subscribe(ids)
        interval = PAUSE
        try:
            while True:
                left = deadline - time.monotonic()
                yield await patiently(look, self._sleep, min(left, PATIENCE))
                if left <= 0:
                    return
                left = max(0.0, deadline - time.monotonic())
                if event is None:
                    await self._sleep(min(left, interval))
                    interval = min(1.5 * interval, _LONGEST_INTERVAL)
                else:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(event.wait(), min(left, _LOOK))
                    event.clear()
        finally:
            if self._hub is not None and event is not None:
                self._hub.unsubscribe(ids, event)

    # --- the tables ---

    async def install(self) -> None:
        """Create the tables of the store, of the fleet and of PgQueuer, or upgrade PgQueuer's to its version."""
        await self.store.list(limit=1)  # creates the tables of the store if they do not exist
        if not await self.run(self._make_tables):
            await self._own.run(self._upgrade)

    def _upgrade(self) -> None:
        with psycopg.connect(self.conninfo, autocommit=True) as link:  # some statements cannot run in a transaction
            # As for the store: functions and operators are the server's own, whatever else is in the database.
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
        """Whether the tables of the fleet exist."""
        found = await link.fetch(
            "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = $1 AND c.relname = 'fleet_turn'",
            self.schema,
        )
        return bool(found)


async def _sleep(seconds: float) -> None:
    sleep(seconds)


class _Hub:
    """One connection that listens for all waiting tasks on an event loop."""

    def __init__(self, database: Database) -> None:
        self._database: Final = database
        self._waiting: Final[defaultdict[str, set[asyncio.Event]]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, ids: Collection[str]) -> asyncio.Event:
        """An event that is set when one of these has changed."""
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
    """Pass each notification on these channels to `hear`, forever; None: some may have been missed."""
    while True:
        with suppress(psycopg.Error, OSError):
            async with await psycopg.AsyncConnection[Any].connect(database.conninfo, autocommit=True) as link:
                for channel in channels:
                    await link.execute(f'LISTEN "{channel}"'.encode())
                hear(None)
                async for notice in link.notifies():
                    hear(notice.payload)
        await asyncio.sleep(PAUSE)


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
"""`number`: the order of turns. `existed`: the conversation was in the store when the turn was submitted. `handed`: how
many attempts ended because a worker was told to stop. `state`: `queued`, `running`, `failed`, or how the turn ended."""
