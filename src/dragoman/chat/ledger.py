"""What of a conversation is in its store, and what is to be written next.

Owns: the bookkeeping between a conversation that grows and the store that keeps it: which snapshot is the newest, which
steps the journal holds behind it, whether a new state can be journaled or needs a snapshot, and what is in doubt: a
write that was interrupted, or whose connection broke, may have been carried out all the same.
Must not know: how anything is written; two small classes in journaling.py do that, one for each colour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct, structs

from dragoman.conversation import Conversation, ToolCall, ToolSpec
from dragoman.errors import StoreConflictError
from dragoman.stores import Journal, JournalEntry, MessageAdded, Recovered, Snapshot, ToolCallBegun, entry_to_json


class Circumstances(Struct, frozen=True):
    """What a snapshot keeps beside the conversation."""

    provider: str
    model: str
    tools: tuple[ToolSpec, ...]


class Save(Struct, frozen=True):
    """Keep this snapshot, which covers the journal up to `after`."""

    snapshot: Snapshot
    after: int

    @property
    def conversation_id(self) -> str:
        """The conversation in which it belongs."""
        return self.snapshot.root


class Record(Struct, frozen=True):
    """Append these entries to the journal behind `after`."""

    id: str
    entries: tuple[JournalEntry, ...]
    after: int

    @property
    def conversation_id(self) -> str:
        """A snapshot of the conversation in which they belong."""
        return self.id


Writing: TypeAlias = Save | Record


class Ledger:
    """Says what is to be written; is told with `begun` and `done` that it is being, and was, written."""

    def __init__(
        self, circumstances: Callable[[], Circumstances], uncertain: Callable[[], Sequence[ToolCall]] = tuple
    ) -> None:
        self._circumstances: Callable[[], Circumstances] = circumstances
        self._uncertain: Callable[[], Sequence[ToolCall]] = uncertain
        """The calls of which nobody knows whether they did their work. The store must go on knowing of them."""
        self.snapshot: Snapshot | None = None
        """The newest one."""
        self.doubt: Writing | None = None
        """What was begun to be written and nobody knows to be there. Nothing else is written before that is clear."""
        self._known: Conversation = Conversation()
        """The conversation as it can be put together from the store."""
        self._position: int = 0
        self._fork: bool = False
        """Whether what comes next begins a conversation of its own."""

    @property
    def newest(self) -> Snapshot:
        """The newest snapshot, where there is one for certain."""
        assert self.snapshot is not None
        return self.snapshot

    @property
    def id(self) -> str | None:
        """The id of the conversation; None before its first snapshot."""
        return None if self.snapshot is None or self._fork else self.snapshot.root

    def step(self, conversation: Conversation) -> Writing | None:
        """What makes this state safe: entries for what is new, or a snapshot where it is not just longer."""
        if self.snapshot is None or self._fork:
            return self.checkpoint(conversation)
        if self._extends(conversation):
            new = conversation.messages[len(self._known.messages) :]
            return self.note(*map(MessageAdded, new)) if new else None
        if self._in_doubt(conversation) and self._in_doubt(self._known):
            # New are only results beside those calls, and the journal has each of them. A snapshot would put away that
            # the calls had begun.
            return None
        return self.checkpoint(conversation)

    def end(self, conversation: Conversation) -> Writing | None:
        """What makes the end of a turn safe: a snapshot, unless there are calls that had begun in another program."""
        return self.step(conversation) if self._in_doubt(conversation) else self.checkpoint(conversation)

    def following(self, written: Writing) -> Writing | None:
        """What must be written behind this: that calls had begun, which a snapshot does not say."""
        begun = self._in_doubt(written.snapshot.conversation) if isinstance(written, Save) else ()
        return self.note(*begun) if begun else None

    def _in_doubt(self, conversation: Conversation) -> tuple[ToolCallBegun, ...]:
        uncertain = self._uncertain()
        if not uncertain:
            return ()
        waiting = conversation.pending_tool_calls
        return tuple([ToolCallBegun(call) for call in uncertain if call in waiting])

    def note(self, *entries: JournalEntry) -> Record:
        """The way to write down what happens between two states."""
        if self.snapshot is None:
            message = "Nothing can be journaled before the first snapshot."
            raise StoreConflictError(message)
        return Record(self.snapshot.id, entries, self._position)

    def checkpoint(self, conversation: Conversation) -> Save | None:
        """The snapshot of this state; None if the newest one says the same."""
        snapshot = self.snapshot_of(conversation)
        return None if snapshot is self.snapshot else Save(snapshot, self._position)

    def snapshot_of(self, conversation: Conversation) -> Snapshot:
        """A snapshot of this state: the newest one if it is the same, else the one that follows it."""
        now = self._circumstances()
        last = self.snapshot
        if last is None:
            return Snapshot.first(conversation, provider=now.provider, model=now.model, tools=now.tools)
        same = last.conversation == conversation and Circumstances(last.provider, last.model, last.tools) == now
        if same and not self._position and not self._fork:
            return last
        following = last.fork() if self._fork else last.next(conversation)
        return structs.replace(
            following, conversation=conversation, provider=now.provider, model=now.model, tools=now.tools
        )

    def keep(self, conversation: Conversation) -> Snapshot:
        """The snapshot of this state, which somebody keeps."""
        snapshot = self.snapshot_of(conversation)
        self.take_up(snapshot)
        return snapshot

    def begun(self, writing: Writing) -> None:
        """It is about to be written."""
        self.doubt = writing

    def done(self, writing: Writing) -> None:
        """It was written."""
        if isinstance(writing, Save):
            self.take_up(writing.snapshot)
            return
        added = [entry.message for entry in writing.entries if isinstance(entry, MessageAdded)]
        known = self._known.plus(*added) if added else self._known
        # In one breath, for Ctrl-C may come whenever a function is called.
        self._known, self._position, self.doubt = known, writing.after + len(writing.entries), None

    def clear_up(self, doubt: Writing, found: Journal | None) -> None:
        """Find out from the journal of the conversation, if the store has one, whether this was written."""
        if found is not None and _is_there(doubt, found):
            self.done(doubt)
        else:
            self.doubt = None

    def take_up(self, snapshot: Snapshot, *, fork: bool = False) -> None:
        """Go on from this snapshot, which somebody keeps; with `fork`, in a conversation of its own."""
        self.snapshot, self._fork, self.doubt = snapshot, fork, None
        self._known, self._position = snapshot.conversation, 0

    def take_up_recovered(self, recovered: Recovered) -> None:
        """Go on from what a store has kept of a conversation."""
        self.take_up(recovered.snapshot)
        self._known, self._position = recovered.conversation, recovered.position

    def _extends(self, conversation: Conversation) -> bool:
        known = self._known
        return (
            conversation.system == known.system
            and conversation.metadata == known.metadata
            and conversation.messages[: len(known.messages)] == known.messages
        )


def _is_there(writing: Writing, found: Journal) -> bool:
    """Whether what the store has is what was to be written, and not what somebody else wrote in its place."""
    if isinstance(writing, Save):
        return found.snapshot == writing.snapshot.id
    same_place = found.snapshot == writing.id and found.position == writing.after + len(writing.entries)
    written = found.entries[writing.after :]
    return same_place and list(map(entry_to_json, written)) == list(map(entry_to_json, writing.entries))
