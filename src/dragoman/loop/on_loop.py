"""Driving a run on an event loop.

Owns: carrying out the effects with an async engine and an executor, and the stream that a caller iterates.
Must not know: what the effects are for. The twin of plain.py, and no longer than it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from inspect import isawaitable
from typing import Self

from dragoman.conversation import Conversation, Event, ToolStarted
from dragoman.engines.engine import AsyncEngine
from dragoman.engines.reply import Reply
from dragoman.errors import DragomanError
from dragoman.tools.execution.executor import ToolExecutor

from .hooks import Hook
from .run import CallModel, CallTools, RunResult, LoopRun

__all__ = ["AsyncRunStream", "adrive"]


async def adrive(
    run: LoopRun, engine: AsyncEngine, executor: ToolExecutor, *, stream: bool
) -> AsyncGenerator[Event, None]:
    """Carry a run out, and give its events as they come: those of tools, and those of replies if it is streamed."""
    effects = run.effects()
    answer: Reply | None = None
    failure: DragomanError | None = None
    try:
        while True:
            try:
                effect = effects.send(answer) if failure is None else effects.throw(failure)
            except StopIteration:
                return
            answer = failure = None
            try:
                if isinstance(effect, CallModel):
                    if not (stream and effect.streamed):
                        answer = await engine.reply(effect.conversation, tools=effect.tools, options=effect.options)
                        continue
                    async with engine.stream(
                        effect.conversation, tools=effect.tools, options=effect.options
                    ) as arriving:
                        try:
                            async for event in arriving:
                                yield event
                                if run.cancelled:
                                    break
                        finally:
                            run.partial = arriving.message
                        answer = arriving.reply
                elif isinstance(effect, CallTools):
                    async with aclosing(executor.aevents(effect.batch)) as events:
                        async for event in events:
                            for hook in run.hooks:
                                if isinstance(event, ToolStarted):
                                    await _tell(hook.tool_started(run, event.call))
                                else:
                                    await _tell(hook.tool_finished(run, event.result))
                            yield event
                else:
                    await _tell(effect.hook)
            except DragomanError as error:
                failure = error
    finally:
        effects.close()
        run.settle()


async def _tell(hook: Hook) -> None:
    if isawaitable(hook):
        await hook


class AsyncRunStream:
    """A run while it happens: iterate it inside an `async with` block, which stops the run however it is left."""

    def __init__(self, run: LoopRun, events: AsyncGenerator[Event, None]) -> None:
        self._run: LoopRun = run
        self._events: AsyncGenerator[Event, None] = events

    @property
    def conversation(self) -> Conversation:
        """As far as it has got; complete and valid once the block is left."""
        return self._run.conversation

    @property
    def result(self) -> RunResult:
        """What came of the run, once it has ended."""
        return self._run.result

    def cancel(self) -> None:
        """Stop the run, from any thread; what was done stays in the conversation."""
        self._run.cancel()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    async def aclose(self) -> None:
        """Stop the run and release its connection."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()
