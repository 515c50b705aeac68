"""Many calls at once, the same for plain and async runs.

Owns: the cap on parallel calls, cancellation, `abort`, and that every call ends with exactly one outcome, in order.
Calls are admitted one after the other; those that may run do so beside each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

from dragoman.conversation import ToolCall, ToolFinished, ToolResult, ToolStarted
from dragoman.errors import ToolAbortedError, ToolError

from .call import CallExecution, Outcome, Settings, cancelled, execution_error, failure
from .registry import ToolSet
from .run import PendingApproval, ToolErrorHandling, ToolRun
from .runner import Job, Runner


class Batch:
    """The calls of one message, carried out together."""

    def __init__(
        self,
        tools: ToolSet,
        calls: Sequence[ToolCall],
        run: ToolRun,
        settings: Settings,
        on_result: Callable[[ToolCall, ToolResult], None],
    ) -> None:
        self.calls: tuple[ToolCall, ...] = tuple(calls)
        self.run: ToolRun = run
        self.aborted_by: ToolError | None = None
        """The error that stopped the batch, under the policy `abort`."""
        self._tools: ToolSet = tools
        self._settings: Settings = settings
        self._on_result: Callable[[ToolCall, ToolResult], None] = on_result
        self._outcomes: list[Outcome | PendingApproval | None] = [None] * len(self.calls)
        self._started: set[int] = set()
        self._active: dict[int, tuple[CallExecution, Job | None]] = {}
        self._left: bool = False

    @property
    def outcomes(self) -> tuple[Outcome | PendingApproval, ...]:
        """How each call ended, in call order. Complete at any time: what is not done yet counts as cancelled."""
        ends = zip(self._outcomes, self.calls, strict=True)
        return tuple([end or self._cancelled(call) for end, call in ends])

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """One result for every call, in call order, but for those that wait for a person."""
        return tuple([end.result for end in self.outcomes if isinstance(end, Outcome)])

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for a person."""
        return tuple([end for end in self.outcomes if isinstance(end, PendingApproval)])

    @property
    def abortion(self) -> ToolAbortedError | None:
        """What is raised to the caller when the batch was stopped, with the results of all calls."""
        failed = self.aborted_by
        if failed is None:
            return None
        message = f"The run was aborted because a tool failed: {failed.message}"
        error = ToolAbortedError(message, results=self.results, tool_name=failed.tool_name, call_id=failed.call_id)
        error.__cause__ = failed
        return error

    async def events(self, runner: Runner) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        """Carry out the calls that have no outcome yet. Closing this gives up on what is still under way."""
        waiting = deque([index for index, end in enumerate(self._outcomes) if end is None])
        cap = self._settings.config.max_parallel_tools
        alone = runner.runs_inline and min(cap, len(self.calls)) == 1
        try:
            while (waiting or self._active) and not self._stopped:
                while waiting and len(self._active) < cap and not self._stopped:
                    index = waiting.popleft()
                    execution = CallExecution(self._tools, self.calls[index], self.run, self._settings)
                    self._active[index] = (execution, None)
                    outcome = await execution.admit(runner)
                    if outcome is None and not self._stopped:
                        self._started.add(index)
                        yield ToolStarted(self.calls[index])
                        outcome = await execution.run(runner) if alone else self._start(index, execution, runner)
                    if outcome is not None:
                        for event in self._finish(index, execution, outcome):
                            yield event
                if self._active and not self._stopped:
                    await runner.wait()
                    for event in self._take_done():
                        yield event
            for event in self._wind_up(runner):
                yield event
        finally:
            self._left = True
            for _ in self._wind_up(runner):
                pass  # nobody listens any more, but the results are complete
            await runner.close()

    @property
    def _stopped(self) -> bool:
        """Whether nothing new may begin."""
        return self._left or self.run.cancelled or self.aborted_by is not None

    def _start(self, index: int, execution: CallExecution, runner: Runner) -> Outcome | None:
        """Let the call run beside the others; its outcome if it cannot even begin, for want of a thread say."""
        try:
            self._active[index] = (execution, runner.start(execution.run(runner)))
        except Exception as error:  # noqa: BLE001 - this call failed, others may not
            return execution.fail(execution_error(self.calls[index], error))
        return None

    def _take_done(self) -> Iterator[ToolStarted | ToolFinished]:
        """Take in what is done by now."""
        for index, (execution, job) in list(self._active.items()):
            if job is not None and job.done():
                error = _error_of(job)
                # Whatever a tool raises in its thread belongs to its call.
                failed = None if error is None else execution.fail(execution_error(self.calls[index], error))
                outcome: Outcome = failed or job.result()
                yield from self._finish(index, execution, outcome)

    def _finish(
        self, index: int, execution: CallExecution, outcome: Outcome | PendingApproval
    ) -> Iterator[ToolStarted | ToolFinished]:
        del self._active[index]
        if isinstance(outcome, PendingApproval):
            execution.close()
            self._outcomes[index] = outcome
        else:
            yield from self._record(index, execution.conclude(outcome))

    def _record(self, index: int, outcome: Outcome) -> Iterator[ToolStarted | ToolFinished]:
        self._outcomes[index] = outcome
        call = self.calls[index]
        handling = self._settings.config.tool_error_handling
        if outcome.error is not None and handling is ToolErrorHandling.ABORT and not self._stopped:
            self.aborted_by = outcome.error
        self._on_result(call, outcome.result)
        if index not in self._started:  # it ended before it could run; a start and an end always come in pairs
            self._started.add(index)
            yield ToolStarted(call)
        yield ToolFinished(outcome.result)

    def _wind_up(self, runner: Runner) -> Iterator[ToolStarted | ToolFinished]:
        """Take in what was done in the meantime and give up on the rest; what then has no outcome was cancelled."""
        yield from self._take_done()
        if self._active:
            runner.stop()
        while self._active:
            index, (execution, job) = self._active.popitem()
            execution.give_up()
            if job is not None:
                runner.give_up(job)
            yield from self._record(index, execution.cancel(self._why_cancelled))
        for index, call in enumerate(self.calls):
            if self._outcomes[index] is None:
                yield from self._record(index, self._cancelled(call))

    def _cancelled(self, call: ToolCall) -> Outcome:
        error = cancelled(call, self._why_cancelled)
        return Outcome(failure(call, error, 0.0), error)

    @property
    def _why_cancelled(self) -> str:
        failed = self.aborted_by
        return (
            "the run was cancelled" if failed is None else f"tool {failed.tool_name!r} failed and the run was aborted"
        )


def _error_of(job: Job) -> BaseException | None:
    """What a job ended with. A KeyboardInterrupt that is raised here is the user's Ctrl-C and not the job's."""
    try:
        return job.exception()
    except KeyboardInterrupt:
        raise
    except BaseException as cancelled_error:  # noqa: BLE001 - how futures say that they were cancelled
        return cancelled_error
