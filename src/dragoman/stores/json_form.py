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
from typing import Any, Final, cast

import msgspec
from msgspec import Raw, Struct, structs

from dragoman.conversation import (
    FrozenDict,
    Message,
    ToolSpec,
    conversation_from_json,
    conversation_to_json,
    message_to_json,
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


_encoder = msgspec.json.Encoder()
_head = msgspec.json.Decoder(_Head)
_members = msgspec.json.Decoder(dict[str, Raw])

_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
_UNWRITABLE: Final = (msgspec.MsgspecError, TypeError, ValueError, RecursionError)


def snapshot_to_json(snapshot: Snapshot) -> bytes:
    """The snapshot as a JSON document in UTF-8. Raises ConversationError for what JSON cannot carry."""
    members: dict[str, Any] = {name: getattr(snapshot, name) for name in _Document.__struct_fields__}
    members["tools"] = tuple([Raw(_spec_to_json(spec)) for spec in snapshot.tools])
    members["conversation"] = Raw(conversation_to_json(snapshot.conversation))
    document = _Document(**members)
    try:
        written = _encoder.encode(document)
    except _UNWRITABLE as error:
        raise _unwritable(error) from error
    return b'{"format":"%s","version":%d,%s' % (FORMAT.encode(), SNAPSHOT_VERSION, written[1:])


def snapshot_from_json(data: bytes | str) -> Snapshot:
    """Read what `snapshot_to_json` wrote.

    Raises SnapshotVersionError for a newer version and SnapshotCorruptError for anything else that is no snapshot.
    """
    try:
        _check_head(_head.decode(data))
        members = _members.decode(data)
        del members["format"], members["version"]
        document = msgspec.json.decode(_encoder.encode(members), type=_Document)
        return _snapshot(document)
    except UnsupportedVersionError as error:
        raise SnapshotVersionError(error.message) from None
    except (*_UNREADABLE, MalformedDataError) as error:
        raise _corrupt(error) from None


def _check_head(head: _Head) -> None:
    if head.format != FORMAT or head.version < 1:
        message = "These are not the bytes of a snapshot."
        raise SnapshotCorruptError(message)
    if head.version > SNAPSHOT_VERSION:
        message = (
            f"The snapshot is of version {head.version}, and this dragoman reads up to version {SNAPSHOT_VERSION}."
        )
        raise SnapshotVersionError(message)


def _snapshot(document: _Document) -> Snapshot:
    try:
        members = structs.asdict(document)
        members["tools"] = tuple([_spec_from_json(each) for each in document.tools])
        members["conversation"] = conversation_from_json(bytes(document.conversation))
        return Snapshot(**members)
    except (InvalidSnapshotIDError, SnapshotError) as error:
        raise _corrupt(error) from None


# --- tools -----------------------------------------------------------------------------------------------------------

_SPEC_MEMBERS: Final = {field.encode_name for field in structs.fields(ToolSpec) if field.name != "extra"}


def _spec_to_json(spec: ToolSpec) -> bytes:
    try:
        if not spec.extra:
            return _encoder.encode(spec)
        known = _encoder.encode(structs.replace(spec, extra=None))
        return known[:-1] + b"," + _encoder.encode(spec.extra)[1:]
    except _UNWRITABLE as error:
        raise _unwritable(error) from error


def _spec_from_json(raw: Raw) -> ToolSpec:
    try:
        return msgspec.json.decode(raw, type=ToolSpec)
    except msgspec.ValidationError:
        members = _members.decode(raw)
        extra = {name: members.pop(name).copy() for name in members.keys() - _SPEC_MEMBERS}
        spec = msgspec.json.decode(_encoder.encode(members), type=ToolSpec)
        return structs.replace(spec, extra=FrozenDict(sorted(extra.items())))


# --- errors ----------------------------------------------------------------------------------------------------------


def _corrupt(error: Exception) -> SnapshotCorruptError:
    text = error.message if isinstance(error, SnapshotError | MalformedDataError) else str(error)
    return SnapshotCorruptError(f"The stored snapshot cannot be read: {text.rstrip('.')}.")


def _unwritable(error: Exception) -> ConversationError:
    message = f"The snapshot cannot be written as JSON: {str(error).rstrip('.')}."
    return ConversationError(message, hint="Keep only JSON data in it, and only text that UTF-8 can carry.")


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
    check: bytes
    """A digest of all the rest: not every store notices when its bytes change."""
    snapshot: Raw
    """Its JSON document, in which the conversation has no messages."""


_body = msgspec.json.Decoder(Body)


def digest_after(messages: Iterable[Message], before: bytes = EMPTY) -> bytes:
    """The running digest after these messages."""
    for message in messages:
        memory = cast("dict[str, Any]", message.__dict__)
        known = cast("tuple[bytes, bytes] | None", memory.get(_MEMORY))
        if known is None or known[0] != before:
            known = (before, _next_digest(before, message_to_json(message)))
            memory[_MEMORY] = known
        before = known[1]
    return before


def _next_digest(before: bytes, row: bytes) -> bytes:
    return sha256(before + sha256(row).digest()).digest()


def body_to_json(snapshot: Snapshot) -> bytes:
    """The body of this snapshot as JSON."""
    conversation = snapshot.conversation
    empty = msgspec.structs.replace(snapshot, conversation=conversation.up_to(0))
    count, digest, document = len(conversation.messages), digest_after(conversation.messages), snapshot_to_json(empty)
    return msgspec.json.encode(Body(count, digest, _body_check(count, digest, document), Raw(document)))


def _body_check(count: int, digest: bytes, document: bytes) -> bytes:
    return sha256(b"%d:%s:%s" % (count, digest, document)).digest()


def body_from_json(data: bytes) -> Body:
    """Read what `body_to_json` wrote. Raises SnapshotCorruptError."""
    try:
        body = _body.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        message = f"The stored snapshot cannot be read: {str(error).rstrip('.')}."
        raise SnapshotCorruptError(message) from None
    if body.check != _body_check(body.count, body.digest, bytes(body.snapshot)):
        message = "The stored snapshot is not what was written."
        raise SnapshotCorruptError(message)
    return body


def summary_of_body(body: Body, id: str) -> SnapshotSummary:
    """What lists show of the snapshot of this id. Raises SnapshotCorruptError if the body is not its."""
    try:
        head = msgspec.json.decode(body.snapshot, type=SnapshotSummary)
    except _UNREADABLE as error:
        raise _corrupt(error) from None
    summary = structs.replace(head, message_count=body.count)
    if summary.id != id or summary.created_at.tzinfo is None:
        message = f"What is stored as {id} is another snapshot."
        raise SnapshotCorruptError(message)
    return summary


def assemble(body: Body, rows: Sequence[bytes]) -> Snapshot:
    """The snapshot of this body with these messages, as `message_to_json` wrote them.

    Raises SnapshotCorruptError if they are not the ones that belong to it, SnapshotVersionError for a newer format.
    """
    digests = [EMPTY]
    for row in rows:
        digests.append(_next_digest(digests[-1], row))
    if len(rows) != body.count or digests[-1] != body.digest:
        message = f"The messages of the snapshot are not those that were saved ({len(rows)} of {body.count} found)."
        raise SnapshotCorruptError(message)
    snapshot = snapshot_from_json(_splice(body.snapshot, rows))
    for message, before, after in zip(snapshot.messages, digests, digests[1:], strict=False):
        cast("dict[str, Any]", message.__dict__)[_MEMORY] = (before, after)
    return snapshot


def _splice(document: Raw, rows: Sequence[bytes]) -> bytes:
    """The whole document, so that reading (and migrating) it is the same as for any other store."""
    if not rows:
        return bytes(document)
    try:
        outer = _members.decode(document)
        inner = _members.decode(outer["conversation"])
        conversation = _members.decode(inner["conversation"])
    except (msgspec.MsgspecError, KeyError, ValueError, RecursionError) as error:
        message = f"The stored snapshot cannot be read: {str(error).rstrip('.')}."
        raise SnapshotCorruptError(message) from None
    conversation["messages"] = Raw(b"[" + b",".join(rows) + b"]")
    inner["conversation"] = Raw(msgspec.json.encode(conversation))
    outer["conversation"] = Raw(msgspec.json.encode(inner))
    return msgspec.json.encode(outer)
