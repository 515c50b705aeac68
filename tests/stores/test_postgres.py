"""What is particular to PostgresStore and AsyncPostgresStore: what is written, tasks and loops, the tables."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from dragoman.conversation import Message
from dragoman.errors import (
    ConfigurationError,
    InvalidCursorError,
    SnapshotNotFoundError,
    StoreError,
)
from dragoman.stores import AsyncPostgresStore, MessageAdded, PostgresStore, Snapshot, aresume
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
        # The filters look at its real time.
        assert [item.title for item in store.list(until=NOON).items] == ["3"]
        assert "3" not in [item.title for item in store.list(since=NOON).items]


def test_cursors_that_were_tampered_with(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema) as store:
        points = chain(store, 3)
        chain(store, 1)
        kind = Query().kind
        for parts in (
            (), (1,), ("1", points[0].id), (2**64, points[0].id), (-(2**70), points[0].id), (1.5, points[0].id),
            (1, "x"), (1, points[0].id + "\n"), (1, points[0].id.upper()), (1, None), (None, points[0].id), (1, 2, 3),
        ):  # fmt: skip
            with pytest.raises(InvalidCursorError):
                store.list(cursor=make_cursor(kind, parts))
        other = chain(store, 2)
        of_other = store.history(other[0].id, limit=1).cursor
        history = f"history {points[0].id}"
        for cursor in (of_other, *[make_cursor(history, (at,)) for at in (2**63, "1", None)]):
            with pytest.raises(InvalidCursorError):
                store.history(points[0].id, cursor=cursor)
        assert store.history(points[0].id, cursor=make_cursor(history, (0,))).items == ()
        assert store.history(points[2].id, cursor=store.history(points[0].id, limit=1).cursor).items


def test_a_damaged_parent_does_not_keep_one_from_going_on(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema) as store:
        points = chain(store, 3)
        with psycopg.connect(server.conninfo) as connection:
            connection.execute(f"UPDATE {schema}.snapshot SET body = 'x' WHERE id = '{points[2].id}'".encode())
        longer = after(points[2], "on")
        store.save(longer)
        assert store.latest(points[0].id) == longer


def test_commits_are_on_the_disk_whatever_the_server_does_by_default(server: Server, schema: str) -> None:
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
        assert store._database.read(lambda session: session.fetch(sql)) == [(0,)]


def test_what_it_is_called(server: Server, schema: str) -> None:
    with PostgresStore("postgresql://me:secret-7@db.example.org:5433/talk?sslmode=require", schema=schema) as store:
        assert repr(store) == f"PostgresStore('host=db.example.org port=5433 dbname=talk user=me', schema={schema!r})"


# --- asyncio ---------------------------------------------------------------------------------------------------------


def test_many_tasks_share_a_few_connections(server: Server, schema: str) -> None:
    async def talk(store: AsyncPostgresStore, number: int) -> list[Snapshot]:
        points = [first(f"task {number}")]
        await store.save(points[0])
        for turn in range(3):
            points.append(after(points[-1], f"turn {turn}"))
            await store.save(points[-1])
        return points

    async def main() -> None:
        conninfo = f"{server.conninfo} application_name=tasks"
        async with AsyncPostgresStore(conninfo, schema=schema, connections=3) as store:
            chains = await asyncio.gather(*[talk(store, number) for number in range(40)])
            for points in chains:
                assert await store.latest(points[0].id) == points[-1]
            with psycopg.connect(server.conninfo) as connection:
                query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tasks'"
                [[open_]] = connection.execute(query).fetchall()
            assert 1 <= open_ <= 3

    asyncio.run(main())


def test_a_cancelled_call_was_carried_out_in_full_or_not_at_all(server: Server, schema: str) -> None:
    async def main() -> tuple[int, int]:
        done = undone = 0
        async with AsyncPostgresStore(server.conninfo, schema=schema) as store, asyncio.timeout(200):
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

KINDS = ("smallint", "int", "bigint", "numeric", "text", "varchar", "name", "bytea", "int[]", "text[]")


def set_traps(connection: psycopg.Connection) -> int:
    """In the way of every function and operator: one of the same name, for other types or for exactly these.

    Each writes down who has called it. A role that may create things in the schema `public` can do this.
    """
    connection.execute("CREATE TABLE public.trap (victim text, what text); GRANT INSERT ON public.trap TO PUBLIC")
    connection.execute("SET ROLE hostile")
    count = 0
    for name, arguments in connection.execute(
        "SELECT DISTINCT p.proname, p.pronargs FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND "
        "p.proname IN ('max', 'count', 'position', 'length', 'set_config', 'current_setting', 'array_upper', "
        "'pg_advisory_xact_lock', 'coalesce', 'int4', 'int8', 'text', 'byteaeq', 'like')"
    ).fetchall():
        for kind in KINDS:
            count += _trap(connection, f'public."{name}"({", ".join([kind] * arguments)})', name)
    for symbol in ("=", "<", ">", "<=", ">=", "<>", "+", "-", "||", "@>"):
        for left in KINDS:
            for right in KINDS:
                made = f"public.trap_{count}"
                if _trap(connection, f"{made}({left}, {right})", symbol, "bool"):
                    sql = f"CREATE OPERATOR public.{symbol} (LEFTARG={left}, RIGHTARG={right}, FUNCTION={made})"
                    with suppress(psycopg.Error), connection.transaction():
                        connection.execute(sql.encode())
                    count += 1
    connection.execute("RESET ROLE")
    return count


def _trap(connection: psycopg.Connection, function: str, what: str, result: str = "text") -> int:
    body = f"INSERT INTO public.trap VALUES (current_user, '{what}'); SELECT NULL::{result}"
    with suppress(psycopg.Error), connection.transaction():
        connection.execute(f"CREATE FUNCTION {function} RETURNS {result} LANGUAGE sql AS $${body}$$".encode())
        return 1
    return 0


def test_nobody_else_can_run_code_as_us(server: Server, schema: str) -> None:
    with psycopg.connect(server.conninfo, autocommit=True) as admin:
        admin.execute("CREATE DATABASE shared")
        admin.execute("CREATE ROLE hostile")
    try:
        conninfo = server.conninfo_for(user="postgres", database="shared")
        with psycopg.connect(conninfo, autocommit=True) as admin:
            admin.execute("GRANT CREATE ON SCHEMA public TO hostile")
            assert set_traps(admin) > 500
            with suppress(psycopg.Error):  # a trap that works
                admin.execute("SELECT array_upper(1::bigint, 1::bigint)")
            with PostgresStore(f"{conninfo} options='-c search_path=public,pg_catalog'", schema=schema) as store:
                points = chain(store, 3, said="the weather in Lyon")
                store.record(points[-1].id, [MessageAdded(Message.user("x"))] * 2, after=0)
                store.save(after(points[-1], "on"), after=2)
                assert len(store.list(limit=1, text="weather").items) == 1
                assert store.search("weather").items
                assert store.history(points[0].id, limit=1).cursor
                assert store.journal(points[0].id).position == 0
                assert store.latest(points[0].id).messages[-1].text == "on"
                store.reseal()
                store.delete(points[0].id)
            assert [what for _, what in admin.execute("SELECT * FROM public.trap")] == ["array_upper"]
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


def test_opening_alone_makes_nothing(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema) as store:
        assert tables(server, schema) == []
        assert store.list().items == ()
        assert tables(server, schema) == ALL


def test_newer_tables_are_left_alone(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema) as store:
        chain(store, 1)
    with psycopg.connect(server.conninfo) as connection:
        connection.execute(f"UPDATE {schema}.setting SET value = '99' WHERE name = 'version'".encode())
    with PostgresStore(server.conninfo, schema=schema) as store:
        for ask in (store.list, lambda: store.save(first("x"))):
            with pytest.raises(StoreError, match="version 99.*upgrade dragoman"):
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


# --- the page about stores -------------------------------------------------------------------------------------------

ADDRESS = "postgresql://app@db.internal/talk"


def test_the_example_runs(server: Server, schema: str) -> None:
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
