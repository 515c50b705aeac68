"""A turn as a workflow of DBOS: killed at any moment it goes on, and nothing that was done is done twice.

pip install dbos
python examples/dbos_steps.py serve &
python examples/dbos_steps.py ask order-1 "Charge Ada 500. Is there a sofa, and tea?"
python examples/dbos_steps.py show order-1
python examples/dbos_steps.py answer order-1 yes

What is done is kept in SQLite, or in PostgreSQL (`--database postgresql://…`). Kill the worker (`kill -9`) while it
charges somebody, start it again, and see what it asks. The model is simulated, unless `--model` names another.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

from dbos import DBOS, DBOSClient
from shop import TOOLS, answers_in, answers_to, model, to_text

from dragoman import AsyncOrchestrator, Conversation, Message, async_engine
from dragoman.simulator import Simulator

A_WEEK = 7 * 24 * 3600.0
LOOPS: list[AsyncOrchestrator] = []
"""The loop of this worker, once it serves."""


async def step(key: str, function: Callable[[], Coroutine[Any, Any, str]]) -> str:
    """All that DBOS has to give. It numbers steps in the order in which they begin, and keeps what they return."""
    return await DBOS.run_step_async({"name": key}, function)


@DBOS.workflow(name="turn")
async def turn(said: str) -> str:
    """What the model answers in the end, however often the program dies and however long people take."""
    (loop,) = LOOPS
    result = await loop.run(Conversation("Be brief.").plus(Message.user(said)), step=step)
    while result.pending:
        await DBOS.set_event_async("pending", to_text(result.pending))
        answers = answers_in(await DBOS.recv_async("answers", A_WEEK), result.pending)
        result = await loop.run(
            result.conversation, step=step, approvals=answers, waiting=result.pending, spent=result.spent
        )
    return result.text


async def serve(database: str, name: str | None, base_url: str | None) -> None:
    key = None
    with ExitStack() as stack:
        if name is None:
            simulator = stack.enter_context(Simulator(model))
            key = "none"
            name, base_url = "openai-compatible:simulated", simulator.base_url("openai")
        async with async_engine(name, base_url=base_url, key=key) as engine, AsyncOrchestrator(engine, TOOLS) as loop:
            LOOPS.append(loop)
            DBOS(config={"name": "shop", "system_database_url": database})
            DBOS.launch()  # workflows that a dead worker of this name has left behind are taken up again
            await DBOS.register_queue_async("turns")
            print("serving", flush=True)
            await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="Turns as workflows of DBOS.")
    parser.add_argument("--database", default="sqlite:///shop.sqlite")
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve", help="carry turns out")
    serving.add_argument("--model")
    serving.add_argument("--base-url")
    for command in ("ask", "show", "answer"):
        commands.add_parser(command).add_argument("order")
    commands.choices["ask"].add_argument("said")
    commands.choices["answer"].add_argument("answer", choices=["yes", "no"])
    commands.choices["answer"].add_argument("--reason", default="")
    given = parser.parse_args()
    if given.command == "serve":
        asyncio.run(serve(given.database, given.model, given.base_url))
        return
    client = DBOSClient(system_database_url=given.database)
    if given.command == "ask":
        client.enqueue({"queue_name": "turns", "workflow_name": "turn", "workflow_id": given.order}, given.said)
        return
    waiting = client.get_event(given.order, "pending", timeout_seconds=0)
    if given.command == "answer":
        if not waiting:
            parser.error("no call waits for an answer yet")
        client.send(given.order, answers_to(waiting, yes=given.answer == "yes", reason=given.reason), "answers")
        return
    turn_now = client.retrieve_workflow(given.order).get_status()
    print(turn_now.output or turn_now.error or waiting or "under way")


if __name__ == "__main__":
    main()
