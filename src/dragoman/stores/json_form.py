"""The JSON form of a snapshot: versioned, readable, data only; as a whole, and divided into rows for databases.

Owns: writing and reading. A newer version is refused. Reading imports nothing and runs nothing
that the document names: it gives values or an error.
Must not know: files, databases, encryption.

The conversation inside is a document of its own, with its own version, as `conversation_to_json` writes it; so is what
survives in it (unknown fields, opaque blocks). Fields that a tool's spec does not know are kept in the same way. Beside
the snapshot's own members there are none: who adds one adds a version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import Raw, Struct, structs

from dragoman.conversation import (
    Message,
    conversation_from_json,
    conversation_to_json,
    memory_of,
    message_from_json,
    message_to_json,
    tool_spec_from_json,
    tool_spec_to_json,
)
from dragoman.errors import (
    ConversationError,
    InvalidSnapshotIDError,
    MalformedDataError,
    SnapshotCorruptError,
    SnapshotError,
    SnapshotVersionError,
    UnsupportedVersionError,
)

from .listing import SnapshotSummary
from .snapshot import SNAPSHOT_VERSION, Snapshot

FORMAT: Final = "dragoman.snapshot"


class _Head(Struct, frozen=True):
    format: str = ""
    version: int = 0


class _Document(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    format: str
    version: int
    id: str
    root: str
    parent: str | None = None
    forked_from: str | None = None
    provider: str
    model: str
    title: str = ""
    created_at: datetime
    tools: tuple[Raw, ...] = ()
    conversation: Raw


_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError, MalformedDataError)


def snapshot_to_json(snapshot: Snapshot) -> bytes:
    """The snapshot as a JSON document in UTF-8. Raises ConversationError for what JSON cannot carry."""
    members = structs.asdict(snapshot)
    members["version"] = SNAPSHOT_VERSION
    members["tools"] = tuple([Raw(tool_spec_to_json(spec)) for spec in snapshot.tools])
    members["conversation"] = Raw(conversation_to_json(snapshot.conversation))
    try:
        return msgspec.json.encode(_Document(format=FORMAT, **members))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        message = f"The snapshot cannot be written as JSON: {str(error).rstrip('.')}."
        hint = "Keep only JSON data in it, and only text that UTF-8 can carry."
        raise ConversationError(message, hint=hint) from error


def snapshot_from_json(data: bytes | str) -> Snapshot:
    """Read what `snapshot_to_json` wrote.

    Raises SnapshotVersionError for a newer version and SnapshotCorruptError for anything else that is no snapshot.
    """
    try:
        _check_head(msgspec.json.decode(data, type=_Head))
        document = msgspec.json.decode(data, type=_Document)
        members = structs.asdict(document)
        del members["format"]
        members["tools"] = tuple([tool_spec_from_json(bytes(each)) for each in document.tools])
        members["conversation"] = conversation_from_json(bytes(document.conversation))
        return Snapshot(**members)
    except UnsupportedVersionError as error:
        raise SnapshotVersionError(error.message) from None
    except (SnapshotVersionError, SnapshotCorruptError):
        raise
    except (*_UNREADABLE, InvalidSnapshotIDError, SnapshotError) as error:
        raise _corrupt(error) from None


def _check_head(head: _Head) -> None:
    if head.format != FORMAT or head.version < 1:
        message = "These are not the bytes of a snapshot."
        raise SnapshotCorruptError(message)
    if head.version > SNAPSHOT_VERSION:
        message = f"The snapshot is of version {head.version}; this dragoman reads up to version {SNAPSHOT_VERSION}."
        raise SnapshotVersionError(message)


def _corrupt(error: Exception) -> SnapshotCorruptError:
    text = error.message if isinstance(error, SnapshotError | MalformedDataError) else str(error)
    return SnapshotCorruptError(f"The stored snapshot cannot be read: {text.rstrip('.')}.")


# --- divided into rows -----------------------------------------------------------------------------------------------

# A database keeps each message once, in a row of its own, and of every snapshot the body: all but its messages. A
# running digest after n messages stands for exactly these n messages in this order. A body keeps the digest of its
# history, so a store knows from the parent's body alone whether a new history only adds to it, and on loading whether
# the rows it found are the ones that were written. Messages never change, so each keeps its digest beside it.

EMPTY: Final = sha256(b"dragoman.messages").digest()
"""The running digest of no messages."""

_MEMORY: Final = "stores.digest"


class Body(Struct, frozen=True):
    """All of a snapshot but its messages, as a store reads it back."""

    count: int
    """How many messages it has."""
    digest: bytes
    """The running digest after them."""
    snapshot: Raw
    """Its JSON document, in which the conversation has no messages."""


def digest_after(messages: Iterable[Message], before: bytes = EMPTY) -> bytes:
    """The running digest after these messages."""
    for message in messages:
        known = memory_of(message).get(_MEMORY)
        if known is None or known[0] != before:
            known = memory_of(message)[_MEMORY] = (before, _next_digest(before, message_to_json(message)))
        before = known[1]
    return before


def _next_digest(before: bytes, row: bytes) -> bytes:
    return sha256(before + sha256(row).digest()).digest()


def body_to_json(snapshot: Snapshot) -> bytes:
    """The body of this snapshot as JSON."""
    conversation = snapshot.conversation
    document = snapshot_to_json(structs.replace(snapshot, conversation=conversation.up_to(0)))
    return msgspec.json.encode(Body(len(conversation.messages), digest_after(conversation.messages), Raw(document)))


def body_from_json(data: bytes) -> Body:
    """Read what `body_to_json` wrote. Raises SnapshotCorruptError."""
    try:
        return msgspec.json.decode(data, type=Body)
    except _UNREADABLE as error:
        raise _corrupt(error) from None


def summary_of_body(body: Body) -> SnapshotSummary:
    """What lists show of a snapshot. Raises SnapshotCorruptError."""
    try:
        head = msgspec.json.decode(body.snapshot, type=SnapshotSummary)
    except _UNREADABLE as error:
        raise _corrupt(error) from None
    return structs.replace(head, message_count=body.count)


def assemble(body: Body, rows: Sequence[bytes]) -> Snapshot:
    """The snapshot of this body with these messages, as `message_to_json` wrote them.

    Raises SnapshotCorruptError if they are not the ones that belong to it, SnapshotVersionError for a newer format.
    """
    snapshot, messages, digest = snapshot_from_json(bytes(body.snapshot)), list[Message](), EMPTY
    for row in rows:
        try:
            messages.append(message_from_json(row))
        except MalformedDataError as error:
            raise _corrupt(error) from None
        before, digest = digest, _next_digest(digest, row)
        memory_of(messages[-1])[_MEMORY] = (before, digest)
    if len(rows) != body.count or digest != body.digest:
        message = f"The messages of the snapshot are not those that were saved ({len(rows)} of {body.count} found)."
        raise SnapshotCorruptError(message)
    return structs.replace(snapshot, conversation=snapshot.conversation.plus(*messages))
