"""Any plain store for asyncio.

Owns: AsyncStore, which runs a plain store's methods in worker threads of its own.
Must not know: any particular store.

A call that is cancelled before a thread took it up is never carried out. One that is under way cannot be stopped: the
cancelled task waits until it is through, so that nothing goes on behind the program's back and no lock stays held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from .blocking import BlockingStore
from .protocol import ConversationStore, closed_store

_THREADS: Final = 4
"""Few: writers wait for each other anyway."""

_T = TypeVar("_T")


class AsyncStore(BlockingStore):
    """A plain store as an AsyncConversationStore. Closing it closes the store."""

    def __init__(self, store: ConversationStore) -> None:
        super().__init__(store)
        self._threads: Final = ThreadPoolExecutor(_THREADS, thread_name_prefix="dragoman-store")

    async def aclose(self) -> None:
        """Wait for what is under way, then close the store."""
        closing = asyncio.get_running_loop().run_in_executor(None, self._close)
        await _to_the_end(closing, lambda: False)

    def _close(self) -> None:
        self._threads.shutdown(wait=True)
        self.store.close()

    async def _run(self, work: Callable[[], _T]) -> _T:
        try:
            begun = self._threads.submit(work)
        except RuntimeError:  # it takes no more work
            raise closed_store() from None
        return await _to_the_end(asyncio.wrap_future(begun), begun.cancel)


async def _to_the_end(future: asyncio.Future[_T], withdraw: Callable[[], bool]) -> _T:
    """The result of work in a thread; when cancelled, only after the work is done or could be withdrawn."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        withdraw()
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:  # being asked twice does not make it faster
                continue
        if not future.cancelled():
            future.exception()  # looked at, so that nobody warns about it
        raise
