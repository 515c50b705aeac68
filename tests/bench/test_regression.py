"""Nothing has become several times slower: what dragoman costs, as a multiple of the floor, in the same run.

A noisy machine slows both alike, and the limits are about twice what is usual, so that noise alone does not fail here; a
step of work done twice, or a cache that no longer works, does. How quick it really is, bench/run.py tells.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, closing
from typing import Any

import pytest

from bench.contenders import dragoman as ours
from bench.contenders import floor
from bench.server import serving

ROUNDS = 9
ATTEMPTS = 3
"""A limit must be passed every time: what disturbs a machine for a moment is not a regression."""

Work = Callable[[Any], Callable[[], Any]]

OPERATIONS: dict[str, tuple[str, Work, int]] = {
    "turn": ("", lambda client: client.turn, 60),
    "tool loop": ("/tools", lambda client: client.tool_loop, 30),
    "stream": ("", lambda client: client.stream, 1),
    "history of 1,000": ("", lambda client: client.history(1_000), 10),
}
LIMITS = {
    ("turn", "plain"): 16,
    ("turn", "async"): 10,
    ("tool loop", "plain"): 20,
    ("tool loop", "async"): 16,
    ("stream", "plain"): 9,
    ("stream", "async"): 9,
    ("history of 1,000", "plain"): 12,
    ("history of 1,000", "async"): 12,
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


def _plain_ratio(root: str, prepare: Work, times: int) -> float:
    with closing(floor.Plain(root, "openai_chat")) as bare, closing(ours.Plain(root, "openai_chat")) as client:
        least, mine = prepare(bare), prepare(client)
        mine()
        return statistics.median(_plain(mine, times) / _plain(least, times) for _ in range(ROUNDS))


async def _async_ratio(root: str, prepare: Work, times: int) -> float:
    async with (
        aclosing(floor.OnLoop(root, "openai_chat")) as bare,
        aclosing(ours.OnLoop(root, "openai_chat")) as client,
    ):
        least, mine = prepare(bare), prepare(client)
        await mine()
        return statistics.median([await _on_loop(mine, times) / await _on_loop(least, times) for _ in range(ROUNDS)])


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("colour", ["plain", "async"])
def test_no_operation_is_far_slower_than_it_was(operation: str, colour: str) -> None:
    prefix, prepare, times = OPERATIONS[operation]
    found: list[float] = []
    with serving() as port:
        root = f"http://127.0.0.1:{port}{prefix}"
        for _ in range(ATTEMPTS):
            if colour == "plain":
                found.append(_plain_ratio(root, prepare, times))
            else:
                found.append(asyncio.run(_async_ratio(root, prepare, times)))
            if found[-1] <= LIMITS[operation, colour]:
                return
    pytest.fail(f"{operation}, {colour}: {min(found):.1f} times the floor, {LIMITS[operation, colour]} at most")
