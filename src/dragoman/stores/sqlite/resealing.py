"""Sealing a file again: with another key, or for the first time, or with other summaries.

Owns: one step of it, in small transactions, so that it can be interrupted and others can work meanwhile.
Must not know: ciphers and keys.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Final, cast

from dragoman.errors import DragomanError, SnapshotSealError, StoreError
from dragoman.stores.protocol import Resealed
from dragoman.stores.records import Records
from dragoman.stores.summary import cursor_parts, cursor_text, microseconds

from .checks import checked, mode_of
from .database import Database

__all__ = ["reseal"]

_KIND: Final = "sqlite.reseal"


def reseal(database: Database, records: Records, limit: int, cursor: str | None) -> Resealed:
    """Go through the next `limit` conversations."""
    [last] = (-1,) if cursor is None else cursor_parts(_KIND, cursor, tuple[int])

    def begin(connection: sqlite3.Connection) -> tuple[int, list[tuple[int, str, str]]]:
        _change_mode(connection, records)
        [total] = checked(connection.execute("SELECT COUNT(*) FROM chain").fetchone(), tuple[int])
        rows = connection.execute(_CHAINS, (last, limit + 1)).fetchall()
        return total, [checked(row, tuple[int, str, str]) for row in rows]

    total, chains = database.write(begin)
    unreadable: list[str] = []
    for key, root, newest in chains[:limit]:
        try:
            database.write(partial(_reseal_chain, records=records, chain=key, root=root, newest=newest))
        except StoreError:
            raise
        except DragomanError:
            unreadable.append(root)
    more = cursor_text(_KIND, (chains[limit - 1][0],)) if len(chains) > limit else None
    return Resealed(done=len(chains[:limit]), total=total, cursor=more, unreadable=tuple(unreadable))


_CHAINS: Final = "SELECT key, root, newest FROM chain WHERE key > ? ORDER BY key LIMIT ?"


def _change_mode(connection: sqlite3.Connection, records: Records) -> None:
    mode = mode_of(connection)
    if mode == records.mode:
        return
    if records.mode == "open":
        message = "The store is sealed and was opened without a key."
        raise SnapshotSealError(message, hint="Open it with the key that it is sealed with: sealing=….")
    connection.execute("UPDATE setting SET value = ? WHERE name = 'mode'", (records.mode,))
    connection.execute("DELETE FROM message_text")
    if records.mode == "sealed":
        keys = cast("list[tuple[object]]", connection.execute("SELECT key FROM chain ORDER BY rank, key").fetchall())
        ranks = [(rank, key) for rank, (key,) in enumerate(keys, 1)]
        connection.executemany("UPDATE chain SET provider = NULL, rank = ? WHERE key = ?", ranks)


def _reseal_chain(connection: sqlite3.Connection, records: Records, chain: int, root: str, newest: str) -> None:
    for table in (_SNAPSHOTS, _MESSAGES, _JOURNAL):
        for row in connection.execute(table, (chain,)).fetchall():
            _ROWS[table](connection, records, row, root, newest)
    if records.mode == "plain":
        row = connection.execute("SELECT summary FROM snapshot WHERE id = ?", (newest,)).fetchone()
        summary = records.summary(checked(row, tuple[bytes])[0], newest)
        shown = (microseconds(summary.created_at), summary.provider, chain)
        connection.execute("UPDATE chain SET rank = ?, provider = ? WHERE key = ?", shown)


_SNAPSHOTS: Final = "SELECT rowid, id, summary, body FROM snapshot WHERE chain = ?"
_MESSAGES: Final = "SELECT key, generation, position, body FROM message WHERE chain = ?"
_JOURNAL: Final = "SELECT chain, position, body FROM journal WHERE chain = ?"


def _reseal_snapshot(connection: sqlite3.Connection, records: Records, row: object, _root: str, _newest: str) -> None:
    key, id, summary, body = checked(row, tuple[int, str, bytes, bytes])
    for column, data in (
        ("summary", records.resealed_summary(summary, id)),
        ("body", records.resealed(body, "body", id)),
    ):
        if data is not None:
            connection.execute(f"UPDATE snapshot SET {column} = ? WHERE rowid = ?", (data, key))  # noqa: S608


def _reseal_message(connection: sqlite3.Connection, records: Records, row: object, root: str, _newest: str) -> None:
    key, generation, position, body = checked(row, tuple[int, int, int, bytes])
    data = records.resealed(body, "message", root, generation, position)
    if data is not None:
        connection.execute("UPDATE message SET body = ? WHERE key = ?", (data, key))


def _reseal_entry(connection: sqlite3.Connection, records: Records, row: object, root: str, newest: str) -> None:
    chain, position, body = checked(row, tuple[int, int, bytes])
    data = records.resealed_entry(body, root, newest, position)
    if data is not None:
        connection.execute("UPDATE journal SET body = ? WHERE chain = ? AND position = ?", (data, chain, position))


_ROWS: Final = {_SNAPSHOTS: _reseal_snapshot, _MESSAGES: _reseal_message, _JOURNAL: _reseal_entry}
