"""Limits of numbers and of sizes, as JSON Schema writes them.

Owns: reading them, and saying which of them are not enforced.
Must not know: how a grammar of digits is written (numbers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final, TypeAlias

from .gbnf import MOST_REPETITIONS, Impossible, either, literal
from .numbers import Bound, decimals, integers

__all__ = ["Lost", "count_of", "number"]

Lost: TypeAlias = Callable[[str, str], None]
"""Told the word and the reason of a limit that is not enforced."""

_MOST_MULTIPLES: Final = 256


def number(limits: Mapping[str, object], lost: Lost, *, whole: bool) -> str:
    """A number within the limits."""
    low = _tighter(_bound(limits, "minimum"), _bound(limits, "exclusiveMinimum", exclusive=True), max)
    high = _tighter(_bound(limits, "maximum"), _bound(limits, "exclusiveMaximum", exclusive=True), min)
    step = limits.get("multipleOf")
    if isinstance(step, int | float) and not (whole and step == 1):
        multiples = _multiples(Decimal(repr(step)), low, high)
        if multiples is not None:
            return multiples
        lost("multipleOf", f"{step} is not enforced")
    if whole:
        return integers(_first_whole(low), _last_whole(high))
    return decimals(low, high)


def _bound(limits: Mapping[str, object], word: str, *, exclusive: bool = False) -> Bound | None:
    value = limits.get(word)
    return Bound(Decimal(repr(value)), exclusive) if isinstance(value, int | float) else None


def _tighter(a: Bound | None, b: Bound | None, choose: Callable[[Decimal, Decimal], Decimal]) -> Bound | None:
    if a is None or b is None:
        return b if a is None else a
    if a.value == b.value:
        return Bound(a.value, exclusive=True)
    return a if choose(a.value, b.value) == a.value else b


def _first_whole(low: Bound | None) -> int | None:
    if low is None:
        return None
    number = int(low.value.to_integral_value(ROUND_CEILING))
    return number + 1 if low.exclusive and number == low.value else number


def _last_whole(high: Bound | None) -> int | None:
    if high is None:
        return None
    number = int(high.value.to_integral_value(ROUND_FLOOR))
    return number - 1 if high.exclusive and number == high.value else number


def _multiples(step: Decimal, low: Bound | None, high: Bound | None) -> str | None:
    """All of them, if they are few and exact; None if they are not."""
    if low is None or high is None or step <= 0 or step != int(step):
        return None
    first, last = _first_whole(low), _last_whole(high)
    assert first is not None
    assert last is not None
    size = int(step)
    found = range(-(-first // size) * size, last + 1, size)
    if not found:
        raise Impossible
    return either([literal(str(value)) for value in found]) if len(found) <= _MOST_MULTIPLES else None


def count_of(limits: Mapping[str, object], what: str, lost: Lost) -> tuple[int, int | None]:
    """The least and the most of `minItems` and `maxItems`, or of `minProperties` and `maxProperties`."""
    least, most = limits.get(f"min{what}"), limits.get(f"max{what}")
    low = int(least) if isinstance(least, int | float) else 0
    high = int(most) if isinstance(most, int | float) else None
    if low > MOST_REPETITIONS:
        lost(f"min{what}", f"not enforced beyond {MOST_REPETITIONS}")
        low = MOST_REPETITIONS
    if high is not None and high > MOST_REPETITIONS:
        high = MOST_REPETITIONS
    if high is not None and high < low:
        raise Impossible
    return low, high
