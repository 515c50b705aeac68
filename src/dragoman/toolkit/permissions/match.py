"""How sure it is that a rule speaks of a call.

Owns: the three answers, and how tables of words are written in this package.
Must not know: anything else.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Match", "words_in"]


class Match(IntEnum):
    """Whether something is the case: of several conditions the least holds, of several parts the greatest."""

    NO = 0
    MAYBE = 1
    """It cannot be told: a person should look."""
    YES = 2


def words_in(text: str) -> frozenset[str]:
    """The words of a table, which is easier to read in lines than in a column."""
    return frozenset(text.split())
