"""Ledger: writes a conversation to its store, as a hook of the loop, each step before its effect is visible.

It knows the newest snapshot, the position of the journal behind it, whether a new state can be journaled or needs a
snapshot, and which write is in doubt: one that was interrupted, or whose connection broke, may have succeeded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import TypeAlias, TypeVar

from msgspec import Struct, structs

import dragoman._observer
from dragoman._observer import observing
from dragoman.conversation import Conversation, Message, Text, ToolCall, ToolResult, ToolSpec
from dragoman.errors import SnapshotNotFoundError, StoreConflictError
from dragoman.loop import UNCERTAIN, LoopHooks, LoopRun, append_tool_results
from dragoman.stores import (
    AsyncConversationStore,
    Journal,
    JournalEntry,
    MessageAdded,
    Recovered,
    Snapshot,
    ToolCallBegun,
    ToolCallDone,
    ToolCallPaused,
    aresume,
    entry_to_json,
    validate_snapshot_id,
)
from dragoman.tools import AnyTool, PendingApproval, ToolSet

T = TypeVar("T")

Circumstances: TypeAlias = tuple[str, str, tuple[ToolSpec, ...]]
"""What a snapshot contains besides the conversation: the provider, the model and the tools."""


class Save(Struct, frozen=True):
    """Save this snapshot, which covers the journal up to `after`."""

    snapshot: Snapshot
    after: int


class Record(Struct, frozen=True):
    """Append these entries to the journal after position `after`."""

    id: str
    entries: tuple[JournalEntry, ...]
    after: int


Writing: TypeAlias = Save | Record


class Place(Struct, frozen=True):
    """How far a conversation is stored. One value, so that another conversation takes its place in one statement."""

    snapshot: Snapshot | None = None
    """The newest one."""
    known: Conversation = Conversation()
    """The conversation as it is in the store."""
    position: int = 0
    """The length of the journal behind the snapshot."""
    fork: bool = False
    """Whether the next write starts a conversation of its own."""
    doubt: Writing | None = None
    """A write that may or may not have succeeded. Nothing else is written before that is known."""


def place_of(snapshot: Snapshot, *, fork: bool = False) -> Place:
    """The place of what was just saved; with `fork`, of what continues it in a conversation of its own."""
    return Place(snapshot=snapshot, known=snapshot.conversation, fork=fork)


def recovered_place(recovered: Recovered) -> Place:
    """The place of what a store has of a conversation."""
    return Place(snapshot=recovered.snapshot, known=recovered.conversation, position=recovered.position)


Waiting: TypeAlias = tuple[PendingApproval, ...]


def put_together(recovered: Recovered, tools: ToolSet) -> tuple[Conversation, Waiting, Waiting]:
    """The recovered conversation, what its tools wait for, and the calls that may or may not have done their work."""
    found, last = recovered.conversation, recovered.conversation.last
    if last is not None and (last.interrupted or last.cut_off):
        called = {call.id for call in last.tool_calls}  # no call of a cut reply is run, but an earlier version did
        known = [*recovered.done_results, *map(_perhaps_done, recovered.uncertain_calls)]
        known = [result for result in known if result.call_id in called]
        # The program ended before it could repair this.
        found = (found.plus(Message.tool(known)) if known else found).repaired().conversation
    waiting = {call.id for call in found.pending_tool_calls}
    done = [result for result in recovered.done_results if result.call_id in waiting]
    conversation = append_tool_results(found, done)
    begun = [call for call in recovered.uncertain_calls if call in conversation.pending_tool_calls]
    paused = [each for each in recovered.paused_calls if each.call in conversation.pending_tool_calls]
    uncertain = [
        PendingApproval(call=call, reason=UNCERTAIN) for call in begun if not _can_repeat(tools.find(call.name))
    ]
    return conversation, tuple([each for call in paused for each in call.waits_for]), tuple(uncertain)


def _perhaps_done(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, call.name, (Text(f"Interrupted: {UNCERTAIN}."),), is_error=True, error_type="cancelled")


def _can_repeat(tool: AnyTool | None) -> bool:
    """Whether a call that had begun can be made again: it is idempotent, or an agent's, whose steps are stored."""
    return tool is not None and (tool.options.idempotent or tool.agent is not None)


