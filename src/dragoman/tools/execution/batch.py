"""Many calls at once: the scheduler, the same for plain and async runs.

Owns: the cap on parallel calls, deadlines, sleeping, cancellation, `abort`, and that every call ends with exactly one
outcome, in call order.
Must not know: how a function is started or waited for; a `Backend` does that, in threads or on an event loop.

`steps()` yields what happens (ToolStarted, ToolFinished) and, in between, `Wait`: the driver waits, in its own colour,
until one of the backend's running functions is done or the time is over, and comes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, cast

from msgspec import Struct

from dragoman.conversation import ToolCall, ToolFinished, ToolResult, ToolStarted
from dragoman.errors import ToolAbortedError, ToolCancelledError, ToolError
from dragoman.tools.config import ToolErrorHandling
from dragoman.tools.permission import PendingApproval
from dragoman.tools.registry import ToolSet

from .effects import Invoke
from .procedure import Outcome, Procedure, Settings, cancelled, concluded, procedure
from .results import failure
from .run import ToolRun

__all__ = ["Backend", "Batch", "Running", "Wait"]


class Running(Protocol):
    """A function under way: the part of a future that both colours share."""

    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def exception(self) -> BaseException | None: ...
    def result(self) -> Any: ...


class Backend(Protocol):
    """Starts functions in one colour."""

    def start(self, invoke: Invoke, *, alone: bool) -> Running | None:
        """Start the function; None if it was run at once. `alone`: nothing else waits meanwhile."""
        ...

    def give_up(self, running: Running) -> None:
        """Nobody waits for this any more: cancel it if that is possible, else count it as abandoned."""
        ...


class Wait(Struct, frozen=True):
    """Wait until something that was started is done, or so many seconds have passed, or the run is cancelled."""

    seconds: float | None


_Step: TypeAlias = ToolStarted | ToolFinished | Wait


class _Active:
    """A call under way, and what it waits for."""

    __slots__ = ("index", "invoke", "procedure", "running", "wake")

    def __init__(self, index: int, steps: Procedure) -> None:
        self.index: int = index
        self.procedure: Procedure = steps
        self.invoke: Invoke | None = None
        self.running: Running | None = None
        self.wake: float | None = None
        """When to go on even if nothing has happened: the end of a sleep, or a function's deadline."""


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

    def steps(self, backend: Backend) -> Generator[_Step, None, None]:
        """Carry out the calls that have no outcome yet. Closing this iterator gives up on what is still under way."""
        waiting = deque([index for index, end in enumerate(self._outcomes) if end is None])
        active: list[_Active] = []
        cap = self._settings.config.max_parallel_tools
        alone = min(cap, len(self.calls)) == 1
        try:
            while (waiting or active) and not self._stopped:
                while waiting and len(active) < cap and not self._stopped:
                    index = waiting.popleft()
                    started = _Active(index, procedure(self._tools, self.calls[index], self.run, self._settings))
                    active.append(started)
                    yield from self._advance(started, backend, alone=alone)
                active = [each for each in active if self._outcomes[each.index] is None]
                if active and not self._stopped:
                    yield self._wait_for(active)
                    for each in active:
                        if self._is_due(each, backend):
                            yield from self._advance(each, backend, alone=alone)
                    active = [each for each in active if self._outcomes[each.index] is None]
            yield from self._wind_up(active, backend)
        finally:
            self._left = True
            for _ in self._wind_up(active, backend):
                pass  # nobody listens any more, but the results are complete

    def at_once(self, execute: Callable[[ToolCall], ToolResult]) -> Generator[ToolStarted | ToolFinished, None, None]:
        """Carry out the only call with a function that knows how, in this thread, and that keeps the log itself."""
        (call,) = self.calls
        if self._outcomes[0] is not None:
            return
        try:
            if self._stopped:
                yield from self._finish(0, self._cancelled(call))
                return
            self._started.add(0)
            yield ToolStarted(call)
            self.run.spend(call.name, None)
            result = execute(call)
            self._outcomes[0] = concluded(call, result)
            yield ToolFinished(result)
        finally:
            self._left = True
            if self._outcomes[0] is None:
                for _ in self._finish(0, self._cancelled(call)):
                    pass  # nobody listens any more, but the results are complete

    @property
    def _stopped(self) -> bool:
        """Whether nothing new may begin."""
        return self._left or self.run.cancelled or self.aborted_by is not None

    def _wait_for(self, active: list[_Active]) -> Wait:
        wakes = [each.wake for each in active if each.wake is not None]
        seconds = max(0.0, min(wakes) - self._settings.clock()) if wakes else None
        return Wait(seconds)

    def _is_due(self, each: _Active, backend: Backend) -> bool:
        """Whether this call can go on, with the outcome of what it waited for noted."""
        running, invoke = each.running, each.invoke
        late = each.wake is not None and self._settings.clock() >= each.wake
        if running is None or invoke is None:
            return late
        if running.done():
            _note(running, invoke)
        elif late:
            _give_up(each, backend)
            invoke.timed_out = True
        else:
            return False
        each.running = each.invoke = None
        return True

    def _advance(self, each: _Active, backend: Backend, *, alone: bool) -> Iterator[_Step]:
        """Let a call go on until it has to wait or ends."""
        while True:
            try:
                effect = next(each.procedure)
            except StopIteration as stop:
                outcome: Outcome | PendingApproval = stop.value
                yield from self._finish(each.index, outcome)
                return
            if self._stopped:
                return
            if not isinstance(effect, Invoke):
                each.wake = self._settings.clock() + effect.seconds
                return
            if effect.timeout is not None and effect.timeout <= 0:  # too late to even begin
                effect.timed_out = True
                continue
            if each.index not in self._started:
                self._started.add(each.index)
                yield ToolStarted(self.calls[each.index])
            try:
                each.running = backend.start(effect, alone=alone)
            except Exception as error:  # noqa: BLE001 -- no thread to be had, say: this call failed, others may not
                effect.error = error
            if each.running is not None:
                each.invoke = effect
                each.wake = None if effect.timeout is None else self._settings.clock() + effect.timeout
                return

    def _finish(self, index: int, outcome: Outcome | PendingApproval) -> Iterator[ToolStarted | ToolFinished]:
        self._outcomes[index] = outcome
        if isinstance(outcome, PendingApproval):
            return
        call = self.calls[index]
        handling = self._settings.config.tool_error_handling
        if outcome.error is not None and handling is ToolErrorHandling.ABORT and not self._stopped:
            self.aborted_by = outcome.error
        self._on_result(call, outcome.result)
        if index not in self._started:  # it ended before it could run; a start and an end always come in pairs
            self._started.add(index)
            yield ToolStarted(call)
        yield ToolFinished(outcome.result)

    def _wind_up(self, active: list[_Active], backend: Backend) -> Iterator[_Step]:
        """Take in what was done in the meantime and give up on the rest; what then has no outcome was cancelled."""
        while active:
            each = active.pop()
            if each.running is not None and each.running.done() and self._is_due(each, backend):
                yield from self._advance(each, backend, alone=False)
            if each.running is not None:
                _give_up(each, backend)
            if self._outcomes[each.index] is None:
                yield from self._finish(each.index, self._interrupted(each))
        for index, call in enumerate(self.calls):
            if self._outcomes[index] is None:
                yield from self._finish(index, self._cancelled(call))

    def _interrupted(self, each: _Active) -> Outcome | PendingApproval:
        """The end of a call that is under way: it knows how long it took and how often it was tried."""
        call = self.calls[each.index]
        try:
            each.procedure.throw(self._cancellation(call))
        except StopIteration as stop:
            return cast("Outcome | PendingApproval", stop.value)
        except ToolCancelledError:  # the same one comes back if the procedure has already ended, by Ctrl-C
            pass
        return self._cancelled(call)

    def _cancelled(self, call: ToolCall) -> Outcome:
        error = self._cancellation(call)
        return Outcome(failure(call, error, 0.0), error)

    def _cancellation(self, call: ToolCall) -> ToolCancelledError:
        failed = self.aborted_by
        why = "the run was cancelled" if failed is None else f"tool {failed.tool_name!r} failed and the run was aborted"
        return cancelled(call, why)


def _give_up(each: _Active, backend: Backend) -> None:
    assert each.invoke is not None
    assert each.running is not None
    each.invoke.given_up.set()
    backend.give_up(each.running)


def _note(running: Running, invoke: Invoke) -> None:
    if running.cancelled():
        from concurrent.futures import CancelledError

        invoke.error = CancelledError()
    else:
        invoke.error = running.exception()
    if invoke.error is None:
        invoke.value = running.result()
