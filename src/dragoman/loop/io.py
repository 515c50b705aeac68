"""What a run does with the world: ask a model, run tools, wait for a hook.

One I/O for each colour. The methods of the plain one block and never suspend, so that a plain program can step the run.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from dragoman.conversation import Conversation, ReplyEvent, ToolFinished, ToolSpec, ToolStarted
from dragoman.engines import AsyncEngine, AsyncStream, Engine, Reply, Stream
from dragoman.errors import ConfigurationError
from dragoman.providers import ModelOptions
from dragoman.tools import Batch, ToolExecutor

T = TypeVar("T")


class ReplySource(NamedTuple):
    """A reply while it arrives."""

    stream: Stream | AsyncStream
    next: Callable[[], Awaitable[ReplyEvent | None]]
    """The next event; None at the end."""
    close: Callable[[], Awaitable[None]]


class LoopIO(Protocol):
    """The outside of a run."""

    async def reply(self, conversation: Conversation, tools: tuple[ToolSpec, ...], options: ModelOptions) -> Reply:
        """The model's reply, whole."""
        ...

    def stream(self, conversation: Conversation, tools: tuple[ToolSpec, ...], options: ModelOptions) -> ReplySource:
        """The model's reply as it arrives."""
        ...

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        """Carry a batch of calls out; its results are in the batch, however it is left."""
        ...

    async def wait_for(self, given: Awaitable[T]) -> T:
        """The outcome of what a hook or a context policy gave back."""
        ...


class PlainIO:
    """The outside of a run in a plain program."""

    def __init__(self, engine: Engine, executor: ToolExecutor) -> None:
        self._engine: Engine = engine
        self._executor: ToolExecutor = executor

    async def reply(self, conversation: Conversation, tools: tuple[ToolSpec, ...], options: ModelOptions) -> Reply:
        return self._engine.reply(conversation, tools=tools, options=options)

    def stream(self, conversation: Conversation, tools: tuple[ToolSpec, ...], options: ModelOptions) -> ReplySource:
        stream = self._engine.stream(conversation, tools=tools, options=options).__enter__()
        events = iter(stream)

        async def next_event() -> ReplyEvent | None:
            return next(events, None)

        async def close() -> None:
            stream.close()

        return ReplySource(stream, next_event, close)

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        return self._executor.stepped_events(batch)

    async def wait_for(self, given: Awaitable[T]) -> T:
        waiting = given.__await__()
        try:
            next(waiting)
        except StopIteration as stop:
            return stop.value
        waiting.close()
        message = "A hook or a context policy of this run waits for an event loop, but the run has none."
        raise ConfigurationError(message, hint="Use plain functions, or the async client.")


class AsyncIO:
    """The outside of a run on an event loop."""

    def __init__(self, engine: AsyncEngine, executor: ToolExecutor) -> None:
        self._engine: AsyncEngine = engine
        self._executor: ToolExecutor = executor

    async def reply(self, conversation: Conversation, tools: tuple[ToolSpec, ...], options: ModelOptions) -> Reply:
        return await self._engine.reply(conversation, tools=tools, options=options)

    def stream(self, conversation: Conversation, tools: tuple[ToolSpec, ...], options: ModelOptions) -> ReplySource:
        stream = self._engine.stream(conversation, tools=tools, options=options)
        return ReplySource(stream, partial(anext, aiter(stream), None), stream.aclose)

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        return self._executor.aevents(batch)

    async def wait_for(self, given: Awaitable[T]) -> T:
        return await given
