"""Older forms of a snapshot, brought up to date.

Owns: the table of migrations. `MIGRATIONS[n]` takes the members of a document of version n and gives those of n + 1.
Must not know: where the document comes from.

A migration sees the whole document as JSON values that it may take apart; it runs no code of the document's choosing. A
document of each version is kept in tests/stores/fixtures for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from msgspec import Raw

from dragoman.errors import SnapshotCorruptError

__all__ = ["MIGRATIONS", "Members", "Migrations", "migrated"]

Members: TypeAlias = dict[str, Raw]
"""The members of a JSON object, each as raw JSON."""
Migrations: TypeAlias = Mapping[int, Callable[[Members], Members]]

MIGRATIONS: Final[Migrations] = {}


def migrated(members: Members, version: int, target: int, migrations: Migrations = MIGRATIONS) -> Members:
    """The members of a document of an older version, as they are in version `target`."""
    for number in range(version, target):
        if number not in migrations:
            message = f"The snapshot is of version {number}, which never was."
            raise SnapshotCorruptError(message)
        members = migrations[number](members)
    return members
