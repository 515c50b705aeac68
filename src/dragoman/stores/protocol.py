"""What a store is: snapshots of conversations, and a journal of what happened since the newest of each.

Owns: the protocols ConversationStore and AsyncConversationStore, the rules that every store keeps, and what it says to
those who break them. The suite in tests/stores/test_contract.py checks them on every store.
Must not know: any particular store.

Ids
- There is one kind of id. Every method takes the id of any snapshot; where a method speaks of a conversation, it means
  the one whose chain contains that snapshot. A text that is no id is an InvalidSnapshotIDError before anything else; an
  id that the store does not hold is a SnapshotNotFoundError.

Saving
- When `save` returns, the snapshot survives a crash of the program and of the machine. When it raises, the store is as
  it was before (or, where a disk or a connection failed at the last moment, the snapshot is there in full: saving it
  again tells).
- A first snapshot (`parent is None`) begins a chain. Any other needs its parent to be the newest of its chain; if it
  is not, or is not there, that is a StoreConflictError and nothing changes.
- Saving the identical snapshot again does nothing, wherever it stands in its chain and whatever `after` says. Another
  snapshot under an id that is taken is a StoreConflictError.

The journal
- The journal of a conversation holds what happened since its newest snapshot: entries at positions 1, 2, 3, …
- `record(id, entries, after=n)` appends behind position n: `id` must be the newest snapshot and n the number of entries
  that are there, else somebody else went on and it is a StoreConflictError. All entries are written, or none. It is
  never idempotent: of two programs that record the same step exactly one may succeed.
- `save(snapshot, after=n)` puts the journal away in the same step that saves the snapshot: n says how many entries the
  snapshot covers. If there are others, that is a StoreConflictError: nobody's steps get lost because somebody else,
  who had not seen them, saved.

Lists
- Newest first; without reading messages; pages with a cursor. A cursor is good for the same method with the same
  filters; anything else is an InvalidCursorError. What is saved meanwhile may be missed, but nothing comes twice and
  nothing that stays as it is gets left out.
- What cannot be read is named in `Page.unreadable` and left where it is; the rest of the page is not affected.

Trouble
- Disk full, read-only, gone, locked for too long: StoreUnavailableError. The store can be used again as soon as the
  trouble is over, without being opened anew. What is damaged: SnapshotCorruptError. Nothing else but DragomanError.
- Waiting for others ends at `timeout`, at Ctrl-C, and when the current Stop says so (StoppedError).
- A store may be used by many threads and processes at once, and after a fork in both halves.
- `close()` may be called twice. Afterwards every method but `close` raises StoreError.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, Self, Unpack

from dragoman.errors import SnapshotCorruptError, SnapshotNotFoundError, StoreConflictError, StoreError

from .journal import Journal, JournalEntry
from .listing import ListOptions, Page
from .snapshot import Snapshot


class ConversationStore(Protocol):
    """What every store can do: keep conversations, and the journal of what happened since.

    The rules that a store keeps, for those who write one, are in the docstring of the module dragoman.stores.protocol.
    """

    can_search: bool
    """Whether `search` works here; where it does not, it raises StoreError."""

    def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        """Keep this snapshot, and put away the journal entries 1 to `after`, which it covers."""
        ...

    def load(self, id: str) -> Snapshot:
        """Exactly this snapshot."""
        ...

    def latest(self, id: str) -> Snapshot:
        """The newest snapshot of the conversation."""
        ...

    def list(self, **which: Unpack[ListOptions]) -> Page:
        """The newest snapshot of each conversation, newest first; see ListOptions for which of them."""
        ...

    def history(self, id: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        """The snapshots of one conversation, newest first."""
        ...

    def search(self, text: str, *, limit: int = 50, cursor: str | None = None) -> Page:
        """The newest snapshot of each conversation with a message, new or old, in which every word of the text occurs.

        Newest first. Words are parts of words, too, in any case.
        """
        ...

    def delete(self, id: str) -> None:
        """Remove the whole conversation: all of its snapshots, its journal, and what is kept of agents' turns in it."""
        ...

    def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        """Append to the journal of the conversation whose newest snapshot this is; the new number of entries."""
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


class AsyncConversationStore(Protocol):
    """ConversationStore for asyncio.

    A cancelled call has either been carried out in full or not at all when it raises.
    """

    can_search: bool

    async def save(self, snapshot: Snapshot, *, after: int = 0) -> None: ...

    async def load(self, id: str) -> Snapshot: ...

    async def latest(self, id: str) -> Snapshot: ...

    async def list(self, **which: Unpack[ListOptions]) -> Page: ...

    async def history(self, id: str, *, limit: int = 50, cursor: str | None = None) -> Page: ...

    async def search(self, text: str, *, limit: int = 50, cursor: str | None = None) -> Page: ...

    async def delete(self, id: str) -> None: ...

    async def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int: ...

    async def journal(self, id: str) -> Journal: ...

    async def aclose(self) -> None:
        """Close files and connections."""
        ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


# --- rules -----------------------------------------------------------------------------------------------------------


def not_found(id: str) -> SnapshotNotFoundError:
    return SnapshotNotFoundError(f"The store has no snapshot {id}.")


def closed_store() -> StoreError:
    message = "The store is closed."
    return StoreError(message, hint="Open it again to use it.")


def id_taken(id: str) -> StoreConflictError:
    """The id belongs to another snapshot than the one that is to be saved."""
    message = f"The store has another snapshot under the id {id}."
    hint = "Go on with the one that is there (restore, or store.latest), or save under a new id: snapshot.fork()."
    return StoreConflictError(message, hint=hint)


def check_parent(snapshot: Snapshot, root: str | None, newest: str | None) -> None:
    """Whether the snapshot follows the newest of its conversation.

    `root` is that of its parent, None if the store does not have the parent; `newest` is that of its own conversation.
    """
    if root is not None and root != snapshot.root:
        message = f"Snapshot {snapshot.id} names the root {snapshot.root}, but its parent belongs to {root}."
        raise StoreConflictError(message, hint="Build it with parent.next(...).")
    if root is None or newest is None:
        message = f"The parent {snapshot.parent} of snapshot {snapshot.id} is not in the store."
        hint = "It was deleted, or saved in another store. To keep this snapshot anyway, save snapshot.fork()."
        raise StoreConflictError(message, hint=hint)
    check_newest(snapshot.parent or "", newest)


def check_newest(id: str, newest: str) -> None:
    """Whether nobody has gone on with the conversation."""
    if id != newest:
        message = f"Snapshot {id} is no longer the newest of its conversation: {newest} is."
        raise StoreConflictError(message)


def check_position(root: str, after: int, position: int) -> None:
    """Whether the caller has seen all entries of the journal."""
    if after != position:
        message = f"The journal of {root} has {position} entries, not {after}: somebody else went on with it."
        raise StoreConflictError(message, hint="Use resume(store, id) to see what happened, and go on from there.")


def lost_entries(root: str, length: int) -> SnapshotCorruptError:
    """The journal is not as long as it was."""
    message = f"The journal of {root} should have {length} entries, and they are not all there."
    hint = (
        "Restore it from a copy. Without it nobody knows what happened since the newest snapshot, and which tools "
        "were called; to go on from that snapshot all the same: store.save(store.latest(id).fork())."
    )
    return SnapshotCorruptError(message, hint=hint)
