"""psycopg for PostgresStore: connection strings, connections that do not wait beyond a deadline, transactions.

Owns: the only import of psycopg in this room (extra `postgres`).
Must not know: what the statements mean, how connections are kept.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import psycopg
from psycopg import errors, generators, waiting
from psycopg.conninfo import conninfo_attempts, conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.rows import TupleRow, tuple_row

from dragoman._stop import Stop, current_stop
from dragoman.errors import ConfigurationError

from .sql_schema import Rows

ERRORS: Final = (psycopg.Error, OSError, AssertionError, UnicodeError)
"""What connections raise: psycopg has assertions that fail on a broken one, and Python rejects some host names."""

_PORTS: Final = re.compile(r"[0-9, ]*", re.ASCII)
_INTERVAL: Final = 0.05
"""Seconds between two checks whether to stop."""
_SERVER_SHARE: Final = 0.9
"""The server's share of the remaining time, so that it can still report a timeout."""


_T = TypeVar("_T")

Access: TypeAlias = Literal["READ ONLY", "READ WRITE"]


class Address(NamedTuple):
    """Where the database is, and how to connect to it."""

    parameters: dict[str, str]
    """Those of libpq. They include the password, so they are never printed."""
    shown: str
    """For people; without the password."""

    @property
    def password(self) -> str:
        return self.parameters.get("password", "")


def parse_address(conninfo: str) -> Address:
    """Parse a connection string. Raises ConfigurationError, which never repeats it: it may hold a password."""
    if not isinstance(conninfo, str) or "\0" in conninfo:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _invalid_address()
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value is not None}
    except (psycopg.Error, ValueError):
        raise _invalid_address() from None
    # Parts of a password that was not percent-encoded end up in other fields, which errors of the server repeat.
    head, _, tail = conninfo.partition("://")[2].partition("/")
    if head.count("@") > 1 or "@" in tail.partition("?")[0] or not _PORTS.fullmatch(given.get("port", "")):
        raise _invalid_address()
    shown = " ".join(f"{name}={given[name]}" for name in ("host", "port", "dbname", "user") if name in given)
    return Address({"fallback_application_name": "dragoman", **given, "client_encoding": "UTF8"}, shown)


def _invalid_address() -> ConfigurationError:
    message = "The connection string cannot be read."
    hint = "Write it as postgresql://user@host/database or host=… dbname=…; in a URL, percent-encode the password."
    return ConfigurationError(message, hint=hint)


# --- waiting ---------------------------------------------------------------------------------------------------------


def _limit(work: Generator[Any, int, _T], deadline: float, stop: Stop | None) -> Generator[Any, int, _T]:
    """Run psycopg's work, which yields when it waits, until the deadline or until the run is stopped."""
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
        with suppress(Exception):  # on a broken connection it cannot end properly
            work.close()


class Link(psycopg.Connection[TupleRow]):
    """A connection as a Session, with transactions. It does not wait beyond a deadline, nor when the run is stopped."""

    _deadline: float = 0.0
    _stoppable: bool = True
    _schema: str = ""
    # Tells psycopg that the connection is kept open on purpose, so that it does not warn at the end of the program.
    _pool = None

    @classmethod
    def open(cls, address: Address, schema: str, deadline: float, *, prepared: bool) -> Link:
        *others, last = _list_attempts(address.parameters)
        for number, each in enumerate(others):  # each host gets its share of the time
            until = time.monotonic() + (deadline - time.monotonic()) / (len(others) + 1 - number)
            with suppress(psycopg.Error, OSError):
                link = cls(_connect(each, until), tuple_row)
                break
        else:
            link = cls(_connect(last, deadline), tuple_row)
        link.autocommit = True  # BEGIN and COMMIT are ours
        link._schema = f'"{schema}".'
        if not prepared:
            link.prepare_threshold = None
        return link

    def wait(self, gen: Any, *_args: Any, **_options: Any) -> Any:
        stop = current_stop() if self._stoppable else None
        try:
            return waiting.wait(_limit(gen, self._deadline, stop), self.pgconn.socket, interval=_INTERVAL)
        except psycopg.Error:
            raise
        except BaseException:
            self.pgconn.finish()  # a late answer must not reach the next user
            raise

    def fetch(self, sql: str, *values: object) -> Rows:
        return self._run(sql, values).fetchall()

    def change(self, sql: str, *values: object) -> int:
        return self._run(sql, values).rowcount

    def change_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        if len(rows) == 1:  # a pipeline costs more than it saves, and the server does not notice a frozen client in one
            self._run(sql, rows[0])
            return
        self.cursor(binary=True).executemany(self._render(sql), rows)

    def begin(self, access: Access, deadline: float) -> None:
        """Begin a transaction in which nothing waits beyond the deadline."""
        self._deadline = deadline
        timeout = max(1, round(1000 * _SERVER_SHARE * (deadline - time.monotonic())))
        self._run(_BEGIN.format(access, timeout), ())

    def commit(self) -> None:
        """End the transaction. Raises an error unless the server confirms the commit."""
        self._stoppable = False  # stopped here, nobody would know whether it was carried out
        try:
            cursor = self._run("COMMIT", ())
        finally:
            self._stoppable = True
        if cursor.statusmessage != "COMMIT":
            message = f"the server answered {cursor.statusmessage} to COMMIT"
            raise errors.TransactionRollback(message)

    @property
    def is_lost(self) -> bool:
        """Whether the connection broke, or nobody knows what the server is doing on it."""
        return self.pgconn.status == ConnStatus.BAD or self.pgconn.transaction_status in {
            TransactionStatus.ACTIVE,
            TransactionStatus.UNKNOWN,
        }

    @property
    def is_idle(self) -> bool:
        """Whether the connection can be used for the next transaction."""
        return self.pgconn.status == ConnStatus.OK and self.pgconn.transaction_status == TransactionStatus.IDLE

    def _run(self, sql: str, values: Sequence[object]) -> psycopg.Cursor[TupleRow]:
        cursor = self.cursor(binary=bool(values))
        return cursor.execute(self._render(sql), values or None, prepare=None if values else False)

    def _render(self, sql: str) -> bytes:
        for mark, text in (("{s}", self._schema), ("{lock}", " FOR UPDATE OF c"), ("{blob}", "bytea"), ("?", "%s")):
            sql = sql.replace(mark, text)
        return sql.encode()


def _list_attempts(parameters: dict[str, str]) -> Sequence[Mapping[str, Any]]:
    """The parameters for each address of each host."""
    # psycopg lets PGHOST win over the host of a service, and takes an abstract socket (@) for a host name.
    of_service = ("service" in parameters or "PGSERVICE" in os.environ) and not {"host", "hostaddr"} & parameters.keys()
    if of_service or "@" in parameters.get("host", ""):
        return [parameters]  # libpq tries the hosts itself
    return conninfo_attempts(parameters)


def _connect(parameters: Mapping[str, Any], deadline: float) -> PGconn:
    connecting = generators.connect(make_conninfo("", **parameters))
    return waiting.wait_conn(_limit(connecting, deadline, current_stop()), interval=_INTERVAL)


# Set for the transaction and not for the session, which a pooler may give to another client. Functions and operators
# are looked up in the server's own schema only: another schema may hold one that fits better. A server that confirms
# commits before they are on disk is asked not to.
_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL READ COMMITTED {0}; SET LOCAL search_path = pg_catalog, pg_temp; "
    "SET LOCAL statement_timeout = {1}; SET LOCAL lock_timeout = {1}; "
    "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
)
