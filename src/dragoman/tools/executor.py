"""The executor: the one place where tools are run, timed, limited and logged.

It runs one call or many, sync or async, and returns results or events; `execute_tool` runs one tool by name. call.py
executes one call, batch.py several, and threads.py decides where functions run.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from typing import Final, Never, TypeAlias

import msgspec
from msgspec import Struct

import dragoman.tools
from dragoman._checks import refuse_unknown
from dragoman._stepping import exhaust, step, step_through
from dragoman._stop import shorter
from dragoman.conversation import ToolCall, ToolResult
from dragoman.errors import ConfigurationError, ToolDeniedError, ToolError

from .batch import Batch, ToolEvent
from .call import Middleware, Outcome, Settings, error_of, failure
from .crashes import Crash, tell, word
from .registry import AnyTools, ToolSet, as_tool_set
from .run import PendingApproval, PermissionCheck, ToolConfig, ToolRun
from .threads import AsyncRunner, LoopThread, Runner, WorkerThreads

OnResult: TypeAlias = Callable[[ToolCall, ToolResult], None]
"""Called once for every call when its result is known, for example for metrics."""

ToolInput: TypeAlias = str | bytes | Mapping[str, object]
"""A call's arguments: JSON text, or a mapping."""

# Created once: Ctrl-C inside `getLogger` would leave the lock of the logging module held.
_LOGGER: Final = logging.getLogger("dragoman.tools")


class Executed(Struct, frozen=True):
    """The results of a batch of calls."""

    results: tuple[ToolResult, ...]
    """The results, in call order, without the calls in `pending`."""
    pending: tuple[PendingApproval, ...] = ()
    """Calls that wait for approval; run them again with their approvals."""


class ToolExecutor:
    """Runs tools. Safe to share between threads; close it (or use it in a `with` block) to end its threads.

    Whatever a tool does, a call ends with exactly one result: unknown tool, invalid arguments, denied, out of budget,
    timed out, cancelled and crashed are results too, which tell the model what happened.
    """

    def __init__(
        self,
        tools: AnyTools = (),
        config: ToolConfig | None = None,
        *,
        permission: PermissionCheck | None = None,
        middleware: Sequence[Middleware] = (),
        on_result: OnResult | None = None,
        logger: logging.Logger | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, ToolExecutor.__init__, "ToolExecutor")
        if config is not None and not isinstance(config, ToolConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"config is a {type(config).__name__}.", hint="Say config=ToolConfig(...).")
        self.tools: ToolSet = as_tool_set(tools)
        self.config: ToolConfig = config or ToolConfig()
        self._logger: logging.Logger = logger or _LOGGER
        self._settings: Settings = Settings(self.config, permission, tuple(middleware), self._logger)
        self._on_result: OnResult | None = on_result
        self._workers: WorkerThreads = WorkerThreads()
        self._loop: LoopThread = LoopThread()

    # --- one call ---

    def execute(self, call: ToolCall, run: ToolRun | None = None) -> ToolResult:
        """Run one call. A call that needs approval and has none is not run, and its result says so."""
        return self.outcome(call, run).result

    async def aexecute(self, call: ToolCall, run: ToolRun | None = None) -> ToolResult:
        """`execute` on the caller's event loop."""
        return (await self.aoutcome(call, run)).result

    def outcome(self, call: ToolCall, run: ToolRun | None = None) -> Outcome:
        """`execute`, with the error behind a failed result."""
        batch = self.batch((call,), run)
        step(exhaust(self.stepped_events(batch)))
        return _only_outcome(batch)

    async def aoutcome(self, call: ToolCall, run: ToolRun | None = None) -> Outcome:
        """`outcome` on the caller's event loop."""
        batch = self.batch((call,), run)
        await exhaust(self.aevents(batch))
        return _only_outcome(batch)

    # --- many calls ---

    def execute_all(self, calls: Iterable[ToolCall], run: ToolRun | None = None) -> Executed:
        """Run the calls of one message, in parallel up to the cap. Raises only under the policy `abort`."""
        batch = self.batch(calls, run)
        step(exhaust(self.stepped_events(batch)))
        return _executed(batch)

    async def aexecute_all(self, calls: Iterable[ToolCall], run: ToolRun | None = None) -> Executed:
        """`execute_all` on the caller's event loop."""
        batch = self.batch(calls, run)
        await exhaust(self.aevents(batch))
        return _executed(batch)

    # --- many calls, as events ---

    def batch(self, calls: Iterable[ToolCall], run: ToolRun | None = None, tools: ToolSet | None = None) -> Batch:
        """Prepare calls for `events` or `aevents`. The batch has a result for every call even if these end early.

        `tools` are the tools of this step, if a function supplies them.
        """
        run, tools = run or ToolRun(), self.tools if tools is None else tools
        if tools.function is not None:
            message = "The tools are supplied by a function, which is only called in a run of the loop."
            raise ConfigurationError(message, hint="Run them in a loop, or pass the tools themselves.")
        if self.config.run_timeout is not None:
            run.deadline = shorter(run.deadline, run.began + self.config.run_timeout)
        return Batch(self.searched(tools), tuple(calls), run, self._settings, self._record)

    def searched(self, tools: ToolSet) -> ToolSet:
        """These tools, with the search tool added if the config asks for it."""
        if self.config.search is None:
            return tools
        return dragoman.tools.many_tools(tools, self.config) or tools  # loaded only now

    def events(self, batch: Batch) -> Generator[ToolEvent, None, None]:
        """Run a batch and yield its events. Closing the generator cancels the calls still running."""
        return step_through(self.stepped_events(batch))

    def stepped_events(self, batch: Batch) -> AsyncGenerator[ToolEvent, None]:
        """`events` as an async generator that never suspends."""
        return batch.events(Runner(self._workers, self._loop, inline=self.config.max_parallel_tools == 1))

    def aevents(self, batch: Batch) -> AsyncGenerator[ToolEvent, None]:
        """`events` on the caller's event loop. Close it (`contextlib.aclosing`) if you may leave it early."""
        return batch.events(AsyncRunner(self._workers))

    # --- the threads ---

    @property
    def abandoned(self) -> int:
        """How many timed-out or cancelled functions still run in a thread."""
        return self._workers.abandoned

    def close(self) -> None:
        """End the threads. Abandoned functions are not waited for."""
        self._loop.close()
        self._workers.close()

    def __enter__(self) -> ToolExecutor:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    async def __aenter__(self) -> ToolExecutor:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self.close()

    # --- inside ---

    def _record(self, call: ToolCall, result: ToolResult, run: ToolRun) -> None:
        """Called at the end of every call: the `on_result` hook and the log line.

        The line has key=value pairs; structured handlers find the same fields on the record as `tool_call`. Arguments
        and results are the user's data, so only their size is logged. If the program has not set up logging, nothing
        is written, not even by Python's last-resort handler: what a tool says about a call is for the model, which
        reads it and goes on. A crash is not. The model can neither mend it nor be relied on to mention it, so a program
        whose every call fails would look well; `tell` logs crashes, with their text, also where logging was never set
        up.
        """
        if self._on_result is not None:
            try:
                self._on_result(call, result)
            except Exception as error:  # noqa: BLE001 -- a hook is foreign code; the result stands
                tell(Crash(f"the on_result hook failed for tool {word(call.name)}", error), run, self._logger)
        level = logging.WARNING if result.is_error else logging.INFO
        if not self._logger.isEnabledFor(level) or not self._logger.hasHandlers():
            return
        fields = {
            "tool": word(call.name),
            "call_id": word(call.id),
            "outcome": result.error_type or ("error" if result.is_error else "ok"),
            "duration_ms": round((result.duration or 0.0) * 1000, 3),
            "retries": result.retries,
            "arguments": f"<{len(call.arguments)} characters>",
            "result": f"<{len(result.text)} characters>",
        }
        line = " ".join([f"{key}={value}" for key, value in fields.items()])
        self._logger.log(level, line, extra={"tool_call": fields})


