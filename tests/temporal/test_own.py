"""Workflows of one's own, made of `run_turn` and `begin_turn`, in the sandbox and on a cache that forgets at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import CancelledError

from dragoman.conversation import Message, ToolCall
from dragoman.engines import AsyncScriptedEngine
from dragoman.errors import ConfigurationError
from dragoman.simulator import Request, Simulator
from dragoman.temporal import Agent
from dragoman.tools import approve, tool
from tests.loops import on_loop
from tests.temporal.own import Approved, Reviewed
from tests.temporal.server import TemporalServer
from tests.temporal.world import agents, answer, traces_in, until, working


def agent(*said: Message | str, **options: object) -> Agent:
    return Agent(AsyncScriptedEngine(list(said)), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("cached", [0, 100])  # 0: every step is a replay
@on_loop
async def test_two_agents(server: TemporalServer, cached: int) -> None:
    given = {"writer": agent("draft", "better"), "reviewer": agent("shorter, please", "good")}
    queue = uuid4().hex
    options = {"queue": queue, "workflows": [Reviewed], "max_cached_workflows": cached}
    async with working(server.address, given, **options) as client:
        talk = await client.execute_workflow(Reviewed.run, "Write.", id=uuid4().hex, task_queue=queue)
    assert [message.text for message in talk.messages] == ["Write.", "draft", "shorter, please", "better"]


@on_loop
async def test_approvals_by_signal(server: TemporalServer) -> None:
    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    calls = [ToolCall("1", "pay", '{"amount": 1}'), ToolCall("2", "pay", '{"amount": 2}')]

    given = {"writer": agent(Message.assistant(*calls), "Both.", tools=[pay])}
    queue = uuid4().hex
    options = {"queue": queue, "workflows": [Approved], "max_cached_workflows": 0}
    async with working(server.address, given, **options) as client:
        handle = await client.start_workflow(Approved.run, Message.user("Pay."), id=uuid4().hex, task_queue=queue)
        while not (pending := await handle.query(Approved.pending)):  # noqa: ASYNC110 -- the server sets no events
            await asyncio.sleep(0.05)
        assert [each.call for each in pending] == calls
        assert await handle.query(Approved.first) == pending[0]
        for each in pending:
            await handle.signal(Approved.answer, approve(each.call))
        talk = await handle.result()
    assert [result.text for result in talk.messages[2].tool_results] == ["paid 1", "paid 2"]
    assert talk.text == "Both."


@on_loop
async def test_an_error_of_ours_ends_a_workflow_with_its_type(server: TemporalServer) -> None:
    queue = uuid4().hex
    async with working(server.address, {}, queue=queue, workflows=[Reviewed]) as client:
        with pytest.raises(WorkflowFailureError) as failed:
            await client.execute_workflow(Reviewed.run, "Write.", id=uuid4().hex, task_queue=queue)
    assert isinstance(failed.value.cause, ConfigurationError)
    assert "no agent 'writer'" in str(failed.value.cause)


@pytest.mark.parametrize("waits_for", ["model", "tool"])
def test_a_workflow_that_is_cancelled_in_a_turn_ends_so(server: TemporalServer, traces: Path, waits_for: str) -> None:
    async def think(_: Request) -> str:
        await asyncio.sleep(20)
        return "thought"

    script = think if waits_for == "model" else answer

    async def tell(simulator: Simulator) -> None:
        queue = uuid4().hex
        given = {"writer": agents(simulator.base_url("openai"), traces)["clerk"]}
        async with working(server.address, given, queue=queue, workflows=[Reviewed]) as client:
            handle = await client.start_workflow(Reviewed.run, "slow s", id=uuid4().hex, task_queue=queue)
            await until(lambda: simulator.requests if waits_for == "model" else traces_in(traces))
            await handle.cancel()
            with pytest.raises(WorkflowFailureError) as failed:
                await asyncio.wait_for(handle.result(), 30)
        assert isinstance(failed.value.cause, CancelledError)

    with Simulator(script) as simulator:
        asyncio.run(tell(simulator))
