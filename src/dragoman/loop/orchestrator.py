"""A model, tools and settings, bound once and run often; and the loop as functions, whole and in pieces.

Nothing here holds a conversation: whoever runs one gets it back.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Generic, Self, TypeAlias, TypeVar, Unpack

from dragoman._checks import check_names
from dragoman._stepping import step
from dragoman.conversation import Conversation, ToolCall, ToolResult
from dragoman.engines import AsyncEngine, Engine, adopt, async_engine, engine
from dragoman.errors import ConfigurationError
from dragoman.tools import AnyTools, Approval, ToolConfig, ToolExecutor

from .io import AsyncIO, PlainIO, close_engine
from .run import LoopRun, RunResult
from .settings import LoopOptions, LoopSettings, settings_of
from .stream import AsyncRunStream, RunStream

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

    def start(self, conversation: Conversation, approvals: Iterable[Approval] = ()) -> LoopRun:
        """A run that is yet to be driven."""
        return LoopRun(conversation, self.executor, self.settings, self.engine.profile, approvals=approvals)

    async def _close(self) -> None:
        if self._owns_executor:
            self.executor.close()
        if self._owns_engine:
            await close_engine(self.engine)


class Orchestrator(_Bound[Engine]):
    """The loop for a plain program. Safe to share between threads; close it to end its threads."""

    def __init__(
        self,
        model: Engine | str,
        tools: LoopTools = (),
        config: ToolConfig | None = None,
        **options: Unpack[LoopOptions],
    ) -> None:
        found = engine(model) if isinstance(model, str) else adopt(model, Engine)
        super().__init__(found, tools, config, options, owned=isinstance(model, str))

    def run(self, conversation: Conversation, *, approvals: Iterable[Approval] = ()) -> RunResult:
        """Run the conversation to its end, or to where a person is needed."""
        run = self.start(conversation, approvals)
        step(run.complete(PlainIO(self.engine, self.executor)))
        return run.result

    def stream(self, conversation: Conversation, *, approvals: Iterable[Approval] = ()) -> RunStream:
        """`run`, with everything that happens as it happens; use it in a `with` block."""
        run = self.start(conversation, approvals)
        return RunStream([run], run.events(PlainIO(self.engine, self.executor), streamed=True))

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
        model: AsyncEngine | str,
        tools: LoopTools = (),
        config: ToolConfig | None = None,
        **options: Unpack[LoopOptions],
    ) -> None:
        found = async_engine(model) if isinstance(model, str) else adopt(model, AsyncEngine)
        super().__init__(found, tools, config, options, owned=isinstance(model, str))

    async def run(self, conversation: Conversation, *, approvals: Iterable[Approval] = ()) -> RunResult:
        """Run the conversation to its end, or to where a person is needed."""
        run = self.start(conversation, approvals)
        await run.complete(AsyncIO(self.engine, self.executor))
        return run.result

    def stream(self, conversation: Conversation, *, approvals: Iterable[Approval] = ()) -> AsyncRunStream:
        """`run`, with everything that happens as it happens; use it in an `async with` block."""
        run = self.start(conversation, approvals)
        return AsyncRunStream([run], run.events(AsyncIO(self.engine, self.executor), streamed=True))

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
