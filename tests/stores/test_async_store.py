from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from dragoman.errors import SnapshotNotFoundError
from dragoman.stores import AsyncStore, Snapshot, SqliteStore
from tests.stores.cases import after, first


class Slow(SqliteStore):
    """Waits in a save until it is released."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.under_way = threading.Event()
        self.go_on = threading.Event()

    def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        self.under_way.set()
        assert self.go_on.wait(30)
        super().save(snapshot, after=after)


def test_a_cancelled_call_is_carried_out_in_full_or_not_at_all(tmp_path: Path) -> None:
    async def main() -> None:
        slow = Slow(tmp_path / "store.db")
        async with AsyncStore(slow, threads=2) as store:
            one, late = first("x"), first("late")
            under_way = [asyncio.create_task(store.save(each)) for each in (one, after(late, "without a parent"))]
            await asyncio.to_thread(slow.under_way.wait, 30)
            waiting = asyncio.create_task(store.save(late))
            await asyncio.sleep(0)
            waiting.cancel()  # before a thread took it up
            for _ in range(2):
                for task in under_way:
                    task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not any(task.done() for task in under_way)
            slow.go_on.set()
            for task in under_way:  # the error of the second is dropped
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert await store.load(one.id) == one
            with pytest.raises(SnapshotNotFoundError):
                await store.load(late.id)
            await store.save(after(one, "y"))

    asyncio.run(main())
