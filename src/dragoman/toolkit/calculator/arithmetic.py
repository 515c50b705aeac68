"""Numbers and what can be done with them, bounded.

Owns: the operations, functions and constants of the calculator, and how a number is shown.
Must not know: expressions.

Whole numbers are exact. Others are decimals of 50 digits, so that 0.1 + 0.2 is 0.3; only the functions of the unit
circle go through binary floating point. A power is refused before it is computed if it has too many digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import (
    ROUND_CEILING,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
)
from typing import Final, TypeAlias

__all__ = [
    "CONSTANTS",
    "FUNCTIONS",
    "MAX_DIGITS",
    "OPERATIONS",
    "CalculationError",
    "Number",
    "checked",
    "factorial",
    "negated",
    "number_of",
    "power",
    "shown",
]

Number: TypeAlias = int | Decimal

MAX_DIGITS: Final = 2000
_LARGEST: Final = 10**MAX_DIGITS
_CONTEXT: Final = Context(
    prec=50, Emax=MAX_DIGITS, Emin=-MAX_DIGITS, traps=[DivisionByZero, InvalidOperation, Overflow]
)
_SHOWN_DIGITS: Final = 34
_SHOWN: Final = Context(prec=_SHOWN_DIGITS, Emax=MAX_DIGITS, Emin=-MAX_DIGITS)


class CalculationError(ValueError):
    """The expression has no value; the text says why."""


def number_of(text: str) -> Number:
    text = text.replace("_", "")
    if text.isdecimal():
        if len(text) > MAX_DIGITS:
            raise OverflowError
        return int(text)
    return _CONTEXT.create_decimal(text)


def checked(value: Number) -> Number:
    if isinstance(value, int):
        if abs(value) >= _LARGEST:
            raise OverflowError
    elif not value.is_finite():  # the logarithm of 0, say
        message = "an operation has no value for this number"
        raise CalculationError(message)
    return value


def negated(value: Number) -> Number:
    return -value if isinstance(value, int) else _CONTEXT.minus(value)


def _decimal(value: Number) -> Decimal:
    return _CONTEXT.create_decimal(value)


def _whole(value: Number, what: str) -> int:
    if isinstance(value, Decimal) and value != value.to_integral_value():
        message = f"{what} needs whole numbers"
        raise CalculationError(message)
    return int(value)


def _both(
    exact: Callable[[int, int], Number], other: Callable[[Decimal, Decimal], Decimal]
) -> Callable[[Number, Number], Number]:
    """An operation on two numbers: exact if both are whole."""

    def compute(left: Number, right: Number) -> Number:
        if isinstance(left, int) and isinstance(right, int):
            return exact(left, right)
        return other(_decimal(left), _decimal(right))

    return compute


def _divided(left: int, right: int) -> Number:
    return left // right if left % right == 0 else _CONTEXT.divide(_decimal(left), _decimal(right))


def _floor_divided(left: Decimal, right: Decimal) -> Decimal:
    return _CONTEXT.divide(left, right).to_integral_value(ROUND_FLOOR)


def _remainder(left: Decimal, right: Decimal) -> Decimal:
    rest = _CONTEXT.remainder(left, right)
    # As for whole numbers, the sign is that of the divisor.
    return _CONTEXT.add(rest, right) if rest and (rest < 0) != (right < 0) else rest


OPERATIONS: Final[dict[str, Callable[[Number, Number], Number]]] = {
    "+": _both(lambda a, b: a + b, _CONTEXT.add),
    "-": _both(lambda a, b: a - b, _CONTEXT.subtract),
    "*": _both(lambda a, b: a * b, _CONTEXT.multiply),
    "/": _both(_divided, _CONTEXT.divide),
    "//": _both(lambda a, b: a // b, _floor_divided),
    "%": _both(lambda a, b: a % b, _remainder),
}


def power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and exponent >= 0:
        # Before it is computed: the digits of a power are known from those of its base.
        if abs(base) > 1 and exponent * math.log10(abs(base)) > MAX_DIGITS:
            raise OverflowError
        return base**exponent if abs(base) > 1 else base ** (exponent if exponent < 2 else 2 + exponent % 2)
    return _CONTEXT.power(_decimal(base), _decimal(exponent))


def factorial(value: Number) -> int:
    number = _whole(value, "!")
    if number < 0:
        message = "! needs a number that is not negative"
        raise CalculationError(message)
    if number > 1000:
        raise OverflowError
    return math.factorial(number)


def _counted(function: Callable[[int, int], int]) -> Callable[..., Number]:
    def compute(first: Number, second: Number) -> int:
        n, k = _whole(first, "counting"), _whole(second, "counting")
        if max(abs(n), abs(k)) > 5000:
            raise OverflowError
        return function(n, k)

    return compute


def _binary(function: Callable[..., float]) -> Callable[..., Number]:
    """A function of the standard library on binary floating point, to the 15 digits that it has."""

    def compute(*values: Number) -> Number:
        result = function(*[float(value) for value in values])
        if math.isinf(result) or math.isnan(result):
            raise OverflowError
        return _CONTEXT.create_decimal(f"{result:.15g}")

    return compute


def _rounded(value: Number, digits: Number = 0) -> Number:
    places = _whole(digits, "round")
    if abs(places) > MAX_DIGITS:
        raise OverflowError
    if isinstance(value, int):
        return round(value, places)
    scaled = _CONTEXT.scaleb(value, places).to_integral_value(ROUND_HALF_EVEN)
    return _whole(scaled, "round") if not places else _CONTEXT.scaleb(scaled, -places)


def _integral(rounding: str) -> Callable[..., Number]:
    def compute(value: Number) -> int:
        return int(value.to_integral_value(rounding)) if isinstance(value, Decimal) else value

    return compute


def _logarithm(value: Number, base: Number | None = None) -> Number:
    natural = _CONTEXT.ln(_decimal(value))
    if base is None:
        return natural
    return _CONTEXT.divide(natural, _decimal(checked(_CONTEXT.ln(_decimal(base)))))


def _square_root(value: Number) -> Number:
    if isinstance(value, int) and value >= 0 and math.isqrt(value) ** 2 == value:
        return math.isqrt(value)
    return _CONTEXT.sqrt(_decimal(value))


CONSTANTS: Final[dict[str, Number]] = {
    "pi": Decimal("3.1415926535897932384626433832795028841971693993751"),
    "tau": Decimal("6.2831853071795864769252867665590057683943387987502"),
    "e": Decimal("2.7182818284590452353602874713526624977572470937000"),
}


def _absolute(value: Number) -> Number:
    return abs(value) if isinstance(value, int) else _CONTEXT.abs(value)


def _largest(*values: Number) -> Number:
    return max(values)


def _smallest(*values: Number) -> Number:
    return min(values)


def _exponential(value: Number) -> Number:
    return _CONTEXT.exp(_decimal(value))


def _decimal_logarithm(value: Number) -> Number:
    return _CONTEXT.log10(_decimal(value))


def _binary_logarithm(value: Number) -> Number:
    return _logarithm(value, 2)


def _divisor(*values: Number) -> Number:
    return math.gcd(*[_whole(value, "gcd") for value in values])


def _multiple(*values: Number) -> Number:
    result = 1
    for value in values:
        result = math.lcm(result, _whole(value, "lcm"))
        checked(result)
    return result


_MANY: Final = 100
FUNCTIONS: Final[dict[str, tuple[int, int, Callable[..., Number]]]] = {
    "abs": (1, 1, _absolute),
    "acos": (1, 1, _binary(math.acos)),
    "asin": (1, 1, _binary(math.asin)),
    "atan": (1, 1, _binary(math.atan)),
    "atan2": (2, 2, _binary(math.atan2)),
    "ceil": (1, 1, _integral(ROUND_CEILING)),
    "comb": (2, 2, _counted(math.comb)),
    "cos": (1, 1, _binary(math.cos)),
    "degrees": (1, 1, _binary(math.degrees)),
    "exp": (1, 1, _exponential),
    "floor": (1, 1, _integral(ROUND_FLOOR)),
    "gcd": (1, _MANY, _divisor),
    "hypot": (2, _MANY, _binary(math.hypot)),
    "lcm": (1, _MANY, _multiple),
    "ln": (1, 1, _logarithm),
    "log": (1, 2, _logarithm),
    "log10": (1, 1, _decimal_logarithm),
    "log2": (1, 1, _binary_logarithm),
    "max": (1, _MANY, _largest),
    "min": (1, _MANY, _smallest),
    "mod": (2, 2, OPERATIONS["%"]),
    "perm": (2, 2, _counted(math.perm)),
    "radians": (1, 1, _binary(math.radians)),
    "round": (1, 2, _rounded),
    "sin": (1, 1, _binary(math.sin)),
    "sqrt": (1, 1, _square_root),
    "tan": (1, 1, _binary(math.tan)),
}


def shown(value: Number) -> str:
    if isinstance(value, int):
        return str(value)
    # A context of our own throughout: that of the thread is somebody else's, and rounds to 28 digits.
    rounded = _SHOWN.normalize(value)
    if rounded == rounded.to_integral_value() and abs(rounded.adjusted()) <= _SHOWN_DIGITS:
        return str(int(rounded))
    return str(rounded) if rounded.adjusted() < -6 else f"{rounded:f}"
