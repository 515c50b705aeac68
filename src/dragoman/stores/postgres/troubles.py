"""The server's errors as ours, and which of them are worth another try.

Owns: the table from SQLSTATEs to typed errors with a hint; how often a piece of work is tried again.
Must not know: psycopg (an error is looked at by its `sqlstate`), connections, colours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from dragoman.errors import DragomanError, SnapshotCorruptError, StoreError, StoreUnavailableError

__all__ = ["Failure", "Retries", "Stage"]

Stage = Literal["connecting", "working", "committing"]


class Failure(NamedTuple):
    """One try that failed."""

    error: Exception
    stage: Stage
    lost: bool
    """Whether the connection is gone."""
    silent: bool = False
    """Whether it is gone because the server did not answer for too long."""


class _Trouble(NamedTuple):
    kind: type[StoreError] | type[SnapshotCorruptError]
    what: str
    hint: str | None = None


_UNREACHABLE: Final = _Trouble(
    StoreUnavailableError,
    "The database cannot be reached",
    "Check that the server runs, and the address, user and password. The store goes on as soon as it is there.",
)
_LOST: Final = _Trouble(
    StoreUnavailableError,
    "The connection to the database broke",
    "Try again: the store connects anew by itself; what was saved before is safe.",
)
_UNKNOWN: Final = _Trouble(
    StoreUnavailableError,
    "The connection to the database broke at the last moment, and nobody knows whether the change was made",
    "Look before you try again: journal(id) and load(id) tell.",
)
_FORBIDDEN: Final = _Trouble(StoreError, "The database does not allow it", "Grant the user the rights on the schema.")
_DAMAGED: Final = _Trouble(SnapshotCorruptError, "The database says that its data are damaged")
_BUSY: Final = _Trouble(
    StoreUnavailableError,
    "The database was busy for too long",
    "Try again when it is less busy, or raise the store's timeout; nothing was changed.",
)
_OTHER: Final = _Trouble(StoreError, "The database refused", "If it persists, report it with this text.")

# By SQLSTATE, else by its class, the first two characters: https://www.postgresql.org/docs/current/errcodes-appendix.html
_TROUBLES: Final[dict[str, _Trouble]] = {
    "08": _LOST,
    "25006": _Trouble(
        StoreUnavailableError,
        "The database is read-only",
        "Connect to the primary server, or wait until it is writable.",
    ),
    "25P03": _LOST,
    "25P04": _BUSY,
    "28": _UNREACHABLE,
    "3D": _Trouble(StoreError, "There is no such database", "Create it, or correct the name in the connection string."),
    "3F": _Trouble(StoreError, "The schema of the store is gone", "Restore it, or open a new store."),
    "40": _BUSY,
    "42501": _FORBIDDEN,
    "42P01": _Trouble(StoreError, "A table of the store is gone", "Restore the schema, or open a new store."),
    "42703": _Trouble(StoreError, "A table of the store is not as it was made", "Restore the schema."),
    "53100": _Trouble(
        StoreUnavailableError,
        "The disk of the database is full",
        "Free space on the server and save again; what was saved before is safe.",
    ),
    "53": _Trouble(
        StoreUnavailableError, "The database has run out of resources", "Free connections or memory and try again."
    ),
    "54": _Trouble(StoreError, "It is more than the database can hold", "Keep large media in files of their own."),
    "55": _BUSY,
    "57014": _BUSY,
    "57": _LOST,
    "58": _Trouble(
        StoreUnavailableError, "The server has trouble with its disk", "Look at the server's log; try again."
    ),
    "XX": _DAMAGED,
}

_AGAIN: Final = frozenset({"40001", "40P01"})
"""Two transactions got in each other's way, and the server chose this one to begin again."""
_MOST_AGAIN: Final = 10
_MOST_LOST: Final = 3
_FIRST_PAUSE: Final = 0.01
_LONGEST_TEXT: Final = 300


class Retries:
    """How often one piece of work has been tried, and whether to try again."""

    def __init__(self, *, repeatable: bool, hide: str, random: Callable[[], float]) -> None:
        self._repeatable: bool = repeatable
        self._hide: str = hide
        self._random: Callable[[], float] = random
        self._again: int = 0
        self._lost: int = 0

    def pause(self, failure: Failure) -> float:
        """How many seconds to wait before the next try. Raises the typed error where there should be none."""
        if _code(failure.error) in _AGAIN and self._again < _MOST_AGAIN:
            self._again += 1
            return _FIRST_PAUSE * 2**self._again * self._random()
        unsure = failure.lost and failure.stage == "committing" and not self._repeatable
        if failure.lost and not (unsure or failure.silent or failure.stage == "connecting") and self._lost < _MOST_LOST:
            self._lost += 1
            return 0.0
        raise self._typed(failure, _UNKNOWN if unsure else None) from failure.error

    def _typed(self, failure: Failure, trouble: _Trouble | None) -> DragomanError:
        code = _code(failure.error)
        if trouble is None:
            usual = _UNREACHABLE if failure.stage == "connecting" else _LOST if failure.lost else _OTHER
            trouble = _TROUBLES.get(code) or _TROUBLES.get(code[:2]) or usual
        # The server's one line, where there is one: the rest quotes statements and values.
        text = " ".join(
            str(getattr(getattr(failure.error, "diag", None), "message_primary", None) or failure.error).split()
        )
        if self._hide:
            text = text.replace(self._hide, "…")
        reason = f" ({text[:_LONGEST_TEXT].rstrip('.')})" if text else ""
        return trouble.kind(f"{trouble.what}{reason}.", hint=trouble.hint)


def _code(error: Exception) -> str:
    return str(getattr(error, "sqlstate", None) or "")
