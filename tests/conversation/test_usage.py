from __future__ import annotations

from hypothesis import given

from dragoman.conversation import Usage
from tests.strategies import usages


def test_unknown_is_not_zero() -> None:
    assert not Usage().known
    assert Usage().tokens is None
    assert Usage(input=3, output=0).known
    assert Usage(input=3, output=4).tokens == 7
    assert Usage(input=3, output=4, total=9).tokens == 9


def test_a_sum_over_a_reply_without_usage_says_that_it_is_a_lower_bound() -> None:
    total = Usage(input=1, output=2) + Usage()
    assert (total.input, total.output, total.partial) == (1, 2, True)
    assert not (Usage(input=1, output=2) + Usage(input=3, output=4, cache_read=1)).partial
    assert (Usage(input=1) + Usage(output=2)).partial  # each said one half only: both counts are lower bounds


@given(usages, usages, usages)
def test_the_order_of_adding_does_not_matter(a: Usage, b: Usage, c: Usage) -> None:
    def counts(u: Usage) -> tuple[int | None, ...]:
        return (u.input, u.output, u.cache_read, u.cache_write, u.reasoning)

    assert counts((a + b) + c) == counts(a + (b + c)) == counts(c + (b + a))
