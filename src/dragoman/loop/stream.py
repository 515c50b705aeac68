"""A run while it happens: what callers iterate, in both colours."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Sequence
from contextlib import contextmanager
from types import AsyncGeneratorType, GeneratorType
from typing import Self, cast

from dragoman._stepping import step_through
from dragoman.conversation import Conversation, Event
from dragoman.errors import ConfigurationError

from .run import LoopRun, RunResult


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

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

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
