"""The hook for tracing.

Where an operation starts (a run, a model call, a tool call, saving a snapshot) the observer, if there is one, returns
an Observed. It is entered while work is done for the operation, and ended with the result. Without an observer each of
these places only reads a variable.

Must not know: OpenTelemetry, and at run time not even what is observed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from dragoman._stepping import Inner

if TYPE_CHECKING:
    from dragoman.conversation import Conversation, ToolCall, ToolSpec
    from dragoman.engines import BaseEngine, Reply
    from dragoman.loop import LoopRun
    from dragoman.providers import ModelOptions
    from dragoman.tools import AnyTool, Outcome

T = TypeVar("T")
ResultT_contra = TypeVar("ResultT_contra", contravariant=True)


class Observed(Protocol[ResultT_contra]):
    """An observed operation. It starts when it is first entered, or at the latest when it ends."""

    def enter(self) -> object:
        """What follows is done for it. Returns a value for `leave`."""
        ...

    def leave(self, before: object) -> None:
        """Undo `enter`, in whatever context this is called."""
        ...

    def mark(self) -> None:
        """The first part of the result has arrived."""
        ...

    def reference(self) -> Mapping[str, str]:
        """How another process can refer to it."""
        ...

    def end(self, result: ResultT_contra | None, error: BaseException | None = None, *, ago: float = 0.0) -> None:
        """It ended, `ago` seconds ago, with this result. A second call is ignored."""
        ...


class Observer(Protocol):
    """Is called where an operation starts."""

    def run(self, run: LoopRun, engine: BaseEngine, id: Callable[[], str | None]) -> Observed[LoopRun]:
        """A run of the loop; `id` returns the id of its conversation, once it has one."""
        ...

    def model_call(
        self,
        engine: BaseEngine,
        conversation: Conversation,
        tools: Sequence[ToolSpec],
        options: ModelOptions | None,
        *,
        stream: bool,
    ) -> Observed[Reply]:
        """A model call with all its attempts."""
        ...

    def tool_call(self, call: ToolCall, tool: AnyTool | None) -> Observed[Outcome]:
        """A tool call with all its attempts. The tool may not exist."""
        ...

    def save(self, id: str) -> Observed[None]:
        """Saving a snapshot of this conversation."""
        ...


current: Observer | None = None
"""The observer, if any. Read it as `dragoman._observer.current`: a function call would cost more."""


def observe(observer: Observer | None) -> None:
    """Set or remove the observer. Operations that have started keep the one they started with."""
    global current  # noqa: PLW0603 - the one slot
    current = observer


@contextmanager
def within(observed: Observed[T] | None) -> Generator[None]:
    """Inside the block, work is done for it."""
    if observed is None:
        yield
        return
    before = observed.enter()
    try:
        yield
    finally:
        observed.leave(before)


@contextmanager
def observing(observed: Observed[T], result: T | None = None) -> Generator[None]:
    """Inside the block, work is done for it; it ends with the block."""
    try:
        with within(observed):
            yield
    except BaseException as error:
        observed.end(result, error)
        raise
    observed.end(result)


async def follow(
    observed: Observed[ResultT_contra], events: AsyncGenerator[T, None], result: ResultT_contra | None = None
) -> AsyncGenerator[T, None]:
    """The events. Producing each of them is work for the observed operation, what the reader does is not.

    With a `result` the operation ends with it; otherwise the caller ends it.
    """
    problem: BaseException | None = None
    inner = Inner(events)
    try:
        while True:
            before = observed.enter()
            try:
                event = await anext(inner)
            except StopAsyncIteration:
                break
            finally:
                observed.leave(before)
            yield event
    except BaseException as error:
        problem = error
        raise
    finally:
        with within(observed):
            await inner.aclose()
        if result is not None:
            observed.end(result, problem)
