"""The JSON form of a snapshot: versioned, readable, data only.

Owns: writing and reading. A newer version is refused. Reading imports nothing and runs nothing
that the document names: it gives values or an error.
Must not know: files, databases, encryption.

The conversation inside is a document of its own, with its own version, as `conversation_to_json` writes it; so is what
survives in it (unknown fields, opaque blocks). Fields that a tool's spec does not know are kept in the same way. Beside
the snapshot's own members there are none: who adds one adds a version.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec
from msgspec import Raw, Struct, structs

from dragoman.conversation import FrozenDict, ToolSpec, conversation_from_json, conversation_to_json
from dragoman.errors import (
    ConversationError,
    InvalidSnapshotIDError,
    MalformedDataError,
    SnapshotCorruptError,
    SnapshotError,
    SnapshotVersionError,
    UnsupportedVersionError,
)

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
    document = _Document(
        id=snapshot.id,
        root=snapshot.root,
        parent=snapshot.parent,
        forked_from=snapshot.forked_from,
        provider=snapshot.provider,
        model=snapshot.model,
        title=snapshot.title,
        created_at=snapshot.created_at,
        tools=tuple([Raw(_spec_to_json(spec)) for spec in snapshot.tools]),
        conversation=Raw(conversation_to_json(snapshot.conversation)),
    )
    try:
        members = _encoder.encode(document)
    except _UNWRITABLE as error:
        raise _unwritable(error) from error
    return b'{"format":"%s","version":%d,%s' % (FORMAT.encode(), SNAPSHOT_VERSION, members[1:])


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
        return Snapshot(
            id=document.id,
            root=document.root,
            parent=document.parent,
            forked_from=document.forked_from,
            provider=document.provider,
            model=document.model,
            title=document.title,
            created_at=document.created_at,
            tools=tuple([_spec_from_json(each) for each in document.tools]),
            conversation=conversation_from_json(bytes(document.conversation)),
        )
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
