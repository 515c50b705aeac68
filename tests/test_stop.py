"""Stop: ends work under way, in both colours."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from statistics import mean

import pytest

from dragoman._stop import Stop, chance, current_stop, sleep, stoppable, stopping
from dragoman.errors import StoppedError


def test_a_stop_wakes_whoever_waits_and_then_lets_nobody_wait() -> None:
    stop, woken = Stop(), []
    with stop.waking(lambda: woken.append(1)):
        stop.cancel()
        stop.cancel()
    assert woken == [1]
    with stop.waking(lambda: woken.append(2)):
        pass
    assert woken == [1, 2]
    assert not stop.wakers
    with pytest.raises(StoppedError) as caught:
        stop.left(1.0)
    assert caught.value.reason == "cancelled"


def test_what_is_left_is_the_nearer_of_limit_and_deadline() -> None:
    assert Stop().left() is None
    assert Stop().left(3.0) == 3.0
    stop = Stop(deadline=time.monotonic() + 50)
    assert stop.left(3.0) == 3.0
    assert 0 < (stop.left() or 0) <= 50
    with pytest.raises(StoppedError) as caught:
        Stop(deadline=time.monotonic()).left()
    assert caught.value.reason == "deadline"


def test_the_current_stop_is_that_of_the_innermost_block() -> None:
    outer, inner = Stop(), Stop()
    assert current_stop() is None
    with stopping(outer):
        with stopping(inner):
            assert current_stop() is inner
        assert current_stop() is outer
    assert current_stop() is None


def test_a_sleep_ends_when_it_is_stopped() -> None:
    sleep(0.001)
    stop = Stop()
    threading.Timer(0.05, stop.cancel).start()
    with stopping(stop), pytest.raises(StoppedError):
        sleep(60)
    with stopping(Stop(deadline=time.monotonic() + 0.05)), pytest.raises(StoppedError):
        sleep(60)


def test_an_await_ends_when_it_is_stopped_from_another_thread() -> None:
    async def main() -> None:
        stop = Stop()
        threading.Timer(0.05, stop.cancel).start()
        with pytest.raises(StoppedError):
            await stoppable(asyncio.sleep(60), stop)
        with pytest.raises(StoppedError):
            await stoppable(asyncio.sleep(60), stop)  # and nothing is left unawaited
        with pytest.raises(StoppedError):
            await stoppable(asyncio.sleep(60), Stop(deadline=time.monotonic() + 0.05))
        assert await stoppable(asyncio.sleep(0, "fine"), Stop()) == "fine"
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)  # no cancellation comes late

    asyncio.run(main())


def test_a_task_that_somebody_else_cancels_too_is_cancelled() -> None:
    async def main() -> None:
        stop = Stop()
        task = asyncio.create_task(stoppable(asyncio.sleep(60), stop))
        await asyncio.sleep(0.01)
        stop.cancel()
        task.cancel()
        with pytest.raises((asyncio.CancelledError, StoppedError)):
            await task

    asyncio.run(main())


def test_chance_is_spread_over_all_of_its_range() -> None:
    found = [chance() for _ in range(2_000)]
    assert all(0 <= each < 1 for each in found)
    assert len(set(found)) > 1_990
    assert 0.4 < mean(found) < 0.6
    assert min(found) < 0.05
    assert max(found) > 0.95


@pytest.mark.parametrize(("bits", "expected"), [(b"\x00" * 7, 0.0), (b"\xff" * 7, 1 - 2**-53)])
def test_the_ends_of_the_range_of_chance(bits: bytes, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda _: bits)
    assert chance() == expected < 1
