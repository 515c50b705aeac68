"""`calculator`: right values, and nothing that runs or blows up."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from dragoman.toolkit.calculator import CalculationError, calculate, calculator_tool
from tests.toolkit.calling import Call, bad, both_colours, good

VALUES = {
    "1 + 2 * 3": "7", "(1 + 2) * 3": "9", "0.1 + 0.2": "0.3", "1.10 * 3": "3.3", "2 ** 10": "1024",
    "2 ^ 3 ^ 2": "512", "-2 ** 2": "-4", "2 ** -1": "0.5", "7 / 2": "3.5", "7 // 2": "3", "-7 // 2": "-4",
    "-7 % 3": "2", "7.5 // 2": "3", "5!": "120", "3!!": "720", "1/3": "0.3333333333333333333333333333333333",
    "2 \u00d7 3 ÷ 4 \u2212 1": "0.5", "2024 - 05": "2019", "0.12345678901234567890123 * 10": "1.2345678901234567890123",
    "1_000_000 * 2": "2000000", "1e3": "1000", "1e-20": "1E-20", ".5 + 5.": "5.5",
    "sqrt(16)": "4", "sqrt(2)": "1.414213562373095048801688724209698", "max(1, 2.5, 2)": "2.5", "round(2.5)": "2",
    "sqrt(2) ** 2": "2", "log10(10 ** 400)": "400", "exp(-800) * exp(800)": "1",
    "round(3.14159, 2)": "3.14", "floor(-1.5) + ceil(1.2)": "0", "sin(0) + cos(0)": "1", "ln(e)": "1",
    "log(100, 10)": "2", "2**100": "1267650600228229401496703205376", "1 ** 99999999999": "1",
    "(-1) ** 99999999999": "-1", "  1\n+\t1 ": "2", "+".join(["1"] * 500): "500",
    "floor(1/3*3)": "1", "(1/7*7)//1": "1", "0**0": "1",
}  # fmt: skip


@pytest.mark.parametrize(("expression", "value"), VALUES.items())
def test_values(expression: str, value: str) -> None:
    assert calculate(expression) == value


HOSTILE = [
    "__import__('os').system('id')", "().__class__", "open('/etc/passwd')", "lambda: 1", "x = 1", "1; 2",
    "[1 for _ in range(9)]", "9**9**9", "9**9**9**9", "10**2001", "2**99999999999999999999", "(-9)**9**9",
    "0.1**-99999", "1.0000001**1e300", "9e999999", "1e3000", "99999!", "3!!!!!", "(1000!)!", "exp(10**10)", "1/0",
    "1//0", "1%0", "1.5%0", "0**-1", "sqrt(-1)", "ln(0)", "ln(-1)", "log(1, 1)", "log(8, 0)", "asin(2)", "1.5!",
    "(-1)!", "(-8)**0.5", "tan(10**400)", "round(1.5, 99999)", "(" * 1000, "(" * 500 + "1" + ")" * 500,
    "-" * 1999 + "x", "2" + "**2" * 600, "sin(" * 400, "1" * 2001, "1" * 1999 + "*" + "1",
    "9" * 999 + "*" + "9" * 999 + "*9" * 5, "", "()", "1 +", "* 1", "1 1", "sin", "sin()", "sin(1, 2)", "max()",
    "unknown(1)", "1,2", "1..2", "٣ + ٤", "½", "NaN", "inf", "1e", "0x10", "1or 2", "True", "\x00",
]  # fmt: skip


@pytest.mark.parametrize("expression", HOSTILE)
def test_errors_have_a_reason(expression: str) -> None:
    if len(expression) <= 2000 and expression.startswith(("9" * 999, "1" * 1999)):
        assert calculate(expression)  # large, and within bounds
        return
    with pytest.raises(CalculationError) as caught:
        calculate(expression)
    assert str(caught.value)


@both_colours
def test_the_tool(called: Call) -> None:
    tool = calculator_tool()
    assert good(called(tool, expression="2 + 2")) == "4"
    assert bad(called(tool, expression="1/0"), "execution") == "cannot calculate that: division by zero."


@given(st.text("0123456789.+-*/%^()!, eEpisqrtmax_", max_size=60))
def test_any_text_has_a_value_or_a_reason(expression: str) -> None:
    with suppress(CalculationError):
        assert len(calculate(expression)) < 2100
