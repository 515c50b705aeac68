"""Has anything become several times slower? `python bench/regression.py` measures dragoman as a multiple of the floor.

Both take turns in one process, and the limits are about twice what is usual, so that noise alone does not fail; a step
of work done twice, or a cache that no longer works, does. tests/bench/test_regression.py runs this in a process of its
own, because measuring coverage makes the one slower and not the other. How quick it really is, bench/run.py tells.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.contenders import dragoman as ours, floor
from bench.server import serving

ROUNDS = 9
ATTEMPTS = 4
"""A limit must be passed every time: what disturbs a machine for a moment is not a regression."""

Prepare = Callable[[Any], Callable[[], Any]]


class Guarded(NamedTuple):
    prepare: Prepare
    times: int
    plain: float
    """The limits."""
    on_loop: float
    prefix: str = ""


OPERATIONS = {
    "turn": Guarded(lambda client: client.turn, 60, 16, 10),
    "tool loop": Guarded(lambda client: client.tool_loop, 30, 20, 16, "/tools"),
    "streamed chunk": Guarded(lambda client: client.stream, 1, 9, 9),
    "turn on 1,000 messages": Guarded(lambda client: client.history(1_000), 10, 6, 6),
}


def _plain(work: Callable[[], object], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        work()
    return time.process_time() - start


async def _on_loop(work: Callable[[], Awaitable[object]], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        await work()
    return time.process_time() - start


def plain_ratio(root: str, prepare: Prepare, times: int) -> float:
    with closing(floor.Plain(root, "openai_chat")) as bare, closing(ours.Plain(root, "openai_chat")) as client:
        least, mine = prepare(bare), prepare(client)
        mine()
        return statistics.median(_plain(mine, times) / _plain(least, times) for _ in range(ROUNDS))


async def async_ratio(root: str, prepare: Prepare, times: int) -> float:
    async with (
        aclosing(floor.OnLoop(root, "openai_chat")) as bare,
        aclosing(ours.OnLoop(root, "openai_chat")) as client,
    ):
        least, mine = prepare(bare), prepare(client)
        await mine()
        return statistics.median([await _on_loop(mine, times) / await _on_loop(least, times) for _ in range(ROUNDS)])


def least_of(attempt: Callable[[], float], limit: float) -> float:
    """The least of a few attempts; the first within the limit will do."""
    found = float("inf")
    for _ in range(ATTEMPTS):
        found = min(found, attempt())
        if found <= limit:
            break
    return found


def main() -> int:
    failed = False
    with serving() as port:
        for name, guarded in OPERATIONS.items():
            root = f"http://127.0.0.1:{port}{guarded.prefix}"
            measured: dict[str, tuple[Callable[[], float], float]] = {
                "plain": (lambda g=guarded, r=root: plain_ratio(r, g.prepare, g.times), guarded.plain),
                "async": (lambda g=guarded, r=root: asyncio.run(async_ratio(r, g.prepare, g.times)), guarded.on_loop),
            }
            for colour, (attempt, limit) in measured.items():
                found = least_of(attempt, limit)
                failed |= found > limit
                verdict = "" if found <= limit else "   TOO SLOW"
                print(f"{name + ', ' + colour:<32}{found:6.1f} × the floor (at most {limit:g}){verdict}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
