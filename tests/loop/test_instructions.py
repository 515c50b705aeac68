"""The instructions of an orchestrator are sent; the table is in tests/instructions.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.conversation import Message
from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from dragoman.loop import AsyncOrchestrator, Orchestrator
from tests import instructions
from tests.instructions import Cell, Road, Sent, exercised_here


def _orchestrator(cell: Cell) -> Sent:
    engine = ScriptedEngine(["Fine.", "Fine."])
    with Orchestrator(engine, **cell.options) as loop:
        result = loop.run(cell.conversation.plus(Message.user("x")))
        again = loop.run(result.conversation.plus(Message.user("y")))
    first, second = [each.conversation.system for each in engine.calls]
    assert first == second
    assert again.conversation.system == result.conversation.system
    return Sent(first, result.conversation.system)


def _durable(cell: Cell) -> Sent:
    kept: dict[str, str] = {}

    async def step(key: str, function: Any) -> str:
        if key not in kept:
            kept[key] = await function()
        return kept[key]

    async def run() -> Sent:
        engine = AsyncScriptedEngine(["Fine."])
        asked = cell.conversation.plus(Message.user("x"))
        async with AsyncOrchestrator(engine, **cell.options) as loop:
            first, replayed = [await loop.run(asked, step=step) for _ in range(2)]
        assert replayed.conversation == first.conversation
        return Sent(engine.calls[-1].conversation.system, first.conversation.system)

    return asyncio.run(run())


ROADS: dict[str, Road] = {"an orchestrator": _orchestrator, "a durable run": _durable}


@pytest.mark.parametrize("road", exercised_here(__name__, ROADS))
def test_what_is_sent(road: str) -> None:
    instructions.check(road, ROADS[road])
