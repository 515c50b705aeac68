"""The outside of a run, in each colour: what it does with the world (call a model, run tools, wait), and its stream.

What the plain I/O does blocks and never suspends, so that a plain program can step the run. A workflow engine or a test
brings its own.
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
    """The outside of a run; the base of one for each colour."""

    guard: Callable[[Coroutine[Any, Any, Any], Stop], Awaitable[Any]] | None = None
    """What ends an await as soon as the run is stopped; None where awaiting blocks, and ends by itself."""

    def __init__(self, engine: Engine | AsyncEngine, executor: ToolExecutor) -> None:
        self.engine: Engine | AsyncEngine = engine
        self.executor: ToolExecutor = executor

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolEvent, None]:
        """Carry a batch of calls out; its results are in the batch, however it is left."""
        raise NotImplementedError

    async def wait_for(self, given: Awaitable[T]) -> T:
        """The outcome of what a hook, a context policy, a check or a function of the moment gave back."""
        return await given


async def close_engine(engine: Engine | AsyncEngine) -> None:
    if isinstance(engine, Engine):
        engine.close()
    else:
        await engine.aclose()


class PlainIO(LoopIO):
    """The outside of a run in a plain program."""

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolEvent, None]:
        return self.executor.stepped_events(batch)

    async def wait_for(self, given: Awaitable[T]) -> T:
        waiting = given.__await__()
        try:
            next(waiting)
        except StopIteration as stop:
            return stop.value
        waiting.close()
        message = (
            "Something that this run asks, such as a hook or a check, waits for an event loop, but the run has none."
        )
        raise ConfigurationError(message, hint="Use plain functions, or the async client.")


class AsyncIO(LoopIO):
    """The outside of a run on an event loop."""

    guard = staticmethod(stoppable)

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolEvent, None]:
        return self.executor.aevents(batch)


# --- a run while it happens -------------------------------------------------------------------------------------------


class _Watched:
    """What can be asked about a run while it happens."""

    def __init__(self, begun: Sequence[LoopRun]) -> None:
        self._begun: Sequence[LoopRun] = begun
        """The run, once there is one."""

    @property
    def conversation(self) -> Conversation:
        """As far as it has got; complete and valid once the block is left."""
        return self._run.conversation

    @property
    def result(self) -> RunResult:
        """What came of it, once it has ended."""
        return self._run.result

    def cancel(self) -> None:
        """Stop, from any thread; what was said and done stays in the conversation."""
        self._run.cancel()

    @property
    def _run(self) -> LoopRun:
        if not self._begun:
            message = "The turn has not begun."
            raise ConfigurationError(message, hint="Iterate the stream first.")
        return self._begun[0]


class RunStream(_Watched):
    """A run while it happens: iterate it inside a `with` block, which stops the run however it is left."""

    def __init__(self, begun: Sequence[LoopRun], events: AsyncGenerator[Event, None]) -> None:
        super().__init__(begun)
        self._events: Generator[Event, None, None] = step_through(events)

    def __iter__(self) -> Iterator[Event]:
        return self._events

    def _ipython_display_(self) -> None:
        """Show itself in a notebook, while it comes."""
        from .notebook import show

        with self:
            show(self)

    def close(self) -> None:
        """Stop and release the connection. While another thread reads the stream, that thread does it, soon."""
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
    """A run while it happens: iterate it inside an `async with` block, which stops the run however it is left."""

    def __init__(self, begun: Sequence[LoopRun], events: AsyncGenerator[Event, None]) -> None:
        super().__init__(begun)
        self._events: AsyncGenerator[Event, None] = events
        self._shown: Any = None
        """The task that shows it in a notebook; kept, so that it is not collected on the way."""

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    def _ipython_display_(self) -> None:
        """Show itself in a notebook, while it comes; the cell is done before that."""
        from .notebook import show_async

        self._shown = show_async(self)

    async def aclose(self) -> None:
        """Stop and release the connection. While another task reads the stream, that task does it, soon."""
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
    """For what must still be done while an error is on its way: its own failure becomes a note on that error."""
    try:
        yield
    except Exception as failure:
        # GeneratorExit is nobody's error: somebody has left a stream, and the failure is all there is to tell.
        if error is None or isinstance(error, GeneratorExit):
            raise
        error.add_note(f"Then this went wrong too: {type(failure).__name__}: {failure}")
