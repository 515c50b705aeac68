"""Texts that are no ids, and that somebody may try all the same."""

from __future__ import annotations

import random

__all__ = ["HOSTILE_IDS", "hostile_ids"]

_GOOD = "018f3c5e-7a10-7cc3-98c4-dc0c0c07398f"

_PIECES = (
    "../", "..\\", "/", "\\", "\x00", "\n", "\r", "\t", " ", "%2e%2e%2f", "\u202e", "\u200b", "\xe9", "\uff11",
    "\u0430", "\ud800", "'", '"', ";", "--", "*", "%", "_", "$(x)", "`x`", "{", "}", "-", "~", "CON", ".json", ".tmp",
    "x" * 300, "\U0001f600", "\x7f", "\x1b[2J",
)  # fmt: skip


def hostile_ids(count: int, *, seed: int = 1) -> list[str]:
    """So many texts, the same each time, none of which is a canonical UUID in lower case."""
    draw = random.Random(seed)
    found = [
        "", ".", "..", "/", "\n", _GOOD + "\n", "\n" + _GOOD, _GOOD + " ", _GOOD.upper(), "{" + _GOOD + "}",
        "urn:uuid:" + _GOOD, _GOOD.replace("-", ""), _GOOD[:-1], _GOOD + "0", _GOOD + "\x00", "../" + _GOOD,
        _GOOD + "/../" + _GOOD, "/etc/passwd", "x" * 100_000, _GOOD.replace("0", "\uff10"),
        _GOOD.replace("c", "\u0441"),
    ]  # fmt: skip
    while len(found) < count:
        text = list(_GOOD)
        for _ in range(draw.randint(1, 4)):
            at = draw.randint(0, len(text))
            text[at : at + draw.randint(0, 3)] = [draw.choice(_PIECES)]
        made = "".join(text)
        if made != _GOOD:
            found.append(made)
    return found


HOSTILE_IDS = hostile_ids(40)
"""A few, for tests that try each on something slow."""
