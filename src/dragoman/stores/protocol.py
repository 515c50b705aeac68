"""The protocol of stores: snapshots of conversations, and a journal of what happened since the newest of each.

The rules that every store follows are below; the suite in tests/stores/test_contract.py checks them on every store.

Ids
- There is one kind of id. Every method takes the id of any snapshot; a method on a conversation means the one whose
  chain contains that snapshot. A text that is not an id raises InvalidSnapshotIDError before anything else happens; an
  unknown id raises SnapshotNotFoundError.

Saving
- When `save` returns, the snapshot survives a crash of the program and of the machine. When it raises, the store is
  unchanged; if a disk or a connection failed at the last moment, the snapshot may also be there in full, and saving it
  again is safe.
- A first snapshot (`parent is None`) begins a chain. For any other, the parent must be the newest of its chain; if it
  is not, or does not exist, `save` raises StoreConflictError and changes nothing.
- Saving the identical snapshot again does nothing, wherever it is in its chain and whatever `after` says. Saving
  another snapshot under the same id raises StoreConflictError.

The journal
- The journal of a conversation holds what happened since its newest snapshot: entries at positions 1, 2, 3, …
- `record(id, entries, after=n)` appends after position n: `id` must be the newest snapshot and n the number of entries;
  otherwise somebody else continued, and it raises StoreConflictError. All entries are written, or none. It is never
  idempotent: of two programs that record the same step exactly one succeeds.
- `save(snapshot, after=n)` clears the journal in the same step that saves the snapshot: n says how many entries the
  snapshot covers. If there are more, it raises StoreConflictError, so that nobody's steps get lost.

Lists
- Newest first, without reading messages, in pages with a cursor. A cursor is valid for the same method with the same
  filters; anything else raises InvalidCursorError. Conversations that are saved between two pages may be missed, but
  nothing appears twice, and nothing that stays unchanged is left out.
- Damaged entries are named in `Page.unreadable` and left unchanged; they do not affect the rest of the page.

Errors
- Disk full, read-only, gone, locked for too long: StoreUnavailableError. The same store works again once the problem is
  fixed. Damage: SnapshotCorruptError. Every other error is a DragomanError, too.
- Waiting for others ends at `timeout`, at Ctrl-C, and when the current Stop says so (StoppedError).
- A store may be used by many threads and processes at once, and by both processes after a fork.
- `close()` may be called twice. Afterwards every other method raises StoreError.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, Self

from dragoman.errors import SnapshotCorruptError, SnapshotNotFoundError, StoreConflictError, StoreError

from .journal import Journal, JournalEntry
from .listing import Page
from .snapshot import Snapshot


class ConversationStore(Protocol):
    """A store of conversations, with a journal of what happened since their newest snapshots.

    To write one, follow the rules in the docstring of the module dragoman.stores.protocol.
    """

    can_search: bool
    """Whether `search` works; otherwise it raises StoreError."""

    def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        """Save the snapshot, and clear the journal, of which it covers the entries 1 to `after`."""
        ...

    def load(self, id: str) -> Snapshot:
        """The snapshot with this id."""
        ...

    def latest(self, id: str) -> Snapshot:
        """The newest snapshot of the conversation."""
        ...

    def list(
        self, *, provider: str | None = None, text: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page:
        """The newest snapshot of each conversation, newest first, of one provider, or with this text in the title.

        A page has up to `limit` entries, from 1 to 1000; `cursor` is that of the page before.
        """
        ...

    def history(self, id: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        """The snapshots of one conversation, newest first."""
        ...

    def search(self, text: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        """The newest snapshot of each conversation with a message, new or old, that contains every word of the text.

        Newest first. A word is also found inside a longer word, in any case.
        """
        ...

    def delete(self, id: str) -> None:
        """Delete the whole conversation: its snapshots, its journal, and the turns of agents in it."""
        ...

    def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        """Append to the journal after the newest snapshot, which this is; returns the new number of entries."""
        ...

    def journal(self, id: str) -> Journal:
        """The journal of the conversation."""
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


# --- errors ----------------------------------------------------------------------------------------------------------


def not_found(id: str) -> SnapshotNotFoundError:
    return SnapshotNotFoundError(f"The store has no snapshot {id}.")


def closed_store() -> StoreError:
    message = "The store is closed."
    return StoreError(message, hint="Open it again to use it.")


def id_taken(id: str) -> StoreConflictError:
    """The id belongs to another snapshot."""
    message = f"The store has another snapshot under the id {id}."
    hint = "Continue with that one (restore, or store.latest), or save under a new id: snapshot.fork()."
    return StoreConflictError(message, hint=hint)


def check_parent(snapshot: Snapshot, root: str | None, newest: str | None) -> None:
    """Raise StoreConflictError unless the snapshot follows the newest of its conversation.

    `root` is the conversation of its parent, None if the parent does not exist; `newest` is that of its own.
    """
    if root is not None and root != snapshot.root:
        message = f"Snapshot {snapshot.id} names the root {snapshot.root}, but its parent belongs to {root}."
        raise StoreConflictError(message, hint="Build it with parent.next(...).")
    if root is None or newest is None:
        message = f"The parent {snapshot.parent} of snapshot {snapshot.id} is not in the store."
        hint = "It was deleted, or is in another store. To save this snapshot anyway, save snapshot.fork()."
        raise StoreConflictError(message, hint=hint)
    check_newest(snapshot.parent or "", newest)


def check_newest(id: str, newest: str) -> None:
    """Raise StoreConflictError if somebody else continued the conversation."""
    if id != newest:
        message = f"Snapshot {id} is no longer the newest of its conversation: {newest} is."
        raise StoreConflictError(message)


def check_position(root: str, after: int, position: int) -> None:
    """Raise StoreConflictError unless the caller has seen all entries of the journal."""
    if after != position:
        message = f"The journal of {root} has {position} entries, not {after}: somebody else continued it."
        raise StoreConflictError(message, hint="Call resume(store, id) to see what happened, and continue from there.")


def lost_entries(root: str, length: int) -> SnapshotCorruptError:
    """Entries of the journal are missing."""
    message = f"The journal of {root} should have {length} entries, but some are missing."
    hint = (
        "Restore it from a backup. Without it, what happened since the newest snapshot and which tools were called is "
        "unknown; to continue from that snapshot anyway: store.save(store.latest(id).fork())."
    )
    return SnapshotCorruptError(message, hint=hint)
