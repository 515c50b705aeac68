"""A store in a directory.

Owns: FileStore: what each method checks, in which order, and under which lock.
Must not know: the bytes of files (frames.py), and how they are written (chain.py, journal_file.py).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from dragoman.errors import (
    SnapshotCorruptError,
    SnapshotError,
    SnapshotNotFoundError,
    SnapshotSealError,
    StoreConflictError,
    StoreError,
    StoreUnavailableError,
)
from dragoman.stores.entries import JournalEntry, entry_to_json
from dragoman.stores.ids import validate_snapshot_id
from dragoman.stores.journal import Journal
from dragoman.stores.json_form import snapshot_to_json
from dragoman.stores.protocol import Resealed
from dragoman.stores.sealing import Sealing
from dragoman.stores.snapshot import Snapshot
from dragoman.stores.summary import Page, checked_limit, cursor_parts, cursor_text, microseconds

from .catalogue import Catalogue, Holdings
from .chain import Chain, ReplacedError
from .frames import Head
from .journal_file import append_entries, entries_of, extent_of
from .lists import Filters, history_page, list_page
from .locks import Locks
from .resealing import reseal_chain
from .seals import Listing, Seals
from .shelf import GONE, HEAD, Shelf, change_mode, make_store, opened
from .troubles import reported
from .upkeep import tidy, with_odd_logs

__all__ = ["FileStore"]

_TRIES: Final = 20
"""Readers take no lock; somebody may replace what they read, but not for ever."""

_T = TypeVar("_T")


class FileStore:
    """Conversations in a directory, for one machine: many threads and programs may use it at once.

    The directory is made when first needed, for the owner's eyes only. `timeout` is how long to wait, in seconds, for
    another program that writes to the same conversation. With `sealing`, all that is kept is sealed, also what lists
    show, unless `listing="plain"`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sealing: Sealing | None = None,
        listing: Listing = "sealed",
        timeout: float = 30.0,
    ) -> None:
        self.path: Final = Path(path)
        self.can_search: bool = False
        self._seals: Final = Seals(sealing, listing)
        self._locks: Final = Locks(timeout)
        self._catalogue: Final = Catalogue()
        self._surveyed: bool = False
        self._seen: str | None = None
        self._closed: bool = False

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        """Keep this snapshot, and put away the journal entries 1 to `after`, which it covers."""
        written = snapshot_to_json(snapshot)  # refused before anything is touched

        def work(shelf: Shelf) -> None:
            if self._is_there(shelf, snapshot, written):
                return
            chain = self._chain(shelf, snapshot.root)
            head = chain.head()
            if head is None and shelf.heads.has(snapshot.root + GONE):
                chain.bury()  # else whoever tidies up would take the new one for the deleted one
            _check_parent(snapshot, head)
            recorded = 0 if head is None else extent_of(shelf, head).entries
            if recorded != after:
                raise _journal_conflict(snapshot.root, after, recorded)
            assert shelf.store is not None
            chain.append(head, snapshot, shelf.store)

        self._write("save the snapshot", (snapshot.root, snapshot.id), work)

    def _is_there(self, shelf: Shelf, snapshot: Snapshot, written: bytes) -> bool:
        for root in shelf.roots_of(snapshot.id):
            chain = self._chain(shelf, root)
            head = chain.head()
            there = None if head is None else chain.load(head, snapshot.id)
            if there is None:
                continue  # a note that a writer left who died
            if snapshot_to_json(there) == written:
                return True
            message = f"The store has another snapshot under the id {snapshot.id}."
            raise StoreConflictError(message, hint="Save under a new id: snapshot.next(...) or snapshot.fork().")
        return False

    def load(self, id: str) -> Snapshot:
        """Exactly this snapshot."""

        def work(_shelf: Shelf, chain: Chain, head: Head) -> Snapshot | None:
            return chain.load(head, id)

        return self._read("load the snapshot", id, work)

    def latest(self, id: str) -> Snapshot:
        """The newest snapshot of the conversation."""

        def work(_shelf: Shelf, chain: Chain, head: Head) -> Snapshot | None:
            return chain.load(head, head.newest) if chain.holds(head, id) else None

        return self._read("load the snapshot", id, work)

    def delete(self, id: str) -> None:
        """Remove the whole conversation: all of its snapshots and its journal."""
        validate_snapshot_id(id)
        root = self._root_of(id, "delete the conversation")

        def work(shelf: Shelf) -> None:
            chain = self._chain(shelf, root)
            if not _may_hold(chain, id):
                raise _not_found(id)
            chain.delete()

        self._write("delete the conversation", (root,), work, any_mode=True)

    # --- lists -------------------------------------------------------------------------------------------------------

    def list(
        self,
        *,
        provider: str | None = None,
        text: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """The newest snapshot of each conversation, newest first. What cannot be read is named on the first page."""
        checked_limit(limit)
        filters = Filters(
            provider=provider,
            text=text,
            since=None if since is None else microseconds(since),
            until=None if until is None else microseconds(until),
        )
        last = filters.place(cursor)
        with self._reading("list the conversations") as shelf:
            if shelf is None:
                return Page()
            self._check_list_mode(shelf)
            holdings = self._holdings(shelf, tidily=cursor is None)
        return list_page(holdings, filters, limit, last)

    def _holdings(self, shelf: Shelf, *, tidily: bool) -> Holdings:
        """Everything the store holds; tidied up before, if somebody died there."""
        holdings = self._catalogue.read(shelf, self._seals)
        if not tidily or shelf.locks is None or shelf.store is None:
            return holdings
        troubled = holdings.troubled
        if not self._surveyed:
            self._surveyed = True
            troubled |= with_odd_logs(shelf)
        if not troubled:
            return holdings
        left = tidy(shelf, self._locks, self._seals, troubled)
        self._surveyed = not left
        holdings = self._catalogue.read(shelf, self._seals)
        holdings.unreadable.extend(left)
        return holdings

    def _check_list_mode(self, shelf: Shelf) -> None:
        if shelf.mode == "sealed" and self._seals.mode == "open":
            message = "The store is sealed, its summaries too, and it was opened without a key."
            raise SnapshotSealError(message, hint="Open it with the key that it is sealed with: sealing=….")

    def history(self, id: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        """The snapshots of one conversation, newest first."""
        validate_snapshot_id(id)
        checked_limit(limit)

        def work(_shelf: Shelf, chain: Chain, head: Head) -> Page | None:
            return history_page(chain, head, id, limit, cursor)

        return self._read("read the history", id, work)

    def search(self, text: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        """Not here: see `can_search`."""
        self._check_open()
        message = "A store in a directory cannot be searched: it has no index of words."
        raise StoreError(message, hint="Use list(text=...), which looks into titles, or SqliteStore.")

    # --- the journal -------------------------------------------------------------------------------------------------

    def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        """Append to the journal of the conversation whose newest snapshot this is; the new number of entries."""
        validate_snapshot_id(id)
        written = [entry_to_json(each) for each in entries]
        root = self._root_of(id, "record the steps")

        def work(shelf: Shelf) -> int:
            chain = self._chain(shelf, root)
            head = chain.head()
            if head is None or not chain.holds(head, id):
                raise _not_found(id)
            if head.newest != id:
                message = f"Snapshot {id} is no longer the newest of its conversation: {head.newest} is."
                raise StoreConflictError(message)
            extent = extent_of(shelf, head)
            if extent.entries != after:
                raise _journal_conflict(root, after, extent.entries)
            if written:
                append_entries(shelf, head, self._seals, extent, written)
            return after + len(written)

        return self._write("record the steps", (root,), work)

    def journal(self, id: str) -> Journal:
        """The journal of the conversation."""

        def work(shelf: Shelf, chain: Chain, head: Head) -> Journal | None:
            if not chain.holds(head, id):
                return None
            entries = entries_of(shelf, head, self._seals)
            now = chain.head()
            if now is None or now.newest != head.newest:
                raise ReplacedError  # the entries may have been put away meanwhile
            return Journal(snapshot=head.newest, entries=entries)

        return self._read("read the journal", id, work)

    # --- sealing again -----------------------------------------------------------------------------------------------

    def reseal(self, *, limit: int = 100, cursor: str | None = None) -> Resealed:
        """Seal a part of the store again with the key that is written now; the function `reseal` does it all."""
        checked_limit(limit)
        [last] = ("",) if cursor is None else cursor_parts("file.reseal", cursor, tuple[str])
        with self._reading("seal the store again") as shelf:
            if shelf is None:
                return Resealed(done=0, total=0)
            roots = sorted(name.removesuffix(HEAD) for name in shelf.heads.names() if name.endswith(HEAD))
        if self._seals.mode == "open" and shelf.mode != "open":
            self._seals.ensure(shelf.mode or "open")
        left = [root for root in roots if root > last]
        unreadable = [root for root in left[:limit] if not self._reseal_one(root)]
        more = cursor_text("file.reseal", (left[limit - 1],)) if len(left) > limit else None
        done = min(limit, len(left))
        return Resealed(done=done, total=len(roots), cursor=more, unreadable=tuple(unreadable))

    def _reseal_one(self, root: str) -> bool:
        def work(shelf: Shelf) -> None:
            if shelf.mode != self._seals.mode:
                change_mode(shelf, self._locks, self._seals.mode)
            chain = self._chain(shelf, root)
            head = chain.head()
            if head is not None:
                reseal_chain(shelf, chain, head, self._seals)

        try:
            validate_snapshot_id(root)
            self._write("seal the store again", (root,), work, any_mode=True)
        except SnapshotError:
            return False
        return True

    # --- opening and closing -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Nothing is kept open between calls; afterwards the store refuses to be used."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"FileStore({str(self.path)!r})"

    def _check_open(self) -> None:
        if self._closed:
            message = "The store is closed."
            raise StoreError(message, hint="Open it again to use it.")

    @contextmanager
    def _opened(self) -> Generator[Shelf | None]:
        """The directory, if it is there. Notices that it went away: an empty one would look as if all were deleted."""
        seen = self._seen  # before the look at it: another thread may make it in the meantime
        with opened(self.path) as shelf:
            self._recognise(shelf, seen)
            yield shelf

    def _recognise(self, shelf: Shelf | None, seen: str | None) -> None:
        if seen is None:
            if shelf is not None and shelf.store is not None:
                self._seen = shelf.store
        elif shelf is None or shelf.store not in {seen, None}:
            message = f"The store at {self.path} is gone" + (", and another is in its place." if shelf else ".")
            hint = "Bring its directory back, or mount its disk; if it was meant to go, open the store anew."
            raise StoreUnavailableError(message, hint=hint)

    def _chain(self, shelf: Shelf, root: str) -> Chain:
        return Chain(shelf, root, self._seals)

    @contextmanager
    def _reading(self, doing: str) -> Generator[Shelf | None]:
        self._check_open()
        with reported(doing), self._opened() as shelf:
            yield shelf

    def _write(self, doing: str, ids: tuple[str, ...], work: Callable[[Shelf], _T], *, any_mode: bool = False) -> _T:
        """Do the work under the locks of these ids, in a store that is made if there is none."""
        self._check_open()
        with reported(doing), ExitStack() as stack:
            shelf = stack.enter_context(self._opened())
            if shelf is None or shelf.locks is None or shelf.store is None:
                make_store(self.path, self._locks, self._seals.mode)
                shelf = stack.enter_context(self._opened())
            if shelf is None or shelf.locks is None or shelf.mode is None:
                raise FileNotFoundError(errno.ENOENT, "removed meanwhile")
            if not any_mode:
                self._seals.ensure(shelf.mode)
            try:
                return self._locks.held(shelf.locks, ids, partial(work, shelf))
            except ReplacedError:
                # Under the lock nobody replaces a log, so it is simply not there.
                raise SnapshotCorruptError("The log of the conversation is missing.") from None

    def _read(self, doing: str, id: str, work: Callable[[Shelf, Chain, Head], _T | None]) -> _T:
        """What `work` finds in the conversation of this snapshot, while others may be writing to it."""
        validate_snapshot_id(id)
        with self._reading(doing) as shelf:
            for root in [] if shelf is None else shelf.roots_of(id):
                assert shelf is not None
                found = self._read_one(shelf, self._chain(shelf, root), work)
                if found is not None:
                    return found
        raise _not_found(id)

    def _read_one(self, shelf: Shelf, chain: Chain, work: Callable[[Shelf, Chain, Head], _T | None]) -> _T | None:
        for _ in range(_TRIES):
            head = chain.head()
            if head is None:
                return None
            try:
                return work(shelf, chain, head)
            except ReplacedError:
                continue
            except SnapshotCorruptError:
                # Damage, unless head and log were read at different times.
                if chain.head() == head:
                    raise
        raise SnapshotCorruptError(f"The log of conversation {chain.root} is missing.")

    def _root_of(self, id: str, doing: str) -> str:
        """The conversation of this snapshot. Under its lock it must be asked again."""
        with self._reading(doing) as shelf:
            for root in [] if shelf is None else shelf.roots_of(id):
                assert shelf is not None
                if _may_hold(self._chain(shelf, root), id):
                    return root
        raise _not_found(id)


def _may_hold(chain: Chain, id: str) -> bool:
    """Whether the conversation has this snapshot, or is too damaged to tell."""
    try:
        head = chain.head()
        return head is not None and chain.holds(head, id)
    except (SnapshotCorruptError, ReplacedError):
        return True


def _check_parent(snapshot: Snapshot, head: Head | None) -> None:
    if snapshot.parent is None:
        return  # its id is not taken, so there is no head
    if head is None:
        message = f"The conversation {snapshot.root} of snapshot {snapshot.id} is not in the store."
        raise StoreConflictError(message, hint="Save its earlier snapshots first, or snapshot.fork() as a first one.")
    if head.newest != snapshot.parent:
        message = f"Snapshot {snapshot.parent} is not the newest of its conversation: {head.newest} is."
        raise StoreConflictError(message)


def _journal_conflict(root: str, after: int, length: int) -> StoreConflictError:
    message = f"The journal of conversation {root} has {length} entries, not {after}: somebody else went on with it."
    return StoreConflictError(message, hint="Use resume(store, id) to see what happened, and go on from there.")


def _not_found(id: str) -> SnapshotNotFoundError:
    return SnapshotNotFoundError(f"The store has no snapshot {id}.")
