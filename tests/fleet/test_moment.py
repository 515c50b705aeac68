"""An agent of a fleet is a chat client: instructions and tools of the moment go along."""

from __future__ import annotations

import asyncio
from typing import Any

from dragoman import RunContext, tool
from dragoman.engines import AsyncScriptedEngine
from dragoman.fleet import Agent
from dragoman.loop import LoopHooks
from dragoman.stores import AsyncStore, SqliteStore


@tool
def look() -> str:
    """Look."""
    return "seen"


def test_a_turn_asks_the_functions(tmp_path: Any) -> None:
    def name(run: RunContext[Any]) -> str:
        return f"You are {run.model}."

    async def turn() -> None:
        model = AsyncScriptedEngine(["Hi."])
        agent = Agent(model, lambda _: [look], system=["Be brief.", name])
        with SqliteStore(tmp_path / "talks.db") as plain:
            store = AsyncStore(plain)
            client = agent.make_client("0190b0a0-0000-7000-8000-000000000000", store, LoopHooks())
            await client.chat("Hello")
            await client.aclose()
            await agent.aclose()
            store._threads.shutdown()
        (call,) = model.calls
        assert call.conversation.system == "Be brief.\n\nYou are scripted:model."
        assert [spec.name for spec in call.tools] == ["look"]

    asyncio.run(turn())
