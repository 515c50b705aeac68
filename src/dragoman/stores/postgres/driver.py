"""psycopg, wrapped.

Owns: the only import of psycopg; connection strings, connections that do not wait for ever, and what is sent around a
transaction.
Must not know: what the statements mean, how connections are kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import signature
from typing import Any, Final, NamedTuple, cast

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from dragoman.errors import ConfigurationError

from .work import Ask, Rows

__all__ = [
    "ERRORS",
    "Address",
    "AsyncConnection",
    "Connection",
    "address_of",
    "begin",
    "is_lost",
    "is_silent",
    "is_usable",
]

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


def address_of(conninfo: str, timeout: float, *, prepared: bool) -> Address:
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


class Connection(psycopg.Connection[TupleRow]):
    """A connection that gives up when the server says nothing for too long."""

    patience: float | None = None
    # Tells psycopg that it is kept open on purpose, so that the end of a program is no reason for a warning.
    _pool = None

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        try:
            return super().wait(gen, *args, **_bounded(self.patience, options))
        except _STILL_WAITING:
            raise _silent(self) from None

    def carry_out(self, ask: Ask, schema: str) -> Rows:
        """Run one statement (or one many times); its rows."""
        with self.cursor(binary=bool(ask.values)) as cursor:
            if ask.many:
                cursor.executemany(_sql(ask, schema), cast("Sequence[Sequence[object]]", ask.values))
                return ()
            cursor.execute(_sql(ask, schema), ask.values or None, prepare=None if ask.values else False)
            return cursor.fetchall() if cursor.description else ()

    def commit_it(self) -> None:
        """End the transaction; an error unless the server says that it is committed."""
        with self.cursor() as cursor:
            cursor.execute("COMMIT", prepare=False)
            _ensure_committed(cursor.statusmessage)


class AsyncConnection(psycopg.AsyncConnection[TupleRow]):
    """The same for asyncio. It may be used on one event loop after another."""

    patience: float | None = None
    _pool = None

    async def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        try:
            return await super().wait(gen, *args, **_bounded(self.patience, options))
        except _STILL_WAITING:
            raise _silent(self) from None

    async def carry_out(self, ask: Ask, schema: str) -> Rows:
        """Run one statement (or one many times); its rows."""
        async with self.cursor(binary=bool(ask.values)) as cursor:
            if ask.many:
                await cursor.executemany(_sql(ask, schema), cast("Sequence[Sequence[object]]", ask.values))
                return ()
            await cursor.execute(_sql(ask, schema), ask.values or None, prepare=None if ask.values else False)
            return await cursor.fetchall() if cursor.description else ()

    async def commit_it(self) -> None:
        """End the transaction; an error unless the server says that it is committed."""
        async with self.cursor() as cursor:
            await cursor.execute("COMMIT", prepare=False)
            _ensure_committed(cursor.statusmessage)


def _bounded(patience: float | None, options: dict[str, Any]) -> dict[str, Any]:
    if _CAN_STOP_WAITING and patience is not None and options.get("timeout") is None:
        return {**options, "timeout": patience + _GRACE}
    return options


def _silent(connection: Connection | AsyncConnection) -> errors.ConnectionTimeout:
    connection.pgconn.finish()  # whatever it may still say is not for the next one to hear
    return errors.ConnectionTimeout(f"the server has not answered for {connection.patience} seconds")


def _ensure_committed(status: str | None) -> None:
    if status != "COMMIT":
        message = f"the server answered {status} to COMMIT"
        raise errors.TransactionRollback(message)


def _sql(ask: Ask, schema: str) -> bytes:
    return ask.sql.replace("{s}", f'"{schema}"').encode()


def begin(timeout: float) -> Ask:
    """The beginning of a writing transaction, in one message to the server.

    Its time limits are set here and not for the session, which a pooler in between may give to somebody else. A server
    that confirms commits before they are on the disk is asked not to, this once.
    """
    milliseconds = max(1, round(timeout * 1000))
    return Ask(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
        f"SET LOCAL statement_timeout = {milliseconds}; SET LOCAL lock_timeout = {milliseconds}; "
        "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
    )


def is_lost(connection: psycopg.BaseConnection[Any]) -> bool:
    """Whether the connection is of no use any more."""
    return connection.closed or connection.info.transaction_status in {
        TransactionStatus.ACTIVE,
        TransactionStatus.UNKNOWN,
    }


def is_silent(error: Exception) -> bool:
    """Whether the server was waited for in vain; to wait once more is for the caller to decide."""
    return isinstance(error, errors.ConnectionTimeout)


def is_usable(connection: psycopg.BaseConnection[Any]) -> bool:
    """Whether the next one may have this connection."""
    return not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE
