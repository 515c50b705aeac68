"""What a store holds, newest first, without a look at logs.

Owns: the summaries of all conversations in memory, and noticing which have changed since.
Must not know: filters and pages.

A head is replaced as a whole, so a file with the same number, size and times is the same head. Only one that was
written a moment ago is read again each time: two files can follow each other quicker than the clock of a file system
ticks.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from dragoman.errors import SnapshotError
from dragoman.stores.ids import validate_snapshot_id
from dragoman.stores.summary import SnapshotSummary, Unreadable, microseconds

from .chain import Chain
from .seals import Seals
from .shelf import HEAD, Shelf
from .upkeep import sign_of_trouble

__all__ = ["Catalogue", "Holdings", "Listed"]

_SETTLED: Final = 2_000_000_000
"""Nanoseconds after which a file counts as not just written."""

_Stamp: TypeAlias = tuple[int, int, int, int]


class Listed(NamedTuple):
    """A conversation in the order of lists."""

    at: int
    """When its newest snapshot was made, in microseconds."""
    id: str
    summary: SnapshotSummary


class Holdings(NamedTuple):
    """What there is, in no order."""

    listed: list[Listed]
    unreadable: list[Unreadable]
    troubled: set[str]
    """Conversations that somebody is changing, or died while changing."""


class _Known(NamedTuple):
    stamp: _Stamp | None
    """None: look at it again next time."""
    listed: Listed | Unreadable


class Catalogue:
    """The conversations of one store. Threads may share it: each builds a new table and puts it in place whole."""

    def __init__(self, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock: Final = clock
        self._known: dict[str, _Known] = {}

    def read(self, shelf: Shelf, seals: Seals) -> Holdings:
        """All conversations as they are now."""
        before, now = self._known, self._clock()
        troubled: set[str] = set()
        known: dict[str, _Known] = {}
        with os.scandir(shelf.heads.fd) as entries:
            for entry in entries:
                if not entry.name.endswith(HEAD):
                    if (root := sign_of_trouble(entry.name)) is not None:
                        troubled.add(root)
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
                found = before.get(entry.name)
                if found is None or found.stamp != stamp:
                    listed = _looked_at(entry.name, status, shelf, seals)
                    if listed is None:
                        continue
                    settled = status.st_mtime_ns + _SETTLED < now and isinstance(listed, Listed)
                    found = _Known(stamp if settled else None, listed)
                known[entry.name] = found
        self._known = known
        listed = [each.listed for each in known.values()]
        return Holdings(
            [each for each in listed if isinstance(each, Listed)],
            [each for each in listed if isinstance(each, Unreadable)],
            troubled,
        )


def _looked_at(name: str, status: os.stat_result, shelf: Shelf, seals: Seals) -> Listed | Unreadable | None:
    root = name.removesuffix(HEAD)
    try:
        validate_snapshot_id(root)
        if not stat.S_ISREG(status.st_mode):
            return Unreadable(id=root, problem="It is not a regular file; links and devices are not followed.")
        chain = Chain(shelf, root, seals)
        head = chain.head()
        if head is None:
            return None
        summary = chain.summary(head)
    except SnapshotError as error:
        return Unreadable(id=root, problem=str(error))
    return Listed(microseconds(summary.created_at), summary.id, summary)
