"""Plain stores in code that awaits and is stepped; and what takes several calls of a store: resuming, copying.

Must not know: any particular store, event loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from types import CoroutineType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from dragoman._stepping import step
from dragoman.errors import SnapshotError, StoreConflictError

from .journal import Recovered, recovered
from .listing import Page, Unreadable
from .protocol import AsyncConversationStore, ConversationStore

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _in_store(
    method: Callable[Concatenate[ConversationStore, _P], _T],
) -> Callable[Concatenate[Any, _P], CoroutineType[Any, Any, _T]]:

    @wraps(method)
    async def call(self: BlockingStore, *args: _P.args, **options: _P.kwargs) -> _T:
        return await self.run(partial(getattr(self.store, method.__name__), *args, **options))

    return call


class BlockingStore:
    """A plain store as an AsyncConversationStore whose methods block and never suspend, for code that is stepped."""

    def __init__(self, store: ConversationStore) -> None:
        self.store: Final = store
        self.can_search: bool = store.can_search

    save = _in_store(ConversationStore.save)
    load = _in_store(ConversationStore.load)
    latest = _in_store(ConversationStore.latest)
    list = _in_store(ConversationStore.list)
    history = _in_store(ConversationStore.history)
    search = _in_store(ConversationStore.search)
    delete = _in_store(ConversationStore.delete)
    record = _in_store(ConversationStore.record)
    journal = _in_store(ConversationStore.journal)

    async def aclose(self) -> None:
        """Close the store."""
        self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    async def run(self, work: Callable[[], _T]) -> _T:
        """Call this as the methods of the store are called."""
        return work()


# --- resuming --------------------------------------------------------------------------------------------------------

_TRIES: Final = 20
"""Snapshot and journal are read one after the other; somebody may save in between, but not for ever."""


def resume(store: ConversationStore, id: str) -> Recovered:
    """The conversation that contains this snapshot, as far as it came."""
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

_A_PAGE: Final = 100


def copy_conversations(source: ConversationStore, target: ConversationStore) -> tuple[Unreadable, ...]:
    """Bring all conversations of a store into another, with their ids and journals: to another place, or another key.

    What is there already stays as it is. So this can be broken off and begun again, and doing it once more brings what
    was saved meanwhile; StoreConflictError if somebody has gone on with a conversation in the target. Gives back what
    could not be read, and was left out.
    """
    pages = _read_pages(lambda cursor: source.list(limit=_A_PAGE, cursor=cursor))
    unreadable = [each for page in pages for each in page.unreadable]
    for each in [item for page in reversed(pages) for item in reversed(page.items)]:  # the newest is saved last again
        try:
            _copy_conversation(source, target, each.root)
        except SnapshotError as error:
            unreadable.append(Unreadable(id=each.id, problem=str(error)))
    return tuple(unreadable)


def _copy_conversation(source: ConversationStore, target: ConversationStore, id: str) -> None:
    pages = _read_pages(lambda cursor: source.history(id, limit=_A_PAGE, cursor=cursor))
    for each in [item for page in reversed(pages) for item in reversed(page.items)]:
        snapshot = source.load(each.id)
        target.save(snapshot, after=target.journal(snapshot.parent).position if snapshot.parent else 0)
    journal, there = source.journal(id), target.journal(id).position
    target.record(journal.snapshot, journal.entries[there:], after=there)


def _read_pages(ask: Callable[[str | None], Page]) -> Sequence[Page]:
    pages = [ask(None)]
    while (cursor := pages[-1].cursor) is not None:
        pages.append(ask(cursor))
    return pages
