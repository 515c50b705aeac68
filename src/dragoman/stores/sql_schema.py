"""The tables of SQL stores and the statements on them.

Must not know: drivers and connections (sqlite.py, postgres.py).

    chain     one row per conversation: its newest snapshot, the length of its journal, its rank in lists
    snapshot  one row per save: the body without messages, and which messages it has: the first `length` of a line
    message   one row per message, written once; a line is a history that only grows, and a save that changes earlier
              messages starts a new line
    journal   what happened since the newest snapshot
    words     the case-folded texts of messages, for search; empty in a sealed store
    setting   whether the store is sealed, and the version of these tables

Lists are sorted by `rank`, which counts saves: it reveals no times, and it only grows, so that nothing moves behind a
cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from dragoman._decoding import convert_to
from dragoman.errors import SnapshotCorruptError, StoreError

_T = TypeVar("_T")

Rows: TypeAlias = Sequence[tuple[Any, ...]]

TABLES: Final = (
    "CREATE TABLE {s}setting (name text PRIMARY KEY, value text NOT NULL)",
    """CREATE TABLE {s}chain (
        root text PRIMARY KEY,
        newest text NOT NULL,
        place bigint NOT NULL,
        position bigint NOT NULL,
        rank bigint NOT NULL
    )""",
    "CREATE UNIQUE INDEX chain_by_rank ON {s}chain (rank, root)",
    """CREATE TABLE {s}snapshot (
        id text PRIMARY KEY,
        root text NOT NULL,
        place bigint NOT NULL,
        line bigint NOT NULL,
        length bigint NOT NULL,
        body {blob} NOT NULL
    )""",
    "CREATE UNIQUE INDEX snapshot_by_place ON {s}snapshot (root, place)",
    """CREATE TABLE {s}message (
        root text NOT NULL,
        line bigint NOT NULL,
        position bigint NOT NULL,
        body {blob} NOT NULL,
        PRIMARY KEY (root, line, position)
    )""",
    """CREATE TABLE {s}journal (
        root text NOT NULL,
        position bigint NOT NULL,
        body {blob} NOT NULL,
        PRIMARY KEY (root, position)
    )""",
    "CREATE TABLE {s}words (root text NOT NULL, text {blob} NOT NULL)",
    "CREATE INDEX words_by_root ON {s}words (root)",
)
"""The tables of version 1. Texts are stored as bytes, which every database compares in the same way."""

VERSION: Final = "1"

# --- sessions --------------------------------------------------------------------------------------------------------


class Session(Protocol):
    """A connection in a transaction.

    In a statement `?` is a value, `{s}` the schema, `{lock}` the clause that locks the rows of table `c`, and `{blob}`
    the type of binary columns.
    """

    def fetch(self, sql: str, *values: object) -> Rows:
        """Run a query and return its rows."""
        ...

    def change(self, sql: str, *values: object) -> int:
        """Run a statement and return how many rows it changed."""
        ...

    def change_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Run a statement once for each row of values."""
        ...


def ensure_tables(session: Session, where: str, mode: str, names: tuple[str, ...], lock: Callable[[], object]) -> None:
    """Create the tables unless they exist; `names` is the query for existing tables, with its values.

    `lock` keeps other programs from creating them at the same time. Raises StoreError if the tables belong to another
    program or to another version.
    """
    if _has_tables(session, where, names):
        return
    lock()
    if not _has_tables(session, where, names):
        create_tables(session, mode)


def _has_tables(session: Session, where: str, names: tuple[str, ...]) -> bool:
    found = session.fetch(*names)
    if not found:
        return False
    if ("setting",) not in found:
        message = f"{where} is not a database of this library: it belongs to another program, or is damaged."
        raise StoreError(message, hint="Choose another file, or restore this one from a backup.")
    rows = session.fetch("SELECT value FROM {s}setting WHERE name = 'version'")
    if [*rows] != [(VERSION,)]:
        version = rows[0][0] if rows else None
        message = f"The tables in {where} have version {version}; this dragoman reads version {VERSION}."
        raise StoreError(message, hint="If they are newer, upgrade dragoman: pip install --upgrade dragoman.")
    return True


def create_tables(session: Session, mode: str) -> None:
    """Create the tables of a store in this mode, `open` or `sealed`."""
    for statement in TABLES:
        session.change(statement)
    session.change_many("INSERT INTO {s}setting VALUES (?, ?)", [("mode", mode), ("version", VERSION)])


