"""A model, tools and settings, bound once and run many times; and the loop as functions.

Nothing here holds a conversation: each run returns it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Generic, Self, TypeAlias, TypedDict, TypeVar, Unpack

import dragoman._observer
import dragoman.loop
from dragoman._checks import check_names
from dragoman._observer import follow
from dragoman._stepping import exhaust, step
from dragoman.conversation import Conversation, Event, ToolCall, ToolResult
from dragoman.engines import AsyncEngine, Engine, Models, adopt, async_engine, engine, made_here
from dragoman.errors import ConfigurationError
from dragoman.tools import AnyTools, Approval, PendingApproval, ToolConfig, ToolExecutor

from .context import warn_of_unknown_window
from .io import AsyncIO, AsyncRunStream, LoopIO, PlainIO, RunStream, close_engine
from .result import RunResult
from .run import LoopRun
from .settings import LoopOptions, LoopSettings, settings_of
from .step import Spent

if TYPE_CHECKING:
    from .durable import DurableStep

E = TypeVar("E", bound=Engine | AsyncEngine)

LoopTools: TypeAlias = AnyTools | ToolExecutor
"""Tools in any form, or an executor that has them and a config of its own."""


def _executor_for(tools: LoopTools, config: ToolConfig | None) -> ToolExecutor:
    """An executor for these tools. An executor comes with its config, so a second config is an error."""
    if not isinstance(tools, ToolExecutor):
        return ToolExecutor(tools, config)
    if config is not None:
        message = "The executor has a config of its own."
        raise ConfigurationError(message, hint="Give the config to the executor, or give tools instead of it.")
    return tools


class RunOptions(TypedDict, total=False):
    """What a run continues from an earlier one."""

    approvals: Iterable[Approval]
    """Answers to calls that wait for approval."""
    waiting: Iterable[PendingApproval]
    """The calls that wait for approval, `result.pending` of the earlier run; unanswered ones are not run."""
    spent: Spent
    """What the earlier run used: limits apply to both together."""


class _Bound(Generic[E]):
    """What the sync and the async orchestrator share."""

    def __init__(
        self, engine: E, tools: LoopTools, config: ToolConfig | None, given: LoopOptions, *, owned: bool
    ) -> None:
        check_names(given, LoopOptions.__annotations__, "An orchestrator")
        self.engine: E = engine
        self._owns_engine: bool = owned
        self._owns_executor: bool = not isinstance(tools, ToolExecutor)
        self.executor: ToolExecutor = _executor_for(tools, config)
        self.settings: LoopSettings = settings_of(given, engine.options, self.executor.config)
        warn_of_unknown_window(self.settings.context, engine)

    def start(self, conversation: Conversation, **given: Unpack[RunOptions]) -> LoopRun:
        """A run that has not started. Its system prompt is ours, or the conversation's if we have none."""
        return LoopRun(conversation, self.executor, self.settings, **given)

    async def _complete(self, run: LoopRun, io: LoopIO) -> RunResult:
        await exhaust(self._events(run, io, streamed=False))
        return run.result

    def _events(self, run: LoopRun, io: LoopIO, *, streamed: bool = True) -> AsyncGenerator[Event, None]:
        events = run.events(io, streamed=streamed)
        if (told := dragoman._observer.current) is None:
            return events
        run.observed = told.run(run, self.engine, lambda: None)
        return follow(run.observed, events, run)

    async def _close(self) -> None:
        if self._owns_executor:
            self.executor.close()
        if self._owns_engine:
            await close_engine(self.engine)


