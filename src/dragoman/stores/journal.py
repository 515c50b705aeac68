"""The journal: what happened since the newest snapshot, and how to go on from there.

Owns: the kinds of entries with their JSON form, the Journal as a value, and putting snapshot and journal together.
Must not know: any particular store, and what to do about a call whose outcome nobody knows: that is the loop's.

A call and a result are written as a message that holds nothing else, so that they have the one JSON form that messages
have, unknown fields included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final, TypeAlias

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
    check: str
    """A digest of the rest: not every store notices when its bytes change."""
    message: Raw


_stored = msgspec.json.Decoder(_Stored)

_NAMES: Final[dict[type[JournalEntry], str]] = {
    MessageAdded: "message_added",
    ToolCallBegun: "tool_call_begun",
    ToolCallDone: "tool_call_done",
}


def entry_to_json(entry: JournalEntry) -> bytes:
    """The entry as JSON. Raises ConversationError for what cannot be written."""
    name, message = _NAMES[type(entry)], message_to_json(_as_message(entry))
    return b'{"type":"%s","check":"%s","message":%s}' % (name.encode(), _check(name, message).encode(), message)


def _check(name: str, message: bytes) -> str:
    return sha256(name.encode() + b":" + message).hexdigest()[:32]


def _as_message(entry: JournalEntry) -> Message:
    match entry:
        case MessageAdded(message):
            return message
        case ToolCallBegun(call):
            return Message.assistant(call)
        case ToolCallDone(result):
            return Message.tool([result])


def entry_from_json(data: bytes) -> JournalEntry:
    """Read what `entry_to_json` wrote. Raises SnapshotCorruptError, or SnapshotVersionError for an unknown kind."""
    try:
        stored = _stored.decode(data)
        if stored.check != _check(stored.type, bytes(stored.message)):
            raise _misfit()
        message = message_from_json(bytes(stored.message))
    except (msgspec.MsgspecError, ValueError, RecursionError, MalformedDataError) as error:
        message = f"An entry of the journal cannot be read: {str(error).rstrip('.')}."
        raise SnapshotCorruptError(message) from None
    if stored.type not in _READERS:
        message = f"The journal has an entry of an unknown kind, {ascii(stored.type)[:40]}."
        raise SnapshotVersionError(message)
    return _READERS[stored.type](message)


def _read_begun(message: Message) -> ToolCallBegun:
    match message:
        case Message(role="assistant", blocks=(ToolCall() as call,)):
            return ToolCallBegun(call)
        case _:
            raise _misfit()


def _read_done(message: Message) -> ToolCallDone:
    match message:
        case Message(role="tool", blocks=(ToolResult() as result,)):
            return ToolCallDone(result)
        case _:
            raise _misfit()


def _misfit() -> SnapshotCorruptError:
    return SnapshotCorruptError("An entry of the journal is not what was written.")


_READERS: Final[dict[str, Callable[[Message], JournalEntry]]] = {
    "message_added": MessageAdded,
    "tool_call_begun": _read_begun,
    "tool_call_done": _read_done,
}


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
