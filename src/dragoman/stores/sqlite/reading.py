"""What a reading transaction does.

Owns: finding a snapshot, loading it from its rows, and the journal.
Must not know: when a transaction begins and ends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final, NamedTuple, cast

from dragoman.errors import SnapshotCorruptError, SnapshotNotFoundError
from dragoman.stores.journal import Journal
from dragoman.stores.records import Records
from dragoman.stores.rows import Body, assembled
from dragoman.stores.snapshot import Snapshot

from .checks import checked

__all__ = ["Place", "body_of", "found", "journal_of", "message_rows", "newest", "place_of", "snapshot_of"]


class Place(NamedTuple):
    """Where a snapshot stands."""

    id: str
    chain: int
    root: str
    newest: str
    place: int
    generation: int


def place_of(connection: sqlite3.Connection, id: str) -> Place | None:
    """Where the snapshot of this id stands; None if there is none."""
    row = cast("object", connection.execute(_PLACE, (id,)).fetchone())
    return None if row is None else Place(id, *checked(row, tuple[int, str, str, int, int]))


_PLACE: Final = (
    "SELECT s.chain, c.root, c.newest, s.place, s.generation "
    "FROM snapshot s JOIN chain c ON c.key = s.chain WHERE s.id = ?"
)  # fmt: skip


def found(connection: sqlite3.Connection, id: str) -> Place:
    """Where the snapshot of this id stands. Raises SnapshotNotFoundError."""
    place = place_of(connection, id)
    if place is None:
        raise not_found(id)
    return place


def newest(connection: sqlite3.Connection, place: Place) -> Place:
    """Where the newest snapshot of the same chain stands."""
    found = place_of(connection, place.newest)
    if found is None or found.chain != place.chain:
        message = f"The newest snapshot of conversation {place.root} is missing."
        raise SnapshotCorruptError(message, hint="Older ones can still be loaded by their ids; see history().")
    return found


def not_found(id: str) -> SnapshotNotFoundError:
    return SnapshotNotFoundError(f"The store has no snapshot {id}.")


# --- one snapshot ----------------------------------------------------------------------------------------------------


def body_of(connection: sqlite3.Connection, records: Records, id: str) -> Body:
    """All of the snapshot but its messages."""
    row = cast("object", connection.execute("SELECT body FROM snapshot WHERE id = ?", (id,)).fetchone())
    if row is None:
        raise not_found(id)
    [data] = checked(row, tuple[bytes])
    return records.body(data, id)


def snapshot_of(connection: sqlite3.Connection, records: Records, place: Place) -> Snapshot:
    """The snapshot at this place."""
    body = body_of(connection, records, place.id)
    snapshot = assembled(body, message_rows(connection, records, place, body.count))
    if (snapshot.id, snapshot.root) != (place.id, place.root):
        message = f"What is stored as {place.id} is another snapshot."
        raise SnapshotCorruptError(message)
    return snapshot


def message_rows(connection: sqlite3.Connection, records: Records, place: Place, count: int) -> list[bytes]:
    """The first `count` messages of the history that the snapshot belongs to, as they were written."""
    rows: list[bytes] = []
    generation: int | None = place.generation
    while count > 0:
        if generation is None:
            raise _broken(place)
        found = cast("object", connection.execute(_GENERATION, (place.chain, generation)).fetchone())
        if found is None:
            raise _broken(place)
        base, shared = checked(found, tuple[int | None, int])
        # A base comes before what is built on it; anything else would lead round in circles.
        if shared < 0 or (base is not None and base >= generation):
            raise _broken(place)
        if count > shared:
            own = [
                records.opened(checked(row, tuple[bytes])[0], "message", place.root, generation, position)
                for position, row in enumerate(
                    connection.execute(_MESSAGES, (place.chain, generation, shared, count)), shared
                )
            ]
            rows[:0] = own
            count = shared
        generation = base
    return rows


_GENERATION: Final = "SELECT base, shared FROM generation WHERE chain = ? AND number = ?"
_MESSAGES: Final = (
    "SELECT body FROM message WHERE chain = ? AND generation = ? AND position >= ? AND position < ? ORDER BY position"
)


def _broken(place: Place) -> SnapshotCorruptError:
    return SnapshotCorruptError(f"The history of snapshot {place.id} is damaged.")


# --- the journal -----------------------------------------------------------------------------------------------------


def journal_of(connection: sqlite3.Connection, records: Records, place: Place) -> Journal:
    """The journal of the conversation that stands at this place."""
    entries = tuple(
        [
            records.entry(data, place.root, place.newest, position)
            for position, data in _numbered(place, connection.execute(_JOURNAL, (place.chain,)))
        ]
    )
    return Journal(snapshot=place.newest, entries=entries)


_JOURNAL: Final = "SELECT position, body FROM journal WHERE chain = ? ORDER BY position"


def _numbered(place: Place, rows: Iterable[object]) -> Iterable[tuple[int, bytes]]:
    for expected, row in enumerate(rows, 1):
        position, data = checked(row, tuple[int, bytes])
        if position != expected:
            message = f"Entry {expected} of the journal of {place.root} is missing."
            raise SnapshotCorruptError(message)
        yield position, data
