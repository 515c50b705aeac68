"""What a writing transaction does.

Owns: which rows a save adds, when a new generation of the history begins, the checks against what others have written.
Must not know: when a transaction begins and ends.
"""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

from dragoman.conversation import Message, message_to_json
from dragoman.errors import StoreConflictError
from dragoman.stores.entries import JournalEntry
from dragoman.stores.records import Records
from dragoman.stores.rows import body_to_json, digest_after
from dragoman.stores.searching import searchable_text
from dragoman.stores.snapshot import Snapshot
from dragoman.stores.summary import microseconds

from .checks import checked, mode_of
from .reading import Place, body_of, found, message_rows, place_of, snapshot_of
from .search import has_index

__all__ = ["Prepared", "delete", "forget_deleted_words", "prepared", "record", "save"]


class Prepared(NamedTuple):
    """A snapshot, written down before the transaction begins: what cannot be written does no harm there."""

    snapshot: Snapshot
    body: bytes


def prepared(snapshot: Snapshot) -> Prepared:
    """Raises ConversationError for what JSON cannot carry, in a message as well."""
    return Prepared(snapshot, body_to_json(snapshot))


# --- saving ----------------------------------------------------------------------------------------------------------


def save(connection: sqlite3.Connection, records: Records, new: Prepared, after: int) -> None:
    """Add the snapshot, put away the journal up to `after`. Raises StoreConflictError."""
    records.ensure_mode(mode_of(connection))
    snapshot = new.snapshot
    there = place_of(connection, snapshot.id)
    if there is not None:
        _ensure_same(connection, records, new, there)
        return
    if snapshot.parent is None:
        if after != 0:
            raise _journal_conflict(snapshot.id, after, 0)
        chain = _begin_chain(connection, records, snapshot)
        place, generation, written = 0, 0, 0
    else:
        parent = _parent(connection, snapshot)
        _clear_journal(connection, parent, after)
        chain, place = parent.chain, parent.place + 1
        generation, written = _generation(connection, records, parent, snapshot.messages)
    _add_messages(connection, records, snapshot, (chain, generation, written))
    summary = records.sealed_summary(snapshot)
    body = records.sealed(new.body, "body", snapshot.id)
    connection.execute(_ADD_SNAPSHOT, (snapshot.id, chain, place, generation, summary, body))
    if place > 0:
        shown = (snapshot.id, *_shown(connection, records, snapshot), chain)
        connection.execute("UPDATE chain SET newest = ?, rank = ?, provider = ? WHERE key = ?", shown)


_ADD_SNAPSHOT: Final = "INSERT INTO snapshot (id, chain, place, generation, summary, body) VALUES (?, ?, ?, ?, ?, ?)"


def _ensure_same(connection: sqlite3.Connection, records: Records, new: Prepared, there: Place) -> None:
    row = connection.execute("SELECT body FROM snapshot WHERE id = ?", (there.id,)).fetchone()
    [data] = checked(row, tuple[bytes])
    if records.opened(data, "body", there.id) == new.body:
        return
    # Written by an earlier version, the same snapshot has other bytes.
    if snapshot_of(connection, records, there) != new.snapshot:
        message = f"The store has another snapshot under the id {there.id}."
        raise StoreConflictError(message, hint="Save under a new id: snapshot.next(...) or snapshot.fork().")


def _parent(connection: sqlite3.Connection, snapshot: Snapshot) -> Place:
    assert snapshot.parent is not None
    parent = place_of(connection, snapshot.parent)
    if parent is None:
        message = f"The parent {snapshot.parent} of snapshot {snapshot.id} is not in the store."
        hint = "It was deleted, or saved in another store. To keep this snapshot anyway, save snapshot.fork()."
        raise StoreConflictError(message, hint=hint)
    if parent.root != snapshot.root:
        message = f"Snapshot {snapshot.id} names the root {snapshot.root}, but its parent belongs to {parent.root}."
        raise StoreConflictError(message, hint="Build it with parent.next(...).")
    if parent.newest != snapshot.parent:
        message = f"Snapshot {snapshot.parent} is no longer the newest of its conversation: {parent.newest} is."
        raise StoreConflictError(message)
    return parent


def _begin_chain(connection: sqlite3.Connection, records: Records, snapshot: Snapshot) -> int:
    rank, provider = _shown(connection, records, snapshot)
    added = connection.execute(
        "INSERT INTO chain (root, newest, rank, provider) VALUES (?, ?, ?, ?)",
        (snapshot.root, snapshot.id, rank, provider),
    )
    chain = added.lastrowid
    assert chain is not None
    connection.execute(_ADD_GENERATION, (chain, 0, None, 0))
    return chain


