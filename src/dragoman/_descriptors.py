"""File descriptors that do not leak at Ctrl-C, and files that are replaced as a whole.

`fd = os.open(...)` loses the number if Ctrl-C arrives while the file is opened: Python raises KeyboardInterrupt after
the call and before the assignment. Here C code passes the number from the call to its owner, without a gap.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, ParamSpec, Self

from msgspec import Struct

if TYPE_CHECKING:
    from pathlib import Path

P = ParamSpec("P")


class Descriptor(Struct, eq=False):
    """An open file descriptor, closed by `with`, by `close()`, or by the garbage collector."""

    number: int
    """-1 once it is closed."""

    def close(self) -> None:
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)


def owned(opening: Callable[P, int], *args: P.args, **options: P.kwargs) -> Descriptor:
    """The descriptor that a C function such as `os.open` returns for these arguments."""
    return next(map(Descriptor, starmap(partial(opening, *args, **options), ((),))))


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file by one that only its owner can read. Readers, and a crash, see all of the old one or the new."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with owned(os.open, fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600) as file:
            left = memoryview(data)
            while left:
                left = left[os.write(file.number, left) :]
            os.fsync(file.number)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
