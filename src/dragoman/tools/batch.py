"""The tool calls of one message, for sync and async runs.

Owns: the cap on parallel calls, cancellation, the `abort` policy, and that every call ends with exactly one outcome.
Calls are checked one after the other; those that may run do so in parallel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct

from dragoman.conversation import Event, ToolCall, ToolFinished, ToolProgress, ToolResult, ToolStarted
from dragoman.errors import ToolAbortedError, ToolError

from .call import CallExecution, Outcome, Settings, cancelled, failure
from .crashes import Crash, tell
from .registry import ToolSet
from .run import PendingApproval, ToolErrorHandling, ToolRun
from .threads import Runner


class ToolPaused(Struct, frozen=True):
    """A tool has paused its call. Only for whoever runs the batch: in a run of the loop, its end says what waits."""

    pending: PendingApproval


ToolEvent: TypeAlias = ToolStarted | ToolProgress | ToolFinished | ToolPaused
"""The events of running tools."""

_MAX_UNREAD: Final = 10_000


class Batch:
    """The calls of one message, run together."""

    def __init__(
        self,
        tools: ToolSet,
        calls: Sequence[ToolCall],
        run: ToolRun,
        settings: Settings,
        on_result: Callable[[ToolCall, ToolResult, ToolRun], None],
    ) -> None:
        self.calls: tuple[ToolCall, ...] = tuple(calls)
        self.run: ToolRun = run
        self.aborted_by: ToolError | None = None
        """The error that stopped the batch, under the policy `abort`."""
        self.tools: ToolSet = tools
        self._settings: Settings = settings
        self._on_result: Callable[[ToolCall, ToolResult, ToolRun], None] = on_result
        self._outcomes: list[Outcome | PendingApproval | None] = [None] * len(self.calls)
        self._started: set[int] = set()
        self._active: dict[int, CallExecution] = {}
        self._left: bool = False
        self._said: deque[tuple[int, ToolProgress]] = deque()
        """Unread progress reports, with the index of their calls."""
        self._left_out: dict[int, int] = {}

    @property
    def outcomes(self) -> tuple[Outcome | PendingApproval, ...]:
        """How each call ended, in call order. Available at any time: an unfinished call counts as cancelled."""
        ends = zip(self._outcomes, self.calls, strict=True)
        return tuple([end or self._cancelled(call) for end, call in ends])

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The results, in call order, without the calls that wait for approval."""
        return tuple([end.result for end in self.outcomes if isinstance(end, Outcome)])

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for approval."""
        ends = [end for end in self.outcomes if isinstance(end, PendingApproval)]
        return tuple([each for end in ends for each in end.waits_for or (end,)])

    @property
    def abortion(self) -> ToolAbortedError | None:
        """The error to raise if the batch was aborted, with the results of all calls."""
        failed = self.aborted_by
        if failed is None:
            return None
        message = f"The run was aborted because a tool failed: {failed.message}"
        error = ToolAbortedError(message, results=self.results, tool_name=failed.tool_name, call_id=failed.call_id)
        error.__cause__ = failed
        return error

    async def events(self, runner: Runner) -> AsyncGenerator[ToolEvent, None]:
        """Run the calls that have no outcome yet. Closing the generator abandons those still running."""
        waiting = deque([index for index, end in enumerate(self._outcomes) if end is None])
        cap = self._settings.config.max_parallel_tools
        self.run.stop.wakers[self] = partial(self._wake, runner)
        try:
            while (waiting or self._active) and not self._stopped:
                if waiting and len(self._active) < cap:
                    index = waiting.popleft()
                    report = partial(self._report, runner, index) if self.run.watched else None
                    execution = CallExecution(self.tools, self.calls[index], self.run, self._settings, report)
                    self._active[index] = execution
                    outcome = await execution.admit(runner)
                    if outcome is None and not self._stopped:
                        self._started.add(index)
                        yield ToolStarted(self.calls[index])
                        outcome = execution.begin(runner)
                    if outcome is not None:
                        for event in self._finish(index, outcome):
                            yield event
                    continue
                dues = [each.due for each in self._active.values() if each.due is not None]
                await runner.wait(min(dues, default=None))
                for index, execution in list(self._active.items()):
                    outcome = execution.look(runner)
                    if self._said:  # after `look`, so that all reports of a call come before its end
                        for event in self._take_said():
                            yield event
                    if outcome is not None:
                        for event in self._finish(index, outcome):
                            yield event
            for event in (*self._take_said(), *self._wind_up(runner)):
                yield event
        finally:
            self._left = True
            self.run.stop.wakers.pop(self, None)
            for _ in self._wind_up(runner):
                pass  # nobody reads the events any more, but every call gets its result
            await runner.close()

    def _report(self, runner: Runner, index: int, what: str | Event) -> None:
        """Store a progress report, from any thread."""
        if len(self._said) >= _MAX_UNREAD:
            self._left_out[index] = self._left_out.get(index, 0) + 1
            return
        call, left_out = self.calls[index], self._left_out.pop(index, 0) if self._left_out else 0
        self._said.append((index, ToolProgress(call.id, call.name, what, left_out)))
        runner.wake()

    def _take_said(self) -> list[ToolProgress]:
        """The unread reports, without those of calls that have ended."""
        taken = [self._said.popleft() for _ in range(len(self._said))]
        return [event for index, event in taken if index in self._active]

    def take(self, index: int, outcome: Outcome | PendingApproval) -> Sequence[ToolStarted | ToolFinished]:
        """Store the outcome of a call that may have run elsewhere; returns its events. Does not call `on_result`."""
        self._outcomes[index] = outcome
        if isinstance(outcome, PendingApproval):
            return ()
        call = self.calls[index]
        handling = self._settings.config.tool_error_handling
        if outcome.error is not None and handling is ToolErrorHandling.ABORT and not self._stopped:
            self.aborted_by = outcome.error
        finished = ToolFinished(outcome.result)
        if index in self._started:
            return (finished,)
        self._started.add(index)
        return (ToolStarted(call), finished)  # it ended before it ran; start and end always come in pairs

    @property
    def _stopped(self) -> bool:
        return self._left or self.run.stop.cancelled or self.aborted_by is not None

    def _wake(self, runner: Runner) -> None:
        """Called when the run is cancelled, from any thread: cancel the tools and end the wait for them."""
        for execution in list(self._active.values()):
            execution.stop.cancel()
        runner.wake()

    def _finish(self, index: int, outcome: Outcome | PendingApproval) -> Sequence[ToolEvent]:
        execution = self._active.pop(index)
        if isinstance(outcome, Outcome):
            return self._record(index, execution.conclude(outcome), execution.crashes)
        execution.close()
        self.take(index, outcome)
        self._tell(execution.crashes)
        return (ToolPaused(outcome),) if outcome.waits_for else ()

    def _record(
        self, index: int, outcome: Outcome, crashes: Sequence[Crash] = ()
    ) -> Sequence[ToolStarted | ToolFinished]:
        self._outcomes[index] = outcome  # first, so that Ctrl-C while it is logged does not lose it
        self._tell(crashes)
        self._on_result(self.calls[index], outcome.result, self.run)
        return self.take(index, outcome)

    def _tell(self, crashes: Sequence[Crash]) -> None:
        for each in crashes:
            tell(each, self.run, self._settings.logger)

    def _wind_up(self, runner: Runner) -> Iterator[ToolStarted | ToolFinished]:
        """Record what has finished and abandon the rest; calls without an outcome are cancelled."""
        for index in list(self._active):
            execution = self._active.pop(index)
            yield from self._record(index, execution.leave(runner, self._why_cancelled), execution.crashes)
        for index, call in enumerate(self.calls):
            if self._outcomes[index] is None:
                yield from self._record(index, self._cancelled(call))

    def _cancelled(self, call: ToolCall) -> Outcome:
        error = cancelled(call, self._why_cancelled)
        return Outcome(failure(call, error, 0.0), error)

    @property
    def _why_cancelled(self) -> str:
        failed = self.aborted_by
        if failed is None:
            return "the run was cancelled"
        return f"tool {failed.tool_name!r} failed and the run was aborted"
