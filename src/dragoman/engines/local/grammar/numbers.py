"""Numbers between two bounds, as grammars of their decimal digits.

Owns: integers and decimals with inclusive and exclusive bounds. Exponents are never written.
Must not know: JSON Schema.

A number without bounds has at most 15 digits before and 6 behind the point, so that reading it as a float loses
nothing that matters.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final, NamedTuple

from .gbnf import Impossible, either, literal, optional, repeated, sequence

__all__ = ["Bound", "decimals", "integers"]

_MOST_DIGITS: Final = 15
_PLACES: Final = 6
_STEP: Final = Decimal(10) ** -_PLACES
_WHOLE_ONLY: Final = 10**9
"""Beyond a bound of this size, a fraction could be rounded across the bound."""
_DIGIT: Final = "[0-9]"


class Bound(NamedTuple):
    """One end of an interval."""

    value: Decimal
    exclusive: bool = False


# --- integers ---------------------------------------------------------------------------------------------------------


def integers(low: int | None, high: int | None) -> str:
    """All integers from low to high, both included."""
    if low is None:
        low = -(10**_MOST_DIGITS) + 1 if high is None or high > -(10**_MOST_DIGITS) else high * 10
    if high is None:
        high = 10**_MOST_DIGITS - 1 if low < 10**_MOST_DIGITS else low * 10
    if low > high:
        raise Impossible
    options: list[str] = []
    if high >= 0:
        options.append(_magnitudes(max(0, low), high))
    if low < 0:
        options.append(sequence(literal("-"), _magnitudes(max(1, -high), -low)))
    return either(options)


def _magnitudes(low: int, high: int) -> str:
    """Integers that are not negative."""
    options: list[str] = []
    full: list[int] = []
    for length in range(len(str(low)), len(str(high)) + 1):
        first, last = (0 if length == 1 else 10 ** (length - 1)), 10**length - 1
        if length > 1 and low <= first and last <= high:
            full.append(length)
        else:
            options.append(_between(str(max(low, first)), str(min(high, last))))
    if full:
        options.append(sequence("[1-9]", repeated(_DIGIT, full[0] - 1, full[-1] - 1)))
    return either(options)


def _between(low: str, high: str) -> str:
    """Digits of the same number, from low to high."""
    if not low:
        return ""
    count = len(low)
    if low == "0" * count and high == "9" * count:
        return repeated(_DIGIT, count, count)
    if low[0] == high[0]:
        return sequence(literal(low[0]), _between(low[1:], high[1:]))
    options = [sequence(literal(low[0]), _between(low[1:], "9" * (count - 1)))]
    if inside := _digits(int(low[0]) + 1, int(high[0]) - 1):
        options.append(sequence(inside, repeated(_DIGIT, count - 1, count - 1)))
    options.append(sequence(literal(high[0]), _between("0" * (count - 1), high[1:])))
    return either(options)


def _digits(low: int, high: int) -> str:
    if low > high:
        return ""
    return literal(str(low)) if low == high else f"[{low}-{high}]"


# --- decimals ---------------------------------------------------------------------------------------------------------


def decimals(low: Bound | None, high: Bound | None) -> str:
    """All numbers from low to high."""
    if low is None and high is None:
        whole = f'("0" | [1-9] [0-9]{{0,{_MOST_DIGITS - 1}}})'
        return sequence(optional(literal("-")), whole, _any_fraction())
    far = Decimal(_WHOLE_ONLY)
    low = low or Bound(min(-far, high.value * 10 if high is not None else -far))
    high = high or Bound(max(far, low.value * 10))
    if max(abs(low.value), abs(high.value)) > _WHOLE_ONLY:
        return integers(_whole_above(low), _whole_below(high))
    options: list[str] = []
    if high.value > 0 or (high.value == 0 and not high.exclusive):
        options += _collected(low if low.value >= 0 else Bound(Decimal(0)), high)
    if low.value < 0:
        below_zero = Bound(-high.value, high.exclusive) if high.value < 0 else Bound(Decimal(0), exclusive=True)
        mirrored = _collected(below_zero, Bound(-low.value, low.exclusive))
        options += [sequence(literal("-"), option) for option in mirrored]
    return either(options)


def _whole_above(low: Bound) -> int:
    number = int(low.value.to_integral_value(ROUND_CEILING))
    return number + 1 if low.exclusive and number == low.value else number


def _whole_below(high: Bound) -> int:
    number = int(high.value.to_integral_value(ROUND_FLOOR))
    return number - 1 if high.exclusive and number == high.value else number


def _collected(low: Bound, high: Bound) -> list[str]:
    try:
        return [_positive(_inward(low, ROUND_CEILING), _inward(high, ROUND_FLOOR))]
    except Impossible:
        return []


def _inward(bound: Bound, rounding: str) -> Bound:
    """The bound with as many places as are written; what is rounded off needs no exclusion any more."""
    rounded = bound.value.quantize(_STEP, rounding)
    return Bound(rounded, bound.exclusive and rounded == bound.value)


def _positive(low: Bound, high: Bound) -> str:
    """Numbers that are not negative."""
    if low.value > high.value or (low.value == high.value and (low.exclusive or high.exclusive)):
        raise Impossible
    first, last = int(low.value), int(high.value)
    from_low, to_high = _End(_places(low.value), low.exclusive), _End(_places(high.value), high.exclusive)
    if first == last:
        return sequence(literal(str(first)), _fraction(_within(from_low, to_high, _PLACES)))
    options = [sequence(literal(str(first)), _fraction(_from(from_low, _PLACES)))]
    if first + 1 < last:
        options.append(sequence(_magnitudes(first + 1, last - 1), _any_fraction()))
    if to_high.digits or not to_high.exclusive:
        options.append(sequence(literal(str(last)), _fraction(_up_to(to_high, _PLACES))))
    return either(options)


def _places(value: Decimal) -> str:
    """The digits behind the point, without zeros at their end."""
    return format(value % 1, "f").partition(".")[2].rstrip("0")


def _any_fraction() -> str:
    return optional(sequence(literal("."), repeated(_DIGIT, 1, _PLACES)))


class _End(NamedTuple):
    digits: str
    exclusive: bool


class _Digits(NamedTuple):
    """What may stand behind a point, or behind some digits there."""

    nothing: bool
    """Whether there may be no further digit."""
    something: str
    """One digit or more; empty if there can be none."""


def _fraction(digits: _Digits) -> str:
    if not digits.something:
        if not digits.nothing:
            raise Impossible
        return ""
    written = sequence(literal("."), digits.something)
    return optional(written) if digits.nothing else written


def _behind(digit: str, rest: _Digits) -> str | None:
    if not rest.something:
        return digit if rest.nothing else None
    return sequence(digit, optional(rest.something) if rest.nothing else rest.something)


def _one_of(options: list[str | None]) -> str:
    found = [option for option in options if option]
    return either(found) if found else ""


def _anything(left: int) -> _Digits:
    return _Digits(nothing=True, something=repeated(_DIGIT, 1, left) if left else "")


def _from(low: _End, left: int) -> _Digits:
    """Digits that are at least as much as these."""
    if not low.digits:
        if not low.exclusive:
            return _anything(left)
        more = _one_of([sequence(repeated('"0"', zeros, zeros), "[1-9]", repeated(_DIGIT, 0, left - zeros - 1))
                        for zeros in range(left)])  # fmt: skip
        return _Digits(nothing=False, something=more)
    if not left:
        return _Digits(nothing=False, something="")
    digit, rest = int(low.digits[0]), _End(low.digits[1:], low.exclusive)
    larger = _digits(digit + 1, 9)
    options = [
        _behind(literal(str(digit)), _from(rest, left - 1)),
        _behind(larger, _anything(left - 1)) if larger else None,
    ]
    return _Digits(nothing=False, something=_one_of(options))


def _up_to(high: _End, left: int) -> _Digits:
    """Digits that are at most as much as these."""
    if not high.digits:
        return _Digits(nothing=not high.exclusive, something="")
    digit, rest = int(high.digits[0]), _End(high.digits[1:], high.exclusive)
    smaller = _digits(0, digit - 1)
    options = [
        _behind(smaller, _anything(left - 1)) if smaller else None,
        _behind(literal(str(digit)), _up_to(rest, left - 1)),
    ]
    return _Digits(nothing=True, something=_one_of(options))


def _within(low: _End, high: _End, left: int) -> _Digits:
    """Digits that are as much as the first at least and as the second at most."""
    if not high.digits:
        return _Digits(nothing=not (low.digits or low.exclusive or high.exclusive), something="")
    if not low.digits and not low.exclusive:
        return _up_to(high, left)
    first, last = int(low.digits[:1] or "0"), int(high.digits[0])
    low_rest, high_rest = _End(low.digits[1:], low.exclusive), _End(high.digits[1:], high.exclusive)
    if first == last:
        return _Digits(
            nothing=False, something=_behind(literal(str(first)), _within(low_rest, high_rest, left - 1)) or ""
        )
    inside = _digits(first + 1, last - 1)
    options = [
        _behind(literal(str(first)), _from(low_rest, left - 1)),
        _behind(inside, _anything(left - 1)) if inside else None,
        _behind(literal(str(last)), _up_to(high_rest, left - 1)),
    ]
    return _Digits(nothing=False, something=_one_of(options))
