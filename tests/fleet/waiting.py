"""Tests that are coroutines, and waiting in them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

from dragoman.errors import FleetError
from dragoman.fleet import AsyncFleet, Worker
from tests.fleet.program import Setup, make_worker

P = ParamSpec("P")

LONG = 30.0
"""Seconds after which what is waited for is not expected any more."""


def on_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that runs on an event loop of its own."""

    @functools.wraps(test)
    def run(*arguments: P.args, **fixtures: P.kwargs) -> None:
        asyncio.run(test(*arguments, **fixtures))

    return run


async def until(condition: Callable[[], Awaitable[object] | object]) -> None:
    """Wait for something that nobody tells of."""
    async with asyncio.timeout(LONG):
        while True:
            found = condition()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.02)


async def offered(fleet: AsyncFleet, agents: int = 1) -> None:
    """Wait until workers have said what they have."""

    async def look() -> bool:
        try:
            return len(await fleet.status()) >= agents
        except FleetError:  # the first of them is still making the tables
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
    """A fleet whose workers have said what they have: these, or one that is told the setup."""
    async with at_work(*workers or [make_worker(setup)]), AsyncFleet(setup.url, schema=setup.schema) as fleet:
        await offered(fleet, agents)
        yield fleet
