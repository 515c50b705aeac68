"""AsyncStore: a sync store for asyncio, in worker threads.

A call that is cancelled before a thread took it up is never carried out. A running one is told to stop: if it waits for
a lock or a server, it ends at once, otherwise it is carried out. The cancelled task waits for that, so that nothing
continues unseen.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from dragoman._stop import Stop, stopping

from .blocking import BlockingStore
from .protocol import ConversationStore, closed_store

_T = TypeVar("_T")


class AsyncStore(BlockingStore):
    """A sync store for asyncio, in worker threads. Closing it closes the store.

    `threads` is how many calls can run at once; few are enough, since writers wait for each other.
    """

    def __init__(self, store: ConversationStore, *, threads: int = 4) -> None:
        super().__init__(store)
        self._count: Final = threads
        self._process: int = 0
        self._workers()

    def _workers(self) -> ThreadPoolExecutor:
        if self._process != os.getpid():  # the child of a fork does not have the parent's threads
            self._process = os.getpid()
            self._threads: ThreadPoolExecutor = ThreadPoolExecutor(self._count, thread_name_prefix="dragoman-store")
        return self._threads

    async def aclose(self) -> None:
        """Wait for running calls, then close the store."""
        closing = asyncio.get_running_loop().run_in_executor(None, self._close)
        await _finish(closing, lambda: None)

    def _close(self) -> None:
        self._workers().shutdown(wait=True)
        self.store.close()

    async def run(self, work: Callable[[], _T]) -> _T:
        stop = Stop()

        def stoppable() -> _T:
            with stopping(stop):
                return work()

        def cancel() -> None:
            submitted.cancel()
            stop.cancel()

        try:
            submitted = self._workers().submit(stoppable)
        except RuntimeError:  # the executor was shut down
            raise closed_store() from None
        return await _finish(asyncio.wrap_future(submitted), cancel)


async def _finish(future: asyncio.Future[_T], cancel: Callable[[], object]) -> _T:
    """Wait for work in a thread; when cancelled, also until the work has ended."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        cancel()
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:  # a second cancellation changes nothing
                continue
        if not future.cancelled():
            future.exception()  # retrieved, so that asyncio does not warn about it
        raise
