"""What happened since the newest snapshot, and how to go on from there.

Owns: the Journal as a value; `recovered`, which puts snapshot and journal together; `resume`, which asks a store for
both.
Must not know: any particular store, and what to do about a call whose outcome nobody knows: that is the loop's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from dragoman.conversation import Conversation, Message, ToolCall, ToolResult
from dragoman.errors import StoreConflictError

from .entries import JournalEntry, MessageAdded, ToolCallBegun, ToolCallDone
from .snapshot import Snapshot

if TYPE_CHECKING:  # the protocol names the Journal, and here only the two functions at the end name the protocol
    from .protocol import ConversationStore

__all__ = ["Journal", "Recovered", "aresume", "recovered", "resume"]


class Journal(Struct, frozen=True, kw_only=True):
    """What was recorded since the newest snapshot of a conversation."""

    snapshot: str
    """The id of that snapshot: the `id` for the next `record`."""
    entries: tuple[JournalEntry, ...] = ()

    @property
    def position(self) -> int:
        """How many entries there are: the `after` for the next `record` or `save`."""
        return len(self.entries)


class Recovered(Struct, frozen=True, kw_only=True):
    """A conversation as far as it came, crash or not."""

    snapshot: Snapshot
    """The newest snapshot; `snapshot.next(conversation)` is what to save next."""
    conversation: Conversation
    """With the messages of the journal. Calls of its last message may still wait for their results."""
    done_results: tuple[ToolResult, ...] = ()
    """Results of such calls, in the order in which they were done: these calls need not and must not run again."""
    uncertain_calls: tuple[ToolCall, ...] = ()
    """Calls that had begun and have no result: they may have done their work, or not, or in part."""
    position: int = 0
    """How many entries of the journal this covers: the `after` for the next `record` or `save`."""


def recovered(snapshot: Snapshot, entries: Sequence[JournalEntry]) -> Recovered:
    """Put the newest snapshot and the journal since then together."""
    messages: list[Message] = []
    begun: dict[str, ToolCall] = {}
    done: dict[str, ToolResult] = {}
    for entry in entries:
        match entry:
            case MessageAdded(message):
                messages.append(message)
                # Providers give the same call id again in later replies, so an answered one is forgotten.
                for result in message.tool_results:
                    begun.pop(result.call_id, None)
                    done.pop(result.call_id, None)
            case ToolCallBegun(call):
                done.pop(call.id, None)
                begun[call.id] = call
            case ToolCallDone(result):
                begun.pop(result.call_id, None)
                done.pop(result.call_id, None)
                done[result.call_id] = result
    return Recovered(
        snapshot=snapshot,
        conversation=snapshot.conversation.plus(*messages) if messages else snapshot.conversation,
        done_results=tuple(done.values()),
        uncertain_calls=tuple(begun.values()),
        position=len(entries),
    )


# --- from a store ----------------------------------------------------------------------------------------------------

_TRIES: Final = 20
"""Snapshot and journal are read one after the other; somebody may save in between, but not for ever."""


def resume(store: ConversationStore, id: str) -> Recovered:
    """The conversation that contains this snapshot, as far as it came."""
    for _ in range(_TRIES):
        snapshot = store.latest(id)
        journal = store.journal(id)
        if journal.snapshot == snapshot.id:
            return recovered(snapshot, journal.entries)
    raise _too_busy(id)


class _Readable(Protocol):
    async def latest(self, id: str) -> Snapshot: ...
    async def journal(self, id: str) -> Journal: ...


async def aresume(store: _Readable, id: str) -> Recovered:
    """`resume` for an async store."""
    for _ in range(_TRIES):
        snapshot = await store.latest(id)
        journal = await store.journal(id)
        if journal.snapshot == snapshot.id:
            return recovered(snapshot, journal.entries)
    raise _too_busy(id)


def _too_busy(id: str) -> StoreConflictError:
    message = f"The conversation of {id} is being saved faster than it can be read."
    return StoreConflictError(message, hint="Try again when the other program pauses.")