class Orchestrator(_Bound[Engine]):
    """The loop for a sync program. Safe to share between threads; close it to end its worker threads."""

    def __init__(
        self,
        model: Engine | Models[Engine],
        tools: LoopTools = (),
        config: ToolConfig | None = None,
        **options: Unpack[LoopOptions],
    ) -> None:
        found = engine(model) if isinstance(model, str | Sequence) else adopt(model, Engine)
        super().__init__(found, tools, config, options, owned=made_here(found, model))

    def run(self, conversation: Conversation, **given: Unpack[RunOptions]) -> RunResult:
        """Run the conversation to its end, or until a call needs approval."""
        return step(self._complete(self.start(conversation, **given), PlainIO(self.engine, self.executor)))

    def stream(self, conversation: Conversation, **given: Unpack[RunOptions]) -> RunStream:
        """`run` as a stream of events; use it in a `with` block."""
        run = self.start(conversation, **given)
        return RunStream([run], self._events(run, PlainIO(self.engine, self.executor)))

    def close(self) -> None:
        """End the worker threads, and close the engine if it was created here."""
        step(self._close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class AsyncOrchestrator(_Bound[AsyncEngine]):
    """The loop for a program on an event loop. Safe to share between tasks."""

    def __init__(
        self,
        model: AsyncEngine | Models[AsyncEngine],
        tools: LoopTools = (),
        config: ToolConfig | None = None,
        **options: Unpack[LoopOptions],
    ) -> None:
        found = async_engine(model) if isinstance(model, str | Sequence) else adopt(model, AsyncEngine)
        super().__init__(found, tools, config, options, owned=made_here(found, model))

    async def run(
        self, conversation: Conversation, *, step: DurableStep | None = None, **given: Unpack[RunOptions]
    ) -> RunResult:
        """Run the conversation to its end, or until a call needs approval.

        With the `step` of a workflow engine every model call and tool call is stored there, and a run that is started
        again after a crash continues where it was; see DurableStep.
        """
        run = self.start(conversation, **given)
        io: LoopIO = AsyncIO(self.engine, self.executor)
        if step is not None:
            io = dragoman.loop.DurableIO(step, self.engine, self.executor)  # loaded only now
        return await self._complete(run, io)

    def stream(self, conversation: Conversation, **given: Unpack[RunOptions]) -> AsyncRunStream:
        """`run` as a stream of events; use it in an `async with` block."""
        run = self.start(conversation, **given)
        return AsyncRunStream([run], self._events(run, AsyncIO(self.engine, self.executor)))

    async def aclose(self) -> None:
        """End the worker threads, and close the engine if it was created here."""
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


# --- as functions ---------------------------------------------------------------------------------------------------


def execute_tool_calls(
    calls: Iterable[ToolCall], tools: LoopTools, config: ToolConfig | None = None
) -> tuple[ToolResult, ...]:
    """The results of these calls, in order. A tool that fails gives an error result.

    A call that needs approval has no result; for approvals, use an executor or the whole loop.
    """
    executor = _executor_for(tools, config)
    with nullcontext() if executor is tools else executor:
        return executor.execute_all(calls).results


async def aexecute_tool_calls(
    calls: Iterable[ToolCall], tools: LoopTools, config: ToolConfig | None = None
) -> tuple[ToolResult, ...]:
    """`execute_tool_calls` on the caller's event loop."""
    executor = _executor_for(tools, config)
    async with nullcontext() if executor is tools else executor:
        return (await executor.aexecute_all(calls)).results


def run_tool_calling_loop(
    engine: Engine, conversation: Conversation, tools: LoopTools, config: ToolConfig | None = None
) -> Conversation:
    """Ask the model, run the tools it calls, and ask again, until it answers without calling one.

    After `config.max_iterations` replies StepLimitError is raised, with the conversation, which can be continued. Calls
    that need approval end the loop too: the conversation then has `pending_tool_calls`.
    """
    with Orchestrator(engine, tools, config) as orchestrator:
        return orchestrator.run(conversation).conversation


async def arun_tool_calling_loop(
    engine: AsyncEngine, conversation: Conversation, tools: LoopTools, config: ToolConfig | None = None
) -> Conversation:
    """`run_tool_calling_loop` on the caller's event loop."""
    async with AsyncOrchestrator(engine, tools, config) as orchestrator:
        return (await orchestrator.run(conversation)).conversation
