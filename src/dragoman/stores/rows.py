"""How a snapshot is divided into rows, so that a save writes only what is new.

Owns: the body (all of a snapshot but its messages), the running digest over messages.
Must not know: SQL, files, and how rows are found again.

A running digest after n messages stands for exactly these n messages in this order. A body keeps the digest of its
history, so a store knows from the parent's body alone whether a new history only adds to it, and on loading whether the
rows it found are the ones that were written. Messages never change, so each keeps its digest beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, Final, cast

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Message, message_to_json
from dragoman.errors import SnapshotCorruptError

from .json_form import snapshot_from_json, snapshot_to_json
from .snapshot import Snapshot

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
_members = msgspec.json.Decoder(dict[str, Raw])


# --- digests ---------------------------------------------------------------------------------------------------------


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


# --- bodies ----------------------------------------------------------------------------------------------------------


def body_to_json(snapshot: Snapshot) -> bytes:
    """The body of this snapshot as JSON."""
    conversation = snapshot.conversation
    empty = msgspec.structs.replace(snapshot, conversation=conversation.up_to(0))
    count, digest, document = len(conversation.messages), digest_after(conversation.messages), snapshot_to_json(empty)
    return msgspec.json.encode(Body(count, digest, _check(count, digest, document), Raw(document)))


def _check(count: int, digest: bytes, document: bytes) -> bytes:
    return sha256(b"%d:%s:%s" % (count, digest, document)).digest()


def body_from_json(data: bytes) -> Body:
    """Read what `body_to_json` wrote. Raises SnapshotCorruptError."""
    try:
        body = _body.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        message = f"The stored snapshot cannot be read: {str(error).rstrip('.')}."
        raise SnapshotCorruptError(message) from None
    if body.check != _check(body.count, body.digest, bytes(body.snapshot)):
        message = "The stored snapshot is not what was written."
        raise SnapshotCorruptError(message)
    return body


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
