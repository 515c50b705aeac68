"""Damaged stores and two thousand hostile ids: what comes out is what was written, or a typed error."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import psycopg
import pytest

from dragoman.conversation import Message
from dragoman.errors import DragomanError, InvalidSnapshotIDError
from dragoman.stores.journal import MessageAdded
from dragoman.stores.postgres import PostgresStore
from dragoman.stores.sealing import AesGcmSealing, Sealing
from dragoman.stores.snapshot import Snapshot
from tests.rounds import rounds
from tests.stores.contract import after, chain
from tests.stores.hostile import hostile_ids
from tests.stores.postgres_server import Server

STEPS = [MessageAdded(Message.user("a step"))]
DAMAGES = rounds(1000)
"""Sealed, and as many not."""

TABLES = {
    "chain": {"root": "uuid", "newest": "uuid", "place": "int4", "rank": "int8", "at": "int8", "provider": "bytea"},
    "snapshot": {"id": "uuid", "root": "uuid", "place": "int4", "spans": "int4[]", "summary": "bytea", "body": "bytea"},
    "message": {"root": "uuid", "line": "int4", "position": "int4", "body": "bytea"},
    "journal": {"root": "uuid", "position": "int4", "body": "bytea"},
    "words": {"root": "uuid", "line": "int4", "position": "int4", "text": "bytea", "grams": "int4[]"},
    "setting": {"name": "text", "value": "text"},
    "migration": {"version": "int4"},
}
VALUES: dict[str, list[object]] = {
    "uuid": ["00000000-0000-0000-0000-000000000000", "018f3c5e-7a10-7cc3-98c4-dc0c0c07398f"],
    "int4": [0, -1, 1, 7, 2**31 - 1, -(2**31)],
    "int8": [0, -1, 2**63 - 1, -(2**63), None],
    "int4[]": [[], [[1]], [1, 2, 3], [[1, 0, 2**31 - 1]], [[2, 5, 1]], [[1, 0, 1], [1, 0, 1]], [[None, 1, 2]], [[[1]]]],
    "bytea": [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\x00",
        b'{"count":1}',
        b"\xd7DGS",
        b"\xd7DGS\x01" + bytes(60),
        bytes(20),
    ],
    "text": ["", "mode", "sealed", "open", "x"],
}


def damage(connection: psycopg.Connection, schema: str, draw: random.Random) -> int:
    """Change, cut or delete one thing in some rows of one table; how many."""
    table = draw.choice(
        ["chain", "snapshot", "snapshot", "message", "message", "journal", "words", "setting", "migration"]
    )
    column = draw.choice(list(TABLES[table]))
    kind = TABLES[table][column]
    some = "WHERE random() < 0.5"
    match draw.randrange(6):
        case 0:
            sql, values = f"DELETE FROM {schema}.{table} {some}", ()
        case 1 if kind == "bytea":
            sql, values = f"UPDATE {schema}.{table} SET {column} = substr({column}, 1, length({column}) / 2) {some}", ()
        case 2 if kind == "bytea":
            flip = f"set_byte({column}, %s %% length({column}), %s)"
            sql = f"UPDATE {schema}.{table} SET {column} = {flip} {some} AND length({column}) > 0"
            values = (draw.randrange(10_000), draw.randrange(256))
        case 3 if kind != "text":  # what belongs elsewhere
            other = f"(SELECT {column} FROM {schema}.{table} ORDER BY random() LIMIT 1)"
            sql, values = f"UPDATE {schema}.{table} SET {column} = {other} {some}", ()
        case _:
            sql, values = f"UPDATE {schema}.{table} SET {column} = %s::{kind} {some}", (draw.choice(VALUES[kind]),)
    return connection.execute(sql.encode(), values or None).rowcount


def damage_something(connection: psycopg.Connection, schema: str, draw: random.Random) -> None:
    """Try until something has really been changed: the server does not let everything happen."""
    for _ in range(100):
        try:
            if damage(connection, schema, draw):
                return
        except psycopg.Error:
            continue
    raise AssertionError("nothing could be damaged")


def made(store: PostgresStore) -> list[Snapshot]:
    points = chain(store, 3, said="the weather in Lyon") + chain(store, 1)
    cut = points[2].next(points[2].conversation.up_to(1).plus(Message.user("another way")))
    store.save(cut)
    store.record(cut.id, STEPS, after=0)
    return [*points, cut]


def use(store: PostgresStore, points: list[Snapshot]) -> int:
    """Try everything; the number of errors, which are ours."""
    failed = 0

    def ask(work: Callable[[], object]) -> object:
        nonlocal failed
        try:
            return work()
        except DragomanError:
            failed += 1
            return None

    for point in points:
        loaded = ask(lambda point=point: store.load(point.id))
        assert loaded is None or loaded == point
    page = ask(store.list)
    failed += len(page.unreadable) if page else 0
    ask(lambda: store.list(text="weather", provider="openai", limit=1))
    history = ask(lambda: store.history(points[0].id))
    failed += len(history.unreadable) if history else 0
    if store.can_search:
        ask(lambda: store.search("weather"))
    newest = ask(lambda: store.latest(points[0].id))
    journal = ask(lambda: store.journal(points[0].id))
    ask(lambda: store.record(points[-1].id, STEPS, after=1))
    if isinstance(newest, Snapshot) and journal is not None:
        longer = after(newest, "on")
        saved = ask(lambda: (store.save(longer, after=2), True))
        if saved:
            assert store.load(longer.id) == longer  # whatever the damage: what is acknowledged is there
    ask(store.reseal)
    ask(lambda: store.delete(points[3].id))
    return failed


@pytest.fixture(params=[None, AesGcmSealing(bytes(range(32)))], ids=["open", "sealed"])
def sealing(request: pytest.FixtureRequest) -> Sealing | None:
    return request.param


@pytest.fixture
def template(server: Server, schema: str, sealing: Sealing | None) -> Iterator[tuple[str, list[Snapshot]]]:
    with PostgresStore(server.conninfo, schema=schema, sealing=sealing) as store:
        yield schema, made(store)


def restore(connection: psycopg.Connection, schema: str) -> None:
    anew = [f"DELETE FROM {schema}.{table}; INSERT INTO {schema}.{table} TABLE kept.{table}" for table in TABLES]
    connection.execute("; ".join(["BEGIN", *anew, "COMMIT"]).encode())


@pytest.mark.slow
def test_damage_is_a_typed_error(server: Server, template: tuple[str, list[Snapshot]], sealing: Sealing | None) -> None:
    schema, points = template
    broken = 0
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        for table in TABLES:  # constraints away: damage does not ask for permission
            for index in connection.execute(
                "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s::regclass AND indisunique "
                "AND NOT indisprimary",
                (f"{schema}.{table}",),
            ).fetchall():
                connection.execute(f"DROP INDEX {index[0]}".encode())
        connection.execute("DROP SCHEMA IF EXISTS kept CASCADE; CREATE SCHEMA kept")
        for table in TABLES:
            connection.execute(f"CREATE TABLE kept.{table} AS TABLE {schema}.{table}".encode())
        try:
            for seed in range(-1, DAMAGES):
                restore(connection, schema)
                if seed >= 0:
                    damage_something(connection, schema, random.Random(seed))
                with PostgresStore(server.conninfo, schema=schema, sealing=sealing, timeout=5) as store:
                    failed = use(store, points)
                assert seed >= 0 or failed == 0
                broken += bool(failed)
        finally:
            connection.execute("DROP SCHEMA kept CASCADE")
    assert broken > DAMAGES // 10  # the damage is real


@pytest.mark.slow
def test_hostile_ids_are_refused_before_anything_is_sent(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema) as store:
        [one] = chain(store, 1)
        store._runner.close()  # whoever still wanted to send something would get another error
        for text in hostile_ids(2000):
            for ask in (store.load, store.latest, store.history, store.delete, store.journal):
                with pytest.raises(InvalidSnapshotIDError):
                    ask(text)
            with pytest.raises(InvalidSnapshotIDError):
                store.record(text, STEPS, after=0)
    with PostgresStore(server.conninfo, schema=schema) as store:
        assert store.load(one.id) == one
