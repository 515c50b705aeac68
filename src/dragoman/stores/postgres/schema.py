"""The tables, and how older ones are brought up to date.

Owns: the schema, its version, and the check that this library and the tables fit together.
Must not know: what is read and written, and how a statement reaches the server.

    chain      one row a conversation: which snapshot is its newest, and where it stands in lists
    snapshot   one row a save: the body without messages, the summary, and which messages (spans)
    message    one row a message, written once; a line is a history that only grew, a new one begins where a save does
               not just add messages
    journal    what happened since the newest snapshot
    words      the texts of messages, for search; empty where the store is sealed
    setting    whether the store is sealed
    migration  which versions of these tables have been made, and when

Text is kept as bytes throughout: PostgreSQL's own text cannot hold a NUL, and its idea of upper and lower case depends
on the locale of the database. `rank` is what lists are sorted by: the time of the newest snapshot in microseconds, or,
where the times are sealed, a number that counts saves. It never falls, so that nothing moves behind a cursor.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

from dragoman.errors import ConfigurationError, StoreError

from .work import Ask, Steps

__all__ = ["SCHEMA_VERSION", "checked_schema", "migrate"]

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)

_VERSION_1: Final = (
    """CREATE TABLE {s}.setting (
        name text PRIMARY KEY,
        value text NOT NULL
    )""",
    """CREATE TABLE {s}.chain (
        root uuid PRIMARY KEY,
        newest uuid NOT NULL,
        place int4 NOT NULL,
        rank int8 NOT NULL,
        at int8,
        provider bytea,
        title bytea
    )""",
    "CREATE UNIQUE INDEX chain_by_rank ON {s}.chain (rank, root)",
    """CREATE TABLE {s}.snapshot (
        id uuid PRIMARY KEY,
        root uuid NOT NULL,
        place int4 NOT NULL,
        spans int4[] NOT NULL,
        summary bytea NOT NULL,
        body bytea NOT NULL
    )""",
    "CREATE UNIQUE INDEX snapshot_by_place ON {s}.snapshot (root, place)",
    """CREATE TABLE {s}.message (
        root uuid NOT NULL,
        line int4 NOT NULL,
        position int4 NOT NULL,
        body bytea NOT NULL,
        PRIMARY KEY (root, line, position)
    )""",
    """CREATE TABLE {s}.journal (
        root uuid NOT NULL,
        position int4 NOT NULL,
        body bytea NOT NULL,
        PRIMARY KEY (root, position)
    )""",
    """CREATE TABLE {s}.words (
        root uuid NOT NULL,
        line int4 NOT NULL,
        position int4 NOT NULL,
        text bytea NOT NULL,
        grams int4[] NOT NULL,
        PRIMARY KEY (root, line, position)
    )""",
    "CREATE INDEX words_by_gram ON {s}.words USING gin (grams)",
)

_MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (_VERSION_1,)
"""`_MIGRATIONS[n]` makes version n + 1 of version n; version 0 is no tables at all."""

SCHEMA_VERSION: Final = len(_MIGRATIONS)


def checked_schema(name: str) -> str:
    """The name of the schema. Raises ConfigurationError for one that would have to be written in a special way."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:  # pyright: ignore[reportUnnecessaryIsInstance]
        message = "The name of a schema begins with a small letter and has small letters, digits and _ only."
        raise ConfigurationError(message, hint="Give a name such as schema='dragoman'.")
    return name


def migrate(schema: str, mode: str, *, create: bool) -> Steps[None]:
    """Bring the tables up to date. Many programs may do so at once: one does it, the others wait and see it done."""
    if (version := (yield from _version(schema))) == SCHEMA_VERSION:
        return
    if not create:
        raise _missing(schema, version)
    yield Ask("SELECT pg_advisory_xact_lock(%s)", (_lock_number(schema),))
    version = yield from _version(schema)  # again: another program may have been first
    if version is None:
        # Asking first, since `IF NOT EXISTS` needs the right to create schemas even where there is nothing to do.
        [[there]] = yield Ask("SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %s)", (schema,))
        if not there:
            yield Ask("CREATE SCHEMA {s}")
        yield Ask("CREATE TABLE {s}.migration (version int4 PRIMARY KEY, made_at timestamptz NOT NULL DEFAULT now())")
    for number, statements in enumerate(_MIGRATIONS[version or 0 :], (version or 0) + 1):
        for statement in statements:
            yield Ask(statement)
        yield Ask("INSERT INTO {s}.migration (version) VALUES (%s)", (number,))
    if version is None:
        yield Ask("INSERT INTO {s}.setting VALUES ('mode', %s)", (mode,))


# Not `to_regclass`, which remembers within a transaction that there was no such table.
_HAS_TABLES: Final = (
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = %s AND c.relname = 'migration')"
)


def _version(schema: str) -> Steps[int | None]:
    [[there]] = yield Ask(_HAS_TABLES, (schema,))
    if not there:
        return None
    [[version]] = yield Ask("SELECT coalesce(max(version), 0) FROM {s}.migration")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        message = f"The tables in schema {schema} were made by a newer dragoman (version {version})."
        raise StoreError(message, hint="Upgrade dragoman to use them: pip install --upgrade dragoman.")
    return version


def _missing(schema: str, version: int | None) -> StoreError:
    what = "are not there" if version is None else f"are of version {version}, and version {SCHEMA_VERSION} is needed"
    message = f"The tables of the store {what} (schema {schema})."
    return StoreError(message, hint="Open the store once with create=True, as a user who may create tables.")


def _lock_number(schema: str) -> int:
    # Advisory locks of a database are shared by all of its programs, so the number should be nobody else's.
    return zlib.crc32(schema.encode()) | 0x64_72_67_6D << 32
