"""psycopg, wrapped.

Owns: the only import of psycopg (extra `postgres`); connection strings, connections that do not wait beyond a deadline,
and what is sent around a transaction.
Must not know: what the statements mean, how connections are kept.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import psycopg
from psycopg import errors, generators, waiting
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.rows import TupleRow, tuple_row

from dragoman._stop import Stop, current_stop
from dragoman.errors import ConfigurationError

from .sql_schema import Rows

ERRORS: Final = (psycopg.Error, OSError, AssertionError)
"""What goes wrong on the way to the server and there; psycopg asserts what a broken connection does not keep."""

_PORTS: Final = re.compile(r"[0-9, ]*", re.ASCII)
_STEP: Final = 0.05
"""Seconds between two looks whether to stop."""
_SERVER_SHARE: Final = 0.9
"""Which part of the time that is left the server gets, so that it can still say that it was not enough."""


_T = TypeVar("_T")

Access: TypeAlias = Literal["READ ONLY", "READ WRITE"]


class Address(NamedTuple):
    """Where the database is, and how to get there."""

    conninfos: tuple[str, ...]
    """One for each host, to be tried in this order. With the password, so never printed."""
    password: str
    shown: str
    """For people; without the password."""


def parse_address(conninfo: str) -> Address:
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
    parameters = {"fallback_application_name": "dragoman", **given, "client_encoding": "UTF8"}
    shown = " ".join(f"{name}={given[name]}" for name in ("host", "port", "dbname", "user") if name in given)
    return Address(tuple([make_conninfo("", **each) for each in _each_host(parameters)]), password, shown)


def _each_host(given: dict[str, str]) -> list[dict[str, str]]:
    """The parameters of each host in a list of several (host=a,b port=1,2)."""
    lists = {name: given[name].split(",") for name in ("host", "hostaddr", "port") if "," in given.get(name, "")}
    count = max(map(len, lists.values()), default=1)
    return [{**given, **{name: each[at % len(each)] for name, each in lists.items()}} for at in range(count)]


def _unreadable() -> ConfigurationError:
    message = "The connection string cannot be read."
    hint = "Write it as postgresql://user@host/database or host=… dbname=…; in a URL, percent-encode the password."
    return ConfigurationError(message, hint=hint)


# --- waiting ---------------------------------------------------------------------------------------------------------


def _bounded(work: Generator[Any, int, _T], deadline: float, stop: Stop | None) -> Generator[Any, int, _T]:
    """psycopg's work, which yields where it waits; ended at the deadline, and when the run is stopped."""
    ready: Any = None
    try:
        while True:
            wanted = work.send(ready)
            if stop is not None:
                stop.check()
            if time.monotonic() >= deadline:
                message = "the server has not answered in time"
                raise TimeoutError(message)
            ready = yield wanted
    except StopIteration as end:
        return end.value
    finally:
        with suppress(Exception):  # of a connection that broke it cannot be brought to an orderly end
            work.close()


class _Connection(psycopg.Connection[TupleRow]):
    """A connection that waits as we do."""

    deadline: float = 0.0
    stoppable: bool = True
    # Tells psycopg that it is kept open on purpose, so that the end of a program is no reason for a warning.
    _pool = None

    def wait(self, gen: Any, *_args: Any, **_options: Any) -> Any:
        stop = current_stop() if self.stoppable else None
        try:
            return waiting.wait(_bounded(gen, self.deadline, stop), self.pgconn.socket, interval=_STEP)
        except psycopg.Error:
            raise
        except BaseException:
            self.pgconn.finish()  # what the server may still say is not for the next one to hear
            raise


class Link:
    """A connection to the server, as a Session and with transactions."""

    def __init__(self, connection: _Connection, schema: str) -> None:
        self._connection: Final = connection
        self._pgconn: Final = connection.pgconn
        self._schema: Final = f'"{schema}".'

    @classmethod
    def connect(cls, address: Address, schema: str, deadline: float, *, prepared: bool) -> Link:
        *others, last = address.conninfos
        for number, conninfo in enumerate(others):  # each gets its share of the time
            until = time.monotonic() + (deadline - time.monotonic()) / (len(address.conninfos) - number)
            with suppress(psycopg.Error, OSError):
                pgconn = _connect(conninfo, until)
                break
        else:
            pgconn = _connect(last, deadline)
        connection = _Connection(pgconn, tuple_row)
        connection.autocommit = True  # BEGIN and COMMIT are ours
        if not prepared:
            connection.prepare_threshold = None
        return cls(connection, schema)

    def fetch(self, sql: str, *values: object) -> Rows:
        return self._run(sql, values).fetchall()

    def execute(self, sql: str, *values: object) -> int:
        return self._run(sql, values).rowcount

    def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        if len(rows) == 1:  # a pipeline costs more than it saves, and in one the server does not see who is frozen
            self._run(sql, rows[0])
            return
        self._connection.cursor(binary=True).executemany(self._rendered(sql), rows)

    def begin(self, access: Access, deadline: float) -> None:
        """Begin a transaction, in which nothing is waited for longer than this."""
        self._connection.deadline = deadline
        left = max(1, round(1000 * _SERVER_SHARE * (deadline - time.monotonic())))
        self._run(_BEGIN.format(access, left), ())

    def commit(self) -> None:
        """End the transaction; an error unless the server says that it is committed."""
        self._connection.stoppable = False  # else nobody would know whether it was carried out
        try:
            cursor = self._run("COMMIT", ())
        finally:
            self._connection.stoppable = True
        if cursor.statusmessage != "COMMIT":
            message = f"the server answered {cursor.statusmessage} to COMMIT"
            raise errors.TransactionRollback(message)

    def rollback(self) -> None:
        self._connection.rollback()

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
        """Whether the next one may have this connection."""
        return self._pgconn.status == ConnStatus.OK and self._pgconn.transaction_status == TransactionStatus.IDLE

    def _run(self, sql: str, values: Sequence[object]) -> psycopg.Cursor[TupleRow]:
        cursor = self._connection.cursor(binary=bool(values))
        return cursor.execute(self._rendered(sql), values or None, prepare=None if values else False)

    def _rendered(self, sql: str) -> bytes:
        for mark, text in (("{s}", self._schema), ("{lock}", " FOR UPDATE OF c"), ("{blob}", "bytea"), ("?", "%s")):
            sql = sql.replace(mark, text)
        return sql.encode()


def _connect(conninfo: str, deadline: float) -> PGconn:
    return waiting.wait_conn(_bounded(generators.connect(conninfo), deadline, current_stop()), interval=_STEP)


# All of this is set here and not for the session, which a pooler in between may give to somebody else. Functions and
# operators are looked up in the server's own schema only: elsewhere somebody may have put one that seems to fit better.
# A server that confirms commits before they are on the disk is asked not to, this once.
_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL READ COMMITTED {0}; SET LOCAL search_path = pg_catalog, pg_temp; "
    "SET LOCAL statement_timeout = {1}; SET LOCAL lock_timeout = {1}; "
    "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
)
