"""From the text of an expression to its value.

Owns: a small parser, bounded in length and depth.
Must not know: Python's own parser or `eval`: an expression is a stranger's text.
"""

from __future__ import annotations

import re
from decimal import DecimalException, DivisionByZero, Overflow
from typing import Final

from .arithmetic import (
    CONSTANTS,
    FUNCTIONS,
    MAX_DIGITS,
    OPERATIONS,
    CalculationError,
    Number,
    checked,
    factorial,
    negated,
    number_of,
    power,
    shown,
)

__all__ = ["calculate"]

MAX_LENGTH: Final = 2000
MAX_DEPTH: Final = 60

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?)"
    r"|(?P<name>[A-Za-z][A-Za-z0-9]*)|(?P<sign>\*\*|//|[-+*/%^(),!×÷−])|(?P<end>$))"  # noqa: RUF001 -- people write them
)
_SAME: Final = {"^": "**", "×": "*", "÷": "/", "−": "-"}  # noqa: RUF001 -- people write them


def calculate(expression: str) -> str:
    """The value of an expression, as text. Raises CalculationError."""
    if len(expression) > MAX_LENGTH:
        message = f"it is longer than {MAX_LENGTH} characters"
        raise CalculationError(message)
    try:
        return shown(_Parser(_tokens(expression)).value())
    except (DivisionByZero, ZeroDivisionError):
        message = "division by zero"
    except (Overflow, OverflowError):
        message = f"a value has more than {MAX_DIGITS} digits"
    except (DecimalException, ArithmeticError, ValueError) as error:
        message = str(error) if isinstance(error, CalculationError) else "an operation has no value for this number"
    raise CalculationError(message)


def _tokens(expression: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    while True:
        match = _TOKEN.match(expression, at)
        if match is None:
            message = f"{expression[at:].strip()[:1]!r} at position {at + 1} is not arithmetic"
            raise CalculationError(message)
        kind = match.lastgroup or "end"
        text = match[kind]
        found.append((kind, _SAME.get(text, text)))
        if kind == "end":
            return found
        at = match.end()


class _Parser:
    """Precedence climbing: + -, then * / // %, then signs, then ** (to the right), then !."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens: list[tuple[str, str]] = tokens
        self._at: int = 0
        self._depth: int = 0

    def value(self) -> Number:
        value = self._sum()
        if self._tokens[self._at][0] != "end":
            raise self._unexpected()
        return value

    def _unexpected(self) -> CalculationError:
        kind, text = self._tokens[self._at]
        return CalculationError("it ends too early" if kind == "end" else f"{text!r} is not expected there")

    def _take(self, *signs: str) -> str | None:
        kind, text = self._tokens[self._at]
        if kind != "sign" or text not in signs:
            return None
        self._at += 1
        return text

    def _need(self, sign: str) -> None:
        if self._take(sign) is None:
            raise self._unexpected()

    def _sum(self) -> Number:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            message = "it is nested too deeply"
            raise CalculationError(message)
        value = self._product()
        while sign := self._take("+", "-"):
            value = checked(OPERATIONS[sign](value, self._product()))
        self._depth -= 1
        return value

    def _product(self) -> Number:
        value = self._signed()
        while sign := self._take("*", "/", "//", "%"):
            value = checked(OPERATIONS[sign](value, self._signed()))
        return value

    def _signed(self) -> Number:
        negative = False
        while sign := self._take("-", "+"):
            negative ^= sign == "-"
        value = self._power()
        return negated(value) if negative else value

    def _power(self) -> Number:
        base = self._factorial()
        if not self._take("**"):
            return base
        self._depth += 1
        if self._depth > MAX_DEPTH:
            message = "it is nested too deeply"
            raise CalculationError(message)
        exponent = self._signed()
        self._depth -= 1
        return checked(power(base, exponent))

    def _factorial(self) -> Number:
        value = self._atom()
        while self._take("!"):
            value = checked(factorial(value))
        return value

    def _atom(self) -> Number:
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            return number_of(text)
        if kind == "name":
            return self._named(text)
        self._at -= 1
        if self._take("(") is None:
            raise self._unexpected()
        value = self._sum()
        self._need(")")
        return value

    def _named(self, name: str) -> Number:
        if name.lower() in CONSTANTS:
            return CONSTANTS[name.lower()]
        function = FUNCTIONS.get(name.lower())
        if function is None:
            message = f"{name[:40]!r} is not known"
            raise CalculationError(message)
        self._need("(")
        values = [self._sum()]
        while self._take(","):
            values.append(self._sum())
        self._need(")")
        least, most, compute = function
        if not least <= len(values) <= most:
            message = f"{name} cannot take {len(values)} numbers"
            raise CalculationError(message)
        return checked(compute(*values))
