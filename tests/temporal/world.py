"""What the tests of Temporal share: a provider that follows the conversation, tools that leave traces, workers."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from dragoman.conversation import ToolCall
from dragoman.simulator import Reply, Request
from dragoman.stores import AesGcmSealing
from dragoman.temporal import Agent, DragomanPlugin
from dragoman.tools import AnyTool, ToolContext, tool
from tests.forking import forked

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-planted-0123456789abcdef"


def answer(request: Request) -> Reply | str:
    """Two charges and a look, and what the tools said; `pay` asks a person, `slow` takes its time."""
    messages: Any = request.body["messages"]
    said, results = request.last_user_text, () if messages[-1]["role"] == "user" else request.tool_results
    # The ids tell the conversation and the step, so that traces can be told apart.
    name, step = said.partition(" ")[2] or "x", request.turns
    if results and not said.startswith("work"):
        return "Done: " + ", ".join(result.text for result in results)
    if said.startswith("pay"):
        return Reply(ToolCall(f"{name}-{step}", "pay", '{"amount": 3}'))
    if said.startswith("slow"):
        return Reply(ToolCall(f"{name}-{step}", "slow", "{}"))
    if said.startswith("long"):
        return Reply(ToolCall(f"{name}-{step}", "echo", '{"text": "more"}'))
    if said.startswith("work"):
        match step % 3:
            case 0:
                return Reply(ToolCall(f"{name}-a", "charge", f'{{"key": "{name}-a"}}'))
            case 1:
                calls = [ToolCall(f"{name}-b", "charge", f'{{"key": "{name}-b"}}'), ToolCall(f"{name}-c", "look", "{}")]
                return Reply(*calls)
            case _:
                return f"Finished {name}: " + ", ".join(result.text for result in results)
    return f"You said: {said}"


def tools_of(traces: Path) -> list[AnyTool]:
    """Tools that write into a file what they do, a line for each beginning and each end."""

    def trace(*words: str) -> None:
        with traces.open("a") as file:
            file.write(" ".join(words) + "\n")
            file.flush()
            os.fsync(file.fileno())

    @tool
    async def charge(key: str) -> str:
        """Take somebody's money."""
        trace("begin", key)
        await asyncio.sleep(0.05)
        trace("end", key)
        return f"charged {key}"

    @tool(idempotent=True)
    def look() -> str:
        """Look somewhere."""
        time.sleep(0.02)
        return "nothing there"

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        trace("end", "paid")
        return f"paid {amount}"

    @tool
    async def slow(context: ToolContext[object]) -> str:
        """Take a long time."""
        trace("begin", "slow", str(len(context.conversation.messages)))
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            trace("cancelled", "slow")
            raise
        return "slept"

    @tool(idempotent=True)
    def echo(text: str) -> str:
        """Say it again."""
        return text

    return [charge, look, pay, slow, echo]


def traces_in(file: Path) -> Counter[str]:
    return Counter(file.read_text().splitlines()) if file.exists() else Counter()


async def until(check: Callable[[], object]) -> None:
    """Wait until this is true."""
    while not check():  # noqa: ASYNC110 -- other processes do not set events of ours
        await asyncio.sleep(0.05)


def agents(base_url: str, traces: Path, **options: Any) -> dict[str, Agent]:
    given: dict[str, Any] = {"base_url": base_url, "key": KEY, "heartbeat": 1.5, **options}
    return {"clerk": Agent("openai-compatible:any", tools_of(traces), system="Be brief.", **given)}


@asynccontextmanager
async def working(
    address: str,
    given: dict[str, Agent],
    *,
    queue: str = "dragoman",
    sealing: AesGcmSealing | None = None,
    **options: Any,
):
    """A client, and a worker in this process."""
    client = await Client.connect(address, plugins=[DragomanPlugin(given, sealing=sealing)])
    async with Worker(client, task_queue=queue, **options):
        yield client


def worker_process(*arguments: object) -> AbstractContextManager[ForkServerProcess]:
    """A worker in a process of its own, ready to be killed: of this address, queue, base URL and file for traces."""
    return forked(_work, *arguments)


def _work(ready: Callable[[], None], address: str, queue: str, base_url: str, traces: Path) -> None:
    async def work() -> None:
        # A lost worker's cached workflows are given to others after this time.
        sticky = timedelta(seconds=1)
        given = agents(base_url, traces)
        async with working(address, given, queue=queue, sticky_queue_schedule_to_start_timeout=sticky):
            ready()
            await asyncio.Event().wait()

    asyncio.run(work())
