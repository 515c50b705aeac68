"""psycopg, wrapped.

Owns: the only import of psycopg (extra `postgres`); connection strings, connections that do not wait for ever, and what
is sent around a transaction, for plain programs and for asyncio.
Must not know: what the statements mean, how connections are kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import signature
from typing import Any, Final, NamedTuple, Protocol, cast

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.rows import TupleRow

from dragoman.errors import ConfigurationError

from .sql import Rows

ERRORS: Final = (psycopg.Error, OSError)
"""What goes wrong on the way to the server and there."""

_CAN_STOP_WAITING: Final = "timeout" in signature(psycopg.Connection.wait).parameters  # since psycopg 3.3.6
_STILL_WAITING: Final = cast("type[psycopg.Error]", getattr(errors, "_WaitTimeout", errors.ConnectionTimeout))
_PORTS: Final = re.compile(r"[0-9, ]*", re.ASCII)
_GRACE: Final = 5.0
"""Seconds that the server gets beyond its own time limit to say that it was reached."""


class Address(NamedTuple):
    """Where the database is, and how to get there."""

    parameters: dict[str, Any]
    """For psycopg; with the password, so never printed."""
    password: str
    shown: str
    """For people; without the password."""


def parse_address(conninfo: str, timeout: float, *, prepared: bool) -> Address:
    """Read a connection string. Raises ConfigurationError, which never repeats it: it may hold a password."""
    if not isinstance(conninfo, str) or "\0" in conninfo:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _unreadable()
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value is not None}
    except (psycopg.Error, ValueError):
        raise _unreadable() from None
    # Parts of a password that was not percent-encoded end up in other fields, which errors of the server do repeat.
    head, _, tail = conninfo.partition("://")[2].partition("/")
    if head.count("@") > 1 or "@" in tail.partition("?")[0] or not _PORTS.fullmatch(given.get("port", "")):
        raise _unreadable()
    password = given.get("password", "")
    parameters: dict[str, Any] = {
        "connect_timeout": str(max(2, round(timeout))),
        "fallback_application_name": "dragoman",
        **given,
        "autocommit": True,  # BEGIN and COMMIT are ours
        "client_encoding": "UTF8",
    }
    if not prepared:
        parameters["prepare_threshold"] = None
    shown = " ".join(f"{name}={given[name]}" for name in ("host", "port", "dbname", "user") if name in given)
    return Address(parameters, password, shown)


def _unreadable() -> ConfigurationError:
    message = "The connection string cannot be read."
    hint = "Write it as postgresql://user@host/database or host=… dbname=…; in a URL, percent-encode the password."
    return ConfigurationError(message, hint=hint)


class _Connection(psycopg.Connection[TupleRow]):
    """A connection that gives up when the server says nothing for too long."""

    patience: float | None = None
    # Tells psycopg that it is kept open on purpose, so that the end of a program is no reason for a warning.
    _pool = None

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        try:
            return super().wait(gen, *args, **_bounded(self.patience, options))
        except _STILL_WAITING:
            raise _silent(self) from None


class _AsyncConnection(psycopg.AsyncConnection[TupleRow]):
    """The same for asyncio. It may be used on one event loop after another."""

    patience: float | None = None
    _pool = None

    async def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        try:
            return await super().wait(gen, *args, **_bounded(self.patience, options))
        except _STILL_WAITING:
            raise _silent(self) from None


def _bounded(patience: float | None, options: dict[str, Any]) -> dict[str, Any]:
    if _CAN_STOP_WAITING and patience is not None and options.get("timeout") is None:
        return {**options, "timeout": patience + _GRACE}
    return options


def _silent(connection: _Connection | _AsyncConnection) -> errors.ConnectionTimeout:
    connection.pgconn.finish()  # whatever it may still say is not for the next one to hear
    return errors.ConnectionTimeout(f"the server has not answered for {connection.patience} seconds")


# --- links: the same methods in both colours -------------------------------------------------------------------------


class Link(Protocol):
    """A connection to the server, as a Session and with transactions."""

    async def fetch(self, sql: str, *values: object) -> Rows: ...
    async def execute(self, sql: str, *values: object) -> int: ...
    async def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None: ...
    async def begin(self) -> None:
        """Begin a writing transaction."""
        ...

    async def commit(self) -> None:
        """End the transaction; an error unless the server says that it is committed."""
        ...

    async def rollback(self) -> None: ...
    def finish(self) -> None:
        """Close the connection at once."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether the connection is of no use any more."""
        ...

    @property
    def is_usable(self) -> bool:
        """Whether the next one may have this connection."""
        ...


