"""Whether work grows with its input, and not with the square of it."""

from __future__ import annotations

import time
from collections.abc import Callable

_SMALL = 60_000
_LARGE = 1_000_000
_MOST = 4 * _LARGE // _SMALL
"""For 17 times the text; the square would be 278 times."""
_LEAST = 0.005
"""Seconds of this processor; less than that is not compared."""


def grows_linearly(work: Callable[[str], object], make: Callable[[int], str]) -> bool:
    """Whether a megabyte takes the processor about as many times longer as it is longer, be the machine busy or not."""

    def spent(text: str) -> float:
        began = time.process_time()
        work(text)
        return time.process_time() - began

    small, large = make(_SMALL), make(_LARGE)
    least = max(_LEAST, *[spent(small) for _ in range(3)])
    for _ in range(3):
        took = spent(large)
        if took < _MOST * least or took > 3 * _MOST * least:
            return took < _MOST * least
    return False
