"""Workers on Temporal send the instructions that their agents have now; the table is in tests/instructions.py."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

import pytest

from dragoman.conversation import Message, ToolCall
from dragoman.engines import AsyncScriptedEngine
from dragoman.temporal import Agent, TemporalConversation
from dragoman.tools import tool
from tests import instructions
from tests.instructions import Sent, exercised_here
from tests.loops import on_loop
from tests.temporal.server import TemporalServer
from tests.temporal.world import working

ROADS: dict[str, Message | str] = {
    "Temporal": "Fine.",
    "Temporal, approved": Message.assistant(ToolCall("c1", "act", '{"x": 1}')),
}
"""What the model says in the first turn."""


@tool(requires_approval=True)
def act(x: int) -> str:
    """Act."""
    return f"done {x}"


@pytest.mark.parametrize("road", exercised_here(__name__, ROADS))
@on_loop
async def test_what_is_sent(road: str, server: TemporalServer) -> None:
    """An older worker begins each conversation, and a newer one continues it; the workflow learns what was sent."""
    cells, queue = instructions.cells(road), f"q-{uuid4().hex[:8]}"
    ids = {cell: f"{queue}-{cell.kind}-{cell.own}" for cell in cells}
    engines = {cell: AsyncScriptedEngine(["Fine."]) for cell in cells}
    older = {ids[cell]: Agent(AsyncScriptedEngine([ROADS[road]]), [act], **cell.before) for cell in cells}
    newer = {ids[cell]: Agent(engines[cell], [act], **cell.options) for cell in cells}
    brief = {"queue": queue, "sticky_queue_schedule_to_start_timeout": timedelta(seconds=1)}

    async with asyncio.timeout(120):
        async with working(server.address, older, **brief) as client:
            for id in ids.values():
                talk = await TemporalConversation.start(client, agent=id, id=id, task_queue=queue)
                await talk.say("Begin.")
        async with working(server.address, newer, **brief) as client:
            kept = {}
            for cell, id in ids.items():
                talk = TemporalConversation(client, id)
                pending = await talk.pending()
                outcome = await (talk.approve(*pending) if pending else talk.say("x"))
                assert outcome.text == "Fine."
                kept[cell] = (await talk.conversation()).system
                await talk.close()

    assert {cell: Sent(engines[cell].calls[-1].conversation.system, kept[cell]) for cell in cells} == cells
