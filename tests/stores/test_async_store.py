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


def test_what_is_cancelled_is_carried_out_in_full_or_not_at_all(tmp_path: Path) -> None:
    async def main() -> None:
        slow = Slow(tmp_path / "store.db")
        async with AsyncStore(slow, threads=2) as store:
            one, late = first("x"), first("late")
            under_way = [asyncio.create_task(store.save(each)) for each in (one, after(late, "without a parent"))]
            await asyncio.to_thread(slow.under_way.wait, 30)
            waiting = asyncio.create_task(store.save(late))
            await asyncio.sleep(0)
            waiting.cancel()  # nobody has taken it up
            for _ in range(2):
                for task in under_way:
                    task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not any(task.done() for task in under_way)
            slow.go_on.set()
            for task in under_way:  # the error of the second is nobody's any more
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert await store.load(one.id) == one
            with pytest.raises(SnapshotNotFoundError):
                await store.load(late.id)
            await store.save(after(one, "y"))

    asyncio.run(main())


def test_many_tasks_and_several_loops_share_a_store(tmp_path: Path) -> None:
    store = AsyncStore(SqliteStore(tmp_path / "store.db"))

    async def some() -> None:
        await asyncio.gather(*[store.save(first(str(number))) for number in range(20)])

    async def end() -> None:
        assert len((await store.list()).items) == 40
        await store.aclose()
        await store.aclose()
        with pytest.raises(StoreError, match="closed"):
            await store.list()

    for main in (some, some, end):
        asyncio.run(main())
