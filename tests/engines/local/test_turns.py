"""Whose turn it is: in order, one at a time, in both colours."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from dragoman.engines.local.async_transport import _waited
from dragoman.engines.local.turns import Turns
from dragoman.errors import RequestTimeoutError


def nothing() -> None:
    pass


def test_turns_come_in_order() -> None:
    turns, come = Turns(), list[int]()
    held = [turns.asked(lambda number=number: come.append(number)) for number in range(4)]  # type: ignore[misc]
    assert come == [0]
    held[0].give_back()
    assert come == [0, 1]
    held[2].give_back()  # gave up while it waited
    held[1].give_back()
    assert come == [0, 1, 3]
    held[1].give_back()  # twice does no harm
    assert come == [0, 1, 3]
    held[3].give_back()
    turns.asked(lambda: come.append(4))
    assert come == [0, 1, 3, 4]


def test_threads_wait_for_each_other_in_order() -> None:
    turns, order = Turns(), list[int]()
    first = turns.waited(None)
    threads: list[threading.Thread] = []

    def work(number: int) -> None:
        turn = turns.waited(30)
        order.append(number)
        turn.give_back()

    for number in range(5):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        deadline = time.monotonic() + 10
        while len(turns._queue) <= number and time.monotonic() < deadline:
            time.sleep(0.001)
    assert order == []
    first.give_back()
    for thread in threads:
        thread.join(10)
    assert order == [0, 1, 2, 3, 4]


def test_who_never_gives_a_turn_back_is_found_out() -> None:
    turns = Turns()
    turns.asked(nothing)
    with pytest.raises(RequestTimeoutError, match="busy") as caught:
        turns.waited(0.01)
    assert "streams" in caught.value.hint
    assert not turns._queue


def test_a_queue_that_moves_is_waited_for() -> None:
    turns = Turns()
    before = [turns.asked(nothing) for _ in range(6)]

    def slowly() -> None:
        for turn in before:
            time.sleep(0.05)
            turn.give_back()

    thread = threading.Thread(target=slowly)
    thread.start()
    turns.waited(0.2).give_back()  # longer in all than the limit, but never stuck for so long
    thread.join()


def test_on_a_loop_waiting_blocks_nobody_and_can_be_cancelled() -> None:
    async def main() -> list[str]:
        turns, said = Turns(), list[str]()
        first = await _waited(turns, None)

        async def wait(name: str) -> None:
            turn = await _waited(turns, None)
            said.append(name)
            turn.give_back()

        tasks = [asyncio.create_task(wait(name)) for name in "abc"]
        await asyncio.sleep(0.01)
        tasks[1].cancel()
        await asyncio.sleep(0)
        assert said == []
        first.give_back()
        await asyncio.gather(*tasks, return_exceptions=True)
        (await _waited(turns, None)).give_back()
        return said

    assert asyncio.run(main()) == ["a", "c"]


def test_cancelled_at_the_very_moment_when_the_turn_comes() -> None:
    async def main() -> None:
        turns = Turns()
        first = await _waited(turns, None)
        task = asyncio.create_task(_waited(turns, None))
        await asyncio.sleep(0)
        first.give_back()  # the turn is granted, the task has not seen it yet
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            (await asyncio.wait_for(_waited(turns, None), 5)).give_back()
        else:
            task.result().give_back()

    asyncio.run(main())


def test_stuck_on_a_loop() -> None:
    async def main() -> None:
        turns = Turns()
        turns.asked(nothing)
        with pytest.raises(RequestTimeoutError):
            await _waited(turns, 0.01)

    asyncio.run(main())


def test_a_loop_that_is_gone_is_passed_over() -> None:
    turns = Turns()
    first = turns.waited(None)
    loop = asyncio.new_event_loop()
    turns.asked(lambda: loop.call_soon_threadsafe(nothing) and None)
    loop.close()
    come = list[int]()
    turns.asked(lambda: come.append(1))
    first.give_back()
    assert come == [1]


def test_threads_and_a_loop_take_turns() -> None:
    turns, order = Turns(), list[str]()
    first = turns.waited(None)

    def plain() -> None:
        turn = turns.waited(30)
        order.append("thread")
        turn.give_back()

    async def main() -> None:
        thread = threading.Thread(target=plain)
        thread.start()
        while not turns._queue:  # noqa: ASYNC110 -- a thread fills it, without telling
            await asyncio.sleep(0.001)
        task = asyncio.create_task(_waited(turns, 30))
        await asyncio.sleep(0)
        first.give_back()
        turn = await task
        order.append("loop")
        turn.give_back()
        thread.join()

    asyncio.run(main())
    assert order == ["thread", "loop"]
