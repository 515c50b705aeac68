"""The journal: what happened since the newest snapshot, and how to go on from there.

Owns: the kinds of entries with their JSON form, the Journal as a value, and putting snapshot and journal together.
Must not know: any particular store, and what to do about a call whose outcome nobody knows: that is the loop's.

A call and a result are written as a message that holds nothing else, so that they have the one JSON form that messages
have, unknown fields included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Conversation, Message, ToolCall, ToolResult, message_from_json, message_to_json
from dragoman.errors import MalformedDataError, SnapshotCorruptError, SnapshotVersionError

from .snapshot import Snapshot

# --- entries ---------------------------------------------------------------------------------------------------------


class MessageAdded(Struct, frozen=True):
    """A message joined the conversation: the user's, a reply of the model, or the results of its calls."""

    message: Message


class ToolCallBegun(Struct, frozen=True):
    """A tool is about to be called. Without a result later on, nobody knows whether it did its work."""

    call: ToolCall


class ToolCallDone(Struct, frozen=True):
    """A tool gave its result, which has not joined the conversation yet."""

    result: ToolResult


JournalEntry: TypeAlias = MessageAdded | ToolCallBegun | ToolCallDone
"""One step of a conversation, written down as it happens."""


class _Stored(Struct, frozen=True):
    type: str
    message: Raw


def entry_to_json(entry: JournalEntry) -> bytes:
    """The entry as JSON. Raises ConversationError for what cannot be written."""
    match entry:
        case MessageAdded(message):
            name = b"message_added"
        case ToolCallBegun(call):
            name, message = b"tool_call_begun", Message.assistant(call)
        case ToolCallDone(result):
            name, message = b"tool_call_done", Message.tool([result])
    return b'{"type":"%s","message":%s}' % (name, message_to_json(message))


def entry_from_json(data: bytes) -> JournalEntry:
    """Read what `entry_to_json` wrote. Raises SnapshotCorruptError, or SnapshotVersionError for an unknown kind."""
    try:
        stored = msgspec.json.decode(data, type=_Stored)
        message = message_from_json(bytes(stored.message))
    except (msgspec.MsgspecError, ValueError, RecursionError, MalformedDataError) as error:
        text = f"An entry of the journal cannot be read: {str(error).rstrip('.')}."
        raise SnapshotCorruptError(text) from None
    match stored.type, message:
        case "message_added", _:
            return MessageAdded(message)
        case "tool_call_begun", Message(role="assistant", blocks=(ToolCall() as call,)):
            return ToolCallBegun(call)
        case "tool_call_done", Message(role="tool", blocks=(ToolResult() as result,)):
            return ToolCallDone(result)
        case "tool_call_begun" | "tool_call_done", _:
            raise SnapshotCorruptError("An entry of the journal is not what was written.")
        case _:
            text = f"The journal has an entry of an unknown kind, {ascii(stored.type)[:40]}."
            raise SnapshotVersionError(text)


# --- the journal -----------------------------------------------------------------------------------------------------


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
