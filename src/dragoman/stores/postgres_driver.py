"""psycopg, wrapped.

Owns: the only import of psycopg (extra `postgres`); connection strings, connections that do not wait for ever, and what
is sent around a transaction, for plain programs and for asyncio.
Must not know: what the statements mean, how connections are kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import isawaitable
from typing import Any, Final, NamedTuple, cast

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.rows import TupleRow

from dragoman.errors import ConfigurationError

from .sql_schema import Rows

ERRORS: Final = (psycopg.Error, OSError)
"""What goes wrong on the way to the server and there."""

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
    if patience is not None and options.get("timeout") is None:
        return {**options, "timeout": patience + _GRACE}
    return options


def _silent(connection: _Connection | _AsyncConnection) -> errors.ConnectionTimeout:
    connection.pgconn.finish()  # whatever it may still say is not for the next one to hear
    return errors.ConnectionTimeout(f"the server has not answered for {connection.patience} seconds")


# --- links: the same in both colours ---------------------------------------------------------------------------------


async def _result(made: Any) -> Any:
    """What psycopg gives: at once in a plain program, to be awaited on an event loop."""
    return await made if isawaitable(made) else made


class Link:
    """A connection to the server, as a Session and with transactions; in a plain program nothing in it suspends."""

    def __init__(self, connection: Any, schema: str, timeout: float) -> None:
        self._connection: Final = connection
        self._pgconn: Final[PGconn] = connection.pgconn
        self._schema: Final = f'"{schema}".'
        # The time limits are set here and not for the session, which a pooler in between may give to somebody else.
        # A server that confirms commits before they are on the disk is asked not to, this once.
        milliseconds = max(1, round(timeout * 1000))
        self._begin: Final = (
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
            f"SET LOCAL statement_timeout = {milliseconds}; SET LOCAL lock_timeout = {milliseconds}; "
            "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
        )

    @classmethod
    async def connect(cls, address: Address, schema: str, patience: float, *, on_loop: bool) -> Link:
        kind = _AsyncConnection if on_loop else _Connection
        connection = await _result(kind.connect(**address.parameters))
        connection.patience = patience
        return cls(connection, schema, patience)

    async def fetch(self, sql: str, *values: object) -> Rows:
        """The rows that a question finds."""
        return await _result((await self._run(sql, values)).fetchall())

    async def execute(self, sql: str, *values: object) -> int:
        """Change something; how many rows were changed."""
        return (await self._run(sql, values)).rowcount

    async def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Run the statement with each of these rows of values."""
        await _result(self._connection.cursor(binary=True).executemany(self._rendered(sql), rows))

    async def begin(self) -> None:
        """Begin a writing transaction."""
        await self._run(self._begin, ())

    async def commit(self) -> None:
        """End the transaction; an error unless the server says that it is committed."""
        cursor = await self._run("COMMIT", ())
        if cursor.statusmessage != "COMMIT":
            message = f"the server answered {cursor.statusmessage} to COMMIT"
            raise errors.TransactionRollback(message)

    async def rollback(self) -> None:
        await _result(self._connection.rollback())

    def finish(self) -> None:
        """Close the connection at once."""
        self._pgconn.finish()

    @property
    def is_lost(self) -> bool:
        """Whether the connection is of no use any more."""
        return self._pgconn.status == ConnStatus.BAD or self._pgconn.transaction_status in {
            TransactionStatus.ACTIVE,
            TransactionStatus.UNKNOWN,
        }

    @property
    def is_usable(self) -> bool:
        """Whether the next one may have this connection."""
        return self._pgconn.status == ConnStatus.OK and self._pgconn.transaction_status == TransactionStatus.IDLE

    async def _run(self, sql: str, values: Sequence[object]) -> Any:
        cursor = self._connection.cursor(binary=bool(values))
        await _result(cursor.execute(self._rendered(sql), values or None, prepare=None if values else False))
        return cursor

    def _rendered(self, sql: str) -> bytes:
        for mark, text in (("{s}", self._schema), ("{lock}", " FOR UPDATE OF c"), ("{blob}", "bytea"), ("?", "%s")):
            sql = sql.replace(mark, text)
        return sql.encode()


def is_silent(error: Exception) -> bool:
    """Whether the server was waited for in vain; to wait once more is for the caller to decide."""
    return isinstance(error, errors.ConnectionTimeout)
