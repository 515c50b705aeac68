"""`calculator`: arithmetic without surprises, and without running anything.

Numbers are fractions, so that 0.1 + 0.2 is 0.3; roots, logarithms and other powers have 50 digits, the functions of the
unit circle 15. Python's parser reads an expression, and only the few kinds of nodes on a list are worked out; each
value is bounded, and a power is refused before it is computed if it would have too many digits.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException, DivisionByZero, InvalidOperation, Overflow, localcontext
from fractions import Fraction
from functools import partial
from typing import Final

from dragoman.errors import ToolExecutionError
from dragoman.tools import AnyTool

from .base import ready

MAX_LENGTH: Final = 2000
MAX_DEPTH: Final = 60
MAX_DIGITS: Final = 2000
_SHOWN_DIGITS: Final = 34
_CONTEXT: Final = Context(
    prec=50, Emax=2 * MAX_DIGITS, Emin=-2 * MAX_DIGITS, traps=[DivisionByZero, InvalidOperation, Overflow]
)


def calculator_tool() -> AnyTool:
    """The tool `calculator`."""

    @ready(name="calculator", needs=["expression"], read_only=True, idempotent=True)
    def calculator(*, expression: str = "") -> str:
        """Work out an arithmetic expression. Whole numbers are exact, others have 34 digits.

        Args:
            expression: Such as `(2 + 3) * 4 ** 2 / 7`. Operators: + - * / // % ** and !. Functions: abs, acos, asin,
                atan, ceil, cos, exp, floor, ln, log, log10, log2, max, min, round, sin, sqrt, tan. Constants: e, pi.
                Angles are in radians.
        """
        try:
            return calculate(expression)
        except CalculationError as error:
            raise ToolExecutionError(f"cannot calculate that: {error}.") from None

    return calculator


class CalculationError(ValueError):
    """The expression has no value; the text says why."""


def calculate(expression: str) -> str:
    """The value of an expression, as text. Raises CalculationError."""
    if len(expression) > MAX_LENGTH:
        raise CalculationError(f"it is longer than {MAX_LENGTH} characters")
    try:
        with localcontext(_CONTEXT):
            return _show(_Calculation(expression).value)
    except (DivisionByZero, ZeroDivisionError):
        message = "division by zero"
    except (Overflow, OverflowError):
        message = f"a value has more than {MAX_DIGITS} digits"
    except (DecimalException, ArithmeticError, ValueError) as error:
        message = str(error) if isinstance(error, CalculationError) else "an operation has no value for this number"
    raise CalculationError(message)


_STRANGE: Final = re.compile(r"[^0-9A-Za-z_.+\-*/%(),!\s]")
_BROKEN_NUMBER: Final = re.compile(r"[0-9.](?![eE][+-]?[0-9])[A-Za-z]")
_LEADING_ZEROS: Final = re.compile(r"(?<![\w.])0+(?=[0-9])")
_DEEP: Final = re.compile(r"(?:[-+(]\s*){200}")
_SIGNS: Final = str.maketrans({"^": "**", "×": "*", "÷": "/", "−": "-"})  # noqa: RUF001 -- people write them


class _Calculation:
    """One expression. Numbers are taken from its text: in the tree, Python has rounded them."""

    def __init__(self, expression: str) -> None:
        text = expression.translate(_SIGNS)
        if strange := _STRANGE.search(text):
            raise CalculationError(f"{strange[0]!r} is not arithmetic")
        if _DEEP.search(text):
            raise CalculationError("it is nested too deeply")
        if _BROKEN_NUMBER.search(text):
            raise CalculationError("it cannot be read as arithmetic")
        # A factorial binds tighter than a power, as only an attribute does in Python.
        self._text: str = " ".join(_LEADING_ZEROS.sub("", text).replace("!", " .factorial ").split())
        try:
            self._tree: ast.expr = ast.parse(self._text, mode="eval").body
        except SyntaxError:
            raise CalculationError("it cannot be read as arithmetic") from None
        except (MemoryError, RecursionError):
            raise CalculationError("it is nested too deeply") from None

    @property
    def value(self) -> Fraction:
        return self._evaluate(self._tree, 0)

    def _evaluate(self, node: ast.expr, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise CalculationError("it is nested too deeply")
        match node:
            case ast.Constant():
                return _fraction(Decimal(self._text[node.col_offset : node.end_col_offset]))
            case ast.Name(id=name) if name.lower() in _CONSTANTS:
                return _CONSTANTS[name.lower()]
            case ast.Attribute(value=inner, attr="factorial"):
                return _factorial(self._evaluate(inner, depth + 1))
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                value = self._evaluate(node.operand, depth + 1)
                return -value if isinstance(node.op, ast.USub) else value
            case ast.BinOp(op=ast.Pow()):
                return _bounded(_power(self._evaluate(node.left, depth + 1), self._evaluate(node.right, depth + 1)))
            case ast.BinOp() if type(node.op) in _OPERATIONS:
                return self._chain(node, depth)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name.lower() in _FUNCTIONS:
                values = [self._evaluate(each, depth + 1) for each in arguments]
                try:
                    return _bounded(_FUNCTIONS[name.lower()](*values))
                except TypeError:
                    raise CalculationError(f"{name} cannot take {len(values)} numbers") from None
            case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
                raise CalculationError(f"{name[:40]!r} is not known")
            case _:
                raise CalculationError("it cannot be read as arithmetic")

    def _chain(self, node: ast.expr, depth: int) -> Fraction:
        """`a + b - c …`, which may be long without being deep."""
        links: list[tuple[Callable[[Fraction, Fraction], Fraction | int], ast.expr]] = []
        while isinstance(node, ast.BinOp) and (compute := _OPERATIONS.get(type(node.op))):
            links.append((compute, node.right))
            node = node.left
        value = self._evaluate(node, depth + 1)
        for compute, right in reversed(links):
            value = _bounded(compute(value, self._evaluate(right, depth + 1)))
        return value


# --- numbers, bounded ------------------------------------------------------------------------------------------------


def _bounded(value: Fraction | int) -> Fraction:
    if max(abs(value.numerator), value.denominator) >= 10**MAX_DIGITS:
        raise OverflowError
    return Fraction(value)


def _fraction(value: Decimal) -> Fraction:
    if not value.is_finite():  # the logarithm of 0, say
        raise CalculationError("an operation has no value for this number")
    if value and abs(value.adjusted()) >= MAX_DIGITS:
        raise OverflowError
    return Fraction(value)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / value.denominator


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        return _fraction(_decimal(base) ** _decimal(exponent))
    if abs(base) == 1:
        return base ** (exponent.numerator % 2)
    if abs(exponent) * math.log10(max(abs(base.numerator), base.denominator)) > MAX_DIGITS:
        raise OverflowError
    return base**exponent.numerator


def _whole(value: Fraction, what: str) -> int:
    if value.denominator != 1:
        raise CalculationError(f"{what} needs whole numbers")
    return value.numerator


def _factorial(value: Fraction) -> Fraction:
    number = _whole(value, "!")
    if number < 0:
        raise CalculationError("! needs a number that is not negative")
    if number > 1000:
        raise OverflowError
    return _bounded(math.factorial(number))


def _with_decimals(function: Callable[[Decimal], Decimal]) -> Callable[[Fraction], Fraction]:
    return lambda value: _fraction(function(_decimal(value)))


def _with_floats(function: Callable[[float], float]) -> Callable[[Fraction], Fraction]:
    """A function of the standard library on binary floating point, to the 15 digits that it has."""
    return lambda value: _fraction(Decimal(f"{function(float(value)):.15g}"))


def _round(value: Fraction, places: Fraction = Fraction(0)) -> Fraction | int:
    digits = _whole(places, "round")
    if abs(digits) > MAX_DIGITS:
        raise OverflowError
    return round(value, digits)


def _logarithm(value: Fraction, base: Fraction | None = None) -> Fraction:
    natural = _fraction(_decimal(value).ln())
    return natural if base is None else natural / _fraction(_decimal(base).ln())


def _square_root(value: Fraction) -> Fraction:
    parts = [math.isqrt(abs(part)) for part in (value.numerator, value.denominator)]
    exact = Fraction(*parts)
    return exact if exact**2 == value else _fraction(_decimal(value).sqrt())


_OPERATIONS: Final[dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: left / right,
    ast.FloorDiv: lambda left, right: left // right,
    ast.Mod: operator.mod,
}
_CONSTANTS: Final[dict[str, Fraction]] = {
    "pi": Fraction("3.1415926535897932384626433832795028841971693993751"),
    "e": Fraction("2.7182818284590452353602874713526624977572470937000"),
}
_FUNCTIONS: Final[dict[str, Callable[..., Fraction | int]]] = {
    **{name: _with_floats(getattr(math, name)) for name in ("acos", "asin", "atan", "cos", "sin", "tan")},
    "abs": Fraction.__abs__,
    "ceil": Fraction.__ceil__,
    "exp": _with_decimals(Decimal.exp),
    "floor": Fraction.__floor__,
    "ln": _logarithm,
    "log": _logarithm,
    "log10": _with_decimals(Decimal.log10),
    "log2": partial(_logarithm, base=Fraction(2)),
    "max": lambda *values: max(values),
    "min": lambda *values: min(values),
    "round": _round,
    "sqrt": _square_root,
}


def _show(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    rounded = Context(prec=_SHOWN_DIGITS).normalize(_decimal(value))
    if rounded == rounded.to_integral_value() and rounded.adjusted() <= _SHOWN_DIGITS:
        return str(int(rounded))
    return str(rounded) if rounded.adjusted() < -6 else f"{rounded:f}"
