from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from dragoman.errors import SnapshotNotFoundError, StoreError
from dragoman.stores import AsyncStore, Snapshot, SqliteStore
from tests.stores.cases import after, first


class Slow(SqliteStore):
    """Waits in the middle of a save until it is let go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.under_way = threading.Event()
        self.go_on = threading.Event()

    def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        self.under_way.set()
        assert self.go_on.wait(30)
        super().save(snapshot, after=after)


def test_a_cancelled_save_is_carried_out_in_full_before_the_task_ends(tmp_path: Path) -> None:
    async def main() -> None:
        slow = Slow(tmp_path / "store.db")
        async with AsyncStore(slow) as store:
            one = first("x")
            task = asyncio.create_task(store.save(one))
            await asyncio.to_thread(slow.under_way.wait, 30)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
            slow.go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await store.load(one.id) == one
            await store.save(after(one, "y"))

    asyncio.run(main())


def test_what_was_cancelled_before_it_began_is_not_carried_out(tmp_path: Path) -> None:
    async def main() -> None:
        slow = Slow(tmp_path / "store.db")
        async with AsyncStore(slow) as store:
            blocking = [asyncio.create_task(store.save(first("x"))) for _ in range(4)]
            await asyncio.to_thread(slow.under_way.wait, 30)
            late = first("late")
            task = asyncio.create_task(store.save(late))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            slow.go_on.set()
            await asyncio.gather(*blocking)
            with pytest.raises(SnapshotNotFoundError):
                await store.load(late.id)

    asyncio.run(main())


def test_a_cancelled_task_hides_the_error_of_its_save(tmp_path: Path) -> None:
    async def main() -> None:
        slow = Slow(tmp_path / "store.db")
        async with AsyncStore(slow) as store:
            task = asyncio.create_task(store.save(after(first("x"), "y")))  # a parent that is not there
            await asyncio.to_thread(slow.under_way.wait, 30)
            task.cancel()
            slow.go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


def test_many_tasks_and_several_loops_share_a_store(tmp_path: Path) -> None:
    store = AsyncStore(SqliteStore(tmp_path / "store.db"))

    async def some() -> None:
        await asyncio.gather(*[store.save(first(str(number))) for number in range(20)])

    asyncio.run(some())
    asyncio.run(some())

    async def end() -> None:
        assert len((await store.list()).items) == 40
        await store.aclose()
        await store.aclose()
        with pytest.raises(StoreError, match="closed"):
            await store.list()

    asyncio.run(end())
