"""The ids of snapshots: UUIDs in their canonical, lower-case form.

Owns: making them (version 7: later ids sort behind earlier ones) and refusing everything else.
Must not know: what an id stands for.

An id becomes a file's name and a database's key, so the check is a full match of the one spelling. Any version of UUID
passes, since ids may come from elsewhere; those made here are of version 7 (RFC 9562).
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from typing import Final

from dragoman.errors import InvalidSnapshotIDError

ErrInvalidSnapshotID = InvalidSnapshotIDError
"""Another name of InvalidSnapshotIDError."""

_CANONICAL: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_SHOWN: Final = 60


def validate_snapshot_id(id: str) -> None:
    """Raise InvalidSnapshotIDError unless this is a UUID in canonical lower case, and nothing but that."""
    if not isinstance(id, str) or _CANONICAL.fullmatch(id) is None:  # pyright: ignore[reportUnnecessaryIsInstance]
        shown = ascii(id) if len(ascii(id)) <= _SHOWN else ascii(id)[:_SHOWN] + "…"
        message = f"{shown} is not the id of a snapshot: a UUID in lower case, such as {_EXAMPLE}."
        raise InvalidSnapshotIDError(message)


_EXAMPLE: Final = "018f3c5e-7a10-7cc3-98c4-dc0c0c07398f"

_TIME_BITS: Final = 48
_FREE_BITS: Final = 74
"""What is left of 128 bits beside the time, the version and the variant."""
_STEP_BYTES: Final = 6
"""Ids of one millisecond differ by a random step, so that two processes that share a past do not give the same one."""

_lock = threading.Lock()
_last = 0


def _forget_in_child() -> None:
    # The lock may be held by a thread that does not exist in the child.
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_in_child)


def new_id(clock: Callable[[], int] = time.time_ns, random: Callable[[int], bytes] = os.urandom) -> str:
    """A new id. Within a process each is greater than all before it, also when the clock goes back.

    `clock` gives nanoseconds since 1970; `random` gives that many random bytes.
    """
    global _last  # noqa: PLW0603
    milliseconds = clock() // 1_000_000 & (1 << _TIME_BITS) - 1
    # The highest free bit stays 0 at first: room for the steps of this millisecond.
    fresh = milliseconds << _FREE_BITS | int.from_bytes(random(10)) & (1 << _FREE_BITS - 1) - 1
    with _lock:
        if fresh >> _FREE_BITS > _last >> _FREE_BITS:
            _last = fresh
        else:
            _last += 1 + int.from_bytes(random(_STEP_BYTES))
        number = _last
    digits = f"{_with_version(number):032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _with_version(number: int) -> int:
    time_part, free = number >> _FREE_BITS, number & (1 << _FREE_BITS) - 1
    high, low = free >> 62, free & (1 << 62) - 1
    return time_part << 80 | 7 << 76 | high << 64 | 0b10 << 62 | low
