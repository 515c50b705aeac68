"""One program at a time.

Owns: a lock on a file that the operating system lets go of when its holder dies, however it dies.
Must not know: what is guarded by it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from dragoman._descriptors import owned

__all__ = ["locked"]

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_PAUSE = 0.2


@contextmanager
def locked(
    file: Path, *, waiting: Callable[[], None] = lambda: None, sleep: Callable[[float], None] = time.sleep
) -> Generator[None]:
    """Hold the lock of a file, which is made for it; `waiting` is called as long as another program holds it.

    The file is left behind: removing it would let two programs hold locks on two files of one name.
    """
    with owned(os.open, file, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600) as descriptor:
        while not _taken(descriptor.number):
            waiting()
            sleep(_PAUSE)
        try:
            yield
        finally:
            _let_go(descriptor.number)


def _taken(descriptor: int) -> bool:
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True


def _let_go(descriptor: int) -> None:
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    else:
        import msvcrt

        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
