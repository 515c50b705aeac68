"""A model, tools and settings, bound once and run often.

Owns: Orchestrator and AsyncOrchestrator, thin objects over the one loop.
Must not know: how the loop goes. They hold no conversation: whoever runs one gets it back.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable
from typing import Self, Unpack

from dragoman._stepping import step, step_through
from dragoman.conversation import Conversation, Event
from dragoman.engines.engine import AsyncEngine, Engine
from dragoman.engines.factory import async_engine, engine
from dragoman.errors import ConfigurationError
from dragoman.providers.profile import Profile
from dragoman.tools.executor import ToolExecutor
from dragoman.tools.permission import Approval
from dragoman.tools.registry import AnyTools
from dragoman.tools.run import ToolConfig

from .io import AsyncIO, PlainIO
from .run import LoopRun, RunResult
from .settings import LoopOptions, LoopSettings, settings_of
from .stream import AsyncRunStream, RunStream


def configured(executor: ToolExecutor, config: ToolConfig | None) -> ToolExecutor:
    """The executor, which has a config of its own: another one beside it is an error."""
    if config is not None:
        message = "The executor has a config of its own."
        raise ConfigurationError(message, hint="Give the config to the executor, or give tools instead of it.")
    return executor


class _Bound:
    """What both colours share."""

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        tools: AnyTools | ToolExecutor,
        config: ToolConfig | None,
        given: LoopOptions,
        *,
        owns_engine: bool,
    ) -> None:
        self._profile: Profile = engine.profile
        self._owns_engine: bool = owns_engine
        self._owns_executor: bool = not isinstance(tools, ToolExecutor)
        self.executor: ToolExecutor = (
            configured(tools, config) if isinstance(tools, ToolExecutor) else ToolExecutor(tools, config)
        )
        self.settings: LoopSettings = settings_of(given, engine.options, self.executor.config)

    def start(self, conversation: Conversation, approvals: Iterable[Approval] = ()) -> LoopRun:
        """A run that is yet to be driven."""
        return LoopRun(conversation, self.executor, self.settings, self._profile, approvals=approvals)


class Orchestrator(_Bound):
    """The loop for a plain program. Safe to share between threads; close it to end its threads."""

    def __init__(
        self,
        model: Engine | str,
        tools: AnyTools | ToolExecutor = (),
        config: ToolConfig | None = None,
        **options: Unpack[LoopOptions],
    ) -> None:
        self.engine: Engine = engine(model) if isinstance(model, str) else model
        super().__init__(self.engine, tools, config, options, owns_engine=isinstance(model, str))

    def run(self, conversation: Conversation, *, approvals: Iterable[Approval] = ()) -> RunResult:
        """Run the conversation to its end, or to where a person is needed."""
        run = self.start(conversation, approvals)
        step(run.complete(PlainIO(self.engine, self.executor)))
        return run.result

    def stream(self, conversation: Conversation, *, approvals: Iterable[Approval] = ()) -> RunStream:
        """`run`, with everything that happens as it happens; use it in a `with` block."""
        run = self.start(conversation, approvals)
        return RunStream([run], run.events(PlainIO(self.engine, self.executor), streamed=True))

    def drive(self, run: LoopRun) -> Generator[Event, None, None]:
        """Carry out a run that `start` gave, and tell what happens as it happens."""
        return step_through(run.events(PlainIO(self.engine, self.executor), streamed=True))

    def close(self) -> None:
        """End the threads; and close the engine, if it was made here."""
        if self._owns_executor:
            self.executor.close()
        if self._owns_engine:
            self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class AsyncOrchestrator(_Bound):
    """The loop for a program on an event loop. Safe to share between tasks."""

    def __init__(
        self,
        model: AsyncEngine | str,
        tools: AnyTools | ToolExecutor = (),
        config: ToolConfig | None = None,
        **options: Unpack[LoopOptions],
    ) -> None:
        self.engine: AsyncEngine = async_engine(model) if isinstance(model, str) else model
        super().__init__(self.engine, tools, config, options, owns_engine=isinstance(model, str))

    async def run(self, conversation: Conversation, *, approvals: Iterable[Approval] = ()) -> RunResult:
        """Run the conversation to its end, or to where a person is needed."""
        run = self.start(conversation, approvals)
        await run.complete(AsyncIO(self.engine, self.executor))
        return run.result

    def stream(self, conversation: Conversation, *, approvals: Iterable[Approval] = ()) -> AsyncRunStream:
        """`run`, with everything that happens as it happens; use it in an `async with` block."""
        run = self.start(conversation, approvals)
        return AsyncRunStream([run], self.drive(run))

    def drive(self, run: LoopRun) -> AsyncGenerator[Event, None]:
        """Carry out a run that `start` gave, and tell what happens as it happens."""
        return run.events(AsyncIO(self.engine, self.executor), streamed=True)

    async def aclose(self) -> None:
        """End the threads; and close the engine, if it was made here."""
        if self._owns_executor:
            self.executor.close()
        if self._owns_engine:
            await self.engine.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()
