"""Workers of these tests, and waiting for what they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from dragoman.errors import FleetError
from dragoman.fleet import AsyncFleet, Worker
from tests.fleet.program import Setup, make_worker

LONG = 30.0
"""Seconds after which waiting fails."""


async def until(condition: Callable[[], Awaitable[object] | object]) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(LONG):
        while True:
            found = condition()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.02)


async def offered(fleet: AsyncFleet, agents: int = 1) -> None:
    """Wait until workers have offered their agents."""

    async def look() -> bool:
        try:
            return len(await fleet.status()) >= agents
        except FleetError:  # the first worker is still creating the tables
            return False

    await until(look)


@asynccontextmanager
async def at_work(*workers: Worker) -> AsyncIterator[None]:
    """Workers of this process; told to stop at the end of the block."""
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield
    finally:
        for worker, task in zip(workers, tasks, strict=True):
            if not task.done():
                worker.stop()
            await task


@asynccontextmanager
async def fleet_at_work(setup: Setup, *workers: Worker, agents: int = 1) -> AsyncIterator[AsyncFleet]:
    """A fleet whose workers, these or one of the setup, have offered their agents."""
    async with at_work(*workers or [make_worker(setup)]), AsyncFleet(setup.url, schema=setup.schema) as fleet:
        await offered(fleet, agents)
        yield fleet
