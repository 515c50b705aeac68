"""Any plain store for asyncio.

Owns: AsyncStore, which runs a plain store's methods in worker threads of its own.
Must not know: any particular store.

A call that is cancelled before a thread took it up is never carried out. One that is under way is told to stop: where
it waits for a lock or a server it ends at once, and else it is carried out. The cancelled task waits for that, so that
nothing goes on behind the program's back.
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
    """A plain store as an AsyncConversationStore, in worker threads. Closing it closes the store.

    `threads` is how many calls can be under way at once; few, since writers wait for each other anyway.
    """

    def __init__(self, store: ConversationStore, *, threads: int = 4) -> None:
        super().__init__(store)
        self._most: Final = threads
        self._process: int = 0
        self._workers()

    def _workers(self) -> ThreadPoolExecutor:
        if self._process != os.getpid():  # the threads of a parent process do not come along when it forks
            self._process = os.getpid()
            self._threads: ThreadPoolExecutor = ThreadPoolExecutor(self._most, thread_name_prefix="dragoman-store")
        return self._threads

    async def aclose(self) -> None:
        """Wait for what is under way, then close the store."""
        closing = asyncio.get_running_loop().run_in_executor(None, self._close)
        await _to_the_end(closing, lambda: None)

    def _close(self) -> None:
        self._workers().shutdown(wait=True)
        self.store.close()

    async def run(self, work: Callable[[], _T]) -> _T:
        stop = Stop()

        def stoppable() -> _T:
            with stopping(stop):
                return work()

        def end() -> None:
            begun.cancel()
            stop.cancel()

        try:
            begun = self._workers().submit(stoppable)
        except RuntimeError:  # it takes no more work
            raise closed_store() from None
        return await _to_the_end(asyncio.wrap_future(begun), end)


async def _to_the_end(future: asyncio.Future[_T], end: Callable[[], object]) -> _T:
    """The result of work in a thread; when cancelled, only after the work is done or could be ended."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        end()
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:  # being asked twice does not make it faster
                continue
        if not future.cancelled():
            future.exception()  # looked at, so that nobody warns about it
        raise
