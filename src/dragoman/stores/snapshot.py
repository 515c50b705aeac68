"""Snapshots: a conversation at one moment, with its id and its JSON form.

Ids are UUIDs in canonical lower case. An id becomes the name of a file and a key in a database, so the check is a full
match. Any version is accepted, since ids may come from elsewhere; new ones have version 7 (RFC 9562), so that they sort
by time.

The snapshots of one conversation form a chain: each names its parent, and all name the first of them, their root,
whose id is the id of the conversation. A fork begins a new chain and names the snapshot that it came from.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final
from uuid import UUID, uuid5

import msgspec
from msgspec import Raw, Struct, structs

from dragoman._decoding import decode_as
from dragoman.conversation import (
    Conversation,
    Message,
    ToolSpec,
    conversation_from_json,
    conversation_to_json,
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

# --- ids -------------------------------------------------------------------------------------------------------------

ID_PATTERN: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_CANONICAL: Final = re.compile(ID_PATTERN)
_SHOWN: Final = 60


def validate_snapshot_id(id: str) -> None:
    """Raise InvalidSnapshotIDError unless this is a UUID in canonical lower case."""
    if not isinstance(id, str) or _CANONICAL.fullmatch(id) is None:  # pyright: ignore[reportUnnecessaryIsInstance]
        shown = ascii(id) if len(ascii(id)) <= _SHOWN else ascii(id)[:_SHOWN] + "…"
        message = f"{shown} is not the id of a snapshot: a UUID in lower case, such as {_EXAMPLE}."
        raise InvalidSnapshotIDError(message)


_EXAMPLE: Final = "018f3c5e-7a10-7cc3-98c4-dc0c0c07398f"


def new_id() -> str:
    """A new id: the time in milliseconds, a 4096th of one, and 62 random bits."""
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    stamp = milliseconds << 16 | 7 << 12 | rest * 4096 // 1_000_000
    digits = f"{stamp << 64 | 0b10 << 62 | secrets.randbits(62):032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def conversation_id(name: str) -> str:
    """Derive an id from a name of your own, such as `"telegram:42"`; always the same one.

    It is the UUID of version 5 (RFC 9562) of the name, in a namespace of this library.
    """
    return str(uuid5(_NAMES, name))


def inner_id(parent: str, name: str) -> str:
    """Derive the id of a conversation inside another one, such as the turn of an agent; always the same one.

    It is a UUID of version 8 (RFC 9562). Its first digits mark it as an inner one, which lists for people leave out,
    and identify the outer conversation, with which it is deleted.
    """
    return family_of(parent) + uuid5(UUID(parent), name).hex[20:]


def family_of(id: str) -> str:
    """The prefix that the ids of all conversations inside this one share; an inner one belongs to the same family."""
    if is_inner(id):
        return id[:24]
    digits = uuid5(_NAMES, id).hex
    return f"{_INNER}-{digits[8:12]}-8{digits[13:16]}-{digits[16:20]}-"


def is_inner(id: str) -> bool:
    """Whether the conversation with this id is inside another one."""
    return id.startswith(_INNER) and id[14] == "8"


_INNER: Final = "a6e27001"
_NAMES: Final = UUID("8d6bd4f2-4c55-5a0e-9a57-5f1a3b0f6c1e")


# --- snapshots -------------------------------------------------------------------------------------------------------

SNAPSHOT_VERSION: Final = 1
"""The version of the format that this library writes."""

_TITLE_LENGTH: Final = 80


class Snapshot(Struct, frozen=True, kw_only=True):
    """A conversation at one moment, with what is needed to continue it: only data, no functions, no keys.

    Build one with `Snapshot.first`, then `snapshot.next` for each later point.
    """

    id: str
    root: str
    """The id of the first snapshot of the chain, which is the id of the conversation; equal to `id` for the first."""
    parent: str | None = None
    """The snapshot before this one; None for the first."""
    forked_from: str | None = None
    """The snapshot that this chain was forked from; the same on every snapshot of the chain."""
    provider: str
    model: str
    conversation: Conversation
    tools: tuple[ToolSpec, ...] = ()
    """The tool definitions that the model saw; functions are never saved."""
    title: str = ""
    """A short text for lists."""
    created_at: datetime
    version: int = SNAPSHOT_VERSION

    def __post_init__(self) -> None:
        for each in (self.id, self.root, self.parent, self.forked_from):
            if each is not None:
                validate_snapshot_id(each)
        if (self.parent is None) != (self.id == self.root) or self.parent == self.id:
            message = f"Snapshot {self.id} does not fit into a chain: a first one has no parent and is its own root."
            raise SnapshotError(message, hint="Build it with Snapshot.first() or snapshot.next().")
        if self.created_at.tzinfo is None:
            message = "The time of a snapshot needs a time zone."
            raise SnapshotError(message, hint="Use datetime.now(UTC).")
        if self.created_at.tzinfo is not UTC:
            structs.force_setattr(self, "created_at", self.created_at.astimezone(UTC))

    @classmethod
    def first(
        cls,
        conversation: Conversation,
        *,
        provider: str,
        model: str,
        tools: Iterable[ToolSpec] = (),
        title: str | None = None,
        id: str | None = None,
        created_at: datetime | None = None,
    ) -> Snapshot:
        """The first snapshot of a conversation. The default title is the beginning of the user's first message.

        Its id is the id of the conversation: a new one, unless you pass one (see `conversation_id`).
        """
        id = new_id() if id is None else id
        return cls(
            id=id,
            root=id,
            provider=provider,
            model=model,
            conversation=conversation,
            tools=tuple(tools),
            title=title_of(conversation) if title is None else title,
            created_at=created_at or datetime.now(UTC),
        )

    def next(self, conversation: Conversation, *, created_at: datetime | None = None) -> Snapshot:
        """The snapshot after this one, with the same model and tools (`msgspec.structs.replace` changes them)."""
        return structs.replace(
            self,
            id=new_id(),
            parent=self.id,
            conversation=conversation,
            title=self.title or title_of(conversation),
            created_at=created_at or datetime.now(UTC),
            version=SNAPSHOT_VERSION,
        )

    def fork(self) -> Snapshot:
        """The first snapshot of a new conversation that continues from this one."""
        id = new_id()
        return structs.replace(
            self,
            id=id,
            root=id,
            parent=None,
            forked_from=self.id,
            created_at=datetime.now(UTC),
            version=SNAPSHOT_VERSION,
        )

    @property
    def system_prompt(self) -> str | None:
        """The conversation's system prompt."""
        return self.conversation.system

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation's messages."""
        return self.conversation.messages

    @property
    def metadata(self) -> Mapping[str, object]:
        """The conversation's metadata."""
        return self.conversation.metadata


