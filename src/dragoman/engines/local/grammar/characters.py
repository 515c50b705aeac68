"""Sets of characters, and how they are written inside of a JSON string.

Owns: ranges of code points, and the expression for one character out of them.
Must not know: regular expressions, JSON Schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from .gbnf import Impossible, either, literal

__all__ = ["ANY", "CHARACTER", "Ranges", "complement", "normal", "one_of", "spelled"]

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""First and last code points, in order, none touching another."""

_LAST: Final = 0x10FFFF
ANY: Final[Ranges] = ((0, _LAST),)

_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
"""How JSON writes what may not stand in a string as it is. Other control characters are never written."""
_AS_THEY_ARE: Final[Ranges] = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, _LAST))

CHARACTER: Final = '([^"\\\\\\x00-\\x1F] | "\\\\" ["\\\\bfnrt])'
"""Any one character of a JSON string."""


def normal(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same characters, in order and without overlaps."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if first > last:
            continue
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)


def complement(ranges: Ranges) -> Ranges:
    """All other characters."""
    found: list[tuple[int, int]] = []
    start = 0
    for first, last in ranges:
        found.append((start, first - 1))
        start = last + 1
    return normal([*found, (start, _LAST)])


def _common(a: Ranges, b: Ranges) -> Ranges:
    return normal([(max(first, start), min(last, end)) for first, last in a for start, end in b])


def one_of(ranges: Ranges) -> str:
    """One of these characters as it stands in a JSON string."""
    if ranges == ANY:
        return CHARACTER
    options = [literal(short) for letter, short in _SHORT.items() if _holds(ranges, ord(letter))]
    plain = _common(ranges, _AS_THEY_ARE)
    if plain:
        options.insert(0, "[" + "".join([_range(first, last) for first, last in plain]) + "]")
    if not options:
        raise Impossible
    return either(options)


def spelled(text: str) -> str:
    """A text as it stands in a JSON string; control characters without a short form are written by their number."""
    return "".join(
        [_SHORT.get(letter) or (letter if ord(letter) >= 0x20 else f"\\u{ord(letter):04x}") for letter in text]
    )


def _holds(ranges: Ranges, point: int) -> bool:
    return any(first <= point <= last for first, last in ranges)


def _range(first: int, last: int) -> str:
    return _point(first) if first == last else f"{_point(first)}-{_point(last)}"


def _point(point: int) -> str:
    if chr(point).isascii() and chr(point).isalnum():
        return chr(point)
    return f"\\x{point:02X}" if point <= 0xFF else f"\\u{point:04X}" if point <= 0xFFFF else f"\\U{point:08X}"
