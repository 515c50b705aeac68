"""A processor for the server and another for the client, as if they were two machines.

On one and the same processor the server's work is done while the client sleeps, in caches that both keep warm; the
system moves them together and apart as it likes, and a turn costs three times as much or a third. Where there is only
one processor, or the system cannot be told, nothing is done.
"""

from __future__ import annotations

import os

__all__ = ["take_clients", "take_servers"]


def take_servers() -> None:
    """This process, and what it starts, is the server."""
    _take(0)


def take_clients() -> None:
    """This process, and what it starts, is the client."""
    _take(-1)


def _take(which: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        ours = sorted(os.sched_getaffinity(0))
        if len(ours) > 1:
            os.sched_setaffinity(0, {ours[which]})
