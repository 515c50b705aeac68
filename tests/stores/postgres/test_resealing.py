"""Sealing a store again: what holds for every store holds here, and nothing readable stays in the tables."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from dragoman.errors import ConfigurationError, SnapshotCorruptError
from dragoman.stores.postgres import AsyncPostgresStore, PostgresStore
from dragoman.stores.protocol import ConversationStore
from dragoman.stores.sealing import AesGcmSealing, ResealProgress, Sealing, areseal, reseal
from tests.stores.contract import after, chain, first
from tests.stores.postgres_server import Server
from tests.stores.sealing.test_resealing import (
    NEW,
    OLD,
    Opened,
    check,
    filled,
    test_after_resealing_the_old_key_is_no_longer_needed,
    test_an_empty_store_and_one_that_is_not_sealed,
    test_an_interrupt_in_the_middle_of_a_conversation_leaves_it_whole,
    test_it_can_be_broken_off_anywhere_and_continued,
    test_others_may_save_meanwhile,
    test_summaries_can_be_laid_open_and_closed_again,
    test_what_no_key_opens_is_named_and_left,
    test_without_a_key_a_sealed_store_is_not_touched,
)

__all__ = [
    "test_after_resealing_the_old_key_is_no_longer_needed",
    "test_an_empty_store_and_one_that_is_not_sealed",
    "test_an_interrupt_in_the_middle_of_a_conversation_leaves_it_whole",
    "test_it_can_be_broken_off_anywhere_and_continued",
    "test_others_may_save_meanwhile",
    "test_summaries_can_be_laid_open_and_closed_again",
    "test_what_no_key_opens_is_named_and_left",
    "test_without_a_key_a_sealed_store_is_not_touched",
]

TABLES = ("chain", "snapshot", "message", "journal", "words", "setting")


@pytest.fixture
def at(server: Server, schema: str) -> Opened:
    def opened(sealing: Sealing | None, listing: str = "sealed") -> ConversationStore:
        return PostgresStore(server.conninfo, schema=schema, sealing=sealing, listing=listing)  # type: ignore[arg-type]

    return opened


def kept(server: Server, schema: str) -> bytes:
    """Everything in the tables, as bytes."""
    with psycopg.connect(server.conninfo) as connection:
        return b"\n".join(
            value if isinstance(value, bytes) else str(value).encode()
            for table in TABLES
            for row in connection.execute(f"SELECT * FROM {schema}.{table}").fetchall()
            for value in row
        )


def test_a_store_can_be_sealed_for_the_first_time(at: Opened, server: Server, schema: str) -> None:
    with at(None) as store:
        chains = filled(store)
        order = [item.id for item in store.list().items]
    assert b"conversation 3" in kept(server, schema)
    with at(AesGcmSealing(NEW)) as store, pytest.raises(ConfigurationError, match="reseal"):
        store.save(first("sealed among the open"))
    with at(AesGcmSealing(NEW, accept_plain=True)) as store:
        reseal(store)
    with at(AesGcmSealing(NEW)) as store:
        check(store, chains)
        assert [item.id for item in store.list().items] == order
        longer = after(chains[0][-1], "going on")
        store.save(longer, after=3)
        assert store.list().items[0].id == longer.id
    for readable in (b"conversation ", b"a step", b"openai", b"gpt-5", b"going on"):
        assert readable not in kept(server, schema)
    with psycopg.connect(server.conninfo) as connection:
        query = f"SELECT count(*) FROM {schema}.chain WHERE at IS NOT NULL OR rank > 100 OR provider IS NOT NULL"
        assert connection.execute(query.encode()).fetchone() == (0,)


def test_rows_in_the_place_of_others_do_not_open(at: Opened, server: Server, schema: str) -> None:
    with at(AesGcmSealing(NEW)) as store:
        one, two = chain(store, 2), chain(store, 2)
        with psycopg.connect(server.conninfo) as connection:
            for table, column in (("message", "line"), ("snapshot", "place")):
                connection.execute(
                    f"UPDATE {schema}.{table} t SET body = o.body FROM {schema}.{table} o "
                    f"WHERE t.root = '{one[0].id}' AND o.root = '{two[0].id}' AND t.{column} = o.{column}".encode()
                )
        for point in one:
            with pytest.raises(SnapshotCorruptError):
                store.load(point.id)
        assert [store.load(point.id) for point in two] == two


def test_an_async_store_is_walked_the_same_way(at: Opened, server: Server, schema: str) -> None:
    with at(AesGcmSealing(OLD)) as store:
        chains = filled(store)

    async def work() -> ResealProgress:
        sealing = AesGcmSealing(NEW, older=[OLD])
        async with AsyncPostgresStore(server.conninfo, schema=schema, sealing=sealing) as store:
            return await areseal(store)

    assert asyncio.run(work()) == ResealProgress(done=5, total=5)
    with at(AesGcmSealing(NEW)) as store:
        check(store, chains)
