"""`calculator`: arithmetic without surprises, and without running anything.

Numbers are fractions, so that 0.1 + 0.2 is 0.3 and 1/3*3 is 1; roots, logarithms and other powers have 50 digits,
trigonometric functions 15. Python's parser reads an expression, and only a few kinds of nodes are evaluated. A value
with too many digits is an overflow before it is computed.
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
from dragoman.tools import AnyTool, tool

from .base import Given

MAX_LENGTH: Final = 2000
MAX_DIGITS: Final = 2000
_SHOWN_DIGITS: Final = 34
_ROUNDED: Final = Context(
    prec=50, Emax=2 * MAX_DIGITS, Emin=-2 * MAX_DIGITS, traps=[DivisionByZero, InvalidOperation, Overflow]
)
"""For roots, logarithms and other powers, which are not exact."""


def calculator_tool() -> AnyTool:
    @tool(name="calculator", read_only=True, idempotent=True)
    def calculator(*, expression: Given) -> str:
        """Evaluate an arithmetic expression. Whole numbers are exact, others have 34 digits.

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
    """The expression has no value; the message says why."""


_UNREADABLE: Final = "it cannot be read as arithmetic"
_TOO_DEEP: Final = "it is nested too deeply"
_NO_VALUE: Final = "an operation has no value for this number"
_STRANGE: Final = re.compile(r"[^0-9A-Za-z_.+\-*/%(),!\s]|[0-9.](?![eE][+-]?[0-9])[A-Za-z]")
_LEADING_ZEROS: Final = re.compile(r"(?<![\w.])0+(?=[0-9])")
_DEEP: Final = re.compile(r"(?:[-+(]\s*){200}")
_SIGNS: Final = str.maketrans({"^": "**", "×": "*", "÷": "/", "−": "-"})  # noqa: RUF001 -- people write them


def calculate(expression: str) -> str:
    """The value of an expression, as text. Raises CalculationError."""
    if len(expression) > MAX_LENGTH:
        raise CalculationError(f"it is longer than {MAX_LENGTH} characters")
    text = " ".join(_LEADING_ZEROS.sub("", expression.translate(_SIGNS)).split())
    if strange := _STRANGE.search(text):
        raise CalculationError(f"{strange[0]!r} is not arithmetic")
    if _DEEP.search(text):  # Python's parser may run out of its stack
        raise CalculationError(_TOO_DEEP)
    try:
        # A factorial binds tighter than a power, as only an attribute does in Python.
        text = " ".join(text.replace("!", " .factorial ").split())
        with localcontext(_ROUNDED):
            return _show(_evaluate(ast.parse(text, mode="eval").body, text))
    except SyntaxError:
        message = _UNREADABLE
    except (MemoryError, RecursionError):
        message = _TOO_DEEP
    except (DivisionByZero, ZeroDivisionError):
        message = "division by zero"
    except (Overflow, OverflowError):
        message = f"a value has more than {MAX_DIGITS} digits"
    except (DecimalException, ArithmeticError, ValueError) as error:
        message = str(error) if isinstance(error, CalculationError) else _NO_VALUE
    raise CalculationError(message)


def _evaluate(node: ast.expr, text: str) -> Fraction:
    match node:
        case ast.Constant():  # from the text: in the tree, Python has rounded it
            return _fraction(Decimal(text[node.col_offset : node.end_col_offset]))
        case ast.Name(id=name) if name.lower() in _CONSTANTS:
            return _CONSTANTS[name.lower()]
        case ast.Attribute(value=inner, attr="factorial"):
            return _factorial(_evaluate(inner, text))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
            value = _evaluate(node.operand, text)
            return -value if isinstance(node.op, ast.USub) else value
        case ast.BinOp() if type(node.op) in _OPERATIONS:
            return _bounded(_OPERATIONS[type(node.op)](_evaluate(node.left, text), _evaluate(node.right, text)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name.lower() in _FUNCTIONS:
            values = [_evaluate(each, text) for each in arguments]
            try:
                return _bounded(_FUNCTIONS[name.lower()](*values))
            except TypeError:
                raise CalculationError(f"{name} cannot take {len(values)} numbers") from None
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
            raise CalculationError(f"{name[:40]!r} is not known")
        case _:
            raise CalculationError(_UNREADABLE)


def _bounded(value: Fraction | int) -> Fraction:
    if max(abs(value.numerator), value.denominator) >= 10**MAX_DIGITS:
        raise OverflowError
    return Fraction(value)


def _fraction(value: Decimal) -> Fraction:
    if not value.is_finite():  # the logarithm of 0, say
        raise CalculationError(_NO_VALUE)
    if value and abs(value.adjusted()) >= MAX_DIGITS:
        raise OverflowError
    return Fraction(value)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / value.denominator


def _show(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    rounded = Context(prec=_SHOWN_DIGITS).normalize(_decimal(value))
    if rounded == rounded.to_integral_value() and rounded.adjusted() <= _SHOWN_DIGITS:
        return str(int(rounded))
    return str(rounded) if rounded.adjusted() < -6 else f"{rounded:f}"


# --- operations and functions ----------------------------------------------------------------------------------------


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        return _fraction(_decimal(base) ** _decimal(exponent))
    if abs(base) == 1:
        return base ** (exponent.numerator % 2)
    if abs(exponent) * math.log10(max(abs(base.numerator), base.denominator)) > MAX_DIGITS:
        raise OverflowError
    return base**exponent.numerator


def _factorial(value: Fraction) -> Fraction:
    if value.denominator != 1 or value < 0:
        raise CalculationError("! needs a whole number that is not negative")
    return _bounded(math.factorial(min(value.numerator, 1000)))  # which is an overflow already


def _round(value: Fraction, places: Fraction = Fraction(0)) -> Fraction | int:
    if places.denominator != 1:
        raise CalculationError("round needs a whole number of places")
    if abs(places) > MAX_DIGITS:
        raise OverflowError
    return round(value, places.numerator)


def _logarithm(value: Fraction, base: Fraction | None = None) -> Fraction:
    natural = _fraction(_decimal(value).ln())
    return natural if base is None else natural / _fraction(_decimal(base).ln())


def _square_root(value: Fraction) -> Fraction:
    exact = Fraction(math.isqrt(abs(value.numerator)), math.isqrt(value.denominator))
    return exact if exact**2 == value else _fraction(_decimal(value).sqrt())


def _with_decimals(function: Callable[[Decimal], Decimal]) -> Callable[[Fraction], Fraction]:
    return lambda value: _fraction(function(_decimal(value)))


def _with_floats(function: Callable[[float], float]) -> Callable[[Fraction], Fraction]:
    """A function of the standard library, to the 15 digits that floating point has."""
    return lambda value: _fraction(Decimal(f"{function(float(value)):.15g}"))


_OPERATIONS: Final[dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: left / right,
    ast.FloorDiv: lambda left, right: left // right,
    ast.Mod: operator.mod,
    ast.Pow: _power,
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
