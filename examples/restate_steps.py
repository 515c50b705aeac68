"""A turn as a workflow of Restate: killed at any moment it goes on, and nothing that was done is done twice.

pip install "restate-sdk" hypercorn
npx @restatedev/restate-server &
python examples/restate_steps.py serve &
python examples/restate_steps.py ask order-1 "Charge Ada 500. Is there a sofa, and tea?"
python examples/restate_steps.py show order-1
python examples/restate_steps.py answer order-1 yes

Kill the worker (`kill -9`) while it charges somebody, start it again, and see what it asks. The model is simulated,
unless `--model` names another.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import hypercorn.asyncio
import restate
from hypercorn.config import Config
from restate import RestateDurableFuture, TerminalError, Workflow, WorkflowContext, WorkflowSharedContext
from shop import TOOLS, answers_in, answers_to, model, to_text

from dragoman import AsyncOrchestrator, Conversation, Message, async_engine, errors
from dragoman.loop import DurableStep
from dragoman.simulator import Simulator

LOOPS: list[AsyncOrchestrator] = []
"""The loop of this worker, once it serves."""

turns = Workflow("turns")


def steps_of(context: WorkflowContext) -> DurableStep:
    """All that Restate has to give. It numbers steps in the order in which they begin, and keeps what they return."""
    begun: list[RestateDurableFuture[str]] = []
    waits = asyncio.Lock()

    async def step(key: str, function: Callable[[], Coroutine[Any, Any, str]]) -> str:
        begun.append(coming := context.run_typed(key, function))
        await asyncio.sleep(0)  # the steps beside this one begin as well
        async with waits:  # two tasks that wait for Restate would take each other's news: one waits for all
            together, begun[:] = begun[:], []
            await restate.gather(*together)
        return await coming

    return step


@turns.main()
async def run(context: WorkflowContext, said: str) -> str:
    """What the model answers in the end, however often the program dies and however long people take."""
    (loop,) = LOOPS
    step = steps_of(context)
    asked = 0
    try:
        result = await loop.run(Conversation("Be brief.").plus(Message.user(said)), step=step)
        while result.pending:
            asked += 1
            context.set("pending", to_text(result.pending))
            context.set("asked", asked)
            answers = answers_in(await context.promise(f"answers-{asked}", type_hint=str).value(), result.pending)
            result = await loop.run(
                result.conversation, step=step, approvals=answers, waiting=result.pending, spent=result.spent
            )
    except errors.DragomanError as error:  # it is kept: trying again would bring the same
        raise TerminalError(str(error)) from error
    return result.text


@turns.handler()
async def pending(context: WorkflowSharedContext) -> str:
    return await context.get("pending", type_hint=str) or ""


@turns.handler()
async def answer(context: WorkflowSharedContext, answers: str) -> None:
    asked = await context.get("asked", type_hint=int)
    await context.promise(f"answers-{asked}", type_hint=str).resolve(answers)


async def serve(port: int, admin: str, name: str | None, base_url: str | None) -> None:
    key = None
    with ExitStack() as stack:
        if name is None:
            simulator = stack.enter_context(Simulator(model))
            key = "none"
            name, base_url = "openai-compatible:simulated", simulator.base_url("openai")
        async with async_engine(name, base_url=base_url, key=key) as engine, AsyncOrchestrator(engine, TOOLS) as loop:
            LOOPS.append(loop)
            config = Config()
            config.bind = [f"127.0.0.1:{port}"]
            serving = asyncio.create_task(hypercorn.asyncio.serve(restate.app([turns]), config, mode="asgi"))
            await asyncio.sleep(1)
            here = {"uri": f"http://127.0.0.1:{port}", "force": True}
            await asyncio.to_thread(post, f"{admin}/deployments", here)  # Restate looks at once what is served here
            print("serving", flush=True)
            await serving


def post(url: str, body: object = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    headers = {} if data is None else {"content-type": "application/json"}
    request = urllib.request.Request(url, data, headers, method="POST")  # noqa: S310 - the address is ours
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
        return response.read().decode()


def main() -> None:
    parser = argparse.ArgumentParser(description="Turns as workflows of Restate.")
    parser.add_argument("--ingress", default="http://127.0.0.1:8080")
    parser.add_argument("--admin", default="http://127.0.0.1:9070")
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve", help="carry turns out")
    serving.add_argument("--port", type=int, default=9080)
    serving.add_argument("--model")
    serving.add_argument("--base-url")
    for command in ("ask", "show", "answer"):
        commands.add_parser(command).add_argument("order")
    commands.choices["ask"].add_argument("said")
    commands.choices["answer"].add_argument("answer", choices=["yes", "no"])
    commands.choices["answer"].add_argument("--reason", default="")
    given = parser.parse_args()
    if given.command == "serve":
        asyncio.run(serve(given.port, given.admin, given.model, given.base_url))
        return
    turn = f"{given.ingress}/turns/{given.order}"
    if given.command == "ask":
        post(f"{turn}/run/send", given.said)
        return
    waiting = json.loads(post(f"{turn}/pending"))
    if given.command == "answer":
        if not waiting:
            parser.error("no call waits for an answer yet")
        post(f"{turn}/answer", answers_to(waiting, yes=given.answer == "yes", reason=given.reason))
        return
    try:
        with urllib.request.urlopen(f"{given.ingress}/restate/workflow/turns/{given.order}/output") as response:  # noqa: S310
            print(json.load(response))
    except urllib.error.HTTPError as error:
        is_under_way = error.code == 470
        print((waiting or "under way") if is_under_way else error.read().decode())


if __name__ == "__main__":
    main()
