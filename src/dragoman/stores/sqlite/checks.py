"""What comes out of a table, checked: SQLite lets a column hold anything, and a damaged file does.

Owns: rows as tuples of known types, and the mode of the file (see `Mode`).
Must not know: what the rows mean.
"""

from __future__ import annotations

import sqlite3
from typing import TypeVar

import msgspec

from dragoman.errors import SnapshotCorruptError, StoreError
from dragoman.stores.records import Mode

__all__ = ["checked", "mode_of"]

_T = TypeVar("_T")


def checked(row: object, type: type[_T]) -> _T:
    """A row of a table as a tuple of these types. Raises SnapshotCorruptError."""
    try:
        return msgspec.convert(row, type)
    except msgspec.ValidationError as error:
        message = f"A row of the database is not what was written ({error})."
        raise SnapshotCorruptError(message) from None


def mode_of(connection: sqlite3.Connection) -> Mode:
    """The mode that the file is in."""
    try:
        row = connection.execute("SELECT value FROM setting WHERE name = 'mode'").fetchone()
        [mode] = msgspec.convert(row, tuple[Mode])
    except msgspec.ValidationError:
        message = "The database does not say whether it is sealed: it is damaged."
        raise StoreError(message, hint="Restore it from a copy.") from None
    return mode
