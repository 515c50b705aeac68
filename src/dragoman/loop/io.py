"""The I/O of a run, sync and async (call a model, run tools, wait), and the streams that callers iterate.

Sync I/O blocks and never suspends, so a sync program can step the run. A workflow engine or a test supplies its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from types import AsyncGeneratorType, GeneratorType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from dragoman._stepping import step_through
from dragoman._stop import Stop, stoppable
from dragoman.conversation import Conversation, Event
from dragoman.engines import AsyncEngine, Engine
from dragoman.errors import ConfigurationError

if TYPE_CHECKING:
    from dragoman.tools import Batch, ToolEvent, ToolExecutor

    from .result import RunResult
    from .run import LoopRun

T = TypeVar("T")


class LoopIO:
    """The I/O of a run; the base of a sync and an async one."""

    guard: Callable[[Coroutine[Any, Any, Any], Stop], Awaitable[Any]] | None = None
    """Ends an await as soon as the run is stopped; None if awaiting blocks, since blocking code checks the Stop."""

    def __init__(self, engine: Engine | AsyncEngine, executor: ToolExecutor) -> None:
        self.engine: Engine | AsyncEngine = engine
        self.executor: ToolExecutor = executor

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolEvent, None]:
        """Run a batch of tool calls. The batch has its results, even if this is closed early."""
        raise NotImplementedError

    async def wait_for(self, given: Awaitable[T]) -> T:
        """Await what a hook, a context policy, a check or another function of the caller returned."""
        return await given

    def warn(self, text: str) -> None:
        """Log what is wrong with an answer that is returned, or with what it used."""
        import logging  # slow to import, and rarely needed

        logging.getLogger("dragoman.loop").warning("%s", text)


async def close_engine(engine: Engine | AsyncEngine) -> None:
    if isinstance(engine, Engine):
        engine.close()
    else:
        await engine.aclose()


class PlainIO(LoopIO):
    """The I/O of a run in a sync program."""

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolEvent, None]:
        return self.executor.stepped_events(batch)

    async def wait_for(self, given: Awaitable[T]) -> T:
        waiting = given.__await__()
        try:
            next(waiting)
        except StopIteration as stop:
            return stop.value
        waiting.close()
        message = "A hook, check or other function of this run awaits an event loop, but the run is sync."
        raise ConfigurationError(message, hint="Use sync functions, or the async client.")


class AsyncIO(LoopIO):
    """The I/O of a run on an event loop."""

    guard = staticmethod(stoppable)

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolEvent, None]:
        return self.executor.aevents(batch)


# --- streams of a run -------------------------------------------------------------------------------------------------


class _Watched:
    """What a stream tells about its run."""

    def __init__(self, begun: Sequence[LoopRun]) -> None:
        self._begun: Sequence[LoopRun] = begun
        """The run, once it has started."""

    @property
    def conversation(self) -> Conversation:
        """The conversation so far; complete and valid once the block is left."""
        return self._run.conversation

    @property
    def result(self) -> RunResult:
        """The result, once the run has ended."""
        return self._run.result

    def cancel(self) -> None:
        """Stop, from any thread; what the model and the tools did so far stays in the conversation."""
        self._run.cancel()

    @property
    def _run(self) -> LoopRun:
        if not self._begun:
            message = "The turn has not started."
            raise ConfigurationError(message, hint="Iterate the stream first.")
        return self._begun[0]


class RunStream(_Watched):
    """The events of a run: iterate it inside a `with` block, which stops the run on exit."""

    def __init__(self, begun: Sequence[LoopRun], events: AsyncGenerator[Event, None]) -> None:
        super().__init__(begun)
        self._events: Generator[Event, None, None] = step_through(events)

    def __iter__(self) -> Iterator[Event]:
        return self._events

    def _ipython_display_(self) -> None:
        """Show the stream in a notebook as it arrives."""
        from .notebook import show

        with self:
            show(self)

    def close(self) -> None:
        """Stop and release the connection. If another thread is reading the stream, that thread does so shortly."""
        if cast("GeneratorType[Event, None, None]", self._events).gi_running:
            self.cancel()
        else:
            self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with note_on(error):
            self.close()


class AsyncRunStream(_Watched):
    """The events of a run: iterate it inside an `async with` block, which stops the run on exit."""

    def __init__(self, begun: Sequence[LoopRun], events: AsyncGenerator[Event, None]) -> None:
        super().__init__(begun)
        self._events: AsyncGenerator[Event, None] = events
        self._shown: Any = None
        """The task that shows it in a notebook; the reference keeps it from being collected."""

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    def _ipython_display_(self) -> None:
        """Show the stream in a notebook as it arrives, after the cell has finished."""
        from .notebook import show_async

        self._shown = show_async(self)

    async def aclose(self) -> None:
        """Stop and release the connection. If another task is reading the stream, that task does so shortly."""
        if cast("AsyncGeneratorType[Event, None]", self._events).ag_running:
            self.cancel()
        else:
            await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with note_on(error):
            await self.aclose()


@contextmanager
def note_on(error: BaseException | None) -> Generator[None]:
    """For cleanup while `error` propagates: a failure inside the block becomes a note on that error."""
    try:
        yield
    except Exception as failure:
        # GeneratorExit only means that a stream was left, so the failure itself is raised.
        if error is None or isinstance(error, GeneratorExit):
            raise
        error.add_note(f"The cleanup failed too: {type(failure).__name__}: {failure}")
