"""Workflows that an earlier version of ours began are carried on: recorded histories are replayed.

    python -m tests.temporal.test_replay        records one anew, where a change cannot be replayed on purpose

A change to workflow.py or turns.py that fails here would break conversations under way: give it another way with
`workflow.patched`, as docs/fleet.md says, and record a further history beside the old ones.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from dragoman.errors import AuthenticationError
from dragoman.loop import Limits
from dragoman.simulator import Reply, Request, Simulator, Status
from dragoman.temporal import DragomanPlugin, TemporalConversation
from tests.temporal.server import TemporalServer
from tests.temporal.world import ROOT, agents, answer, traces_in, until, working

HISTORIES = Path(__file__).parent / "histories"


@pytest.mark.parametrize("history", sorted(HISTORIES.glob("*.json")), ids=lambda path: path.stem)
def test_a_recorded_history_is_replayed(history: Path) -> None:
    asyncio.run(replay(history.read_text()))


def test_a_replay_can_fail() -> None:
    history = next(HISTORIES.glob("*.json")).read_text()
    with pytest.raises(NondeterminismError):
        asyncio.run(replay(history.replace('"dragoman.tool"', '"dragoman.other"')))


async def replay(history: str) -> None:
    with ThreadPoolExecutor(1) as threads:
        replayer = Replayer(workflows=[], plugins=[DragomanPlugin()], workflow_task_executor=threads)
        await replayer.replay_workflow(WorkflowHistory.from_json("talk", history))


# --- recording --------------------------------------------------------------------------------------------------------


def script(request: Request) -> Reply | str:
    return Reply("", faults=[Status(401)]) if request.last_user_text == "fail" else answer(request)


async def record(address: str, base_url: str, traces: Path) -> str:
    """A conversation in which everything happens that leaves a trace in a history."""
    async with working(address, agents(base_url, traces)) as client:
        talk = await TemporalConversation.start(client, agent="clerk", id="talk", limits=Limits(seconds=600))
        await talk.say("work w")
        waits = await talk.say("pay p")
        await talk.add("meanwhile")
        await talk.approve(*waits.pending)
        with pytest.raises(AuthenticationError):
            await talk.say("fail")
        turn = asyncio.create_task(talk.say("slow s"))
        await until(lambda: any("slow" in line for line in traces_in(traces)))
        await talk.add("hurry")
        await talk.cancel()
        await turn
        await talk.say("goodbye")
        await talk.close()
        history = (await talk.handle.fetch_history()).to_json()
    # One line for each event, and nothing of the machine.
    history = history.replace(str(ROOT), "").replace(f"{os.getpid()}@{socket.gethostname()}", "recorder")
    events = [json.dumps(event, separators=(",", ":")) for event in json.loads(history)["events"]]
    return '{"events":[\n' + ",\n".join(events) + "\n]}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place, TemporalServer(Path(place)) as started, Simulator(script) as simulator:
        recorded = asyncio.run(record(started.address, simulator.base_url("openai"), Path(place) / "traces"))
    HISTORIES.mkdir(exist_ok=True)
    (HISTORIES / f"{len(list(HISTORIES.glob('*'))) + 1:02}.json").write_text(recorded + "\n")
