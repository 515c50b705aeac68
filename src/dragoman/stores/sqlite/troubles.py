"""SQLite's errors as ours.

Owns: the table from SQLite's result codes to typed errors with a hint.
Must not know: what was being done.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final, NamedTuple

from dragoman.errors import StoreError, StoreUnavailableError

__all__ = ["UNREACHABLE", "code_of", "foreign", "gone", "typed"]


class _Trouble(NamedTuple):
    kind: type[StoreError]
    what: str
    hint: str | None = None


_DAMAGED: Final = _Trouble(
    StoreError,
    "is damaged",
    "Restore it from a copy. `sqlite3 FILE .recover` can save what is left; the file was not touched.",
)
_FOREIGN: Final = _Trouble(StoreError, "is not a database of this library", "Give the path of another file.")
_UNREACHABLE: Final = _Trouble(
    StoreUnavailableError, "cannot be opened", "Check that the directory is there and may be written."
)
_OTHER: Final = _Trouble(StoreError, "cannot be used")

# By primary result code: https://sqlite.org/rescode.html
_TROUBLES: Final[dict[int, _Trouble]] = {
    sqlite3.SQLITE_PERM: _Trouble(StoreUnavailableError, "may not be opened", "Check the permissions of the file."),
    sqlite3.SQLITE_BUSY: _Trouble(
        StoreUnavailableError,
        "is locked by another program",
        "Try again when the other program is done, or raise the store's timeout.",
    ),
    sqlite3.SQLITE_LOCKED: _Trouble(StoreUnavailableError, "is locked", "Try again in a moment."),
    sqlite3.SQLITE_NOMEM: _Trouble(StoreUnavailableError, "needs more memory than there is", "Free memory; try again."),
    sqlite3.SQLITE_READONLY: _Trouble(
        StoreUnavailableError,
        "cannot be written",
        "Make the file and its directory writable and save again; what was saved before is safe.",
    ),
    sqlite3.SQLITE_IOERR: _Trouble(
        StoreUnavailableError, "cannot be read or written", "Check the disk and try again; what was saved is safe."
    ),
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_FULL: _Trouble(
        StoreUnavailableError,
        "cannot grow: the disk is full",
        "Free space and save again; what was saved before is safe.",
    ),
    sqlite3.SQLITE_CANTOPEN: _UNREACHABLE,
    sqlite3.SQLITE_TOOBIG: _Trouble(
        StoreError, "cannot hold a message of this size", "Keep large media in files of their own."
    ),
    sqlite3.SQLITE_NOTADB: _FOREIGN,
}

UNREACHABLE: Final = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOTADB,
    }
)
"""Codes after which a connection is opened anew: what it remembers of the file may be wrong."""


def code_of(error: Exception) -> int:
    """The primary result code, 0 where Python found the fault itself."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def typed(error: Exception, path: Path) -> StoreError:
    """The error of ours that says the same."""
    trouble = _UNREACHABLE if isinstance(error, OSError) else _TROUBLES.get(code_of(error), _OTHER)
    reason = (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
    return trouble.kind(f"The database {path.name} {trouble.what} ({reason}).", hint=trouble.hint)


def gone(path: Path) -> StoreUnavailableError:
    """The file was there and is not any more."""
    message = f"The database {path.name} is gone, or another file has taken its place."
    return StoreUnavailableError(message, hint="Put it back; this store goes on as soon as it is there.")


def foreign(path: Path, why: str) -> StoreError:
    """The file is something else."""
    return _FOREIGN.kind(f"The file {path.name} {_FOREIGN.what}: {why}.", hint=_FOREIGN.hint)
