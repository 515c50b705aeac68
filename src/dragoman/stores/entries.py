"""What a journal is made of: the steps of a run, each written before its effect is visible.

Owns: the kinds of entries and their JSON form.
Must not know: stores, the loop.

A call and a result are written as a message that holds nothing else, so that they have the one JSON form that messages
have, unknown fields included.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Message, ToolCall, ToolResult, message_from_json, message_to_json
from dragoman.errors import MalformedDataError, SnapshotCorruptError, SnapshotVersionError

__all__ = ["JournalEntry", "MessageAdded", "ToolCallBegun", "ToolCallDone", "entry_from_json", "entry_to_json"]


class MessageAdded(Struct, frozen=True):
    """A message joined the conversation: the user's, a reply of the model, or the results of its calls."""

    message: Message


class ToolCallBegun(Struct, frozen=True):
    """A tool is about to be called. Without a result later on, nobody knows whether it did its work."""

    call: ToolCall
    time: datetime | None = None


class ToolCallDone(Struct, frozen=True):
    """A tool gave its result, which has not joined the conversation yet."""

    result: ToolResult
    time: datetime | None = None


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
    from hashlib import sha256

    return sha256(name.encode() + b":" + message).hexdigest()[:32]


def _as_message(entry: JournalEntry) -> Message:
    match entry:
        case MessageAdded(message):
            return message
        case ToolCallBegun(call, time):
            return Message(role="assistant", blocks=(call,), time=time)
        case ToolCallDone(result, time):
            return Message.tool([result], time=time)


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
            return ToolCallBegun(call, message.time)
        case _:
            raise _misfit()


def _read_done(message: Message) -> ToolCallDone:
    match message:
        case Message(role="tool", blocks=(ToolResult() as result,)):
            return ToolCallDone(result, message.time)
        case _:
            raise _misfit()


def _misfit() -> SnapshotCorruptError:
    return SnapshotCorruptError("An entry of the journal is not what was written.")


_READERS: Final[dict[str, Callable[[Message], JournalEntry]]] = {
    "message_added": MessageAdded,
    "tool_call_begun": _read_begun,
    "tool_call_done": _read_done,
}