class Ledger(LoopHooks):
    """What is stored of a conversation, and what to write next. Without a store, the caller keeps the snapshots."""

    def __init__(
        self,
        circumstances: Callable[[], Circumstances],
        uncertain: Callable[[], Sequence[ToolCall]] = tuple,
        paused: Callable[[], Sequence[PendingApproval]] = tuple,
        *,
        id: str | None = None,
        store: AsyncConversationStore | None = None,
    ) -> None:
        if id is not None:
            validate_snapshot_id(id)
        self._chosen: str | None = id
        """The id for the first snapshot, if the caller chose one."""
        self._store: AsyncConversationStore | None = store
        self._circumstances: Callable[[], Circumstances] = circumstances
        self._uncertain: Callable[[], Sequence[ToolCall]] = uncertain
        """The calls that may or may not have done their work. The store must not forget them."""
        self._paused: Callable[[], Sequence[PendingApproval]] = paused
        """What tools have paused their calls for."""
        self.place: Place = Place()
        self.then: Callable[[str], Awaitable[None]] | None = None
        """Called with the id of each call whose result is stored."""
        self._given_up: bool = False

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest snapshot."""
        return self.place.snapshot

    @property
    def id(self) -> str | None:
        """The id of the conversation; None before its first snapshot, unless the caller chose one."""
        if self.snapshot is None:
            return self._chosen
        return None if self.place.fork else self.snapshot.root

    @property
    def kept_as(self) -> tuple[Snapshot, int] | None:
        """The newest snapshot and the number of journal entries after it; None before the first."""
        return None if self.snapshot is None or self.place.fork else (self.snapshot, self.place.position)

    @property
    def store(self) -> AsyncConversationStore:
        assert self._store is not None
        return self._store

    # --- what to write ---

    def step(self, conversation: Conversation) -> Writing | None:
        """The write for this state: entries for new messages, or a snapshot if more than that has changed."""
        if self.snapshot is None or self.place.fork:
            return self.checkpoint(conversation)
        if self._extends(conversation):
            new = conversation.messages[len(self.place.known.messages) :]
            return self.note(*map(MessageAdded, new)) if new else None
        if self._in_doubt(conversation) and self._in_doubt(self.place.known):
            # Only results of other calls are new, and they are in the journal. A snapshot would lose the fact that
            # the calls had begun.
            return None
        return self.checkpoint(conversation)

    def end(self, conversation: Conversation) -> Writing | None:
        """The write at the end of a turn: a snapshot, unless there are calls that had begun in another process."""
        return self.step(conversation) if self._in_doubt(conversation) else self.checkpoint(conversation)

    def _in_doubt(self, conversation: Conversation) -> tuple[ToolCallBegun, ...]:
        uncertain = self._uncertain()
        if not uncertain:
            return ()
        waiting = conversation.pending_tool_calls
        return tuple([ToolCallBegun(call) for call in uncertain if call in waiting])

    def _behind(self, conversation: Conversation) -> tuple[JournalEntry, ...]:
        """What must follow a snapshot of this state in the journal."""
        inside: dict[str, list[PendingApproval]] = {}
        for each in self._paused():
            inside.setdefault(each.held.id, []).append(each)
        calls = [call for call in conversation.pending_tool_calls if call.id in inside] if inside else ()
        return (*self._in_doubt(conversation), *[ToolCallPaused(call, tuple(inside[call.id])) for call in calls])

    def note(self, *entries: JournalEntry) -> Record:
        """The write for something that happens between two states."""
        if self.snapshot is None:
            raise StoreConflictError("Nothing can be journaled before the first snapshot.")
        return Record(self.snapshot.id, entries, self.place.position)

    def checkpoint(self, conversation: Conversation) -> Save | None:
        """The write of a snapshot of this state; None if the newest one is the same."""
        snapshot = self.snapshot_of(conversation)
        return None if snapshot is self.snapshot else Save(snapshot, self.place.position)

    def snapshot_of(self, conversation: Conversation) -> Snapshot:
        """A snapshot of this state: the newest one if it is the same, else the one that follows it."""
        provider, model, tools = now = self._circumstances()
        last = self.snapshot
        if last is None:
            return Snapshot.first(conversation, provider=provider, model=model, tools=tools, id=self._chosen)
        same = last.conversation == conversation and (last.provider, last.model, last.tools) == now
        if same and not self.place.position and not self.place.fork:
            return last
        following = last.fork() if self.place.fork else last.next(conversation)
        return structs.replace(following, conversation=conversation, provider=provider, model=model, tools=tools)

    def done(self, writing: Writing) -> None:
        if isinstance(writing, Save):
            self.place = place_of(writing.snapshot)
            return
        added = [entry.message for entry in writing.entries if isinstance(entry, MessageAdded)]
        place = self.place
        known = place.known.plus(*added) if added else place.known
        position = writing.after + len(writing.entries)
        self.place = structs.replace(place, known=known, position=position, doubt=None)

    def _extends(self, conversation: Conversation) -> bool:
        known = self.place.known
        return (
            conversation.system == known.system
            and conversation.metadata == known.metadata
            and conversation.messages[: len(known.messages)] == known.messages
        )

    # --- writing ---

    async def save(self, conversation: Conversation) -> Snapshot:
        """A snapshot of this state, saved to the store if there is one."""
        if self._store is None:
            self.place = place_of(self.snapshot_of(conversation))
        else:
            await self.write(self.checkpoint, conversation)
        assert self.snapshot is not None
        return self.snapshot

    def give_up(self) -> None:
        """Write nothing more: this conversation will not be continued."""
        self._given_up = True

    async def write(self, plan: Callable[[T], Writing | None], about: T) -> None:
        """Write what the plan (one of the methods above) returns; it is stored when this returns."""
        if self._given_up:
            return
        if (doubt := self.place.doubt) is not None:
            if await self._was_written(doubt):
                self.done(doubt)
            else:
                self.place = structs.replace(self.place, doubt=None)
        writing = plan(about)
        while writing is not None:
            self.place = structs.replace(self.place, doubt=writing)
            try:
                if isinstance(writing, Save):
                    await self._save(writing)
                else:
                    await self.store.record(writing.id, writing.entries, after=writing.after)
            except StoreConflictError:
                # It was not written, even if another process wrote the very same.
                self.place = structs.replace(self.place, doubt=None)
                raise
            self.done(writing)
            # A snapshot does not record that calls had begun, or were paused.
            behind = self._behind(writing.snapshot.conversation) if isinstance(writing, Save) else ()
            writing = self.note(*behind) if behind else None

    async def _save(self, writing: Save) -> None:
        snapshot, observer = writing.snapshot, dragoman._observer.current
        with nullcontext() if observer is None else observing(observer.save(snapshot.root)):
            await self.store.save(snapshot, after=writing.after)

    async def _was_written(self, writing: Writing) -> bool:
        """Whether the store has this write, and not one of another process in its place."""
        found = await self._journal(writing.snapshot.root if isinstance(writing, Save) else writing.id)
        if found is None:
            return False
        if isinstance(writing, Save):
            # Another process may have chosen the same id.
            return found.snapshot == writing.snapshot.id and await self.store.load(found.snapshot) == writing.snapshot
        same_place = found.snapshot == writing.id and found.position == writing.after + len(writing.entries)
        written = found.entries[writing.after :]
        return same_place and list(map(entry_to_json, written)) == list(map(entry_to_json, writing.entries))

    async def _journal(self, id: str) -> Journal | None:
        try:
            return await self.store.journal(id)
        except SnapshotNotFoundError:
            return None

    async def has_as_newest(self, snapshot: Snapshot) -> bool:
        """Whether this snapshot is the newest of its conversation, with an empty journal."""
        return await self._journal(snapshot.id) == Journal(snapshot=snapshot.id)

    async def recover(self, id: str) -> Recovered:
        """Load the conversation that contains this snapshot."""
        return await aresume(self.store, id)

    # --- hooks of the loop ---

    async def _write_step(self, run: LoopRun, *_: object, **__: object) -> None:
        await self.write(self.step, run.conversation)

    before_model = after_model = before_tools = after_tools = _write_step

    async def tool_started(self, run: LoopRun, call: ToolCall) -> None:
        await self.write(self.note, ToolCallBegun(call))

    async def tool_paused(self, run: LoopRun, pending: PendingApproval) -> None:
        await self.write(self.note, ToolCallPaused(pending.call, pending.waits_for))

    async def tool_finished(self, run: LoopRun, result: ToolResult) -> None:
        await self.write(self.note, ToolCallDone(result))
        if self.then is not None:
            await self.then(result.call_id)

    async def compacted(self, run: LoopRun, before: Conversation) -> None:
        await self.write(self.checkpoint, before)
        await self.write(self.checkpoint, run.conversation)