def _only_outcome(batch: Batch) -> Outcome:
    (end,) = batch.outcomes
    if isinstance(end, Outcome):
        return end
    message, hint = f"tool {end.call.name!r} was not run: {end.reason}.", "A person must approve it first."
    error = error_of(end.call, ToolDeniedError, message, details=end, hint=hint)
    return Outcome(failure(end.call, error, 0.0), error)


def _executed(batch: Batch) -> Executed:
    aborted = batch.abortion
    if aborted is not None:
        raise aborted
    return Executed(batch.results, batch.pending)


# --- one tool by its name ---------------------------------------------------------------------------------------------


def execute_tool(tools: AnyTools, name: str, arguments: ToolInput = "") -> str:
    """Run a tool and return its result as text. Raises ToolNotFoundError, ToolValidationError, ToolExecutionError …"""
    with ToolExecutor(tools) as executor:
        return _text_or_raise(executor.outcome(_call(name, arguments)))


async def aexecute_tool(tools: AnyTools, name: str, arguments: ToolInput = "") -> str:
    """`execute_tool` on the caller's event loop."""
    async with ToolExecutor(tools) as executor:
        return _text_or_raise(await executor.aoutcome(_call(name, arguments)))


def tool_result_or_error(tools: AnyTools, name: str, arguments: ToolInput = "") -> str:
    """Run a tool and return what the model would read: the result, or the text of the error."""
    try:
        return execute_tool(tools, name, arguments)
    except ToolError as error:
        return str(error)


async def atool_result_or_error(tools: AnyTools, name: str, arguments: ToolInput = "") -> str:
    """`tool_result_or_error` on the caller's event loop."""
    try:
        return await aexecute_tool(tools, name, arguments)
    except ToolError as error:
        return str(error)


def _call(name: str, arguments: ToolInput) -> ToolCall:
    if isinstance(arguments, bytes):
        arguments = arguments.decode("utf-8", "replace")
    elif not isinstance(arguments, str):
        arguments = msgspec.json.encode(dict(arguments)).decode()
    return ToolCall(id="", name=name, arguments=arguments)


def _text_or_raise(outcome: Outcome) -> str:
    if outcome.error is not None:
        raise outcome.error
    return outcome.result.text
