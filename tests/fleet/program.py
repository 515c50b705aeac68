"""A worker as a program of its own, to be killed, and the story that its conversations tell.

The user says a number; the model calls `pay` with it, then `look`, then `pay` again, and says how many results it has
seen. Both tools write down what they do, in one line before and one after it: `pay` must not be repeated, `look` may.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import msgspec

from dragoman import tool
from dragoman.conversation import ToolCall
from dragoman.fleet import Agent, ProviderLimit, Worker
from dragoman.simulator import Reply, Request
from dragoman.tools import ToolContext
from tests.forking import forked

ROOT = Path(__file__).resolve().parent.parent.parent
CALLS = ("pay", "look", "pay")


async def script(request: Request) -> Reply | str:
    """What the model says; it takes its time."""
    await asyncio.sleep(random.random() * 0.02)
    messages = request.body["messages"]
    asked = max(at for at, each in enumerate(messages) if each["role"] == "user")
    number = messages[asked]["content"]
    if not str(number).isdecimal():
        return f"You said: {number}"
    seen = len([each for each in messages[asked:] if each["role"] == "tool"])
    if seen < len(CALLS):
        return Reply(ToolCall(f"{number}-{seen}", CALLS[seen], f'{{"number": {number}}}'))
    return f"{number}: {seen} results"


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told."""

    url: str
    schema: str
    base_url: str
    book: str
    """Where the tools write down what they do."""
    lease: float = 1.0
    concurrency: int = 4
    grace: float = 10.0
    seconds: float = 0.02
    """How long a payment takes."""
    ask: bool = False
    """Whether payments need a person's word."""
    limits: dict[str, ProviderLimit] = {}


def make_worker(setup: Setup) -> Worker:
    def note(*words: object) -> None:
        line = " ".join(map(str, words)) + "\n"
        descriptor = os.open(setup.book, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, line.encode())
        os.close(descriptor)

    async def do(context: ToolContext[None], number: int) -> str:
        note("begin", context.call_id)
        await asyncio.sleep(setup.seconds * random.random())
        note("end", context.call_id)
        return f"done {number}"

    @tool(requires_approval=setup.ask)
    async def pay(context: ToolContext[None], number: int) -> str:
        """Pay."""
        return await do(context, number)

    @tool(idempotent=True)
    async def look(context: ToolContext[None], number: int) -> str:
        """Look."""
        return await do(context, number)

    agent = Agent("openai-compatible:m", [pay, look], base_url=setup.base_url, key="k")
    return Worker(
        setup.url,
        {"teller": agent},
        schema=setup.schema,
        lease=setup.lease,
        concurrency=setup.concurrency,
        grace=setup.grace,
        limits=setup.limits,
        max_attempts=50,
    )


def serve(ready: Callable[[], None], setup: Setup) -> None:
    """Work until the process is told to stop."""

    class Ready(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "takes turns of" in record.getMessage():
                ready()

    logger = logging.getLogger("dragoman.fleet")
    logger.addHandler(Ready())
    logger.setLevel(logging.INFO)
    logger.propagate = False
    make_worker(setup).serve()


def worker_program(setup: Setup) -> AbstractContextManager[ForkServerProcess]:
    """A worker in a process of its own, which has begun."""
    return forked(serve, setup)


def ended(book: Path) -> list[str]:
    """The calls that did their work, in order."""
    lines = book.read_text().splitlines() if book.exists() else []
    return [line.removeprefix("end ") for line in lines if line.startswith("end ")]
