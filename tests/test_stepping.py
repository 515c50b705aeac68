"""The async core in a plain program: one step runs it, and whatever suspends is refused."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator

import pytest

from dragoman._stepping import step, step_through


async def double(number: int) -> int:
    return number * 2


async def nested(number: int) -> int:
    return await double(await double(number))


def test_a_coroutine_that_never_suspends_is_run_to_its_end_or_its_error() -> None:
    async def notebook_cell() -> int:
        return step(nested(1))

    async def fails() -> None:
        await double(1)
        raise LookupError("gone")

    assert step(nested(3)) == 12
    assert asyncio.run(notebook_cell()) == 4, "also where an event loop runs"
    with pytest.raises(LookupError, match="gone"):
        step(fails())


def test_a_coroutine_that_suspends_is_refused_and_closed() -> None:
    closed: list[bool] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            closed.append(True)

    with pytest.raises(RuntimeError, match="event loop"):
        step(waits())
    assert closed == [True]


async def count(closed: list[str], until: int = 3) -> AsyncGenerator[int, None]:
    try:
        for number in range(until):
            yield await double(number)
    finally:
        closed.append("closed")


def test_items_come_one_by_one() -> None:
    closed: list[str] = []
    assert list(step_through(count(closed))) == [0, 2, 4]
    assert closed == ["closed"]


@pytest.mark.parametrize("how", ["left", "dropped", "interrupted"])
def test_however_it_ends_what_is_open_is_closed(how: str) -> None:
    closed: list[str] = []
    items = step_through(count(closed))
    assert next(items) == 0
    if how == "left":
        items.close()
    elif how == "dropped":
        del items
        gc.collect()
    else:
        with pytest.raises(KeyboardInterrupt):
            items.throw(KeyboardInterrupt())
    assert closed == ["closed"]
