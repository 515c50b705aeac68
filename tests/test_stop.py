"""Stop: ends work under way, in both colours."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from dragoman._stop import Stop, current_stop, sleep, stoppable, stopping
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
