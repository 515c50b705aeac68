"""What a run does with the world: ask a model, run tools, wait for a hook.

One I/O for each colour, over the public engines and the executor. The methods of the plain one block and never suspend,
so that a plain program can step the run.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from typing import Protocol

from dragoman.conversation import Conversation, Message, ReplyEvent, ToolFinished, ToolSpec, ToolStarted
from dragoman.engines.engine import AsyncEngine, AsyncStream, Engine, Stream
from dragoman.engines.reply import Reply
from dragoman.errors import ConfigurationError
from dragoman.providers.options import ModelOptions
from dragoman.tools.batch import Batch
from dragoman.tools.executor import ToolExecutor


class ReplySource(Protocol):
    """A reply while it arrives."""

    @property
    def message(self) -> Message: ...
    @property
    def reply(self) -> Reply: ...

    async def next(self) -> ReplyEvent | None:
        """The next event; None at the end."""
        ...

    async def close(self) -> None: ...


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

    async def await_hook(self, hook: Awaitable[None]) -> None:
        """Wait for what a hook gave back."""
        ...


class PlainIO:
    """The outside of a run in a plain program."""

    def __init__(self, engine: Engine, executor: ToolExecutor) -> None:
        self._engine: Engine = engine
        self._executor: ToolExecutor = executor

    async def reply(self, conversation: Conversation, tools: tuple[ToolSpec, ...], options: ModelOptions) -> Reply:
        return self._engine.reply(conversation, tools=tools, options=options)

    def stream(self, conversation: Conversation, tools: tuple[ToolSpec, ...], options: ModelOptions) -> _PlainSource:
        return _PlainSource(self._engine.stream(conversation, tools=tools, options=options))

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        return self._executor.stepped_events(batch)

    async def await_hook(self, hook: Awaitable[None]) -> None:
        waiting = hook.__await__()
        try:
            next(waiting)
        except StopIteration:
            return
        close = getattr(waiting, "close", None)
        if close is not None:
            close()
        message = "A hook of this run waits for an event loop, but the run has none."
        raise ConfigurationError(message, hint="Use plain methods in the hooks, or the async client.")


class _PlainSource:
    def __init__(self, stream: Stream) -> None:
        self._stream: Stream = stream.__enter__()
        self._events: Iterator[ReplyEvent] = iter(self._stream)

    @property
    def message(self) -> Message:
        return self._stream.message

    @property
    def reply(self) -> Reply:
        return self._stream.reply

    async def next(self) -> ReplyEvent | None:
        return next(self._events, None)

    async def close(self) -> None:
        self._stream.close()


class AsyncIO:
    """The outside of a run on an event loop."""

    def __init__(self, engine: AsyncEngine, executor: ToolExecutor) -> None:
        self._engine: AsyncEngine = engine
        self._executor: ToolExecutor = executor

    async def reply(self, conversation: Conversation, tools: tuple[ToolSpec, ...], options: ModelOptions) -> Reply:
        return await self._engine.reply(conversation, tools=tools, options=options)

    def stream(self, conversation: Conversation, tools: tuple[ToolSpec, ...], options: ModelOptions) -> _AsyncSource:
        return _AsyncSource(self._engine.stream(conversation, tools=tools, options=options))

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        return self._executor.aevents(batch)

    async def await_hook(self, hook: Awaitable[None]) -> None:
        await hook


class _AsyncSource:
    def __init__(self, stream: AsyncStream) -> None:
        self._stream: AsyncStream = stream
        self._events: AsyncIterator[ReplyEvent] = aiter(stream)

    @property
    def message(self) -> Message:
        return self._stream.message

    @property
    def reply(self) -> Reply:
        return self._stream.reply

    async def next(self) -> ReplyEvent | None:
        return await anext(self._events, None)

    async def close(self) -> None:
        await self._stream.aclose()
