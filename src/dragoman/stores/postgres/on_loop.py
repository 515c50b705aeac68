"""Work carried out on event loops.

Owns: a few connections, each lent to one task at a time; transactions; forks.
Must not know: what the work is for. The twin of plain.py, and no longer than it.

Idle connections belong to no loop, so a program may call `asyncio.run` several times with one store, or have loops in
several threads. How many connections are in use is counted for each loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from dragoman._chance import chance

from . import driver
from .driver import AsyncConnection
from .opening import MAX_IDLE, Attempt, Options, closed, exhausted
from .troubles import Retries
from .work import Steps, Work

__all__ = ["AsyncRunner"]

_T = TypeVar("_T")


class AsyncRunner:
    """Carries out work on the server at this address."""

    def __init__(
        self,
        conninfo: str,
        options: Options,
        migration: Work[None],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = chance,
    ) -> None:
        self.address: Final = driver.address_of(conninfo, options.timeout, prepared=options.prepared_statements)
        self._options: Final = options
        self._migration: Final = migration
        self._sleep: Final = sleep
        self._clock: Final = clock
        self._random: Final = random
        self._begin: Final = driver.begin(options.timeout)
        self._migrated: bool = False
        self._closed: bool = False
        self._start_anew()
        _runners.add(self)

    async def run(self, work: Work[_T]) -> _T:
        """Carry the work out; again where that is safe and may help."""
        if not self._migrated:
            await self._run(self._migration)
            self._migrated = True
        return await self._run(work)

    def close(self) -> None:
        """Close the connections that nobody uses; the others follow when they are given back."""
        self._closed = True
        self._drop_idle()

    async def _run(self, work: Work[_T]) -> _T:
        retries = Retries(repeatable=work.repeatable, hide=self.address.password, random=self._random)
        while True:
            attempt = Attempt()
            try:
                return await self._try(work, attempt)
            except driver.ERRORS as error:
                seconds = retries.pause(attempt.failed(error, silent=driver.is_silent(error)))
            if attempt.lost:
                self._drop_idle()
            await self._sleep(seconds)

    async def _try(self, work: Work[_T], attempt: Attempt) -> _T:
        async with self._connection(attempt) as connection:
            attempt.stage = "working"
            if work.kind == "look":
                return await self._steps(work.steps(), connection)
            await connection.carry_out(self._begin, self._options.schema)
            result = await self._steps(work.steps(), connection)
            attempt.stage = "committing"
            await connection.commit_it()
            return result

    async def _steps(self, steps: Steps[_T], connection: AsyncConnection) -> _T:
        try:
            ask = next(steps)
            while True:
                rows = await connection.carry_out(ask, self._options.schema)
                ask = steps.send(rows)
        except StopIteration as end:
            return end.value
        finally:
            steps.close()

    # --- connections -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _connection(self, attempt: Attempt) -> AsyncGenerator[AsyncConnection]:
        if self._closed:
            raise closed()
        places = self._places_here()
        try:
            async with asyncio.timeout(self._options.timeout):
                await places.acquire()
        except TimeoutError:
            raise exhausted(self._options) from None
        try:
            connection = await self._take()
            try:
                yield connection
            except Exception:
                attempt.lost = driver.is_lost(connection)
                with suppress(*driver.ERRORS):
                    if not attempt.lost:
                        await connection.rollback()
                raise
            finally:
                self._give_back(connection)
        finally:
            places.release()

    def _places_here(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        with self._lock:
            places = self._places.get(loop)
            if places is None:
                places = self._places[loop] = asyncio.Semaphore(self._options.connections)
            return places

    async def _take(self) -> AsyncConnection:
        while self._idle:
            try:
                connection, since = self._idle.pop()
            except IndexError:
                break
            if not connection.closed and self._clock() - since < MAX_IDLE:
                return connection
            connection.pgconn.finish()
        connection = await AsyncConnection.connect(**self.address.parameters)
        connection.patience = self._options.timeout
        return connection

    def _give_back(self, connection: AsyncConnection) -> None:
        if self._closed or not driver.is_usable(connection):
            connection.pgconn.finish()
        else:
            self._idle.append((connection, self._clock()))
            if self._closed:
                self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                self._idle.pop()[0].pgconn.finish()

    def _start_anew(self) -> None:
        self._idle: deque[tuple[AsyncConnection, float]] = deque()
        self._places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        self._lock: threading.Lock = threading.Lock()


_runners: Final[WeakSet[AsyncRunner]] = WeakSet()


def _after_fork() -> None:
    for runner in list(_runners):
        runner._start_anew()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)
