"""`calculator`: arithmetic without surprises, and without running anything.

Whole numbers are exact. Others are decimals of 50 digits, so that 0.1 + 0.2 is 0.3; only the functions of the unit
circle go through binary floating point. Python's parser reads an expression, and only the few kinds of nodes on a list
are worked out; each value is bounded, and a power is refused before it is computed if it would have too many digits.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Sequence
from decimal import (
    ROUND_CEILING,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DecimalException,
    DivisionByZero,
    InvalidOperation,
    Overflow,
    localcontext,
)
from typing import Final, TypeAlias

from dragoman.errors import ToolExecutionError
from dragoman.tools import AnyTool

from .decorator import ready

Number: TypeAlias = int | Decimal

MAX_LENGTH: Final = 2000
MAX_DEPTH: Final = 60
MAX_DIGITS: Final = 2000
_SHOWN_DIGITS: Final = 34
_CONTEXT: Final = Context(
    prec=50, Emax=MAX_DIGITS, Emin=-MAX_DIGITS, traps=[DivisionByZero, InvalidOperation, Overflow]
)
_SHOWN: Final = Context(prec=_SHOWN_DIGITS, Emax=MAX_DIGITS, Emin=-MAX_DIGITS)


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
            tree, numbers = _parse(expression)
            return _show(_evaluate(tree, numbers, 0))
    except (DivisionByZero, ZeroDivisionError):
        message = "division by zero"
    except (Overflow, OverflowError):
        message = f"a value has more than {MAX_DIGITS} digits"
    except (DecimalException, ArithmeticError, ValueError) as error:
        message = str(error) if isinstance(error, CalculationError) else "an operation has no value for this number"
    raise CalculationError(message)


# --- reading an expression -------------------------------------------------------------------------------------------

_NUMBER: Final = re.compile(r"(?<![A-Za-z0-9_])(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")
_STRANGE: Final = re.compile(r"[^0-9A-Za-z.+\-*/%(),!\s]")
_DEEP: Final = re.compile(r"(?:[-+(]\s*){200}")
_SIGNS: Final = str.maketrans({"^": "**", "×": "*", "÷": "/", "−": "-"})  # noqa: RUF001 -- people write them


def _parse(expression: str) -> tuple[ast.expr, list[Number]]:
    """The tree of an expression, in which the name `_3` stands for the third of the numbers."""
    text = expression.translate(_SIGNS)
    if strange := _STRANGE.search(_NUMBER.sub("", text)):
        raise CalculationError(f"{strange[0]!r} is not arithmetic")
    if _DEEP.search(text):
        raise CalculationError("it is nested too deeply")
    numbers: list[Number] = []

    def keep(found: re.Match[str]) -> str:
        numbers.append(_number(found[0]))
        return f" _{len(numbers) - 1} "

    # A factorial binds tighter than a power, as only an attribute does in Python.
    text = " ".join(_NUMBER.sub(keep, text).replace("!", " .factorial ").split())
    try:
        return ast.parse(text, mode="eval").body, numbers
    except SyntaxError:
        raise CalculationError("it cannot be read as arithmetic") from None
    except (MemoryError, RecursionError):
        raise CalculationError("it is nested too deeply") from None


def _number(text: str) -> Number:
    text = text.replace("_", "")
    if not text.isdecimal():
        return _CONTEXT.create_decimal(text)
    if len(text) > MAX_DIGITS:
        raise OverflowError
    return int(text)


def _evaluate(node: ast.expr, numbers: Sequence[Number], depth: int) -> Number:
    if depth > MAX_DEPTH:
        raise CalculationError("it is nested too deeply")
    match node:
        case ast.Name(id=name) if name.startswith("_"):
            return numbers[int(name[1:])]
        case ast.Name(id=name) if name.lower() in _CONSTANTS:
            return _CONSTANTS[name.lower()]
        case ast.Attribute(value=inner, attr="factorial"):
            return _checked(_factorial(_evaluate(inner, numbers, depth + 1)))
        case ast.UnaryOp():
            return _signed(node, numbers, depth)
        case ast.BinOp(op=ast.Pow()):
            return _checked(_power(*[_evaluate(each, numbers, depth + 1) for each in (node.left, node.right)]))
        case ast.BinOp():
            return _chain(node, numbers, depth)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name.lower() in _FUNCTIONS:
            least, most, compute = _FUNCTIONS[name.lower()]
            if not least <= len(arguments) <= most:
                raise CalculationError(f"{name} cannot take {len(arguments)} numbers")
            return _checked(compute([_evaluate(each, numbers, depth + 1) for each in arguments]))
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
            raise CalculationError(f"{name[:40]!r} is not known")
        case _:
            raise CalculationError("it cannot be read as arithmetic")


def _signed(node: ast.expr, numbers: Sequence[Number], depth: int) -> Number:
    negative = False
    while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        negative ^= isinstance(node.op, ast.USub)
        node = node.operand
    value = _evaluate(node, numbers, depth + 1)
    return -value if negative else value


def _chain(node: ast.expr, numbers: Sequence[Number], depth: int) -> Number:
    """`a + b - c …`, which may be long without being deep."""
    links: list[tuple[Callable[[Number, Number], Number], ast.expr]] = []
    while isinstance(node, ast.BinOp) and (compute := _OPERATIONS.get(type(node.op))):
        links.append((compute, node.right))
        node = node.left
    if not links:
        raise CalculationError("it cannot be read as arithmetic")
    value = _evaluate(node, numbers, depth + 1)
    for compute, right in reversed(links):
        value = _checked(compute(value, _evaluate(right, numbers, depth + 1)))
    return value


# --- numbers, bounded ------------------------------------------------------------------------------------------------


def _checked(value: Number) -> Number:
    if isinstance(value, int):
        if abs(value) >= 10**MAX_DIGITS:
            raise OverflowError
    elif not value.is_finite():  # the logarithm of 0, say
        raise CalculationError("an operation has no value for this number")
    return value


def _divide(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    return Decimal(left) / right


def _floor_divide(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    return (Decimal(left) / right).to_integral_value(ROUND_FLOOR)


def _remainder(left: Number, right: Number) -> Number:
    rest = left % right
    # Decimals give it the sign of the dividend; as for whole numbers, it is that of the divisor.
    return rest + right if rest and (rest < 0) != (right < 0) else rest


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and exponent >= 0:
        if abs(base) <= 1:
            return base ** (exponent if exponent < 2 else 2 + exponent % 2)
        if exponent * math.log10(abs(base)) > MAX_DIGITS:
            raise OverflowError
        return base**exponent
    return Decimal(base) ** exponent


def _whole(value: Number, what: str) -> int:
    if isinstance(value, Decimal) and value != value.to_integral_value():
        raise CalculationError(f"{what} needs whole numbers")
    return int(value)


def _factorial(value: Number) -> int:
    number = _whole(value, "!")
    if number < 0:
        raise CalculationError("! needs a number that is not negative")
    if number > 1000:
        raise OverflowError
    return math.factorial(number)


def _binary(function: Callable[..., float]) -> Callable[[list[Number]], Number]:
    """A function of the standard library on binary floating point, to the 15 digits that it has."""

    def compute(values: list[Number]) -> Number:
        result = function(*[float(value) for value in values])
        if math.isinf(result) or math.isnan(result):
            raise OverflowError
        return Decimal(f"{result:.15g}")

    return compute


def _round(values: list[Number]) -> Number:
    value, places = values[0], _whole(values[1], "round") if len(values) > 1 else 0
    if abs(places) > MAX_DIGITS:
        raise OverflowError
    if isinstance(value, int):
        return round(value, places)
    scaled = value.scaleb(places).to_integral_value(ROUND_HALF_EVEN)
    return scaled.scaleb(-places) if places else int(scaled)


def _logarithm(values: list[Number]) -> Number:
    natural = Decimal(values[0]).ln()
    return natural / _checked(Decimal(values[1]).ln()) if len(values) > 1 else natural


def _square_root(values: list[Number]) -> Number:
    value = values[0]
    if isinstance(value, int) and value >= 0 and math.isqrt(value) ** 2 == value:
        return math.isqrt(value)
    return Decimal(value).sqrt()


_OPERATIONS: Final[dict[type[ast.operator], Callable[[Number, Number], Number]]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: _divide,
    ast.FloorDiv: _floor_divide,
    ast.Mod: _remainder,
}
_CONSTANTS: Final[dict[str, Number]] = {
    "pi": Decimal("3.1415926535897932384626433832795028841971693993751"),
    "e": Decimal("2.7182818284590452353602874713526624977572470937000"),
}
_MANY: Final = 100
_FUNCTIONS: Final[dict[str, tuple[int, int, Callable[[list[Number]], Number]]]] = {
    "abs": (1, 1, lambda values: abs(values[0])),
    "acos": (1, 1, _binary(math.acos)),
    "asin": (1, 1, _binary(math.asin)),
    "atan": (1, 1, _binary(math.atan)),
    "ceil": (1, 1, lambda values: int(Decimal(values[0]).to_integral_value(ROUND_CEILING))),
    "cos": (1, 1, _binary(math.cos)),
    "exp": (1, 1, lambda values: Decimal(values[0]).exp()),
    "floor": (1, 1, lambda values: int(Decimal(values[0]).to_integral_value(ROUND_FLOOR))),
    "ln": (1, 1, _logarithm),
    "log": (1, 2, _logarithm),
    "log10": (1, 1, lambda values: Decimal(values[0]).log10()),
    "log2": (1, 1, lambda values: _logarithm([values[0], 2])),
    "max": (1, _MANY, max),
    "min": (1, _MANY, min),
    "round": (1, 2, _round),
    "sin": (1, 1, _binary(math.sin)),
    "sqrt": (1, 1, _square_root),
    "tan": (1, 1, _binary(math.tan)),
}


def _show(value: Number) -> str:
    if isinstance(value, int):
        return str(value)
    rounded = _SHOWN.normalize(value)
    if rounded == rounded.to_integral_value() and abs(rounded.adjusted()) <= _SHOWN_DIGITS:
        return str(int(rounded))
    return str(rounded) if rounded.adjusted() < -6 else f"{rounded:f}"
