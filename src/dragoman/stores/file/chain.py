"""One conversation on disk: its head and its log.

Owns: reading them, and the order of steps in which they are written.
Must not know: who may write when; the caller holds the conversation's lock to write.

A save appends to the log, waits for the disk, and then replaces the head: that is the moment when it counts. What lies
in the log behind the length that the head names was never acknowledged, and the next writer cuts it off. What lies
before it was, and damage there is reported, never repaired by forgetting.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, TypeVar

from msgspec import structs

from dragoman.conversation import message_to_json
from dragoman.errors import SnapshotCorruptError, SnapshotError
from dragoman.stores.rows import Body, assembled, body_to_json, digest_after
from dragoman.stores.snapshot import Snapshot
from dragoman.stores.summary import SnapshotSummary, summary_of

from .folder import TEMPORARY, write_all
from .frames import (
    RECORD_BYTES,
    Head,
    Record,
    check_size,
    head_from_bytes,
    head_to_bytes,
    log_origin,
    record_from_bytes,
    record_to_bytes,
)
from .log import Located, Log, read_at
from .seals import Seals
from .shelf import GONE, Shelf, head_name, journal_name, log_name

__all__ = ["FIRST_GENERATION", "Chain", "ReplacedError", "truncate_quietly"]

FIRST_GENERATION: Final = 1

_T = TypeVar("_T")


class ReplacedError(Exception):
    """The log was replaced between reading the head and opening it: read the head again."""


class Chain:
    """The files of one conversation."""

    __slots__ = ("_seals", "_shelf", "root")

    def __init__(self, shelf: Shelf, root: str, seals: Seals) -> None:
        self._shelf: Final = shelf
        self._seals: Final = seals
        self.root: Final = root

    # --- the head ----------------------------------------------------------------------------------------------------

    def head(self) -> Head | None:
        """What counts now; None if there is no such conversation."""
        data = self._shelf.heads.read(head_name(self.root))
        return None if data is None else self.checked_head(data)

    def checked_head(self, data: bytes) -> Head:
        head = head_from_bytes(data)
        if head.root != self.root:
            raise SnapshotCorruptError(f"The file of conversation {self.root} is that of another, {head.root}.")
        if self._shelf.store is not None and head.store != self._shelf.store:
            raise SnapshotCorruptError(f"Conversation {self.root} belongs to another store, {head.store}.")
        return head

    def summary(self, head: Head) -> SnapshotSummary:
        """What lists show of the newest snapshot."""
        return self._seals.summary(head.store, head.summary, head.newest, head.count - 1)

    # --- the log -----------------------------------------------------------------------------------------------------

    def find(self, head: Head, id: str) -> Located | None:
        """The record of this snapshot; None if the conversation has none."""
        with self.log(head) as log:
            if head.newest == id:
                return self._newest(head, log)
            return next((each for each in log.records() if each.record.id == id), None)

    def records(self, head: Head) -> list[Located]:
        """All records, the oldest first."""
        with self.log(head) as log:
            return list(log.records())

    def holds(self, head: Head, id: str) -> bool:
        """Whether the conversation has this snapshot; a note of a dead writer may say so of one that never counted."""
        return id in {head.newest, head.root} or self.find(head, id) is not None

    def ids(self, head: Head) -> set[str]:
        """The ids of all snapshots."""
        return {each.record.id for each in self.records(head)}

    def load(self, head: Head, id: str) -> Snapshot | None:
        """The snapshot of this id; None if the conversation has none."""
        located = self.find(head, id)
        if located is None:
            return None
        rows: list[bytes] = []
        record, offset = located
        with self.log(head) as log:
            for each, start in log.records(record.base, end=offset):
                rows += self._messages(head, each, log.part(each, start, 2))
            parts = log.parts(record, offset)
            record.check(log_origin(head.store, self.root), parts)
            rows += self._messages(head, record, parts[2])
        snapshot = assembled(self._body(head, record, parts[1]), rows)
        if (snapshot.id, snapshot.root) != (id, self.root):
            raise SnapshotCorruptError(f"What is stored as {id} is another snapshot.")
        return snapshot

    def summaries(self, head: Head, located: list[Located]) -> Iterator[SnapshotSummary | SnapshotError]:
        """What lists show of these snapshots, or why they cannot be shown."""
        origin = log_origin(head.store, self.root)
        with self.log(head) as log:
            for record, offset in located:
                try:
                    data = log.part(record, offset, 0)
                    record.check_summary(origin, data)
                    yield self._seals.summary(head.store, data, record.id, record.position)
                except SnapshotError as error:
                    yield error

    def _newest(self, head: Head, log: Log) -> Located:
        record = record_from_bytes(log.at(head.last, RECORD_BYTES))
        if record.id != head.newest or record.digest != head.digest or head.last + record.size != head.length:
            raise SnapshotCorruptError(f"The log of conversation {self.root} does not end as its head says.")
        return Located(record, head.last)

    def _messages(self, head: Head, record: Record, data: bytes) -> list[bytes]:
        return self._seals.messages(head.store, data, record.id, record.position)

    def _body(self, head: Head, record: Record, data: bytes) -> Body:
        return self._seals.body(head.store, data, record.id, record.position)

    def log(self, head: Head) -> Log:
        file = self._shelf.logs.open(log_name(self.root, head.generation))
        if file is None:
            raise ReplacedError
        return Log(file, head.length)

    # --- saving (under the lock) -------------------------------------------------------------------------------------

    def append(self, head: Head | None, snapshot: Snapshot, store: str) -> None:
        """Save this snapshot behind the newest one. Everything was checked before."""
        data, new = self._record(head, snapshot, store)

        def write() -> int:
            generation = self._write_log(head, data)
            if head is not None:
                self._shelf.point(snapshot.id, self.root)
            self.commit(structs.replace(new, generation=generation))
            return generation

        generation = self.change(head, write)
        if head is not None:
            if generation != head.generation:
                self._shelf.logs.remove_quietly(log_name(self.root, head.generation))
            self._shelf.logs.remove_quietly(journal_name(self.root))

    def _record(self, head: Head | None, snapshot: Snapshot, store: str) -> tuple[bytes, Head]:
        """The bytes for the end of the log, and the head that will make them count."""
        origin = log_origin(store, self.root)
        position, length = (head.count, head.length) if head else (0, 0)
        kept, base = self._kept(head, snapshot) if head else (0, 0)
        body = self._seals.sealed(store, "body", body_to_json(snapshot), snapshot.id, position)
        rows = [message_to_json(each) for each in snapshot.messages[kept:]]
        summary = self._seals.sealed_summary(store, summary_of(snapshot), position)
        parts = (summary, body, self._seals.sealed_messages(store, rows, snapshot.id, position))
        check_size(*parts)
        data, digest = record_to_bytes(
            snapshot.id,
            position=position,
            base=base if kept else length,
            parts=parts,
            before=head.digest if head else origin,
            origin=origin,
        )
        return data, Head(
            store=store,
            root=self.root,
            newest=snapshot.id,
            generation=FIRST_GENERATION,
            length=length + len(data),
            last=length,
            count=position + 1,
            digest=digest,
            summary=summary,
        )

    def _kept(self, head: Head, snapshot: Snapshot) -> tuple[int, int]:
        """How many messages of the parent the snapshot begins with (all or none), and where the first of them are."""
        try:
            with self.log(head) as log:
                record, offset = self._newest(head, log)
                parts = log.parts(record, offset)
                record.check(log_origin(head.store, self.root), parts)
                body = self._body(head, record, parts[1])
        except SnapshotCorruptError:
            return 0, 0  # what cannot be read is not built upon
        messages = snapshot.messages
        if len(messages) < body.count or digest_after(messages[: body.count]) != body.digest:
            return 0, 0
        return body.count, record.base

    def change(self, head: Head | None, work: Callable[[], _T]) -> _T:
        """Announce a change, so that whoever comes after a crash knows where to look; after a failure, undo it.

        Not a context manager: interrupted at the wrong moment, that would undo it when the lock is somebody else's.
        """
        self._shelf.heads.announce(head_name(self.root))
        try:
            result = work()
        except BaseException:
            # Undone as far as the disk lets us; the rest is left to the next writer.
            with suppress(OSError, SnapshotError):
                self.settle(head)
            raise
        self._shelf.heads.remove_quietly(head_name(self.root) + TEMPORARY)
        return result

    def settle(self, before: Head | None) -> None:
        """Remove whatever does not belong to the head that counts: the one before a change, or the one behind it."""
        head = self.head()
        if head is None and before is None:
            self._shelf.logs.remove_quietly(log_name(self.root, FIRST_GENERATION))
        elif head is not None:
            for generation in (head.generation - 1, head.generation + 1):
                self._shelf.logs.remove_quietly(log_name(self.root, generation))
            file = self._shelf.logs.open(log_name(self.root, head.generation), append=True)
            if file is not None:
                with file:
                    self._drop_tail(file.number, head)
        self._shelf.heads.remove_quietly(head_name(self.root) + TEMPORARY)

    def _write_log(self, head: Head | None, data: bytes) -> int:
        """Put a record behind those that count, on the disk; the number of the log that it is in."""
        if head is None:
            self.create_log(FIRST_GENERATION, data)
            return FIRST_GENERATION
        file = self._shelf.logs.open(log_name(self.root, head.generation), append=True)
        if file is None:
            raise ReplacedError
        with file:
            fd = file.number
            if os.fstat(fd).st_nlink > 1:
                # A copy made of hard links shares the file; it must not change under the copy.
                self.create_log(head.generation + 1, read_at(fd, head.length, 0) + data)
                return head.generation + 1
            self._drop_tail(fd, head)
            os.lseek(fd, head.length, os.SEEK_SET)
            write_all(fd, data)
            os.fsync(fd)
        return head.generation

    def create_log(self, generation: int, data: bytes) -> None:
        """A log of this number, on the disk; it counts when a head names it."""
        with self._shelf.logs.create(log_name(self.root, generation)) as file:
            write_all(file.number, data)
            os.fsync(file.number)
        self._shelf.logs.sync()

    def _drop_tail(self, fd: int, head: Head) -> None:
        """Cut off what a writer left who died before it counted, and the note that it may have made."""
        status = os.fstat(fd)
        if status.st_size < head.length:
            raise SnapshotCorruptError(f"The log of conversation {self.root} is cut.")
        if status.st_size == head.length or status.st_nlink > 1:
            return
        with suppress(SnapshotError):  # where not even its beginning was written, the note was not, either
            record = record_from_bytes(os.pread(fd, RECORD_BYTES, head.length))
            self._shelf.forget(record.id, self.root)
        os.ftruncate(fd, head.length)

    def commit(self, head: Head) -> None:
        """Put this head in place: from now on it counts."""
        self._shelf.heads.replace(head_name(self.root), head_to_bytes(head), announced=True)

    # --- deleting (under the lock) -----------------------------------------------------------------------------------

    def delete(self) -> None:
        """Remove the conversation. It is gone when its head is; should we die then, the rest is removed by others."""
        self._shelf.heads.rename(head_name(self.root), self.root + GONE)
        with suppress(OSError):
            self.bury()

    def bury(self) -> None:
        """Remove what a deleted conversation has left, the sign of it last."""
        shelf, head = self._shelf, None
        try:
            head = head_from_bytes(shelf.heads.read(self.root + GONE) or b"")
            ids = [each.record.id for each in self.records(head)]
        except (SnapshotError, ReplacedError):
            shelf.forget_all(self.root)  # too damaged to tell, or half removed
        else:
            for each in ids:
                shelf.forget(each, self.root)
        shelf.logs.remove(journal_name(self.root))
        for name in [log_name(self.root, head.generation)] if head else shelf.logs.names():
            if name.startswith(f"{self.root}."):
                shelf.logs.remove(name)
        shelf.heads.remove(self.root + GONE)


def truncate_quietly(fd: int, length: int) -> None:
    """Cut a file back after a failed write; if that fails too, the next writer does it."""
    with suppress(OSError):
        os.ftruncate(fd, length)
