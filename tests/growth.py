"""Whether work grows with its input, and not with the square of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

SIZES = (15_000, 60_000, 250_000, 1_000_000)
_NOISE = 0.05
"""Seconds of this processor; less than that is not compared."""


def grows_linearly(work: Callable[[str], object], make: Callable[[int], str]) -> bool:
    """Whether four times the text takes about four times the processor time, up to a megabyte; not 16 times."""

    def spent(text: str) -> float:
        began = time.process_time()
        work(text)
        return time.process_time() - began

    for small, large in pairwise(map(make, SIZES)):
        least = max(spent(small), _NOISE)
        if not any(spent(large) < 9 * least for _ in range(3)):
            return False
    return True
