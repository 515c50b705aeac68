"""`calculator`: arithmetic without surprises, and without running anything.

Owns: the tool.
Must not know: how an expression is read (parser.py) and what can be computed (arithmetic.py).
"""

from __future__ import annotations

from dragoman.errors import ToolExecutionError
from dragoman.toolkit.defining import ready
from dragoman.tools.definition import AnyTool

from .arithmetic import CalculationError
from .parser import calculate

__all__ = ["calculator_tool"]


def calculator_tool() -> AnyTool:
    """The tool `calculator`."""

    @ready(name="calculator", filled=["expression"], read_only=True, idempotent=True)
    def calculator(expression: str) -> str:
        """Work out an arithmetic expression. Whole numbers are exact, others have 34 digits.

        Args:
            expression: Such as `(2 + 3) * 4 ** 2 / 7`. Operators: + - * / // % ** and !. Functions: abs, acos, asin,
                atan, atan2, ceil, comb, cos, degrees, exp, floor, gcd, hypot, lcm, ln, log, log10, log2, max, min, mod,
                perm, radians, round, sin, sqrt, tan. Constants: e, pi, tau. Angles are in radians.
        """
        try:
            return calculate(expression)
        except CalculationError as error:
            raise ToolExecutionError(f"cannot calculate that: {error}.") from None

    return calculator
