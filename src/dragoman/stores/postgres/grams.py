"""Texts as sets of numbers, so that PostgreSQL can look up parts of words without an extension.

Owns: the grams of a text and of a word.
Must not know: tables.

A gram is a run of one, two or three characters within a word; its number is a checksum. A text that contains a word
has all of the word's grams, so an index over the numbers (GIN, which every server has) leads to the few texts that are
worth reading. The extension pg_trgm does the same, but is not everywhere, and leaves out words of one or two
characters, which are most words of some languages.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from itertools import pairwise

__all__ = ["grams_of_text", "grams_of_words"]

_LONGEST = 3


def grams_of_text(text: str) -> list[int]:
    """The grams of all words of a text."""
    found: set[str] = set()
    for word in set(text.split()):
        found.update(word)
        found.update(map("".join, pairwise(word)))
        found.update(map("".join, zip(word, word[1:], word[2:], strict=False)))
    return _numbers(found)


def grams_of_words(words: Iterable[str]) -> list[int]:
    """The grams that a text with these words must have: the longest ones, which say the most."""
    found: set[str] = set()
    for word in words:
        size = min(len(word), _LONGEST)
        found.update(word[start : start + size] for start in range(len(word) - size + 1))
    return _numbers(found)


def _numbers(grams: Iterable[str]) -> list[int]:
    # As signed numbers of 32 bits, which is what the column holds.
    return sorted({zlib.crc32(gram.encode("utf-8", "surrogatepass")) - 0x8000_0000 for gram in grams})
