"""Workers that are killed at random moments while conversations go on.

    python -m tests.fleet.kills 200

Every conversation must end with the right answer, every payment must have been made exactly once, and a call that had
begun when its worker died must come before a person, who looks into the book and says what is to be done.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import msgspec

from dragoman.fleet import AsyncFleet
from dragoman.simulator import Simulator
from dragoman.tools import approve, deny
from tests.fleet.program import CALLS, Setup, ended, script, worker_program
from tests.stores.postgres_server import fresh_server

WORKERS = 3
TALKS = 10
STUCK = 60.0
"""Seconds after which a turn that has not ended is called stuck."""


class Result(msgspec.Struct):
    kills: int = 0
    conversations: int = 0
    uncertain: int = 0
    repeated: int = 0
    """Calls that were begun more than once: those that may be, and those that a person let run again."""


async def talk(fleet: AsyncFleet, number: int, book: Path, result: Result) -> None:
    """One conversation to its end."""
    turn = await fleet.submit(str(number), agent="teller")
    while True:
        outcome = await fleet.wait(turn, STUCK)
        if outcome.ending == "done":
            break
        assert outcome.ending == "await_approval", outcome
        answers = []
        for each in outcome.pending:
            assert each.call.name == "pay", "what may be repeated needs nobody's word"
            assert "it had begun" in each.reason
            result.uncertain += 1
            await asyncio.sleep(1.0)  # whoever finds out takes a while; what was merely slow is done by then
            done = each.call.id in ended(book)
            answers.append(deny(each.call, reason="It was paid.") if done else approve(each.call))
        turn = await fleet.resume(turn, *answers)
    assert outcome.text == f"{number}: {len(CALLS)} results", outcome.text
    result.conversations += 1


async def kill_many(setup: Setup, kills: int, *, seed: int = 0, every: int = 0) -> Result:
    """So many kills, while ten conversations at a time go on."""
    draw, result, numbers, book = random.Random(seed), Result(), count(1), Path(setup.book)
    is_over = False

    async with AsyncFleet(setup.url, schema=setup.schema) as fleet:
        with ExitStack() as stack:
            slots = [ExitStack() for _ in range(WORKERS)]
            for slot in slots:
                stack.callback(slot.close)
                slot.enter_context(worker_program(setup))

            async def chatter() -> None:
                while not is_over:
                    await talk(fleet, next(numbers), book, result)

            talks = [asyncio.create_task(chatter()) for _ in range(TALKS)]
            while result.kills < kills:
                await asyncio.sleep(draw.random() * 0.25)
                slot = slots[draw.randrange(WORKERS)]
                await asyncio.to_thread(slot.close)  # which kills the worker
                result.kills += 1
                await asyncio.to_thread(slot.enter_context, worker_program(setup))
                for each in talks:
                    if each.done():
                        each.result()
                if every and result.kills % every == 0:
                    sys.stdout.write(f"{result}\n")
                    sys.stdout.flush()
            is_over = True
            await asyncio.gather(*talks)
    check(result, next(numbers) - 1, book)
    return result


def check(result: Result, numbers: int, book: Path) -> None:
    """The book says what it should: each payment once, and nothing that nobody asked for."""
    assert result.conversations == numbers
    done = ended(book)
    expected = [f"{number}-{at}" for number in range(1, numbers + 1) for at in range(len(CALLS))]
    assert set(done) == set(expected), f"not as it should be: {sorted(set(done) ^ set(expected))}"
    paid = [call for call in done if CALLS[int(call.partition("-")[2])] == "pay"]
    assert len(paid) == len(set(paid)), f"paid twice: {[call for call in set(paid) if paid.count(call) > 1]}"
    begun = [line for line in book.read_text().splitlines() if line.startswith("begin ")]
    result.repeated = len(begun) - len(set(begun))


def main(kills: int) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory, fresh_server() as server, Simulator(script) as simulator:
        setup = Setup(
            url=server.conninfo,
            schema="kills",
            base_url=simulator.base_url("openai"),
            book=str(Path(directory) / "book"),
        )
        result = asyncio.run(kill_many(setup, kills, seed=int(time.time()), every=20))
    sys.stdout.write(f"{result} in {time.monotonic() - began:.0f} seconds: nothing was lost, repeated or stuck\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
