"""The tables of a store in an SQL database, the statements on them, and what a database must offer.

Must not know: drivers and connections (see sqlite.py, postgres.py), and what a store does with the statements (sql.py).

    chain     one row a conversation: which snapshot is its newest, and where it stands in lists
    snapshot  one row a save: the body without messages, the summary, and which messages: the first `length` of a line
    message   one row a message, written once; a line is a history that only grew, and a save that changes what was
              said before begins a new one
    journal   what happened since the newest snapshot
    words     the texts of messages, folded to one case, for search; empty where the store is sealed
    setting   whether the store is sealed

`rank` is what lists are sorted by: a number that counts saves, which says nothing where times are sealed. It never
falls, so that nothing moves behind a cursor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from dragoman.errors import SnapshotCorruptError

_T = TypeVar("_T")

Rows: TypeAlias = Sequence[tuple[Any, ...]]

TABLES: Final = (
    "CREATE TABLE {s}setting (name text PRIMARY KEY, value text NOT NULL)",
    """CREATE TABLE {s}chain (
        root text PRIMARY KEY,
        newest text NOT NULL,
        place bigint NOT NULL,
        rank bigint NOT NULL
    )""",
    "CREATE UNIQUE INDEX chain_by_rank ON {s}chain (rank, root)",
    """CREATE TABLE {s}snapshot (
        id text PRIMARY KEY,
        root text NOT NULL,
        place bigint NOT NULL,
        line bigint NOT NULL,
        length bigint NOT NULL,
        summary {blob} NOT NULL,
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
)
"""The tables of version 1, but for those of the search, which each database has in its own way."""

# --- what a database offers ------------------------------------------------------------------------------------------


class Session(Protocol):
    """A connection. In statements `?` is a value, `{s}` the schema and `{lock}` what locks the rows of table `c`."""

    async def fetch(self, sql: str, *values: object) -> Rows:
        """The rows that a question finds."""
        ...

    async def execute(self, sql: str, *values: object) -> int:
        """Change something; how many rows were changed."""
        ...

    async def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Run the statement with each of these rows of values."""
        ...


class Dialect(Protocol):
    """What the two databases say in different ways."""

    lock_chains: str | None
    """Keeps all others from saving, until the transaction ends; None: they cannot anyway."""

    async def add_words(self, session: Session, root: str, texts: Sequence[str]) -> None:
        """Make the texts of some messages of this conversation findable."""
        ...

    async def remove_words(self, session: Session, root: str) -> None:
        """Forget all texts of this conversation."""
        ...

    async def find_words(self, session: Session, words: Sequence[str]) -> tuple[str, Sequence[object]]:
        """A condition on a row `w` of words, and its values: all of these words stand in it."""
        ...


class Database(Protocol):
    """Runs work in transactions, and turns the driver's errors into ours."""

    async def read(self, work: Callable[[Session], Awaitable[_T]]) -> _T:
        """What the work finds. Each of its statements sees the database at one moment."""
        ...

    async def write(self, work: Callable[[Session], Awaitable[_T]], *, repeatable: bool = True) -> _T:
        """Do the work in one transaction. When this has returned, it is on the disk.

        `repeatable`: whether it may be done again when nobody knows whether it has been done.
        """
        ...

    def close(self) -> None: ...


def convert(row: object, type: type[_T]) -> _T:
    """A row of a table as a tuple of these types. Raises SnapshotCorruptError."""
    try:
        return msgspec.convert(row, type)
    except msgspec.ValidationError as error:
        message = f"A row of the database is not what was written ({error})."
        raise SnapshotCorruptError(message) from None


# --- statements ------------------------------------------------------------------------------------------------------

MODE: Final = "(SELECT value FROM {s}setting WHERE name = 'mode')"
POSITION: Final = "(SELECT coalesce(max(position), 0) FROM {s}journal WHERE root = ?)"

ADD_CHAIN: Final = "INSERT INTO {s}chain (root, newest, place, rank) VALUES (?, ?, 1, 0) ON CONFLICT (root) DO NOTHING"
LOCK_CHAIN: Final = "SELECT c.newest, c.place FROM {s}chain c WHERE c.root = ?{lock}"
LOCK_CHAIN_OF: Final = (
    "SELECT c.root, c.newest FROM {s}snapshot s JOIN {s}chain c ON c.root = s.root WHERE s.id = ?{lock}"
)
STATE: Final = (
    (
        "SELECT MODE, (SELECT body FROM {s}snapshot WHERE id = ?), (SELECT root FROM {s}snapshot WHERE id = ?), "
        "POSITION, (SELECT coalesce(max(line), 0) FROM {s}message WHERE root = ?)"
    )
    .replace("MODE", MODE)
    .replace("POSITION", POSITION)
)
PARENT: Final = (
    "SELECT p.body, p.line, p.length, (SELECT coalesce(max(m.position) + 1, 0) FROM {s}message m "
    "WHERE m.root = p.root AND m.line = p.line) FROM {s}snapshot p WHERE p.id = ?"
)
BODY: Final = "SELECT MODE, (SELECT body FROM {s}snapshot WHERE id = ?)".replace("MODE", MODE)
ADD_SNAPSHOT: Final = (
    "INSERT INTO {s}snapshot (id, root, place, line, length, summary, body) VALUES (?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO NOTHING"
)
ADD_MESSAGE: Final = "INSERT INTO {s}message (root, line, position, body) VALUES (?, ?, ?, ?)"
MOVE_CHAIN: Final = (
    "UPDATE {s}chain SET newest = ?, place = ?, rank = (SELECT max(rank) + 1 FROM {s}chain) WHERE root = ?"
)
ADD_ENTRY: Final = "INSERT INTO {s}journal (root, position, body) VALUES (?, ?, ?)"
END_JOURNAL: Final = "DELETE FROM {s}journal WHERE root = ?"
OF_A_CHAIN: Final = ("journal", "message", "snapshot", "chain")

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
    "SELECT c.root, c.newest, j.position, j.body FROM {s}snapshot s JOIN {s}chain c ON c.root = s.root "
    "LEFT JOIN {s}journal j ON j.root = c.root WHERE s.id = ? ORDER BY j.position"
)
LIST: Final = (
    "SELECT c.rank, c.root, c.newest, s.summary, MODE "
    "FROM {s}chain c LEFT JOIN {s}snapshot s ON s.id = c.newest WHERE TEST "
    "ORDER BY c.rank DESC, c.root DESC LIMIT ?"
).replace("MODE", MODE)
HISTORY: Final = (
    "SELECT n.root, n.place, n.id, n.summary, MODE FROM {s}snapshot o JOIN {s}snapshot n ON n.root = o.root "
    "WHERE o.id = ? AND n.place < ? ORDER BY n.place DESC LIMIT ?"
).replace("MODE", MODE)
