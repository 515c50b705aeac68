"""What a run does with the world: call a model, run tools, wait.

One I/O for each colour. What the plain one does blocks and never suspends, so that a plain program can step the run. A
workflow engine or a test brings its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Coroutine
from typing import Any, Protocol, TypeVar

from dragoman._stop import Stop, stoppable
from dragoman.conversation import ToolFinished, ToolStarted
from dragoman.engines import AsyncEngine, Engine
from dragoman.errors import ConfigurationError
from dragoman.tools import Batch, ToolExecutor

T = TypeVar("T")


class Guard(Protocol):
    """Ends an await as soon as a run is stopped; see `stoppable`."""

    def __call__(self, work: Coroutine[Any, Any, T], stop: Stop) -> Awaitable[T]: ...


class LoopIO:
    """The outside of a run; the base of one for each colour."""

    guard: Guard | None = None
    """What ends an await as soon as the run is stopped; None where awaiting blocks, and ends by itself."""

    def __init__(self, engine: Engine | AsyncEngine, executor: ToolExecutor) -> None:
        self.engine: Engine | AsyncEngine = engine
        self.executor: ToolExecutor = executor

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        """Carry a batch of calls out; its results are in the batch, however it is left."""
        raise NotImplementedError

    async def wait_for(self, given: Awaitable[T]) -> T:
        """The outcome of what a hook or a context policy gave back."""
        return await given


async def close_engine(engine: Engine | AsyncEngine) -> None:
    """Close an engine of either colour."""
    if isinstance(engine, Engine):
        engine.close()
    else:
        await engine.aclose()


class PlainIO(LoopIO):
    """The outside of a run in a plain program."""

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        return self.executor.stepped_events(batch)

    async def wait_for(self, given: Awaitable[T]) -> T:
        waiting = given.__await__()
        try:
            next(waiting)
        except StopIteration as stop:
            return stop.value
        waiting.close()
        message = "A hook or a context policy of this run waits for an event loop, but the run has none."
        raise ConfigurationError(message, hint="Use plain functions, or the async client.")


class AsyncIO(LoopIO):
    """The outside of a run on an event loop."""

    guard: Guard | None = staticmethod(stoppable)

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        return self.executor.aevents(batch)
