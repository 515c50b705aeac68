"""PostgresStore for the tests with several processes: a schema of the shared server for each directory."""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from dragoman.stores.postgres import PostgresStore
from tests.stores.backends import Backend
from tests.stores.postgres_server import NoServerHereError, shared_server

__all__ = ["BACKEND"]

_numbers = itertools.count(1)


def _address(place: Path) -> tuple[str, str]:
    conninfo, schema = (place / "address").read_text(encoding="utf-8").splitlines()
    return conninfo, schema


@contextmanager
def _around(place: Path) -> Generator[None]:
    try:
        conninfo = shared_server().conninfo
    except NoServerHereError as error:
        import pytest

        pytest.skip(str(error))
    schema = f"backend_{os.getpid()}_{next(_numbers)}"
    (place / "address").write_text(f"{conninfo}\n{schema}\n", encoding="utf-8")
    try:
        yield
    finally:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


def _open(place: Path) -> PostgresStore:
    conninfo, schema = _address(place)
    return PostgresStore(conninfo, schema=schema)


_ORPHANS = {
    "snapshot without chain": "SELECT id FROM {s}.snapshot WHERE root NOT IN (SELECT root FROM {s}.chain)",
    "entry without chain": "SELECT root FROM {s}.journal WHERE root NOT IN (SELECT root FROM {s}.chain)",
    "chain without snapshot": "SELECT root FROM {s}.chain WHERE newest NOT IN (SELECT id FROM {s}.snapshot)",
    "message without snapshot": (
        "SELECT root FROM {s}.message m WHERE NOT EXISTS (SELECT FROM {s}.snapshot s CROSS JOIN "
        "generate_subscripts(s.spans, 1) AS i WHERE s.root = m.root AND m.line = s.spans[i][1] "
        "AND m.position >= s.spans[i][2] AND m.position < s.spans[i][3])"
    ),
    "words without message": (
        "SELECT root FROM {s}.words w WHERE NOT EXISTS (SELECT FROM {s}.message m WHERE m.root = w.root "
        "AND m.line = w.line AND m.position = w.position)"
    ),
}


def _litter(place: Path) -> list[str]:
    conninfo, schema = _address(place)
    with psycopg.connect(conninfo) as connection:
        return [
            f"{what}: {found}"
            for what, sql in _ORPHANS.items()
            for (found,) in connection.execute(sql.replace("{s}", schema).encode())
        ]


BACKEND = Backend(open=_open, litter=_litter, around=_around)
