"""Chat clients of both colours, streamed or not, behind one face, so that a scenario is written once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dragoman.chat import AsyncChatClient, ChatClient
from dragoman.conversation import Conversation, Event, Text, Thinking, ToolCall, ToolResult
from dragoman.loop import RunResult
from dragoman.simulator import Simulator
from dragoman.stores import AsyncStore
from dragoman.tools import Approval
from dragoman.transport import Timeouts
from tests.engines.talking import ONCE

ROOT = Path(__file__).resolve().parents[2]

Callback = Callable[[Event], object]


class PlainTalk:
    """A plain client."""

    def __init__(self, model: Any, tools: Any = (), *, streamed: bool, **options: Any) -> None:
        self.client = ChatClient(model, tools, **options)
        self.streamed = streamed

    def chat(self, prompt: Any = None, *approvals: Approval, callback: Callback = lambda _: None) -> RunResult:
        if self.streamed:
            return self.client.stream_chat(prompt, callback, approvals=approvals)
        return self.client.chat(prompt, approvals=approvals)

    def do(self, method: str, *arguments: Any, **named: Any) -> Any:
        return getattr(self.client, method)(*arguments, **named)

    def close(self) -> None:
        self.client.close()


class AsyncTalk:
    """An async client, driven from plain code on a loop of its own."""

    def __init__(self, model: Any, tools: Any = (), *, streamed: bool, **options: Any) -> None:
        self.runner = asyncio.Runner()
        self.streamed = streamed

        async def made() -> AsyncChatClient:
            return AsyncChatClient(model, tools, **options)

        try:
            self.client = self.runner.run(made())
        except BaseException:
            self.runner.close()
            raise

    def chat(self, prompt: Any = None, *approvals: Approval, callback: Callback = lambda _: None) -> RunResult:
        async def turn() -> RunResult:
            if self.streamed:
                return await self.client.stream_chat(prompt, callback, approvals=approvals)
            return await self.client.chat(prompt, approvals=approvals)

        return self.runner.run(turn())

    def do(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method that is awaited in this colour and not in the other."""

        async def done() -> Any:
            return await getattr(self.client, method)(*arguments, **named)

        return self.runner.run(done())

    def close(self) -> None:
        async def closed() -> None:
            await self.client.aclose()
            for _ in range(5):  # a connection that was given up is closed in the next turns of the loop
                await asyncio.sleep(0)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks left behind: {left}"

        self.runner.run(closed())
        self.runner.close()
        if isinstance(store := self.client._store, AsyncStore):
            store._threads.shutdown()


Talk = PlainTalk | AsyncTalk
Start = Callable[..., Talk]
"""What the fixture `start` gives: from a script, tools and options to a talk."""
WAYS: dict[str, tuple[type[Talk], bool]] = {
    "plain-whole": (PlainTalk, False),
    "plain-stream": (PlainTalk, True),
    "async-whole": (AsyncTalk, False),
    "async-stream": (AsyncTalk, True),
}


class Stage:
    """A simulator and a way of talking: where a scenario plays."""

    def __init__(self, simulator: Simulator, model: str, way: str) -> None:
        self.simulator = simulator
        self.model = model
        self.way = way
        self.kind, self.streamed = WAYS[way]

    def base_url(self, model: str) -> str:
        return self.simulator.base_url(model.partition(":")[0])

    def engine_options(self, model: str) -> dict[str, Any]:
        """How a model is reached on this stage."""
        return {
            "base_url": self.base_url(model),
            "key": "test-key",
            "retry": ONCE,
            "timeouts": Timeouts(read=20.0, total=60.0),
        }

    @contextmanager
    def client(self, tools: Any = (), **options: Any) -> Iterator[Talk]:
        talk = self.kind(self.model, tools, streamed=self.streamed, **{**self.engine_options(self.model), **options})
        try:
            yield talk
        finally:
            talk.close()


def transcript(conversation: Conversation) -> list[Any]:
    """A conversation without what differs between providers: ids, usage, times, signatures."""
    return [
        (message.role, *[_told(block) for block in message.blocks if not isinstance(block, Thinking)])
        for message in conversation.messages
    ]


def _told(block: Any) -> Any:
    match block:
        case Text():
            return block.text
        case ToolCall():
            return ("call", block.name, block.parsed)
        case ToolResult():
            return ("error" if block.is_error else "result", block.name, block.error_type or block.text)
    return type(block).__name__


def threads_left(before: Collection[threading.Thread] = ()) -> list[str]:
    """The library's own threads that have come since and are still there; one that is about to end may do so."""
    left = [thread for thread in threading.enumerate() if "dragoman" in thread.name and thread not in before]
    for thread in left:
        thread.join(30)
    return [thread.name for thread in left if thread.is_alive()]