def convert(row: object, type: type[_T]) -> _T:
    """Convert a row to a tuple of these types. Raises SnapshotCorruptError if it does not fit."""
    try:
        return convert_to(row, type)
    except msgspec.ValidationError as error:
        message = f"A row of the database has been changed ({error})."
        raise SnapshotCorruptError(message) from None


# --- statements ------------------------------------------------------------------------------------------------------

MODE: Final = "(SELECT value FROM {s}setting WHERE name = 'mode')"

ADD_CHAIN: Final = (
    "INSERT INTO {s}chain (root, newest, place, position, rank) VALUES (?, ?, 0, 0, 0) ON CONFLICT (root) DO NOTHING"
)
LOCK_CHAIN: Final = "SELECT c.newest, c.place, c.position FROM {s}chain c WHERE c.root = ?{lock}"
LOCK_CHAIN_OF: Final = (
    "SELECT c.root, c.newest, c.position, MODE FROM {s}snapshot s JOIN {s}chain c ON c.root = s.root "
    "WHERE s.id = ?{lock}"
).replace("MODE", MODE)
STATE: Final = (
    "SELECT MODE, (SELECT body FROM {s}snapshot WHERE id = ?), (SELECT root FROM {s}snapshot WHERE id = ?), "
    "(SELECT coalesce(max(line), 0) FROM {s}message WHERE root = ?)"
).replace("MODE", MODE)
PARENT: Final = (
    "SELECT p.body, p.line, p.length, (SELECT coalesce(max(m.position) + 1, 0) FROM {s}message m "
    "WHERE m.root = p.root AND m.line = p.line) FROM {s}snapshot p WHERE p.id = ?"
)
ADD_SNAPSHOT: Final = (
    "INSERT INTO {s}snapshot (id, root, place, line, length, body) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO NOTHING"
)
ADD_WORDS: Final = "INSERT INTO {s}words (root, text) VALUES (?, ?)"
ADD_MESSAGE: Final = "INSERT INTO {s}message (root, line, position, body) VALUES (?, ?, ?, ?)"
MOVE_CHAIN: Final = (
    "UPDATE {s}chain SET newest = ?, place = ?, position = 0, rank = (SELECT max(rank) + 1 FROM {s}chain) "
    "WHERE root = ?"
)
ADD_ENTRY: Final = "INSERT INTO {s}journal (root, position, body) VALUES (?, ?, ?)"
MOVE_JOURNAL: Final = "UPDATE {s}chain SET position = ? WHERE root = ?"
END_JOURNAL: Final = "DELETE FROM {s}journal WHERE root = ?"
PARTS: Final = "SELECT root FROM {s}chain WHERE root LIKE ?"
OF_A_CHAIN: Final = ("words", "journal", "message", "snapshot", "chain")

# The body comes first, at position -1, then the messages.
LOAD: Final = (
    "WITH s AS (SELECT id, root, line, length, body FROM {s}snapshot WHERE id = WHICH) "
    "SELECT -1 AS position, s.id, s.root, s.line, s.body FROM s UNION ALL "
    "SELECT m.position, '', '', m.line, m.body FROM s JOIN {s}message m "
    "ON m.root = s.root AND m.line = s.line AND m.position < s.length ORDER BY position"
)
LOAD_THIS: Final = LOAD.replace("WHICH", "?")
LOAD_NEWEST: Final = LOAD.replace(
    "WHICH", "(SELECT c.newest FROM {s}snapshot o JOIN {s}chain c ON c.root = o.root WHERE o.id = ?)"
)
JOURNAL: Final = (
    "SELECT c.root, c.newest, c.position, j.position, j.body FROM {s}snapshot s JOIN {s}chain c ON c.root = s.root "
    "LEFT JOIN {s}journal j ON j.root = c.root WHERE s.id = ? ORDER BY j.position"
)
LIST: Final = (
    "SELECT c.rank, c.root, c.newest, s.body FROM {s}chain c LEFT JOIN {s}snapshot s ON s.id = c.newest "
    "WHERE CONDITION ORDER BY c.rank DESC, c.root DESC LIMIT ?"
)
HISTORY: Final = "SELECT place, id, body FROM {s}snapshot WHERE root = ? AND place < ? ORDER BY place DESC LIMIT ?"
