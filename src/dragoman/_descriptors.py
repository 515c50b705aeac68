"""File descriptors that are never without an owner.

Owns: `Descriptor`, and making one.

`fd = os.open(...)` loses the number when Ctrl-C comes while the system opens the file: Python raises KeyboardInterrupt
after the call and before the assignment. Here C code hands the number from the call to its owner, and there is no
moment between the two.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from itertools import starmap
from types import TracebackType
from typing import ParamSpec, Self

from msgspec import Struct

P = ParamSpec("P")


class Descriptor(Struct, eq=False):
    """An open file descriptor, closed by `with`, by `close()`, or when nobody knows it any more."""

    number: int
    """-1 once it is closed."""

    def close(self) -> None:
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)


def owned(opening: Callable[P, int], *args: P.args, **options: P.kwargs) -> Descriptor:
    """What a C function such as `os.open` opens with these arguments."""
    return next(map(Descriptor, starmap(partial(opening, *args, **options), ((),))))
