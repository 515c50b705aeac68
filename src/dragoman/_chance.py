"""Chance for pauses between tries, so that many clients do not come back in the same moment.

Owns: `chance`. Not from the module `random`, which takes longer to import than most programs will ever need chance for.
"""

from __future__ import annotations

import os

_BITS = 53
"""As many as a float can tell apart below 1."""


def chance() -> float:
    """A number from 0 up to, but not including, 1; any of them as likely as another."""
    return (int.from_bytes(os.urandom(7), "big") >> 3) / (1 << _BITS)
