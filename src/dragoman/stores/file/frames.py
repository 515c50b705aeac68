"""The bytes of a store's files.

Owns: heads, records and batches, as values and as bytes, and telling whole ones from damaged ones.
Must not know: files, and what the parts inside hold (they may be sealed).

    a head      one a conversation, replaced as a whole: which snapshot is the newest, how far the log counts, the
                newest's summary for lists
    a record    one a snapshot, appended to the conversation's log: its summary, its body, and the messages that its
                parent did not have
    a batch     journal entries that were recorded together, appended to the conversation's journal

Each carries a digest over itself and what precedes it, so that damage, a missing part or a part of another file shows.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct as Layout
from typing import Final
from zlib import crc32

from msgspec import Struct

from dragoman.errors import SnapshotCorruptError, SnapshotError, SnapshotVersionError

__all__ = [
    "BATCH_BYTES",
    "RECORD_BYTES",
    "Batch",
    "Head",
    "Record",
    "batch_from_bytes",
    "batch_to_bytes",
    "check_size",
    "head_from_bytes",
    "head_to_bytes",
    "journal_origin",
    "log_origin",
    "record_from_bytes",
    "record_to_bytes",
]

VERSION: Final = 1
_DIGEST: Final = 16
_RESERVED: Final = bytes(3)
_LARGEST: Final = (1 << 32) - 1

_HEAD: Final = Layout(">4sB3s16s16s16sIQQII16s")
_RECORD: Final = Layout(">4sB3s16sIQIII16s")
_BATCH: Final = Layout(">4sB3s16sIII")
_SUM: Final = Layout(">I")
_HEAD_MAGIC: Final = b"DGMH"
_RECORD_MAGIC: Final = b"DGMR"
_BATCH_MAGIC: Final = b"DGMJ"

RECORD_BYTES: Final = _RECORD.size + 2 * _DIGEST
"""Of a record, before its parts."""
BATCH_BYTES: Final = _BATCH.size + _SUM.size + _DIGEST
"""Of a batch, before its entries."""


def _digest(*parts: bytes) -> bytes:
    # Each part that can vary in length is preceded by one that says how long it is.
    digest = blake2b(digest_size=_DIGEST)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _packed(id: str) -> bytes:
    return bytes.fromhex(id.replace("-", ""))


def _unpacked(data: bytes) -> str:
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _check_start(what: str, magic: bytes, found: bytes, version: int, reserved: bytes) -> None:
    if found != magic or (version == VERSION and reserved != _RESERVED):
        raise SnapshotCorruptError(f"The {what} does not begin as one.")
    if version > VERSION:
        raise SnapshotVersionError(f"The {what} is of version {version}; this dragoman reads up to {VERSION}.")
    if version < 1:
        raise SnapshotCorruptError(f"The {what} claims version {version}, which never existed.")


# --- heads -----------------------------------------------------------------------------------------------------------


class Head(Struct, frozen=True, kw_only=True):
    """What counts of a conversation."""

    store: str
    root: str
    newest: str
    generation: int
    """Which log it speaks of: a log that is written anew as a whole gets the next number."""
    length: int
    """How many bytes of the log count; what lies behind was never acknowledged."""
    last: int
    """Where the newest record begins."""
    count: int
    """How many records there are."""
    digest: bytes
    """That of the newest record."""
    summary: bytes
    """Of the newest snapshot, as stored."""


def head_to_bytes(head: Head) -> bytes:
    """A file's content."""
    start = _HEAD.pack(
        _HEAD_MAGIC,
        VERSION,
        _RESERVED,
        _packed(head.store),
        _packed(head.root),
        _packed(head.newest),
        head.generation,
        head.length,
        head.last,
        head.count,
        len(head.summary),
        head.digest,
    )
    return b"".join((start, _digest(start, head.summary), head.summary))


def head_from_bytes(data: bytes) -> Head:
    """Read what `head_to_bytes` wrote."""
    if len(data) < _HEAD.size + _DIGEST:
        raise SnapshotCorruptError("The head of the conversation is cut.")
    start, found, summary = data[: _HEAD.size], data[_HEAD.size : _HEAD.size + _DIGEST], data[_HEAD.size + _DIGEST :]
    magic, version, reserved, store, root, newest, generation, length, last, count, size, digest = _HEAD.unpack(start)
    _check_start("head of the conversation", _HEAD_MAGIC, magic, version, reserved)
    if size != len(summary) or found != _digest(start, summary):
        raise SnapshotCorruptError("The head of the conversation is cut or was edited.")
    return Head(
        store=_unpacked(store),
        root=_unpacked(root),
        newest=_unpacked(newest),
        generation=generation,
        length=length,
        last=last,
        count=count,
        digest=digest,
        summary=summary,
    )


# --- records ---------------------------------------------------------------------------------------------------------


