"""The executor: the one place where tools are run, timed, limited and logged.

Owns: what callers see: one call or many, plain or async, as results or as events; the quick way for simple tools; the
threads.
Must not know: providers, the loop, or who is asked for permission.

How a call is carried out stands in procedure.py, how many are carried out together in batch.py, and where functions run
in plain_backend.py and async_backend.py.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from dragoman._chance import chance
from dragoman.conversation import ToolCall, ToolFinished, ToolResult, ToolStarted
from dragoman.errors import ToolDeniedError
from dragoman.tools.config import ToolConfig, ToolErrorHandling
from dragoman.tools.definition import AnyTool
from dragoman.tools.registry import AnyTools, ToolSet, as_tool_set

from .batch import Batch
from .effects import Invoke, discard
from .procedure import Middleware, Outcome, Settings
from .results import NOTHING, execution_error, failure, success
from .run import ToolRun
from .threads import LoopThread, WorkerThreads

if TYPE_CHECKING:
    import logging

    from dragoman.tools.permission import PendingApproval, PermissionCheck

__all__ = ["Executed", "OnResult", "ToolExecutor"]

_NOTHING_KNOWN: Mapping[str, AnyTool] = {}
_Quick: TypeAlias = tuple[Callable[[str], object], Callable[[object], tuple[object, ...]], Callable[..., object]]

OnResult: TypeAlias = Callable[[ToolCall, ToolResult], None]
"""Called once for every call, when its result is known: the place for metrics."""


class Executed(Struct, frozen=True):
    """What came of a batch of calls."""

    results: tuple[ToolResult, ...]
    """One result for every call, in call order, but for those in `pending`."""
    pending: tuple[PendingApproval, ...] = ()
    """Calls that wait for a person; run them again with their approvals."""


class ToolExecutor:
    """Runs tools. Safe to share between threads; close it (or use it in a `with` block) to end its threads.

    Whatever a tool does, a call ends with exactly one result: not found, invalid, denied, out of budget, timed out,
    cancelled and crashed are results too, and tell the model what happened.
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
        log_values: bool = False,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = chance,
    ) -> None:
        from . import log  # not before there is an executor: the standard library's logging takes long to import

        self.tools: ToolSet = as_tool_set(tools)
        self.config: ToolConfig = config or ToolConfig()
        self._settings: Settings = Settings(
            config=self.config,
            permission=permission,
            middleware=tuple(middleware),
            logger=logger or log.TOOLS,
            clock=clock,
            random=random,
        )
        self._on_result: OnResult | None = on_result
        self._observed: bool = on_result is not None or logger is not None
        self._log_values: bool = log_values
        self._logger: logging.Logger = self._settings.logger
        self._log: Callable[..., None] = log.log_call
        self._tools_log: logging.Logger = log.TOOLS
        self._package_log: logging.Logger = log.PACKAGE
        self._root_log: logging.Logger = log.ROOT
        self._clock: Callable[[], float] = clock
        self._workers: WorkerThreads = WorkerThreads()
        self._loop: LoopThread = LoopThread()
        self._learnt: tuple[Mapping[str, AnyTool], dict[str, _Quick]] = (_NOTHING_KNOWN, {})
        """The tools as they were when last looked at, and what the quick way needs of those that may go it."""
        self._unrestricted: bool = permission is None and not middleware and _is_unrestricted(self.config)

    # --- one call ---

    def execute(self, call: ToolCall, run: ToolRun | None = None) -> ToolResult:
        """Carry out one call. A call that needs approval and has none is not run, and its result says so."""
        try:
            by_name = self.tools.by_name
        except Exception:  # noqa: BLE001 -- a view whose tools conflict; the machinery makes a result of that
            by_name = _NOTHING_KNOWN
        known, quick_ways = self._learnt
        if by_name is not known:
            quick_ways = self._learn(by_name)
        quick = quick_ways.get(call.name)
        if quick is not None and run is None and not call.partial:
            # A plain function under no restriction needs none of the machinery, which costs more than most functions.
            decode, positional, function = quick
            clock = self._clock
            started = clock()
            try:
                decoded = decode(call.arguments)
            except Exception:  # noqa: BLE001, S110 -- the machinery finds out what is wrong
                pass
            else:
                try:
                    value: object = function(*positional(decoded))
                    if value is None:
                        result = ToolResult(call.id, call.name, NOTHING, False, None, None, clock() - started)
                    else:
                        if hasattr(type(value), "__await__"):
                            value = self._awaited(value)
                        result = success(call, value, clock() - started)
                except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever a tool raises belongs to its call
                    result = failure(call, execution_error(call, error), clock() - started)
                # Looking for handlers is several times cheaper than asking the logger for its level.
                if self._observed or self._tools_log.handlers or self._package_log.handlers or self._root_log.handlers:
                    self._record(call, result)
                return result
        return self.outcome(call, run).result

    async def aexecute(self, call: ToolCall, run: ToolRun | None = None) -> ToolResult:
        """`execute` on the caller's event loop."""
        return (await self.aoutcome(call, run)).result

    def outcome(self, call: ToolCall, run: ToolRun | None = None) -> Outcome:
        """`execute`, with the error behind a failed result."""
        batch = self.batch((call,), run)
        for _ in self._machinery(batch):
            pass
        return _only_outcome(batch)

    async def aoutcome(self, call: ToolCall, run: ToolRun | None = None) -> Outcome:
        """`outcome` on the caller's event loop."""
        batch = self.batch((call,), run)
        await self._exhaust(batch)
        return _only_outcome(batch)

    # --- many calls ---

    def execute_all(self, calls: Iterable[ToolCall], run: ToolRun | None = None) -> Executed:
        """Carry out the calls of one message, in parallel up to the cap. Raises only under the policy `abort`."""
        batch = self.batch(calls, run)
        for _ in self.events(batch):
            pass
        return _executed(batch)

    async def aexecute_all(self, calls: Iterable[ToolCall], run: ToolRun | None = None) -> Executed:
        """`execute_all` on the caller's event loop."""
        batch = self.batch(calls, run)
        await self._exhaust(batch)
        return _executed(batch)

    # --- many calls, step by step ---

    def batch(self, calls: Iterable[ToolCall], run: ToolRun | None = None) -> Batch:
        """Prepare calls for `events` or `aevents`. The batch's results are complete even if these are cut short."""
        run = run or ToolRun()
        if run.deadline is None and self.config.run_timeout is not None:
            run.deadline = self._clock() + self.config.run_timeout
        return Batch(self.tools, tuple(calls), run, self._settings, self._record)

    def events(self, batch: Batch) -> Generator[ToolStarted | ToolFinished, None, None]:
        """Carry a batch out and tell what happens. Closing the generator cancels what is still under way."""
        if self._goes_quickly(batch):
            return batch.at_once(self.execute)
        return self._machinery(batch)

    def _machinery(self, batch: Batch) -> Generator[ToolStarted | ToolFinished, None, None]:
        from .plain_backend import PlainBackend, events

        return events(batch, PlainBackend(self._workers, self._loop))

    def aevents(self, batch: Batch) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        """`events` on the caller's event loop. Close it (`contextlib.aclosing`) if you may leave it early."""
        from .async_backend import events

        return events(batch, self._workers)

    # --- the threads ---

    @property
    def abandoned(self) -> int:
        """How many timed-out or cancelled functions still run in a thread that nobody waits for."""
        return self._workers.abandoned

    def close(self) -> None:
        """End the threads. Abandoned functions end by themselves; nobody waits for them."""
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

    def _goes_quickly(self, batch: Batch) -> bool:
        """Whether the batch is one call that `execute` carries out without the machinery."""
        call, run = batch.calls[0] if len(batch.calls) == 1 else None, batch.run
        if call is None or call.partial or not self._unrestricted or run.deadline is not None or run.approval_of(call):
            return False
        try:
            tool = self.tools.find(call.name)
            if tool is None or not tool.simple:
                return False
            tool.arguments.decode(call.arguments)
        except Exception:  # noqa: BLE001 -- the machinery finds out what is wrong
            return False
        return True

    def _learn(self, by_name: Mapping[str, AnyTool]) -> dict[str, _Quick]:
        """Find out which of these tools may go the quick way."""
        simple = [tool for tool in by_name.values() if tool.simple and self._unrestricted]
        quick_ways = {t.name: (t.arguments.decode, t.arguments.positional, t.function) for t in simple}
        self._learnt = (by_name, quick_ways)  # as one: no thread combines old tools with new ways
        return quick_ways

    def _awaited(self, value: object) -> object:
        """What a plain function meant when it returned a coroutine after all."""
        from .plain_backend import awaited_elsewhere

        invoke = Invoke(lambda: value, is_async=True, timeout=None)
        try:
            return self._loop.submit(lambda: awaited_elsewhere(invoke)).result()
        finally:
            discard(value)

    async def _exhaust(self, batch: Batch) -> None:
        async with aclosing(self.aevents(batch)) as happenings:
            async for _ in happenings:
                pass

    def _record(self, call: ToolCall, result: ToolResult) -> None:
        """The one place every call passes at its end: the metrics hook and the log line."""
        if self._on_result is not None:
            try:
                self._on_result(call, result)
            except Exception:
                self._logger.exception("the on_result hook failed for tool %s", call.name)
        self._log(self._logger, call, result, show_values=self._log_values)


def _is_unrestricted(config: ToolConfig) -> bool:
    return (
        config.execution_timeout is None
        and config.run_timeout is None
        and config.allowed_tools is None
        and not config.budgets
        and config.tool_error_handling is ToolErrorHandling.CONTINUE
    )


def _only_outcome(batch: Batch) -> Outcome:
    (end,) = batch.outcomes
    if isinstance(end, Outcome):
        return end
    message = f"tool {end.call.name!r} was not run: {end.reason}."
    error = ToolDeniedError(
        message, tool_name=end.call.name, call_id=end.call.id, hint="A person must approve it first."
    )
    return Outcome(failure(end.call, error, 0.0), error)


def _executed(batch: Batch) -> Executed:
    aborted = batch.abortion
    if aborted is not None:
        raise aborted
    return Executed(batch.results, batch.pending)
