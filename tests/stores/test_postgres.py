"""PostgresStore: cursors, cancellation, other users of the database, tables."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from dragoman.conversation import Message
from dragoman.errors import (
    InvalidCursorError,
    SnapshotNotFoundError,
    StoreError,
)
from dragoman.stores import AsyncStore, MessageAdded, PostgresStore, Snapshot, aresume
from dragoman.stores.listing import Query, make_cursor
from tests.stores.cases import NOON, after, chain, first, pages
from tests.stores.postgres_server import Server
from tests.test_docs import BLOCKS, ROOT


def test_a_clock_that_goes_back_moves_nothing_behind_a_cursor(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema) as store:
        points = [first(f"{number}", at=NOON + timedelta(hours=number)) for number in range(4)]
        for point in points:
            store.save(point)
        page = store.list(limit=1)
        assert [item.id for item in page.items] == [points[3].id]
        store.save(after(points[3], "x", at=NOON - timedelta(days=1)))
        rest = pages(lambda cursor: store.list(limit=1, cursor=cursor or page.cursor))
        assert [item.id for item in rest] == [points[2].id, points[1].id, points[0].id]


def test_forged_cursors_are_refused(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema) as store:
        points, other = chain(store, 3), chain(store, 2)
        id, kind, history = points[0].id, Query().kind, f"history {points[0].id}"
        for parts in (
            (), (1,), ("1", id), (2**64, id), (-(2**70), id), (1.5, id), (1, "x"), (1, id + "\n"), (1, id.upper()),
            (1, None), (None, id), (1, 2, 3),
        ):  # fmt: skip
            with pytest.raises(InvalidCursorError):
                store.list(cursor=make_cursor(kind, parts))
        of_other = store.history(other[0].id, limit=1).cursor
        for cursor in (of_other, *[make_cursor(history, (at,)) for at in (2**63, "1", None)]):
            with pytest.raises(InvalidCursorError):
                store.history(id, cursor=cursor)
        assert store.history(id, cursor=make_cursor(history, (0,))).items == ()
        assert store.history(points[2].id, cursor=store.history(id, limit=1).cursor).items


def test_a_conversation_can_continue_after_a_damaged_snapshot(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema) as store:
        points = chain(store, 3)
        with psycopg.connect(server.conninfo) as connection:
            connection.execute(f"UPDATE {schema}.snapshot SET body = 'x' WHERE id = '{points[2].id}'".encode())
        longer = after(points[2], "on")
        store.save(longer)
        assert store.latest(points[0].id) == longer


def test_commits_are_synchronous_whatever_the_server_default(server: Server, schema: str) -> None:
    with PostgresStore(f"{server.conninfo} options='-c synchronous_commit=off'", schema=schema) as store:
        chain(store, 1)
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            connection.execute(
                f"CREATE FUNCTION {schema}.look() RETURNS trigger LANGUAGE plpgsql AS "
                "$$BEGIN RAISE '%', current_setting('synchronous_commit'); END$$; "
                f"CREATE TRIGGER look BEFORE INSERT ON {schema}.chain EXECUTE FUNCTION {schema}.look()"
            )
        with pytest.raises(Exception, match=r"\(on\)"):
            store.save(first("x"))


def test_without_prepared_statements(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema, prepared_statements=False, connections=1) as store:
        chain(store, 12)
        sql = "SELECT count(*) FROM pg_prepared_statements"
        assert store._read(lambda session: session.fetch(sql)) == [(0,)]


# --- asyncio ---------------------------------------------------------------------------------------------------------


def test_a_cancelled_save_is_carried_out_in_full_or_not_at_all(server: Server, schema: str) -> None:
    async def main() -> tuple[int, int]:
        done = undone = 0
        async with AsyncStore(PostgresStore(server.conninfo, schema=schema)) as store, asyncio.timeout(200):
            point = first("x")
            await store.save(point)
            for number in range(60):
                longer = after(point, f"turn {number}")
                task = asyncio.create_task(store.save(longer))
                for _ in range(number % 30):
                    await asyncio.sleep(0)
                if number % 4 == 0:
                    await asyncio.sleep(0.0005 * (number % 10))
                task.cancel()
                await asyncio.wait([task])
                newest = await store.latest(point.id)
                if newest == longer:
                    done, point = done + 1, longer
                else:
                    assert newest == point
                    undone += 1
                    with pytest.raises(SnapshotNotFoundError):
                        await store.load(longer.id)
            longer = after(point, "and on")
            await store.save(longer)
            assert (await aresume(store, point.id)).snapshot == longer
            assert await store.record(longer.id, [MessageAdded(Message.user("x"))], after=0) == 1
        return done, undone

    done, undone = asyncio.run(main())
    assert undone > 0
    assert done + undone == 60


# --- others on the same server ---------------------------------------------------------------------------------------

FUNCTIONS = (
    "max(bigint)",
    '"position"(bytea, bytea)',
    "set_config(text, text, bool)",
    "current_setting(text)",
    "pg_advisory_xact_lock(bigint)",
    "array_upper(bigint, bigint)",
)
KINDS = ("smallint", "int", "bigint", "text", "name", "bytea", "oid")


def set_traps(connection: psycopg.Connection) -> None:
    """Create functions and operators with the names of the server's own, which record that they were called.

    A role that may create things in the schema `public` can do this.
    """
    made = "CREATE FUNCTION public.{0} RETURNS {1} LANGUAGE sql AS "
    made += "$$INSERT INTO public.trap VALUES ('{2}'); SELECT NULL::{1}$$"
    connection.execute("CREATE TABLE public.trap (what text); GRANT INSERT ON public.trap TO PUBLIC; SET ROLE hostile")
    for function in FUNCTIONS:
        connection.execute(made.format(function, "text", function).encode())
    for symbol, left, right in itertools.product("=<>+", KINDS, KINDS):
        name = f"trap_{ord(symbol)}"
        connection.execute(made.format(f"{name}({left}, {right})", "bool", symbol).encode())
        sql = f"CREATE OPERATOR public.{symbol} (LEFTARG={left}, RIGHTARG={right}, FUNCTION=public.{name})"
        connection.execute(sql.encode())
    connection.execute("RESET ROLE")


def test_other_users_cannot_replace_functions_and_operators(server: Server, schema: str) -> None:
    with psycopg.connect(server.conninfo, autocommit=True) as admin:
        admin.execute("CREATE DATABASE shared")
        admin.execute("CREATE ROLE hostile")
    try:
        conninfo = server.conninfo_for(user="postgres", database="shared")
        with psycopg.connect(conninfo, autocommit=True) as admin:
            admin.execute("GRANT CREATE ON SCHEMA public TO hostile")
            set_traps(admin)
            admin.execute("SELECT array_upper(1::bigint, 1::bigint)")  # a trap that works
            with PostgresStore(f"{conninfo} options='-c search_path=public,pg_catalog'", schema=schema) as store:
                points = chain(store, 3, said="the weather in Lyon")
                store.record(points[-1].id, [MessageAdded(Message.user("x"))] * 2, after=0)
                store.save(after(points[-1], "on"), after=2)
                assert len(store.list(limit=1, text="weather").items) == 1
                assert store.search("weather").items
                assert store.history(points[0].id, limit=1).cursor
                assert store.journal(points[0].id).position == 0
                assert store.latest(points[0].id).messages[-1].text == "on"
                store.delete(points[0].id)
            assert admin.execute("SELECT what FROM public.trap").fetchall() == [("array_upper(bigint, bigint)",)]
    finally:
        with psycopg.connect(server.conninfo, autocommit=True) as admin:
            admin.execute("DROP DATABASE shared WITH (FORCE)")
            admin.execute("DROP ROLE hostile")


# --- the tables ------------------------------------------------------------------------------------------------------


def tables(server: Server, schema: str) -> list[str]:
    with psycopg.connect(server.conninfo) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY 1", (schema,))
        return [name for (name,) in found]


ALL = ["chain", "journal", "message", "setting", "snapshot", "words"]


def test_tables_are_created_at_the_first_use_and_foreign_ones_left_alone(server: Server, schema: str) -> None:
    with (
        PostgresStore(server.conninfo, schema=schema) as store,
        psycopg.connect(server.conninfo, autocommit=True) as admin,
    ):
        assert tables(server, schema) == []
        admin.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.message (x int)".encode())
        with pytest.raises(StoreError, match="already exists"):
            store.list()
        assert tables(server, schema) == ["message"]  # all or nothing
        admin.execute(f"DROP TABLE {schema}.message".encode())
        assert store.list().items == ()
        assert tables(server, schema) == ALL
        admin.execute(f"UPDATE {schema}.setting SET value = '99' WHERE name = 'version'".encode())
    with PostgresStore(server.conninfo, schema=schema) as store:
        for ask in (store.list, lambda: store.save(first("x"))):
            with pytest.raises(StoreError, match="version 99.*upgrade dragoman"):
                ask()


def test_the_repr_has_no_password() -> None:
    with PostgresStore("postgresql://me:secret-7@db.example.org:5433/talk?sslmode=require", schema="x") as store:
        assert repr(store) == "PostgresStore('host=db.example.org port=5433 dbname=talk user=me', schema='x')"


def test_reserved_words_are_valid_schema_names(server: Server) -> None:
    for name in ("user", "_x", "a" * 63):
        with PostgresStore(server.conninfo, schema=name) as store:
            points = chain(store, 2)
            assert store.latest(points[0].id) == points[-1]
            assert tables(server, name) == ALL
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA "{name}" CASCADE'.encode())
    with PostgresStore(server.conninfo, schema="pg_x") as store, pytest.raises(StoreError, match="pg_x"):
        store.list()  # a name of the server


# --- the page about stores -------------------------------------------------------------------------------------------

ADDRESS = "postgresql://app@db.internal/talk"


def test_the_example_in_the_docs_runs(server: Server, schema: str) -> None:
    [block] = [each for each in BLOCKS if each.document == ROOT / "docs" / "stores.md" and ADDRESS in each.code]
    code = block.code.replace(f'"{ADDRESS}")', f'"{ADDRESS}", schema="dragoman")')
    code = code.replace(ADDRESS, server.conninfo).replace('schema="dragoman"', f'schema="{schema}"')
    names: dict[str, Any] = {"Snapshot": Snapshot, "Message": Message}
    exec(code, names)
    with names["fleet"] as store:
        points = chain(store, 2, said="What is a dragoman?")
        snapshot = names["next_turn"](points[0].id, "Thanks.")
        assert store.latest(points[0].id) == snapshot
        assert snapshot.messages[-1].text == "Thanks."
        assert asyncio.run(names["titles"]()) == ["What is a dragoman?"]
