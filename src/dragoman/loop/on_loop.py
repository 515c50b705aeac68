"""Driving a run on an event loop.

Owns: carrying out the effects with an async engine and an executor, and the stream that a caller iterates.
Must not know: what the effects are for. The twin of plain.py, and no longer than it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Self, cast

from dragoman.conversation import Event, ToolFinished, ToolStarted
from dragoman.engines.engine import AsyncEngine

from .driving import Driven
from .effects import CallModel, CallTools
from .hooks import Hook
from .run import LoopRun
from .troubles import beside
from .watching import Watched

if TYPE_CHECKING:
    from dragoman.tools.executor import ToolExecutor

__all__ = ["AsyncRunStream", "acarry_out", "adrive"]


async def acarry_out(run: LoopRun, engine: AsyncEngine, executor: ToolExecutor) -> None:
    """Carry a run out that nobody watches: the model is asked for whole replies."""
    with Driven(run, run.effects()) as driven:
        while (effect := driven.next()) is not None:
            try:
                if isinstance(effect, CallModel):
                    driven.answer = await engine.reply(effect.conversation, tools=effect.tools, options=effect.options)
                elif isinstance(effect, CallTools):
                    async with aclosing(executor.aevents(effect.batch)) as events:
                        async for event in events:
                            await _tell_of(event, run)
                else:
                    await _tell(effect.hook)
            except Exception as error:  # noqa: BLE001 -- the run raises it
                driven.failure = error


async def adrive(run: LoopRun, engine: AsyncEngine, executor: ToolExecutor) -> AsyncGenerator[Event, None]:
    """Carry a run out, and give the events of replies and tools as they come."""
    with Driven(run, run.effects()) as driven:
        while (effect := driven.next()) is not None:
            try:
                if isinstance(effect, CallModel):
                    asked, tools, options = effect.conversation, effect.tools, effect.options
                    if not effect.streamed:
                        driven.answer = await engine.reply(asked, tools=tools, options=options)
                        continue
                    async with engine.stream(asked, tools=tools, options=options) as arriving:
                        try:
                            async for event in arriving:
                                yield event
                                if run.cancelled:
                                    break
                        finally:
                            run.partial = arriving.message
                        driven.answer = arriving.reply
                elif isinstance(effect, CallTools):
                    async with aclosing(executor.aevents(effect.batch)) as events:
                        async for event in events:
                            await _tell_of(event, run)
                            yield event
                else:
                    await _tell(effect.hook)
            except Exception as error:  # noqa: BLE001 -- the run raises it
                driven.failure = error


async def _tell_of(event: ToolStarted | ToolFinished, run: LoopRun) -> None:
    for hook in run.hooks:
        if isinstance(event, ToolStarted):
            await _tell(hook.tool_started(run, event.call))
        else:
            await _tell(hook.tool_finished(run, event.result))


async def _tell(hook: Hook) -> None:
    if hook is None:
        return
    from inspect import isawaitable

    if isawaitable(hook):
        await hook


class AsyncRunStream(Watched):
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
        with beside(error):
            await self.aclose()
