"""The journal: what happened since the newest snapshot, and how to recover a conversation from both.

A call or a result is written as a message that holds nothing else, so that it has the same JSON form as in messages,
including unknown fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct

from dragoman._decoding import decode_as
from dragoman.conversation import Conversation, Message, ToolCall, ToolResult, message_from_json, message_to_json
from dragoman.errors import MalformedDataError, SnapshotCorruptError, SnapshotVersionError
from dragoman.tools import PendingApproval

from .snapshot import Snapshot

# --- entries ---------------------------------------------------------------------------------------------------------


class MessageAdded(Struct, frozen=True):
    """A message was added to the conversation: the user's, a reply of the model, or tool results."""

    message: Message


class ToolCallBegun(Struct, frozen=True):
    """A tool is about to run. Without a later result it is unknown whether it did its work."""

    call: ToolCall


class ToolCallDone(Struct, frozen=True):
    """A tool returned its result, which is not in the conversation yet."""

    result: ToolResult


class ToolCallPaused(Struct, frozen=True):
    """A tool has paused its call: it does nothing more before one of the calls that it wants to make is answered."""

    call: ToolCall
    waits_for: tuple[PendingApproval, ...]
    """The calls inside it, as the conversation's own approvals name them."""


JournalEntry: TypeAlias = MessageAdded | ToolCallBegun | ToolCallDone | ToolCallPaused
"""One step of a conversation, recorded as it happens."""


class _Stored(Struct, frozen=True):
    type: str
    message: Raw
    reasons: tuple[str, ...] = ()


def entry_to_json(entry: JournalEntry) -> bytes:
    """The entry as JSON. Raises ConversationError for data that JSON cannot represent."""
    match entry:
        case MessageAdded(message):
            name = b"message_added"
        case ToolCallBegun(call):
            name, message = b"tool_call_begun", Message.assistant(call)
        case ToolCallDone(result):
            name, message = b"tool_call_done", Message.tool([result])
        case ToolCallPaused():
            return _paused_to_json(entry)
    return b'{"type":"%s","message":%s}' % (name, message_to_json(message))


def _paused_to_json(entry: ToolCallPaused) -> bytes:
    """As a message with the call, the calls inside it, and what was used until then; and the reasons beside it."""
    waits_for = entry.waits_for
    used = next((each.used for each in waits_for), None)
    message = Message(role="assistant", blocks=(entry.call, *[each.call for each in waits_for]), usage=used)
    reasons = tuple([each.reason for each in waits_for])
    return msgspec.json.encode(_Stored("tool_call_paused", Raw(message_to_json(message)), reasons))


def _paused_from(message: Message, reasons: tuple[str, ...]) -> ToolCallPaused:
    call, *inside = message.tool_calls
    waiting = zip(inside, reasons, strict=True)
    return ToolCallPaused(
        call,
        tuple([PendingApproval(call=each, reason=why, within=call, used=message.usage) for each, why in waiting]),
    )


def entry_from_json(data: bytes) -> JournalEntry:
    """Parse what `entry_to_json` wrote. Raises SnapshotCorruptError, or SnapshotVersionError for an unknown kind."""
    try:
        stored = decode_as(data, _Stored)
        message = message_from_json(bytes(stored.message))
    except (msgspec.MsgspecError, ValueError, MalformedDataError) as error:
        text = f"An entry of the journal cannot be read: {str(error).rstrip('.')}."
        raise SnapshotCorruptError(text) from None
    match stored.type, message:
        case "message_added", _:
            return MessageAdded(message)
        case "tool_call_begun", Message(role="assistant", blocks=(ToolCall() as call,)):
            return ToolCallBegun(call)
        case "tool_call_done", Message(role="tool", blocks=(ToolResult() as result,)):
            return ToolCallDone(result)
        case "tool_call_paused", Message(role="assistant") if 1 < len(message.tool_calls) == len(stored.reasons) + 1:
            return _paused_from(message, stored.reasons)
        case "tool_call_begun" | "tool_call_done" | "tool_call_paused", _:
            raise SnapshotCorruptError("An entry of the journal is not what was written.")
        case _:
            text = f"The journal has an entry of an unknown kind, {ascii(stored.type)[:40]}."
            raise SnapshotVersionError(text)


# --- the journal -----------------------------------------------------------------------------------------------------


class Journal(Struct, frozen=True, kw_only=True):
    """The entries that were recorded since the newest snapshot of a conversation."""

    snapshot: str
    """The id of that snapshot: the `id` for the next `record`."""
    entries: tuple[JournalEntry, ...] = ()

    @property
    def position(self) -> int:
        """The number of entries: the `after` for the next `record` or `save`."""
        return len(self.entries)


class Recovered(Struct, frozen=True, kw_only=True):
    """A conversation with everything that was recorded, also after a crash."""

    snapshot: Snapshot
    """The newest snapshot; save `snapshot.next(conversation)` next."""
    conversation: Conversation
    """Including the messages of the journal. Calls of its last message may have no results yet."""
    done_results: tuple[ToolResult, ...] = ()
    """Results of such calls, in the order in which they finished: these calls must not run again."""
    uncertain_calls: tuple[ToolCall, ...] = ()
    """Calls that started and have no result: they may have done their work, or not, or a part of it."""
    paused_calls: tuple[ToolCallPaused, ...] = ()
    """Calls that their tools have paused until somebody has answered."""
    position: int = 0
    """The number of journal entries included: the `after` for the next `record` or `save`."""


def recovered(snapshot: Snapshot, entries: Sequence[JournalEntry]) -> Recovered:
    """Combine the newest snapshot with the journal since then."""
    messages: list[Message] = []
    begun: dict[str, ToolCall] = {}
    done: dict[str, ToolResult] = {}
    paused: dict[str, ToolCallPaused] = {}
    for entry in entries:
        match entry:
            case MessageAdded(message):
                messages.append(message)
                # Providers reuse call ids in later replies, so an answered call is forgotten.
                for result in message.tool_results:
                    for known in (begun, done, paused):
                        known.pop(result.call_id, None)
            case ToolCallBegun(call):
                done.pop(call.id, None)
                paused.pop(call.id, None)
                begun[call.id] = call
            case ToolCallPaused(call):
                begun.pop(call.id, None)
                paused[call.id] = entry
            case ToolCallDone(result):
                begun.pop(result.call_id, None)
                paused.pop(result.call_id, None)
                done.pop(result.call_id, None)
                done[result.call_id] = result
    return Recovered(
        snapshot=snapshot,
        conversation=snapshot.conversation.plus(*messages) if messages else snapshot.conversation,
        done_results=tuple(done.values()),
        uncertain_calls=tuple(begun.values()),
        paused_calls=tuple(paused.values()),
        position=len(entries),
    )