def title_of(conversation: Conversation) -> str:
    """The beginning of the user's first message, in one line."""
    for message in conversation.messages:
        if message.role == "user" and (words := message.text[: 20 * _TITLE_LENGTH].split()):
            line = " ".join(words)
            return line if len(line) <= _TITLE_LENGTH else line[: _TITLE_LENGTH - 1].rstrip() + "…"
    return ""


# --- the JSON form ---------------------------------------------------------------------------------------------------

# Versioned, readable, data only: reading never imports or runs anything that the document names. The conversation
# inside is a document with its own version, which keeps unknown fields; the snapshot itself allows none, so a new field
# needs a new version.

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


UNREADABLE: Final = (msgspec.MsgspecError, ValueError, MalformedDataError)


def snapshot_to_json(snapshot: Snapshot) -> bytes:
    """The snapshot as a JSON document in UTF-8. Raises ConversationError for data that JSON cannot represent."""
    members = structs.asdict(snapshot)
    members["version"] = SNAPSHOT_VERSION
    members["tools"] = tuple([Raw(tool_spec_to_json(spec)) for spec in snapshot.tools])
    members["conversation"] = Raw(conversation_to_json(snapshot.conversation))
    try:
        return msgspec.json.encode(_Document(format=FORMAT, **members))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        message = f"The snapshot cannot be written as JSON: {str(error).rstrip('.')}."
        hint = "Use only JSON data, and only text that UTF-8 can encode."
        raise ConversationError(message, hint=hint) from error


def snapshot_from_json(data: bytes | str) -> Snapshot:
    """Parse what `snapshot_to_json` wrote.

    Raises SnapshotVersionError for a newer version and SnapshotCorruptError for anything else that is not a snapshot.
    """
    try:
        _check_head(decode_as(data, _Head))
        document = decode_as(data, _Document)
        members = structs.asdict(document)
        del members["format"]
        members["tools"] = tuple([tool_spec_from_json(bytes(each)) for each in document.tools])
        members["conversation"] = conversation_from_json(bytes(document.conversation))
        return Snapshot(**members)
    except UnsupportedVersionError as error:
        raise SnapshotVersionError(error.message) from None
    except (SnapshotVersionError, SnapshotCorruptError):
        raise
    except (*UNREADABLE, SnapshotError) as error:
        raise corrupt(error) from None


def _check_head(head: _Head) -> None:
    if head.format != FORMAT or head.version < 1:
        raise SnapshotCorruptError("This is not a snapshot.")
    if head.version > SNAPSHOT_VERSION:
        message = f"The snapshot has version {head.version}; this dragoman reads up to version {SNAPSHOT_VERSION}."
        raise SnapshotVersionError(message)


def corrupt(error: Exception) -> SnapshotCorruptError:
    text = error.message if isinstance(error, SnapshotError | MalformedDataError) else str(error)
    return SnapshotCorruptError(f"The stored snapshot cannot be read: {text.rstrip('.')}.")
