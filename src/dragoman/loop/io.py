"""What a run does with the world: call a model, run tools, wait.

One I/O for each colour. What the plain one does blocks and never suspends, so that a plain program can step the run. A
workflow engine or a test brings its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from dragoman._stop import Stop, stoppable
from dragoman.conversation import Conversation, ToolFinished, ToolSpec, ToolStarted
from dragoman.engines import AsyncEngine, Engine, ReplyCall
from dragoman.errors import ConfigurationError
from dragoman.providers import ModelOptions
from dragoman.tools import Batch, ToolExecutor

T = TypeVar("T")


class MakeCall(Protocol):
    """Makes a call ready; see `Engine.call`."""

    def __call__(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> ReplyCall: ...


class Guard(Protocol):
    """Ends an await as soon as a run is stopped; see `stoppable`."""

    def __call__(self, work: Coroutine[Any, Any, T], stop: Stop) -> Awaitable[T]: ...


class LoopIO(Protocol):
    """The outside of a run."""

    @property
    def call(self) -> MakeCall:
        """A model call that is ready to be made."""
        ...

    @property
    def guard(self) -> Guard | None:
        """What ends an await as soon as the run is stopped; None where awaiting blocks, and ends by itself."""
        ...

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        """Carry a batch of calls out; its results are in the batch, however it is left."""
        ...

    async def wait_for(self, given: Awaitable[T]) -> T:
        """The outcome of what a hook or a context policy gave back."""
        ...


class PlainIO:
    """The outside of a run in a plain program."""

    guard: None = None

    def __init__(self, engine: Engine, executor: ToolExecutor) -> None:
        self.call: MakeCall = engine.call
        self._executor: ToolExecutor = executor

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

    guard: Guard = staticmethod(stoppable)

    def __init__(self, engine: AsyncEngine, executor: ToolExecutor) -> None:
        self.call: MakeCall = engine.call
        self._executor: ToolExecutor = executor

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        return self._executor.aevents(batch)

    async def wait_for(self, given: Awaitable[T]) -> T:
        return await given