_ADD_GENERATION: Final = "INSERT INTO generation (chain, number, base, shared) VALUES (?, ?, ?, ?)"


def _shown(connection: sqlite3.Connection, records: Records, snapshot: Snapshot) -> tuple[int, str | None]:
    """The rank of a conversation in lists, and its provider where that may be seen."""
    if records.mode == "sealed":
        row = connection.execute("SELECT COALESCE(MAX(rank), 0) FROM chain").fetchone()
        return checked(row, tuple[int])[0] + 1, None
    return microseconds(snapshot.created_at), snapshot.provider


# --- messages --------------------------------------------------------------------------------------------------------


def _generation(
    connection: sqlite3.Connection, records: Records, parent: Place, messages: tuple[Message, ...]
) -> tuple[int, int]:
    """Which generation these messages belong to, and how many of them it has already."""
    known = body_of(connection, records, parent.id)
    if len(messages) >= known.count and digest_after(messages[: known.count]) == known.digest:
        return parent.generation, known.count
    # Not an addition: the history was cut, compacted or rewritten. That is rare, and may cost reading the old one.
    shared = 0
    for message, row in zip(messages, message_rows(connection, records, parent, known.count), strict=False):
        if message_to_json(message) != row:
            break
        shared += 1
    number = parent.generation + 1
    connection.execute(_ADD_GENERATION, (parent.chain, number, parent.generation if shared else None, shared))
    return number, shared


def _add_messages(
    connection: sqlite3.Connection, records: Records, snapshot: Snapshot, place: tuple[int, int, int]
) -> None:
    chain, generation, written = place
    for position, message in enumerate(snapshot.messages[written:], written):
        data = records.sealed(message_to_json(message), "message", snapshot.root, generation, position)
        added = connection.execute(_ADD_MESSAGE, (chain, generation, position, data))
        if records.mode == "open" and (text := searchable_text(message)):
            connection.execute("INSERT INTO message_text (rowid, text) VALUES (?, ?)", (added.lastrowid, text))


_ADD_MESSAGE: Final = "INSERT INTO message (chain, generation, position, body) VALUES (?, ?, ?, ?)"


# --- the journal -----------------------------------------------------------------------------------------------------


def record(
    connection: sqlite3.Connection,
    records: Records,
    id: str,
    entries: tuple[JournalEntry, ...],
    after: int,
) -> int:
    """Append to the journal; the new number of entries. Raises StoreConflictError."""
    records.ensure_mode(mode_of(connection))
    place = found(connection, id)
    if place.newest != id:
        message = f"Snapshot {id} is no longer the newest of its conversation: {place.newest} is."
        raise StoreConflictError(message)
    position = _journal_length(connection, place)
    if position != after:
        raise _journal_conflict(place.root, after, position)
    for entry in entries:
        position += 1
        data = records.sealed_entry(entry, place.root, place.newest, position)
        connection.execute(
            "INSERT INTO journal (chain, position, body) VALUES (?, ?, ?)", (place.chain, position, data)
        )
    return position


def _journal_length(connection: sqlite3.Connection, place: Place) -> int:
    row = connection.execute(
        "SELECT COALESCE(MAX(position), 0) FROM journal WHERE chain = ?", (place.chain,)
    ).fetchone()
    return checked(row, tuple[int])[0]


def _clear_journal(connection: sqlite3.Connection, parent: Place, after: int) -> None:
    length = _journal_length(connection, parent)
    if length != after:
        raise _journal_conflict(parent.root, after, length)
    if length:
        connection.execute("DELETE FROM journal WHERE chain = ?", (parent.chain,))


def _journal_conflict(root: str, after: int, length: int) -> StoreConflictError:
    message = f"The journal of conversation {root} has {length} entries, not {after}: somebody else went on with it."
    return StoreConflictError(message, hint="Use resume(store, id) to see what happened, and go on from there.")


# --- deleting --------------------------------------------------------------------------------------------------------


def delete(connection: sqlite3.Connection, place: Place) -> None:
    """Remove the whole chain."""
    connection.execute(_DELETE_TEXT, (place.chain,))
    connection.execute("DELETE FROM chain WHERE key = ?", (place.chain,))


def forget_deleted_words(connection: sqlite3.Connection) -> None:
    """The index marks words as deleted and drops them when it is next put in order: do that now."""
    if has_index(connection):
        connection.execute("INSERT INTO message_text (message_text) VALUES ('optimize')")


_DELETE_TEXT: Final = "DELETE FROM message_text WHERE rowid IN (SELECT key FROM message WHERE chain = ?)"
