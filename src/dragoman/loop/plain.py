"""Driving a run in a plain program.

Owns: carrying out the effects with an engine and an executor, and the stream that a caller iterates.
Must not know: what the effects are for.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from types import GeneratorType
from typing import TYPE_CHECKING, Self, cast

from dragoman.conversation import Event, ToolFinished, ToolStarted
from dragoman.engines.engine import Engine
from dragoman.engines.reply import Reply
from dragoman.errors import ConfigurationError

from .driving import Driven
from .effects import CallModel, CallTools
from .hooks import Hook
from .run import LoopRun
from .troubles import beside
from .watching import Watched

if TYPE_CHECKING:
    from dragoman.tools.executor import ToolExecutor

__all__ = ["RunStream", "carry_out", "drive"]


def carry_out(run: LoopRun, engine: Engine, executor: ToolExecutor) -> None:
    """Carry a run out that nobody watches: the model is asked for whole replies."""
    with Driven(run, run.effects()) as driven:
        while (effect := driven.next()) is not None:
            try:
                if isinstance(effect, CallModel):
                    driven.answer = engine.reply(effect.conversation, tools=effect.tools, options=effect.options)
                elif isinstance(effect, CallTools):
                    with closing(executor.events(effect.batch)) as events:
                        for event in events:
                            _tell_of(event, run)
                else:
                    _tell(effect.hook)
            except Exception as error:  # noqa: BLE001 -- the run raises it
                driven.failure = error


def drive(run: LoopRun, engine: Engine, executor: ToolExecutor) -> Generator[Event, None, None]:
    """Carry a run out, and give the events of replies and tools as they come."""
    with Driven(run, run.effects()) as driven:
        while (effect := driven.next()) is not None:
            try:
                if isinstance(effect, CallModel):
                    if effect.streamed:
                        driven.answer = yield from _streamed(run, engine, effect)
                    else:
                        driven.answer = engine.reply(effect.conversation, tools=effect.tools, options=effect.options)
                elif isinstance(effect, CallTools):
                    with closing(executor.events(effect.batch)) as events:
                        for event in events:
                            _tell_of(event, run)
                            yield event
                else:
                    _tell(effect.hook)
            except Exception as error:  # noqa: BLE001 -- the run raises it
                driven.failure = error


def _streamed(run: LoopRun, engine: Engine, asked: CallModel) -> Generator[Event, None, Reply]:
    with engine.stream(asked.conversation, tools=asked.tools, options=asked.options) as stream:
        try:
            for event in stream:
                yield event
                if run.cancelled:
                    break
        finally:
            run.partial = stream.message
        return stream.reply


def _tell_of(event: ToolStarted | ToolFinished, run: LoopRun) -> None:
    for hook in run.hooks:
        if isinstance(event, ToolStarted):
            _tell(hook.tool_started(run, event.call))
        else:
            _tell(hook.tool_finished(run, event.result))


def _tell(hook: Hook) -> None:
    if hook is None:
        return
    from inspect import isawaitable

    if isawaitable(hook):
        close = getattr(hook, "close", None)
        if close is not None:
            close()
        message = "A hook of this run is async, but the run is not."
        raise ConfigurationError(message, hint="Use plain methods in the hooks, or the async client.")


class RunStream(Watched):
    """A run while it happens: iterate it inside a `with` block, which stops the run however it is left."""

    def __init__(self, begun: Sequence[LoopRun], events: Generator[Event, None, None]) -> None:
        super().__init__(begun)
        self._events: Generator[Event, None, None] = events

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
        with beside(error):
            self.close()
