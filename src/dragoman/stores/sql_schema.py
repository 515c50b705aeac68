"""The tables of a store in an SQL database, the statements on them, and what a database must offer.

Must not know: drivers and connections (see sqlite.py, postgres.py), and what a store does with the statements (sql.py).

    chain     one row a conversation: its newest snapshot, how long its journal is, and where it stands in lists
    snapshot  one row a save: the body without messages, and which messages: the first `length` of a line
    message   one row a message, written once; a line is a history that only grew, and a save that changes what was
              said before begins a new one
    journal   what happened since the newest snapshot
    words     the texts of messages, folded to one case, for search; empty where the store is sealed
    setting   whether the store is sealed, and the version of these tables

`rank` is what lists are sorted by: a number that counts saves, which says nothing where times are sealed. It never
falls, so that nothing moves behind a cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

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
"""The tables of version 1. Texts are kept as bytes, which are compared in the same way everywhere."""

VERSION: Final = "1"

# --- what a database offers ------------------------------------------------------------------------------------------


class Session(Protocol):
    """A connection. In statements `?` is a value, `{s}` the schema and `{lock}` what locks the rows of table `c`."""

    def fetch(self, sql: str, *values: object) -> Rows:
        """The rows that a question finds."""
        ...

    def execute(self, sql: str, *values: object) -> int:
        """Change something; how many rows were changed."""
        ...

    def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Run the statement with each of these rows of values."""
        ...


class Database(Protocol):
    """Runs work in transactions, and turns the driver's errors into ours."""

    contains: str
    """A condition on a row `w` of words: its text contains a value."""

    def read(self, work: Callable[[Session], _T]) -> _T:
        """What the work finds. Each of its statements sees the database at one moment."""
        ...

    def write(self, work: Callable[[Session], _T], *, repeatable: bool = True) -> _T:
        """Do the work in one transaction. When this has returned, it is on the disk.

        `repeatable`: whether it may be done again when nobody knows whether it has been done.
        """
        ...

    def close(self) -> None: ...


def has_tables(session: Session, where: str, names: str, *values: object) -> bool:
    """Whether the tables are there, by a question for the names of those that are.

    Raises StoreError if they are of another program, or of a newer version.
    """
    found = session.fetch(names, *values)
    if not found:
        return False
    if ("setting",) not in found:
        message = f"{where} is not a database of this library: it is another program's, or damaged."
        raise StoreError(message, hint="Give the path of another file, or restore it from a copy.")
    rows = session.fetch("SELECT value FROM {s}setting WHERE name = 'version'")
    if [*rows] != [(VERSION,)]:
        message = f"The tables in {where} are of version {rows[0][0] if rows else None}; this dragoman knows {VERSION}."
        raise StoreError(message, hint="If they are newer, upgrade dragoman: pip install --upgrade dragoman.")
    return True


def make_tables(session: Session, mode: str) -> None:
    """Make the tables of a store that is sealed, or open."""
    for statement in TABLES:
        session.execute(statement)
    session.execute_many("INSERT INTO {s}setting VALUES (?, ?)", [("mode", mode), ("version", VERSION)])


def convert(row: object, type: type[_T]) -> _T:
    """A row of a table as a tuple of these types. Raises SnapshotCorruptError."""
    try:
        return msgspec.convert(row, type)
    except msgspec.ValidationError as error:
        message = f"A row of the database is not what was written ({error})."
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

# The body comes first, at position -1; the messages follow.
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
    "WHERE TEST ORDER BY c.rank DESC, c.root DESC LIMIT ?"
)
HISTORY: Final = "SELECT place, id, body FROM {s}snapshot WHERE root = ? AND place < ? ORDER BY place DESC LIMIT ?"
