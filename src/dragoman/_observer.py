"""Who is told of what the library does, if anybody is: the one seam that tracing hangs on.

Where something begins (a run, a call of a model or of a tool, the saving of a snapshot) the observer is asked for an
Observed, which is entered and left while work is done on its behalf, and ended with what came of it. Nobody observes
unless `observe` was called; then each of these places costs one look at a variable.

Must not know: OpenTelemetry, and at run time not even what is observed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from dragoman.conversation import Conversation, ToolCall, ToolSpec
    from dragoman.engines import BaseEngine, Reply
    from dragoman.loop import LoopRun
    from dragoman.providers import ModelOptions
    from dragoman.tools import AnyTool, Outcome

T = TypeVar("T")
CameT_contra = TypeVar("CameT_contra", contravariant=True)


class Observed(Protocol[CameT_contra]):
    """Something under way that is observed. It begins when it is first entered, or at the latest when it ends."""

    def enter(self) -> object:
        """What is done from here on is done on its behalf; gives what `leave` wants back."""
        ...

    def leave(self, before: object) -> None:
        """From here on it is as it was before, in whatever context this is called."""
        ...

    def mark(self) -> None:
        """The first part of what is awaited has come."""
        ...

    def reference(self) -> Mapping[str, str]:
        """By what another process can refer to it."""
        ...

    def end(self, came: CameT_contra | None, error: BaseException | None = None, *, ago: float = 0.0) -> None:
        """It is over, since so many seconds, with what came of it; a second end says nothing."""
        ...


class Observer(Protocol):
    """Is asked where something begins."""

    def run(self, run: LoopRun, engine: BaseEngine, id: Callable[[], str | None]) -> Observed[LoopRun]:
        """A run of the loop; `id` is that of its conversation, as soon as it has one."""
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
        """A call of a model, all attempts together."""
        ...

    def tool_call(self, call: ToolCall, tool: AnyTool | None) -> Observed[Outcome]:
        """A call of a tool, which may not be there; all tries together."""
        ...

    def save(self, id: str) -> Observed[None]:
        """The saving of a snapshot of this conversation."""
        ...


current: Observer | None = None
"""Who is to be told, if anybody is. Look at it as `dragoman._observer.current`: to call something would cost more."""


def observe(observer: Observer | None) -> None:
    """Tell this one from now on, or nobody; what has begun is still told to whom it was begun with."""
    global current  # noqa: PLW0603 - the one slot
    current = observer


@contextmanager
def within(observed: Observed[T] | None) -> Generator[None]:
    """Inside the block, work is done on its behalf."""
    if observed is None:
        yield
        return
    before = observed.enter()
    try:
        yield
    finally:
        observed.leave(before)


@contextmanager
def observing(observed: Observed[T], came: T | None = None) -> Generator[None]:
    """Inside the block, work is done on its behalf; it ends with the block."""
    try:
        with within(observed):
            yield
    except BaseException as error:
        observed.end(came, error)
        raise
    observed.end(came)


async def follow(
    observed: Observed[CameT_contra], events: AsyncGenerator[T, None], came: CameT_contra | None = None
) -> AsyncGenerator[T, None]:
    """The events; the work towards each is done on behalf of what is observed, and what the reader does is not.

    What came of it, where that is given, is what it ends with; else somebody else ends it.
    """
    problem: BaseException | None = None
    try:
        while True:
            before = observed.enter()
            try:
                event = await anext(events)
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
            await events.aclose()
        if came is not None:
            observed.end(came, problem)
