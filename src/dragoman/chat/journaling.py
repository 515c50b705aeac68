"""Writing the steps of a run to a store, each before its effect is visible.

Owns: the hooks of the loop that keep a conversation safe, in both colours.
Must not know: what is to be written; the ledger says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dragoman.conversation import Conversation, ToolCall, ToolResult
from dragoman.engines.reply import Reply
from dragoman.errors import SnapshotNotFoundError
from dragoman.loop.hooks import LoopHooks
from dragoman.loop.run import LoopRun
from dragoman.stores.entries import ToolCallBegun, ToolCallDone
from dragoman.stores.journal import Journal, Recovered, aresume, resume
from dragoman.stores.protocol import AsyncConversationStore, ConversationStore
from dragoman.stores.snapshot import Snapshot

from .ledger import Ledger, Save, Writing

__all__ = ["AsyncJournaling", "Journaling"]

T = TypeVar("T")


class Journaling(LoopHooks):
    """Keeps a conversation in a plain store."""

    def __init__(self, store: ConversationStore, ledger: Ledger) -> None:
        self.store: ConversationStore = store
        self._ledger: Ledger = ledger

    def write(self, plan: Callable[[T], Writing | None], about: T) -> None:
        """Write down what the plan, a method of the ledger, makes of this; when it returns, it is safe."""
        ledger = self._ledger
        if ledger.doubt is not None:
            ledger.clear_up(ledger.doubt, self.journal(ledger.doubt.conversation_id))
        writing = plan(about)
        while writing is not None:
            ledger.begun(writing)
            if isinstance(writing, Save):
                self.store.save(writing.snapshot, after=writing.after)
            else:
                self.store.record(writing.id, writing.entries, after=writing.after)
            ledger.done(writing)
            writing = ledger.following(writing)

    def journal(self, id: str) -> Journal | None:
        """The journal of the conversation; None if the store does not know it."""
        try:
            return self.store.journal(id)
        except SnapshotNotFoundError:
            return None

    def has_as_newest(self, snapshot: Snapshot) -> bool:
        """Whether the conversation stands in the store as in this snapshot, with no step behind it."""
        return self.journal(snapshot.id) == Journal(snapshot=snapshot.id)

    def recovered(self, id: str) -> Recovered:
        """What the store has of the conversation that contains this snapshot."""
        return resume(self.store, id)

    def before_model(self, run: LoopRun) -> None:
        self.write(self._ledger.step, run.conversation)

    def after_model(self, run: LoopRun, reply: Reply) -> None:
        self.write(self._ledger.step, run.conversation)

    def before_tools(self, run: LoopRun, calls: tuple[ToolCall, ...]) -> None:
        self.write(self._ledger.step, run.conversation)

    def tool_started(self, run: LoopRun, call: ToolCall) -> None:
        self.write(self._ledger.note, ToolCallBegun(call))

    def tool_finished(self, run: LoopRun, result: ToolResult) -> None:
        self.write(self._ledger.note, ToolCallDone(result))

    def after_tools(self, run: LoopRun, results: tuple[ToolResult, ...]) -> None:
        self.write(self._ledger.step, run.conversation)

    def compacted(self, run: LoopRun, before: Conversation) -> None:
        self.write(self._ledger.checkpoint, before)
        self.write(self._ledger.checkpoint, run.conversation)


class AsyncJournaling(LoopHooks):
    """Keeps a conversation in an async store."""

    def __init__(self, store: AsyncConversationStore, ledger: Ledger) -> None:
        self.store: AsyncConversationStore = store
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
                await self.store.save(writing.snapshot, after=writing.after)
            else:
                await self.store.record(writing.id, writing.entries, after=writing.after)
            ledger.done(writing)
            writing = ledger.following(writing)

    async def journal(self, id: str) -> Journal | None:
        """The journal of the conversation; None if the store does not know it."""
        try:
            return await self.store.journal(id)
        except SnapshotNotFoundError:
            return None

    async def has_as_newest(self, snapshot: Snapshot) -> bool:
        """Whether the conversation stands in the store as in this snapshot, with no step behind it."""
        return await self.journal(snapshot.id) == Journal(snapshot=snapshot.id)

    async def recovered(self, id: str) -> Recovered:
        """What the store has of the conversation that contains this snapshot."""
        return await aresume(self.store, id)

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
