"""A model, tools and settings, bound once and run often; and the loop as functions, whole and in pieces.

Nothing here holds a conversation: whoever runs one gets it back.
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

from .io import AsyncIO, AsyncRunStream, LoopIO, PlainIO, RunStream, close_engine
from .result import RunResult
from .run import LoopRun
from .settings import LoopOptions, LoopSettings, settings_of, split_instructions
from .step import Spent

if TYPE_CHECKING:
    from .durable import DurableStep

E = TypeVar("E", bound=Engine | AsyncEngine)

LoopTools: TypeAlias = AnyTools | ToolExecutor
"""Tools in any form, or an executor that has them and a config of its own."""


def _executor_for(tools: LoopTools, config: ToolConfig | None) -> ToolExecutor:
    """An executor of these tools; one that was given has a config of its own, and another beside it is an error."""
    if not isinstance(tools, ToolExecutor):
        return ToolExecutor(tools, config)
    if config is not None:
        message = "The executor has a config of its own."
        raise ConfigurationError(message, hint="Give the config to the executor, or give tools instead of it.")
    return tools


class RunOptions(TypedDict, total=False):
    """What a run can go on with, of one before it."""

    approvals: Iterable[Approval]
    """Answers about calls that wait for a person."""
    waiting: Iterable[PendingApproval]
    """The calls that wait for a person, `result.pending` of the run before; those without an answer are not run."""
    spent: Spent
    """What was spent before: limits hold for both together."""


class _Bound(Generic[E]):
    """What both colours share."""

    def __init__(
        self, engine: E, tools: LoopTools, config: ToolConfig | None, given: LoopOptions, *, owned: bool
    ) -> None:
        check_names(given, LoopOptions.__annotations__, "An orchestrator")
        self.engine: E = engine
        self._owns_engine: bool = owned
        self._owns_executor: bool = not isinstance(tools, ToolExecutor)
        self.executor: ToolExecutor = _executor_for(tools, config)
        self.settings: LoopSettings = settings_of(given, engine.options, self.executor.config)
        self._system: str | None = split_instructions(given.get("system"))[0]

    def start(self, conversation: Conversation, **given: Unpack[RunOptions]) -> LoopRun:
        """A run that is yet to be driven. The system prompt is for a conversation that has none."""
        if self._system is not None and conversation.system is None:
            conversation = conversation.with_system(self._system)
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
    """The loop for a plain program. Safe to share between threads; close it to end its threads."""

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
        """Run the conversation to its end, or to where a person is needed."""
        return step(self._complete(self.start(conversation, **given), PlainIO(self.engine, self.executor)))

    def stream(self, conversation: Conversation, **given: Unpack[RunOptions]) -> RunStream:
        """`run`, with everything that happens as it happens; use it in a `with` block."""
        run = self.start(conversation, **given)
        return RunStream([run], self._events(run, PlainIO(self.engine, self.executor)))

    def close(self) -> None:
        """End the threads; and close the engine, if it was made here."""
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
        """Run the conversation to its end, or to where a person is needed.

        With a `step` of a workflow engine every call of the model and of a tool is kept there, and a run that is
        started again after a crash goes on where it was; see DurableStep.
        """
        run = self.start(conversation, **given)
        io: LoopIO = AsyncIO(self.engine, self.executor)
        if step is not None:
            io = dragoman.loop.DurableIO(step, self.engine, self.executor)  # loaded only now
        return await self._complete(run, io)

    def stream(self, conversation: Conversation, **given: Unpack[RunOptions]) -> AsyncRunStream:
        """`run`, with everything that happens as it happens; use it in an `async with` block."""
        run = self.start(conversation, **given)
        return AsyncRunStream([run], self._events(run, AsyncIO(self.engine, self.executor)))

    async def aclose(self) -> None:
        """End the threads; and close the engine, if it was made here."""
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


# --- as functions ---------------------------------------------------------------------------------------------------


def execute_tool_calls(
    calls: Iterable[ToolCall], tools: LoopTools, config: ToolConfig | None = None
) -> tuple[ToolResult, ...]:
    """The results of these calls, in order. A tool that fails gives a result that says so.

    A call that needs a person's approval has no result; to ask for approvals, use an executor or the whole loop.
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

    After `config.max_iterations` answers StepLimitError is raised, with the conversation, which can be continued. Calls
    that need a person's approval end the loop too: the conversation then has `pending_tool_calls`.
    """
    with Orchestrator(engine, tools, config) as orchestrator:
        return orchestrator.run(conversation).conversation


async def arun_tool_calling_loop(
    engine: AsyncEngine, conversation: Conversation, tools: LoopTools, config: ToolConfig | None = None
) -> Conversation:
    """`run_tool_calling_loop` on the caller's event loop."""
    async with AsyncOrchestrator(engine, tools, config) as orchestrator:
        return (await orchestrator.run(conversation)).conversation
