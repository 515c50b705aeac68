"""pydantic-ai's own integration with Temporal, as its documentation shows it: a worker for bench/temporal.py.

Runs in the environment `pydantic-ai-temporal`, and so imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import os
import signal

from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow, TemporalDurability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

provider = OpenAIProvider(base_url=os.environ.get("BENCH_BASE_URL", "http://127.0.0.1:9/v1"), api_key="k")
agent = Agent(OpenAIChatModel("any", provider=provider), name="bench", capabilities=[TemporalDurability()])


@agent.tool_plain
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@workflow.defn
class Asked(PydanticAIWorkflow):
    __pydantic_ai_agents__ = [agent]  # noqa: RUF012 -- the list is read by name

    @workflow.run
    async def run(self, prompt: str) -> str:
        return (await agent.run(prompt)).output


async def work(address: str, queue: str) -> None:
    client = await Client.connect(address, plugins=[PydanticAIPlugin()])
    done = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
    async with Worker(client, task_queue=queue, workflows=[Asked], max_concurrent_activities=200):
        print("ready", flush=True)
        await done.wait()
