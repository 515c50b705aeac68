"""Several pieces of work at once, in either colour: requests of which one alone would take too long or hold too much.

Must not know: what is done.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeAlias, TypeVar

from dragoman._stepping import step
from dragoman._stop import Stop, current_stop, stopping
from dragoman.tools import AsyncRunner, Job, Runner, WorkerThreads

T = TypeVar("T")

Work: TypeAlias = Callable[[], Coroutine[Any, Any, T]]


async def together(work: Iterable[Work[T]], most: int, *, blocking: bool) -> AsyncGenerator[T, None]:
    """Do all of it, so many at once, and give each result as soon as it is there.

    In a plain program each runs in a worker thread, on an event loop as a task. After the first that fails no further
    one is begun; those under way are finished and their results given, then its error is raised. Whoever closes this
    generator, or is stopped while it waits, ends what is under way at once.
    """
    threads = WorkerThreads()
    runner = Runner(threads) if blocking else AsyncRunner(threads)
    outer, stop = current_stop(), Stop()
    under_way: list[Job] = []
    waiting, failure = iter(work), None
    try:
        with nullcontext() if outer is None else outer.waking(runner.wake):
            while True:
                while failure is None and len(under_way) < most and (begin := next(waiting, None)) is not None:
                    with stopping(stop):  # each has a copy of the context
                        under_way.append(_start(runner, begin, blocking=blocking))
                if not under_way:
                    break
                await runner.wait(None if outer is None else outer.deadline)
                if outer is not None:
                    outer.check()
                over = {job: job.ended for job in under_way if job.ended is not None}  # others may end meanwhile
                under_way = [job for job in under_way if job not in over]
                for value, error, _ in over.values():
                    if error is None:
                        yield value
                    failure = failure or error
        if failure is not None:
            raise failure
    finally:
        stop.cancel()
        for job in under_way:
            runner.give_up(job)
        threads.close()
        await runner.close()


def _start(runner: Runner, begin: Work[Any], *, blocking: bool) -> Job:
    if blocking:
        return runner.start(partial(_step, begin), is_async=False, is_limited=True)
    return runner.start(begin, is_async=True, is_limited=True)


def _step(begin: Work[T]) -> T:
    return step(begin())
