"""Workers are killed at random moments while conversations are under way; then every trace is judged.

    python -m tests.temporal.kills 200          so many kills, with a line for every 20
    python -m tests.temporal.kills server 50    the server is killed in the middle of so many conversations

Two workers, one of which is killed at any time. A person answers calls that wait because nobody knows whether they did
their work: what has left a trace is not run again, what has left none is.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from temporalio.client import Client

from dragoman.errors import StoreConflictError, StoreUnavailableError
from dragoman.loop import UNCERTAIN
from dragoman.simulator import Simulator
from dragoman.temporal import DragomanPlugin, TemporalConversation
from dragoman.tools import Approval, approve, deny
from tests.temporal.server import TemporalServer
from tests.temporal.world import answer, traces_in, until, worker_process

T = TypeVar("T")

AT_ONCE = 4
PATIENCE = 120.0
"""Seconds after which a conversation counts as stuck."""


@dataclass
class Found:
    kills: int = 0
    conversations: int = 0
    uncertain: int = 0
    begun: int = 0
    """Of these, the calls that had left a trace."""
    longest: float = 0.0
    wrong: list[str] = field(default_factory=list)


async def insist(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until the server is there again."""
    while True:
        try:
            return await ask()
        except StoreUnavailableError:
            await asyncio.sleep(0.2)


async def converse(client: Client, queue: str, name: str, traces: Path, found: Found) -> None:
    """One conversation, with a person at hand, judged at its end."""
    began, turns = time.monotonic(), iter(range(100))
    with suppress(StoreConflictError):  # the server has heard it, and could not say so
        await insist(lambda: TemporalConversation.start(client, agent="clerk", id=name, task_queue=queue))
    talk = TemporalConversation(client, name)
    outcome = await insist(lambda: talk.say(f"work {name}", key="said"))
    denied: set[str] = set()
    while outcome.pending:
        answers: list[Approval] = []
        for waits in outcome.pending:
            if waits.reason != UNCERTAIN:
                found.wrong.append(f"{name}: {waits}")
            found.uncertain += 1
            if traces_in(traces)[f"begin {waits.call.id}"]:
                found.begun += 1
                denied.add(waits.call.id)
                answers.append(deny(waits.call, reason="it was done"))
            else:
                answers.append(approve(waits.call))
        key = f"answer {next(turns)}"
        outcome = await insist(lambda: talk.resume(*answers, key=key))  # noqa: B023 -- called at once
    conversation = await insist(talk.conversation)
    results = {each.call_id: each for message in conversation.messages for each in message.tool_results}
    seen = traces_in(traces)
    for step in "ab":
        call, result = f"{name}-{step}", results.get(f"{name}-{step}")
        if seen[f"begin {call}"] != 1:
            found.wrong.append(f"{call} began {seen[f'begin {call}']} times")
        if result is None or (call not in denied and (result.text != f"charged {call}" or seen[f"end {call}"] != 1)):
            found.wrong.append(f"{call} ended {seen[f'end {call}']} times: {result and result.text}")
    if not outcome.text.startswith(f"Finished {name}: ") or results[f"{name}-c"].text != "nothing there":
        found.wrong.append(f"{name} ended with {outcome.text!r}")
    if conversation.problems:
        found.wrong.append(f"{name}: {conversation.problems}")
    found.conversations += 1
    found.longest = max(found.longest, time.monotonic() - began)


async def restart_server(
    server: TemporalServer, base_url: str, directory: Path, conversations: int, away: float
) -> Found:
    """Kill the server in the middle of so many conversations, and start it again after some seconds."""
    found, queue, traces = Found(), "restarts", directory / "traces"
    with worker_process(server.address, queue, base_url, traces):
        client = await Client.connect(server.address, plugins=[DragomanPlugin()])
        talks = [converse(client, queue, f"r{number}", traces, found) for number in range(conversations)]
        under_way = asyncio.gather(*[asyncio.wait_for(talk, PATIENCE) for talk in talks])
        await until(lambda: len(traces_in(traces)) >= conversations)
        await asyncio.to_thread(server.stop, kill=True)
        await asyncio.sleep(away)
        await asyncio.to_thread(server.start)
        await under_way
    return found


async def kill_workers(address: str, base_url: str, directory: Path, kills: int, seed: int) -> Found:
    """Kill so many workers while conversations go on, and let those end that are under way."""
    draw, found, queue, traces = random.Random(seed), Found(), f"kills-{seed}", directory / f"traces-{seed}"
    client = await Client.connect(address, plugins=[DragomanPlugin()])
    workers = [ExitStack(), ExitStack()]
    for each in workers:
        each.enter_context(worker_process(address, queue, base_url, traces))
    over, number = asyncio.Event(), iter(range(1_000_000))

    async def talker() -> None:
        while not over.is_set():
            name = f"t{seed}n{next(number)}"
            try:
                await asyncio.wait_for(converse(client, queue, name, traces, found), PATIENCE)
            except TimeoutError:
                found.wrong.append(f"{name} is stuck")

    talkers = [asyncio.create_task(talker()) for _ in range(AT_ONCE)]
    try:
        while found.kills < kills:
            await asyncio.sleep(draw.uniform(0.0, 1.0))
            victim = workers[draw.randrange(2)]
            await asyncio.to_thread(victim.close)
            found.kills += 1
            await asyncio.to_thread(victim.enter_context, worker_process(address, queue, base_url, traces))
            if found.kills % 20 == 0:
                print(found, flush=True)  # noqa: T201 -- the command's progress
        over.set()
        await asyncio.gather(*talkers)
    finally:
        for each in talkers:
            each.cancel()
        for each in workers:
            each.close()
    return found


def main() -> int:
    count = int(sys.argv[-1]) if sys.argv[1:] else 200
    with tempfile.TemporaryDirectory() as place, TemporalServer(Path(place)) as server, Simulator(answer) as simulator:
        base_url, seed = simulator.base_url("openai"), random.randrange(10_000)
        if sys.argv[1:2] == ["server"]:
            found = asyncio.run(restart_server(server, base_url, Path(place), count, away=3.0))
        else:
            found = asyncio.run(kill_workers(server.address, base_url, Path(place), count, seed))
    print(found)  # noqa: T201 -- the command's result
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
