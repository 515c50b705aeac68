"""Stores on SQLite: one file, the default of the command line; or memory, for short programs.

Owns: SqliteStore and MemoryStore, and whose file it is.
Must not know: what is read and written (see sql.py), and connections (see sqlite_driver.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from .protocol import Progress, Resealed
from .sealing import AesGcmSealing, Records
from .sql import SqlStore
from .sqlite_driver import File, Memory


class SqliteStore(SqlStore):
    """Conversations in one SQLite file, for one machine: many threads and programs may use it at once.

    The file and its directory are made when first needed, for the owner's eyes only. `timeout` is how long to wait, in
    seconds, for another program that writes. With `sealing`, all that is kept is sealed, also what lists show; a sealed
    store cannot be searched.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sealing: AesGcmSealing | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.path: Final = Path(path).absolute()  # a program may change its directory
        records = Records("sqlite", sealing)
        self._file: Final = File(self.path, timeout, records.mode)
        super().__init__(self._file, records)

    def reseal(self, *, progress: Progress | None = None) -> Resealed:
        report = super().reseal(progress=progress)
        if self._records.mode == "sealed":
            self.compact()  # what was there before must not be readable in a free page or in the log
        return report

    def compact(self) -> None:
        """Write the file anew: smaller, and without a trace of what was deleted. Others wait meanwhile."""
        self._file.vacuum()

    def __repr__(self) -> str:
        return f"SqliteStore({str(self.path)!r})"


class MemoryStore(SqlStore):
    """Conversations in the memory of this process; they end with it, or when the store is closed.

    It keeps the same rules as the other stores, and refuses what they could not write down. Many threads may use it;
    for asyncio wrap it: `AsyncStore(MemoryStore())`.
    """

    def __init__(self) -> None:
        super().__init__(Memory(), Records("memory", None))

    def __repr__(self) -> str:
        return "MemoryStore()"