class Record(Struct, frozen=True, kw_only=True):
    """The beginning of a record: all that is needed to find its parts and the next record."""

    id: str
    position: int
    """Among the records of the log, from 0."""
    base: int
    """The place of the first record whose messages belong to this snapshot, too; its own if it has them all."""
    sizes: tuple[int, int, int]
    """Of the summary, of the body and of the messages."""
    before: bytes
    """The digest of the record before it."""
    lead: bytes
    """The digest over the log's origin, this beginning and the summary."""
    digest: bytes
    """The digest over `lead`, the body and the messages."""

    @property
    def size(self) -> int:
        """Of the whole record."""
        return RECORD_BYTES + sum(self.sizes)

    def check_summary(self, origin: bytes, summary: bytes) -> None:
        """Raise SnapshotCorruptError unless this is the summary that was written here."""
        if self.lead != _digest(origin, _record_start(self), summary):
            raise _damaged(self.id)

    def check(self, origin: bytes, parts: tuple[bytes, bytes, bytes]) -> None:
        """The same for all parts."""
        summary, body, messages = parts
        self.check_summary(origin, summary)
        if self.digest != _digest(self.lead, body, messages):
            raise _damaged(self.id)


def log_origin(store: str, root: str) -> bytes:
    """What every record of a log is bound to."""
    return _digest(b"log", _packed(store), _packed(root))


def check_size(*parts: bytes) -> None:
    """Raise SnapshotError for a part that is larger than a record or a batch can hold."""
    if (largest := max(map(len, parts))) > _LARGEST:
        message = f"A part of {largest} bytes is too large for a file store."
        raise SnapshotError(message, hint="Keep large media outside the conversation, by URL or file.")


def _record_start(record: Record) -> bytes:
    return _RECORD.pack(
        _RECORD_MAGIC,
        VERSION,
        _RESERVED,
        _packed(record.id),
        record.position,
        record.base,
        *record.sizes,
        record.before,
    )


def record_to_bytes(
    id: str,
    *,
    position: int,
    base: int,
    parts: tuple[bytes, bytes, bytes],
    before: bytes,
    origin: bytes,
) -> tuple[bytes, bytes]:
    """A record for the end of a log, and its digest. `before` is the digest of the record before it."""
    summary, body, messages = parts
    sizes = (len(summary), len(body), len(messages))
    record = Record(id=id, position=position, base=base, sizes=sizes, before=before, lead=b"", digest=b"")
    start = _record_start(record)
    lead = _digest(origin, start, summary)
    digest = _digest(lead, body, messages)
    return b"".join((start, lead, digest, summary, body, messages)), digest


def record_from_bytes(data: bytes) -> Record:
    """The beginning of a record, of which these are the first RECORD_BYTES."""
    if len(data) < RECORD_BYTES:
        raise SnapshotCorruptError("The log of the conversation is cut.")
    magic, version, reserved, id, position, base, *sizes, before = _RECORD.unpack_from(data)
    _check_start("record of the log", _RECORD_MAGIC, magic, version, reserved)
    lead, digest = data[_RECORD.size : _RECORD.size + _DIGEST], data[_RECORD.size + _DIGEST : RECORD_BYTES]
    summary, body, messages = sizes
    return Record(
        id=_unpacked(id),
        position=position,
        base=base,
        sizes=(summary, body, messages),
        before=before,
        lead=lead,
        digest=digest,
    )


def _damaged(id: str) -> SnapshotCorruptError:
    return SnapshotCorruptError(f"Snapshot {id} is damaged: its bytes are not those that were written.")


# --- batches ---------------------------------------------------------------------------------------------------------


class Batch(Struct, frozen=True, kw_only=True):
    """The beginning of a batch: journal entries that were recorded together."""

    snapshot: str
    """The newest snapshot when they were recorded; once there is a newer one, they no longer count."""
    after: int
    """How many entries were there before."""
    count: int
    start: bytes
    """The beginning itself, to which the digest is bound, too."""
    digest: bytes
    size: int
    """Of the whole batch, in bytes."""

    def check(self, store: str, before: bytes | None, payload: bytes) -> None:
        """Raise SnapshotCorruptError unless these are the entries that were written here.

        `before` is the digest of the batch before it, None for the first.
        """
        if self.digest != _digest(
            journal_origin(store, self.snapshot) if before is None else before, self.start, payload
        ):
            raise _damaged_journal()


def journal_origin(store: str, snapshot: str) -> bytes:
    """What precedes the first batch of a journal."""
    return _digest(b"journal", _packed(store), _packed(snapshot))


def batch_to_bytes(snapshot: str, *, after: int, count: int, payload: bytes, before: bytes) -> tuple[bytes, bytes]:
    """A batch for the end of a journal, and its digest."""
    start = _BATCH.pack(_BATCH_MAGIC, VERSION, _RESERVED, _packed(snapshot), after, count, len(payload))
    start += _SUM.pack(crc32(start))
    digest = _digest(before, start, payload)
    return b"".join((start, digest, payload)), digest


def batch_from_bytes(data: bytes) -> Batch:
    """The beginning of a batch, of which these are the first BATCH_BYTES."""
    magic, version, reserved, packed, after, count, size = _BATCH.unpack_from(data)
    _check_start("journal", _BATCH_MAGIC, magic, version, reserved)
    start, digest = data[: _BATCH.size + _SUM.size], data[_BATCH.size + _SUM.size : BATCH_BYTES]
    if start != start[: _BATCH.size] + _SUM.pack(crc32(start[: _BATCH.size])):
        raise _damaged_journal()
    return Batch(
        snapshot=_unpacked(packed), after=after, count=count, start=start, digest=digest, size=BATCH_BYTES + size
    )


def _damaged_journal() -> SnapshotCorruptError:
    message = "The journal of the conversation is damaged: its bytes are not those that were written."
    return SnapshotCorruptError(message, hint="Fork the newest snapshot to go on without the journal.")