class _Link:
    """What does not depend on the colour."""

    def __init__(self, pgconn: PGconn, schema: str, timeout: float) -> None:
        self._pgconn: Final = pgconn
        self._schema: Final = f'"{schema}".'
        # The time limits are set here and not for the session, which a pooler in between may give to somebody else.
        # A server that confirms commits before they are on the disk is asked not to, this once.
        milliseconds = max(1, round(timeout * 1000))
        self._begin: Final = (
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
            f"SET LOCAL statement_timeout = {milliseconds}; SET LOCAL lock_timeout = {milliseconds}; "
            "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
        ).encode()

    def _rendered(self, sql: str) -> bytes:
        for mark, text in (("{s}", self._schema), ("{lock}", " FOR UPDATE OF c"), ("{blob}", "bytea"), ("?", "%s")):
            sql = sql.replace(mark, text)
        return sql.encode()

    def finish(self) -> None:
        self._pgconn.finish()

    @property
    def is_lost(self) -> bool:
        return self._pgconn.status == ConnStatus.BAD or self._pgconn.transaction_status in {
            TransactionStatus.ACTIVE,
            TransactionStatus.UNKNOWN,
        }

    @property
    def is_usable(self) -> bool:
        return self._pgconn.status == ConnStatus.OK and self._pgconn.transaction_status == TransactionStatus.IDLE


def _check_committed(status: str | None) -> None:
    if status != "COMMIT":
        message = f"the server answered {status} to COMMIT"
        raise errors.TransactionRollback(message)


class PlainLink(_Link):
    """For plain programs: its methods block and never suspend."""

    def __init__(self, connection: _Connection, schema: str, timeout: float) -> None:
        super().__init__(connection.pgconn, schema, timeout)
        self._connection: Final = connection

    @classmethod
    async def connect(cls, address: Address, schema: str, patience: float) -> PlainLink:
        connection = _Connection.connect(**address.parameters)
        connection.patience = patience
        return cls(connection, schema, patience)

    async def fetch(self, sql: str, *values: object) -> Rows:
        with self._connection.cursor(binary=bool(values)) as cursor:
            cursor.execute(self._rendered(sql), values or None, prepare=None if values else False)
            return cursor.fetchall()

    async def execute(self, sql: str, *values: object) -> int:
        with self._connection.cursor(binary=bool(values)) as cursor:
            cursor.execute(self._rendered(sql), values or None, prepare=None if values else False)
            return cursor.rowcount

    async def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        with self._connection.cursor(binary=True) as cursor:
            cursor.executemany(self._rendered(sql), rows)

    async def begin(self) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(self._begin, prepare=False)

    async def commit(self) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute("COMMIT", prepare=False)
            _check_committed(cursor.statusmessage)

    async def rollback(self) -> None:
        self._connection.rollback()


class AsyncLink(_Link):
    """For asyncio."""

    def __init__(self, connection: _AsyncConnection, schema: str, timeout: float) -> None:
        super().__init__(connection.pgconn, schema, timeout)
        self._connection: Final = connection

    @classmethod
    async def connect(cls, address: Address, schema: str, patience: float) -> AsyncLink:
        connection = await _AsyncConnection.connect(**address.parameters)
        connection.patience = patience
        return cls(connection, schema, patience)

    async def fetch(self, sql: str, *values: object) -> Rows:
        async with self._connection.cursor(binary=bool(values)) as cursor:
            await cursor.execute(self._rendered(sql), values or None, prepare=None if values else False)
            return await cursor.fetchall()

    async def execute(self, sql: str, *values: object) -> int:
        async with self._connection.cursor(binary=bool(values)) as cursor:
            await cursor.execute(self._rendered(sql), values or None, prepare=None if values else False)
            return cursor.rowcount

    async def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        async with self._connection.cursor(binary=True) as cursor:
            await cursor.executemany(self._rendered(sql), rows)

    async def begin(self) -> None:
        async with self._connection.cursor() as cursor:
            await cursor.execute(self._begin, prepare=False)

    async def commit(self) -> None:
        async with self._connection.cursor() as cursor:
            await cursor.execute("COMMIT", prepare=False)
            _check_committed(cursor.statusmessage)

    async def rollback(self) -> None:
        await self._connection.rollback()


def is_silent(error: Exception) -> bool:
    """Whether the server was waited for in vain; to wait once more is for the caller to decide."""
    return isinstance(error, errors.ConnectionTimeout)
