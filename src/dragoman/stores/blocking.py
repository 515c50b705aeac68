"""Sync stores in async code; and `resume` and `copy_conversations`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial, wraps
from types import CoroutineType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from dragoman._stepping import step
from dragoman.errors import SnapshotError, StoreConflictError

from .journal import Recovered, recovered
from .listing import Page, Unreadable
from .protocol import ConversationStore

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _async_method(
    method: Callable[Concatenate[ConversationStore, _P], _T],
) -> Callable[Concatenate[Any, _P], CoroutineType[Any, Any, _T]]:

    @wraps(method)
    async def call(self: AsyncConversationStore, *args: _P.args, **options: _P.kwargs) -> _T:
        return await self.run(partial(getattr(self.store, method.__name__), *args, **options))

    return call


class AsyncConversationStore(ABC):
    """The methods of a ConversationStore as coroutines; AsyncStore is the one for asyncio.

    When a cancelled call raises, it has been carried out in full or not at all.
    """

    def __init__(self, store: ConversationStore) -> None:
        self.store: Final = store
        self.can_search: bool = store.can_search

    save = _async_method(ConversationStore.save)
    load = _async_method(ConversationStore.load)
    latest = _async_method(ConversationStore.latest)
    list = _async_method(ConversationStore.list)
    history = _async_method(ConversationStore.history)
    search = _async_method(ConversationStore.search)
    delete = _async_method(ConversationStore.delete)
    record = _async_method(ConversationStore.record)
    journal = _async_method(ConversationStore.journal)

    async def aclose(self) -> None:
        """Close the store."""
        self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    @abstractmethod
    async def run(self, work: Callable[[], _T]) -> _T:
        """Run this like a method of the store."""


class BlockingStore(AsyncConversationStore):
    """A store whose methods block and never suspend, for code that is stepped."""

    async def run(self, work: Callable[[], _T]) -> _T:
        return work()


# --- resuming --------------------------------------------------------------------------------------------------------

_TRIES: Final = 20
"""Snapshot and journal are read one after the other: if somebody saves in between, both are read again."""


def resume(store: ConversationStore, id: str) -> Recovered:
    """Recover the conversation that contains this snapshot, with its journal."""
    return step(aresume(BlockingStore(store), id))


async def aresume(store: AsyncConversationStore, id: str) -> Recovered:
    """`resume` for an async store."""
    for _ in range(_TRIES):
        snapshot = await store.latest(id)
        journal = await store.journal(id)
        if journal.snapshot == snapshot.id:
            return recovered(snapshot, journal.entries)
    message = f"The conversation of {id} is being saved faster than it can be read."
    raise StoreConflictError(message, hint="Try again when the other program pauses.")


# --- copying ---------------------------------------------------------------------------------------------------------

_PAGE_SIZE: Final = 100


def copy_conversations(source: ConversationStore, target: ConversationStore) -> tuple[Unreadable, ...]:
    """Copy all conversations of a store into another, with their ids and journals, to move them or to change the key.

    Whatever the target already has stays unchanged, so the copy can be interrupted and started again, and repeated for
    what was saved in the meantime. Returns the entries that could not be read and were skipped. Raises
    StoreConflictError if somebody continued a conversation in the target.
    """
    pages = _read_pages(lambda cursor: source.list(limit=_PAGE_SIZE, cursor=cursor))
    unreadable = [each for page in pages for each in page.unreadable]
    for each in [item for page in reversed(pages) for item in reversed(page.items)]:  # so that the newest is saved last
        try:
            _copy_conversation(source, target, each.root)
        except SnapshotError as error:
            unreadable.append(Unreadable(id=each.id, problem=str(error)))
    return tuple(unreadable)


def _copy_conversation(source: ConversationStore, target: ConversationStore, id: str) -> None:
    pages = _read_pages(lambda cursor: source.history(id, limit=_PAGE_SIZE, cursor=cursor))
    for each in [item for page in reversed(pages) for item in reversed(page.items)]:
        snapshot = source.load(each.id)
        target.save(snapshot, after=target.journal(snapshot.parent).position if snapshot.parent else 0)
    journal, copied = source.journal(id), target.journal(id).position
    target.record(journal.snapshot, journal.entries[copied:], after=copied)


def _read_pages(read: Callable[[str | None], Page]) -> Sequence[Page]:
    pages = [read(None)]
    while (cursor := pages[-1].cursor) is not None:
        pages.append(read(cursor))
    return pages
