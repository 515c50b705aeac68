"""What is particular to PostgresStore: what is written to the server, and what it can hold."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from msgspec import structs

from dragoman.conversation import Conversation, Message
from dragoman.errors import ConversationError, InvalidCursorError, StoreConflictError
from dragoman.stores.journal import MessageAdded
from dragoman.stores.postgres import PostgresStore
from dragoman.stores.postgres.opening import Attempt
from dragoman.stores.postgres.reading import Filters
from dragoman.stores.postgres.spans import MAX_SPANS
from dragoman.stores.sealing import AesGcmSealing
from dragoman.stores.snapshot import Snapshot
from dragoman.stores.summary import cursor_text
from tests.stores.contract import NOON, after, chain, first, pages
from tests.stores.postgres_server import Server


def count(server: Server, what: str) -> int:
    with psycopg.connect(server.conninfo) as connection:
        [[found]] = connection.execute(f"SELECT count(*) FROM {what}".encode()).fetchall()
    return found


def written(server: Server) -> int:
    """How many bytes the server has written to its log: everything that it writes goes there first."""
    with psycopg.connect(server.conninfo) as connection:
        [[found]] = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchall()
    return int(found)


def test_a_message_is_written_once(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema) as store:
        points = chain(store, 30)
        assert count(server, f"{schema}.message") == 30
        loaded = store.load(points[-1].id)
        store.save(after(loaded, "more"))
        assert count(server, f"{schema}.message") == 31
        # The end replaced: what stays is not written again.
        newest = store.latest(points[0].id)
        other = newest.next(newest.conversation.up_to(29).plus(Message.user("another end")))
        store.save(other)
        assert count(server, f"{schema}.message") == 32
        store.save(other.next(other.conversation.up_to(10)))
        assert count(server, f"{schema}.message") == 32


@pytest.mark.parametrize("sealed", [False, True])
def test_a_turn_writes_as_much_as_any_other(server: Server, schema: str, sealed: bool) -> None:
    sealing = AesGcmSealing(b"k" * 32) if sealed else None
    with PostgresStore(server.conninfo, schema=schema, sealing=sealing) as store:
        point = first(*[f"message {number} " + "x" * 400 for number in range(5)])
        store.save(point)

        def turns(number: int) -> int:
            nonlocal point
            before = written(server)
            for each in range(number):
                point = after(point, f"turn {each} " + "y" * 400, f"reply {each} " + "z" * 400)
                store.save(point)
            return written(server) - before

        def undisturbed() -> int:
            return min(turns(60) for _ in range(3))  # the server also tidies up, when it likes

        def growing(total: int) -> None:
            nonlocal point
            point = after(point, *[f"message {number} " + "x" * 400 for number in range(total)])
            store.save(point)

        turns(30)
        short = undisturbed()
        growing(2000)
        long = undisturbed()
    assert long < 2 * short  # after two thousand messages; a history written anew would be a hundred times as much


def test_an_end_that_is_replaced_again_and_again(server: Server, schema: str) -> None:
    """As by a program that saves a reply while it arrives."""
    with PostgresStore(server.conninfo, schema=schema) as store:
        points = [first(*[f"message {number}" for number in range(50)])]
        store.save(points[0])
        for number in range(3 * MAX_SPANS):
            last = points[-1].conversation
            points.append(points[-1].next(last.up_to(len(last.messages) - 1).plus(*[Message.user(f"{number}")] * 2)))
            store.save(points[-1])
        for point in points:
            assert store.load(point.id) == point
        with psycopg.connect(server.conninfo) as connection:
            [[most]] = connection.execute(f"SELECT max(cardinality(spans)) / 3 FROM {schema}.snapshot").fetchall()
        assert most <= MAX_SPANS + 1
        assert count(server, f"{schema}.message") < 6 * len(points[-1].messages)


def test_texts_that_postgres_does_not_like(server: Server, schema: str) -> None:
    odd = "a\0b \\x41 \\000 'quoted' $1 %s {s} \u202e \U0001f600 \uffff"
    with PostgresStore(server.conninfo, schema=schema) as store:
        snapshot = Snapshot.first(
            Conversation(odd, (Message.user(odd),), metadata={odd: odd}), provider=odd, model=odd, title=odd
        )
        store.save(snapshot)
        store.record(snapshot.id, [MessageAdded(Message.user(odd))], after=0)
        assert store.load(snapshot.id) == snapshot
        assert [item.title for item in store.list(provider=odd, text="A\0B").items] == [odd]
        assert store.journal(snapshot.id).entries == (MessageAdded(Message.user(odd)),)
        assert [item.id for item in store.search("QUOTED 😀 %s").items] == [snapshot.id]
        assert store.list(provider="\ud800").items == store.list(text="\ud800").items == ()
        for changed in ({"provider": "\ud800"}, {"title": "\ud800"}, {"model": "\ud800"}):
            with pytest.raises(ConversationError):
                store.save(structs.replace(first("x"), **changed))
        assert len(store.list().items) == 1


def test_a_database_with_another_encoding(server: Server, schema: str) -> None:
    """Everything is bytes, so it does not matter what the database takes for text."""
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    try:
        with PostgresStore(server.conninfo_for(user="postgres", database="latin"), schema=schema) as store:
            points = chain(store, 2, said="Größe 天气 \0")
            assert store.latest(points[0].id) == points[-1]
            assert len(store.search("GRÖSSE 天").items) == 1
    finally:
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            connection.execute("DROP DATABASE latin WITH (FORCE)")


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
        kind = Filters().kind()
        for parts in (
            (), (1,), ("1", points[0].id), (2**64, points[0].id), (-(2**70), points[0].id), (1.5, points[0].id),
            (1, "x"), (1, points[0].id + "\n"), (1, points[0].id.upper()), (1, None), (None, points[0].id), (1, 2, 3),
        ):  # fmt: skip
            with pytest.raises(InvalidCursorError):
                store.list(cursor=cursor_text(kind, parts))
        other = chain(store, 2)
        of_other = store.history(other[0].id, limit=1).cursor
        for cursor in (of_other, *[cursor_text("postgres.history", (points[0].id, at)) for at in (-1, 2**31, "1")]):
            with pytest.raises(InvalidCursorError):
                store.history(points[0].id, cursor=cursor)
        assert store.history(points[0].id, cursor=cursor_text("postgres.history", (points[0].id, 0))).items == ()
        assert store.history(points[2].id, cursor=store.history(points[0].id, limit=1).cursor).items


def test_equal_values_in_other_bytes_are_the_same_snapshot(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema) as store:
        one = Snapshot.first(Conversation(metadata={"a": 1, "b": 2}), provider="p", model="m")
        store.save(one)
        store.save(structs.replace(one, conversation=Conversation(metadata={"b": 2, "a": 1})))
        with pytest.raises(StoreConflictError):
            store.save(structs.replace(one, conversation=Conversation(metadata={"b": 2, "a": 2})))


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
        assert store._runner._with_connection(Attempt(), lambda found: found.execute(sql).fetchone()) == (0,)


def test_few_connections_are_made(server: Server, schema: str) -> None:
    with PostgresStore(f"{server.conninfo} application_name=counted", schema=schema) as store:
        points = chain(store, 5)
        for _ in range(5):
            store.list()
            store.load(points[0].id)
        assert count(server, "pg_stat_activity WHERE application_name = 'counted'") == 1
    assert count(server, "pg_stat_activity WHERE application_name = 'counted' AND state <> 'idle'") == 0


def test_what_it_is_called(server: Server, schema: str) -> None:
    with PostgresStore("postgresql://me:secret-7@db.example.org:5433/talk?sslmode=require", schema=schema) as store:
        assert repr(store) == f"PostgresStore('host=db.example.org port=5433 dbname=talk user=me', schema={schema!r})"
