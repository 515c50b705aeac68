"""Writing the steps of a run to a store, each before its effect is visible.

Owns: the hooks of the loop that keep a conversation safe.
Must not know: what is to be written; the ledger says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from dragoman.conversation import Conversation, ToolCall, ToolResult
from dragoman.engines import Reply
from dragoman.errors import SnapshotNotFoundError
from dragoman.loop import LoopHooks, LoopRun
from dragoman.stores import (
    ConversationStore,
    Journal,
    JournalEntry,
    Recovered,
    Snapshot,
    ToolCallBegun,
    ToolCallDone,
    aresume,
)

from .ledger import Ledger, Save, Writing

T = TypeVar("T")


class JournalStore(Protocol):
    """The part of a store that journaling needs; an async store is one."""

    async def save(self, snapshot: Snapshot, *, after: int = 0) -> None: ...
    async def latest(self, id: str) -> Snapshot: ...
    async def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int: ...
    async def journal(self, id: str) -> Journal: ...


class BlockingStore:
    """A plain store as the stepped core uses it: its methods block and never suspend."""

    def __init__(self, store: ConversationStore) -> None:
        self._store: ConversationStore = store

    async def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        self._store.save(snapshot, after=after)

    async def latest(self, id: str) -> Snapshot:
        return self._store.latest(id)

    async def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        return self._store.record(id, entries, after=after)

    async def journal(self, id: str) -> Journal:
        return self._store.journal(id)


class Journaling(LoopHooks):
    """Keeps a conversation in a store."""

    def __init__(self, store: JournalStore, ledger: Ledger) -> None:
        self._store: JournalStore = store
        self._ledger: Ledger = ledger

    async def write(self, plan: Callable[[T], Writing | None], about: T) -> None:
        """Write down what the plan, a method of the ledger, makes of this; when it returns, it is safe."""
        ledger = self._ledger
        if ledger.doubt is not None:
            ledger.clear_up(ledger.doubt, await self.journal(ledger.doubt.conversation_id))
        writing = plan(about)
        while writing is not None:
            ledger.begun(writing)
            if isinstance(writing, Save):
                await self._store.save(writing.snapshot, after=writing.after)
            else:
                await self._store.record(writing.id, writing.entries, after=writing.after)
            ledger.done(writing)
            writing = ledger.following(writing)

    async def journal(self, id: str) -> Journal | None:
        """The journal of the conversation; None if the store does not know it."""
        try:
            return await self._store.journal(id)
        except SnapshotNotFoundError:
            return None

    async def has_as_newest(self, snapshot: Snapshot) -> bool:
        """Whether the conversation stands in the store as in this snapshot, with no step behind it."""
        return await self.journal(snapshot.id) == Journal(snapshot=snapshot.id)

    async def recover(self, id: str) -> Recovered:
        """What the store has of the conversation that contains this snapshot."""
        return await aresume(self._store, id)

    async def before_model(self, run: LoopRun) -> None:
        await self.write(self._ledger.step, run.conversation)

    async def after_model(self, run: LoopRun, reply: Reply) -> None:
        await self.write(self._ledger.step, run.conversation)

    async def before_tools(self, run: LoopRun, calls: tuple[ToolCall, ...]) -> None:
        await self.write(self._ledger.step, run.conversation)

    async def tool_started(self, run: LoopRun, call: ToolCall) -> None:
        await self.write(self._ledger.note, ToolCallBegun(call))

    async def tool_finished(self, run: LoopRun, result: ToolResult) -> None:
        await self.write(self._ledger.note, ToolCallDone(result))

    async def after_tools(self, run: LoopRun, results: tuple[ToolResult, ...]) -> None:
        await self.write(self._ledger.step, run.conversation)

    async def compacted(self, run: LoopRun, before: Conversation) -> None:
        await self.write(self._ledger.checkpoint, before)
        await self.write(self._ledger.checkpoint, run.conversation)
