"""What is particular to AsyncPostgresStore: tasks, cancellation, event loops."""

from __future__ import annotations

import asyncio
import threading

import psycopg
import pytest

from dragoman.conversation import Message
from dragoman.errors import SnapshotNotFoundError, StoreConflictError, StoreError, StoreUnavailableError
from dragoman.stores.journal import MessageAdded
from dragoman.stores.journal import aresume
from dragoman.stores.postgres import AsyncPostgresStore, PostgresStore
from dragoman.stores.postgres.opening import Attempt
from dragoman.stores.snapshot import Snapshot
from tests.stores.contract import after, chain, first
from tests.stores.postgres_server import Server


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


def test_of_rivals_one_wins(server: Server, schema: str) -> None:
    async def main() -> None:
        async with AsyncPostgresStore(server.conninfo, schema=schema) as store:
            one = first("x")
            await store.save(one)
            rivals = [after(one, f"rival {number}") for number in range(10)]
            ends = await asyncio.gather(*[store.save(rival) for rival in rivals], return_exceptions=True)
            assert [end for end in ends if end is None] == [None]
            assert all(end is None or isinstance(end, StoreConflictError) for end in ends)

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


def test_loops_in_several_threads(server: Server, schema: str) -> None:
    store = AsyncPostgresStore(server.conninfo, schema=schema, connections=2)
    failures: list[BaseException] = []

    async def main(number: int) -> None:
        for turn in range(5):
            point = first(f"{number} {turn}")
            await store.save(point)
            assert await store.load(point.id) == point

    def run(number: int) -> None:
        try:
            for _ in range(2):
                asyncio.run(main(number))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    asyncio.run(store.aclose())
    with PostgresStore(server.conninfo, schema=schema) as plain:
        assert len(plain.list().items) == 40


def test_a_busy_store_says_so(server: Server, schema: str) -> None:
    async def main() -> None:
        async with AsyncPostgresStore(server.conninfo, schema=schema, connections=1, timeout=0.2) as store:
            await store.list()
            async with store._runner._connection(Attempt()):
                with pytest.raises(StoreUnavailableError, match="All 1 connections"):
                    await store.list()
            await store.list()

    asyncio.run(main())


def test_closing_while_it_is_used(server: Server, schema: str) -> None:
    async def main() -> None:
        store = AsyncPostgresStore(server.conninfo, schema=schema)
        points = [first(f"{number}") for number in range(20)]
        await store.save(points[0])
        tasks = [asyncio.create_task(store.save(point)) for point in points[1:]]
        await asyncio.sleep(0.005)
        await store.aclose()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(end is None or (isinstance(end, StoreError) and "closed" in str(end)) for end in ends)
        assert not store._runner._idle
        with PostgresStore(server.conninfo, schema=schema) as plain:
            assert len(plain.list().items) == 1 + ends.count(None)

    asyncio.run(main())


def test_both_colours_read_what_the_other_wrote(server: Server, schema: str) -> None:
    with PostgresStore(server.conninfo, schema=schema) as store:
        points = chain(store, 3)

        async def main() -> Snapshot:
            async with AsyncPostgresStore(server.conninfo, schema=schema) as other:
                newest = await other.latest(points[0].id)
                longer = after(newest, "from the other")
                await other.save(longer)
                return longer

        longer = asyncio.run(main())
        assert store.latest(points[0].id) == longer
