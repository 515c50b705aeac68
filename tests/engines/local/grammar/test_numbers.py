"""Numbers between bounds, digit by digit."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.engines.local.grammar.gbnf import Impossible
from dragoman.engines.local.grammar.numbers import Bound, decimals, integers
from tests.engines.local.grammar.gbnf import Reading

whole = st.one_of(st.integers(-30, 30), st.integers(-(10**6), 10**6))
decimal = st.builds(lambda number, places: Decimal(number).scaleb(-places), st.integers(-9999, 9999), st.integers(0, 4))
bound = st.one_of(st.none(), st.builds(Bound, decimal, st.booleans()))


def accepts(expression: str, text: str) -> bool:
    return Reading(f"root ::= {expression}").accepts(text)


@given(st.one_of(st.none(), whole), st.one_of(st.none(), whole), whole)
def test_integers(low: int | None, high: int | None, number: int) -> None:
    if low is not None and high is not None and low > high:
        with pytest.raises(Impossible):
            integers(low, high)
        return
    inside = (low is None or low <= number) and (high is None or number <= high)
    assert accepts(integers(low, high), str(number)) == inside
    for edge in (low, high):
        if edge is not None:
            assert accepts(integers(low, high), str(edge))


@pytest.mark.parametrize("text", ["-0", "00", "01", "+1", "1.0", "1e3", "", "-", "1 "])
def test_no_other_way_to_write_an_integer(text: str) -> None:
    assert not accepts(integers(None, None), text)
    assert not accepts(integers(-5, 100), text)


@given(bound, bound, decimal)
def test_decimals(low: Bound | None, high: Bound | None, number: Decimal) -> None:
    above = low is None or number > low.value or (number == low.value and not low.exclusive)
    below = high is None or number < high.value or (number == high.value and not high.exclusive)
    try:
        expression = decimals(low, high)
    except Impossible:
        assert low is not None
        assert high is not None
        assert low.value > high.value or (low.value == high.value and (low.exclusive or high.exclusive))
        return
    text = format(number.normalize(), "f")
    assert accepts(expression, "0" if text == "-0" else text) == (above and below)


@given(bound, bound, st.data())
def test_what_is_written_is_between_the_bounds_as_a_float_too(
    low: Bound | None, high: Bound | None, data: st.DataObject
) -> None:
    try:
        grammar = Reading(f"root ::= {decimals(low, high)}")
    except Impossible:
        return
    number = float(grammar.made(lambda count: data.draw(st.integers(0, count - 1))))
    assert low is None or number > float(low.value) or (number == float(low.value) and not low.exclusive)
    assert high is None or number < float(high.value) or (number == float(high.value) and not high.exclusive)
