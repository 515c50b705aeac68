"""A conversation's journal on disk.

Owns: reading it and appending to it.
Must not know: who may write when; the caller holds the conversation's lock to append.

Batches name the snapshot that they follow. The save of a newer one makes them void in the moment in which it counts
itself; that the file is removed then is mere tidiness.

Entries are acknowledged when all of their bytes are on the disk. So a batch that is not there as a whole, at the end of
the file, was never acknowledged: bytes are missing, or are zeros where the file grew before its content came (no whole
batch ends in so many). It is ignored, and overwritten by the next. Any other damage is reported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from dragoman.errors import SnapshotCorruptError
from dragoman.stores.entries import JournalEntry

from .chain import truncate_quietly
from .folder import write_all
from .frames import BATCH_BYTES, Batch, Head, batch_from_bytes, batch_to_bytes, check_size, journal_origin
from .log import read_at
from .seals import Seals
from .shelf import Shelf, journal_name

__all__ = ["Extent", "append_entries", "batches_of", "entries_of", "extent_of", "replace_journal"]

_ZEROS: Final = 16


class Extent(NamedTuple):
    """How far a journal reaches."""

    entries: int
    size: int
    """In bytes."""
    digest: bytes
    """What the next batch is bound to."""


def extent_of(shelf: Shelf, head: Head) -> Extent:
    """How far the journal reaches. Of all batches but the last, only the beginnings are read."""
    extent = Extent(0, 0, journal_origin(head.store, head.newest))
    file = shelf.logs.open(journal_name(head.root))
    if file is None:
        return extent
    with file:
        for batch, _ in _batches(file.number, head, payloads=False):
            extent = Extent(extent.entries + batch.count, extent.size + batch.size, batch.digest)
    return extent


def batches_of(shelf: Shelf, head: Head) -> list[tuple[Batch, bytes]]:
    """What was recorded since the newest snapshot: each batch and its entries, as stored."""
    file = shelf.logs.open(journal_name(head.root))
    if file is None:
        return []
    with file:
        return list(_batches(file.number, head, payloads=True))


def _batches(fd: int, head: Head, *, payloads: bool) -> Iterator[tuple[Batch, bytes]]:
    size = os.fstat(fd).st_size
    offset, after = 0, 0
    before: bytes | None = None
    while offset + BATCH_BYTES <= size:
        try:
            batch = batch_from_bytes(read_at(fd, BATCH_BYTES, offset))
            if batch.snapshot != head.newest or offset + batch.size > size:
                return  # left from before the newest snapshot, or torn
            if batch.after != after:
                raise SnapshotCorruptError("A part of the journal is missing.")
            payload = b""
            if payloads or offset + batch.size == size:
                payload = read_at(fd, batch.size - BATCH_BYTES, offset + BATCH_BYTES)
                batch.check(head.store, before, payload)
        except SnapshotCorruptError:
            if any(read_at(fd, _ZEROS, size - _ZEROS)):
                raise
            return
        yield batch, payload
        before, offset, after = batch.digest, offset + batch.size, after + batch.count


def entries_of(shelf: Shelf, head: Head, seals: Seals) -> tuple[JournalEntry, ...]:
    """The entries of the journal."""
    found: list[JournalEntry] = []
    for batch, payload in batches_of(shelf, head):
        found += seals.entries(head.store, head.root, batch, payload)
    return tuple(found)


def append_entries(shelf: Shelf, head: Head, seals: Seals, extent: Extent, entries: list[bytes]) -> None:
    """Put entries behind those that are there, on the disk."""
    payload = seals.sealed_entries(head.store, head.root, head.newest, extent.entries, entries)
    check_size(payload)
    data, _ = batch_to_bytes(
        head.newest, after=extent.entries, count=len(entries), payload=payload, before=extent.digest
    )
    logs, name = shelf.logs, journal_name(head.root)
    found = logs.open(name, append=True)
    with logs.create(name) if found is None else found as file:
        fd = file.number
        if os.fstat(fd).st_nlink > 1:  # a copy made of hard links shares the file
            logs.replace(name, read_at(fd, extent.size, 0) + data)
            return
        try:
            os.ftruncate(fd, extent.size)
            os.lseek(fd, extent.size, os.SEEK_SET)
            write_all(fd, data)
            os.fsync(fd)
            if found is None:
                logs.sync()
        except BaseException:
            truncate_quietly(fd, extent.size)
            raise


def replace_journal(shelf: Shelf, head: Head, seals: Seals, batches: list[tuple[Batch, bytes]]) -> None:
    """Write the journal anew, sealed with the key that is written now."""
    written: list[bytes] = []
    before, after = journal_origin(head.store, head.newest), 0
    for batch, payload in batches:
        entries = seals.raw_entries(head.store, head.root, batch, payload)
        sealed = seals.sealed_entries(head.store, head.root, head.newest, after, entries)
        data, before = batch_to_bytes(head.newest, after=after, count=len(entries), payload=sealed, before=before)
        written.append(data)
        after += len(entries)
    shelf.logs.replace(journal_name(head.root), b"".join(written))
