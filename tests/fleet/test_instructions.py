"""Workers send the instructions that their agents have now; the table is in tests/instructions.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dragoman import tool
from dragoman.chat import handoff
from dragoman.conversation import Message, ToolCall
from dragoman.engines import AsyncScriptedEngine
from dragoman.fleet import Agent, AsyncFleet, Fleet, Worker
from dragoman.stores import PostgresStore
from tests import instructions
from tests.fleet.waiting import at_work, offered
from tests.instructions import Cell, Sent, exercised_here
from tests.loops import on_loop
from tests.stores.postgres_server import Server

pytestmark = pytest.mark.slow

ROADS: dict[str, list[Message | str]] = {
    "a fleet": ["Fine."],
    "a fleet, approved": [Message.assistant(ToolCall("c1", "act", '{"x": 1}'))],
    "a fleet, handed over": [Message.assistant(ToolCall("h1", "desk", "{}")), "Fine."],
}
"""What the model says in the first turn."""


@tool(requires_approval=True)
def act(x: int) -> str:
    """Act."""
    return f"done {x}"


def agent(road: str, engine: AsyncScriptedEngine, options: dict[str, Any]) -> Agent:
    """An agent with these options, or one that hands over to such an agent."""
    if "handed over" not in road:
        return Agent(engine, [act], **options)
    return Agent(engine, [handoff("desk", "Takes over.", **options)], system="FRONT")


@pytest.mark.parametrize("road", exercised_here(__name__, ROADS))
@on_loop
async def test_what_is_sent(road: str, server: Server, schema: str) -> None:
    """An older worker begins each conversation, and a newer one continues it."""
    with Fleet(server.conninfo, schema=schema) as fleet:
        fleet.install()
    cells = instructions.cells(road)
    names = {cell: f"{cell.kind}-{cell.own}" for cell in cells}
    engines = {cell: AsyncScriptedEngine(["Fine."]) for cell in cells}

    def worker(made: Callable[[Cell], Agent]) -> Worker:
        agents = {names[cell]: made(cell) for cell in cells}
        return Worker(server.conninfo, agents, schema=schema, lease=5.0, concurrency=4)

    turns: dict[Cell, Any] = {}
    async with AsyncFleet(server.conninfo, schema=schema) as fleet:
        async with at_work(worker(lambda cell: agent(road, AsyncScriptedEngine(ROADS[road]), cell.before))):
            await offered(fleet, len(cells))
            for cell in cells:
                turns[cell] = await fleet.submit("Begin.", agent=names[cell])
            pending = {cell: (await fleet.wait(turn, 30)).pending for cell, turn in turns.items()}
        async with at_work(worker(lambda cell: agent(road, engines[cell], cell.options))):
            for cell, turn in turns.items():
                if pending[cell]:
                    turns[cell] = await fleet.approve(turn)
                else:
                    turns[cell] = await fleet.submit("x", agent=names[cell], conversation=turn.conversation)
            for turn in turns.values():
                assert (await fleet.wait(turn, 30)).text == "Fine."

    with PostgresStore(server.conninfo, schema=schema) as store:
        found = {
            cell: Sent(engines[cell].calls[-1].conversation.system, store.latest(turn.conversation).system_prompt)
            for cell, turn in turns.items()
        }
    assert found == cells
