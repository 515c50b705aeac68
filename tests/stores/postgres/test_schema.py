"""The tables: made once, by whoever comes first, and not touched where they are newer or not to be made."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from dragoman.errors import ConfigurationError, StoreError
from dragoman.stores.postgres import AsyncPostgresStore, PostgresStore
from tests.processes import started
from tests.stores.contract import chain, first
from tests.stores.postgres_server import Server

ROOT = Path(__file__).resolve().parent.parent.parent.parent


def tables(server: Server, schema: str) -> list[str]:
    with psycopg.connect(server.conninfo) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY 1", (schema,))
        return [name for (name,) in found]


ALL = ["chain", "journal", "message", "migration", "setting", "snapshot", "words"]


def test_opening_alone_makes_nothing(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema) as store:
        assert tables(server, schema) == []
        assert store.list().items == ()
        assert tables(server, schema) == ALL


def test_many_threads_at_once(server: Server, schema: str) -> None:
    start = threading.Barrier(12)

    def begin(number: int) -> None:
        with PostgresStore(server.conninfo, schema=schema) as store:
            start.wait(60)
            store.save(first(f"{number}"))

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(begin, range(12)))
    with PostgresStore(server.conninfo, schema=schema) as store:
        assert len(store.list().items) == 12


CHILD = """
import sys
from dragoman.stores.postgres import PostgresStore
from tests.stores.contract import first
with PostgresStore(sys.argv[1], schema=sys.argv[2]) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    store.save(first("x"))
"""


@pytest.mark.slow
def test_many_processes_at_once(server: Server, schema: str) -> None:
    command = [sys.executable, "-c", CHILD, server.conninfo, schema]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as running:
        children = [running.enter_context(started(command, cwd=ROOT, **pipes)) for _ in range(6)]
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            child.communicate(timeout=120)
    assert [child.returncode for child in children] == [0] * 6
    with PostgresStore(server.conninfo, schema=schema) as store:
        assert len(store.list().items) == 6


def test_create_false_makes_nothing(server: Server, schema: str) -> None:
    missing = pytest.raises(StoreError, match="are not there.*create=True")
    with PostgresStore(server.conninfo, schema=schema, create=False) as store, missing:
        store.list()
    assert tables(server, schema) == []
    with PostgresStore(server.conninfo, schema=schema) as store:
        points = chain(store, 2)
    with PostgresStore(server.conninfo, schema=schema, create=False) as store:
        assert store.latest(points[0].id) == points[-1]


def test_newer_tables_are_left_alone(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema) as store:
        chain(store, 1)
    with psycopg.connect(server.conninfo) as connection:
        connection.execute(f"INSERT INTO {schema}.migration (version) VALUES (99)".encode())
    with PostgresStore(server.conninfo, schema=schema) as store:
        for ask in (store.list, lambda: store.save(first("x"))):
            with pytest.raises(StoreError, match="newer dragoman.*version 99.*Upgrade"):
                ask()


def test_tables_of_others_in_the_way(server: Server, schema: str) -> None:
    with psycopg.connect(server.conninfo) as connection:
        connection.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.message (x int)".encode())
    with PostgresStore(server.conninfo, schema=schema) as store, pytest.raises(StoreError, match="already exists"):
        store.list()
    assert tables(server, schema) == ["message"]  # all or nothing


@pytest.mark.parametrize(
    "name",
    ["", "Dragoman", "a b", "a;b", 'a"b', "a.b", "1a", "é", "a" * 64, "a\n", "a\0", "{s}", "%s", None, 7],
)
def test_names_that_need_quoting_are_refused(name: str) -> None:
    for kind in (PostgresStore, AsyncPostgresStore):
        with pytest.raises(ConfigurationError, match="name of a schema"):
            kind("host=x", schema=name)


@pytest.mark.parametrize("name", ["user", "table", "_x", "a" * 63])
def test_names_that_mean_something_else_do_not_harm(server: Server, name: str) -> None:
    try:
        with PostgresStore(server.conninfo, schema=name) as store:
            points = chain(store, 2)
            assert store.latest(points[0].id) == points[-1]
            assert tables(server, name) == ALL
    finally:
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE'.encode())


def test_a_name_that_is_the_servers(server: Server) -> None:
    with PostgresStore(server.conninfo, schema="pg_x") as store, pytest.raises(StoreError, match="pg_x"):
        store.list()


def test_two_stores_in_one_database_do_not_meet(server: Server, schema: str) -> None:
    with (
        PostgresStore(server.conninfo, schema=schema) as one,
        PostgresStore(server.conninfo, schema=f"{schema}b") as two,
    ):
        try:
            chain(one, 2)
            assert two.list().items == ()
        finally:
            with psycopg.connect(server.conninfo, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA IF EXISTS {schema}b CASCADE".encode())
