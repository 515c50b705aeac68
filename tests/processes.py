"""Which processes there are, for tests that start some."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["children"]


def children() -> set[int]:
    """The processes that we have started and that are still there, dead ones included."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid():
                found.add(int(entry.name))
    return found
