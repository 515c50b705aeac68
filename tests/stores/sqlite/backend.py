from __future__ import annotations

from pathlib import Path

from dragoman.stores.sqlite import SqliteStore
from tests.stores.backends import Backend


def _litter(place: Path) -> list[str]:
    return sorted({each.name for each in place.iterdir()} - {"store.db"})


BACKEND = Backend(lambda place: SqliteStore(place / "store.db"), _litter)
