"""The execution of one tool call, from the model's request to its result.

The order: middleware, look up the tool, validate the arguments, permission, budget; then run, with retries. A `Runner`
runs the functions, so sync and async runs share this code.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Raw

import dragoman._observer
from dragoman._crashes import name_error
from dragoman._decoding import DEEPEST, TooDeepError, check_depth
from dragoman._files import read_result
from dragoman._observer import Observed
from dragoman._stop import CURRENT, Stop, chance, shorter, stopping
from dragoman.conversation import Event, Json, Media, ResultPart, Text, ToolCall, ToolResult, Usage
from dragoman.errors import (
    ConfigurationError,
    StoppedError,
    ToolBudgetError,
    ToolCancelledError,
    ToolDeniedError,
    ToolError,
    ToolExecutionError,
    ToolTimeoutError,
    ToolValidationError,
)

from .arguments.problems import InvalidArguments
from .crashes import Crash, crash_of, word
from .definition import AnyTool, Tool
from .meter import Meter
from .registry import ToolSet, not_found
from .run import (
    Allow,
    Approval,
    Ask,
    Decision,
    Deny,
    Paused,
    PendingApproval,
    PermissionCheck,
    ToolConfig,
    ToolContext,
    ToolErrorHandling,
    ToolRun,
)
from .threads import Ended, Job, Runner, discard

if TYPE_CHECKING:
    import logging

Middleware: TypeAlias = Callable[[ToolCall, ToolRun], Generator[ToolCall | None, ToolResult, ToolResult | None]]
"""A generator around a call: yield the call to make instead (None: the same), receive its result, return the result to
use instead (None: the same). Returning before the yield answers the call without running it. The same middleware works
in sync and async runs."""

E = TypeVar("E", bound=ToolError)
_Layer: TypeAlias = Generator[ToolCall | None, ToolResult, ToolResult | None]


class Outcome(msgspec.Struct, frozen=True):
    """How a call ended: a result, and the error behind it if it failed."""

    result: ToolResult
    error: ToolError | None = None


class Settings(msgspec.Struct, frozen=True):
    """The arguments of an executor."""

    config: ToolConfig
    permission: PermissionCheck | None
    middleware: Sequence[Middleware]
    logger: logging.Logger


class CallExecution:
    """One call in progress: `admit` checks, `begin` starts, `look` polls and `conclude` ends it; `leave` abandons it.

    None of them raises for a fault of the tool, the model, the policy or the middleware: that is an outcome too.
    """

    def __init__(
        self,
        tools: ToolSet,
        call: ToolCall,
        run: ToolRun,
        settings: Settings,
        report: Callable[[str | Event], object] | None = None,
    ) -> None:
        self._tools: ToolSet = tools
        self.call: ToolCall = call
        """The call as the model made it."""
        self._run: ToolRun = run
        self._settings: Settings = settings
        self._asked: ToolCall = call
        """The call to make, after middleware."""
        self._layers: list[_Layer] = []
        self._tool: AnyTool | None = None
        self._arguments: object = None
        self._started: float = time.monotonic()
        self._retries: int = 0
        self._began: float = 0.0
        self._job: Job | None = None
        """The current attempt."""
        self._left: bool = False
        self._report: Callable[[str | Event], object] | None = report
        self._meter: Meter | None = None
        self._answers: tuple[Approval, ...] = ()
        """Answers to calls inside this one."""
        self.crashes: list[Crash] = []
        """What of the program's own code has failed, to be logged at the end."""
        self._crash: Crash | None = None
        """The crash of the tool in this attempt; it counts if no other attempt follows."""
        self._observed: Observed[Outcome] | None = None
        """The observation of this call, if there is an observer; from the first attempt on."""
        self.stop: Stop = run.stop
        """Cancels the current attempt."""
        self.due: float | None = None
        """When `look` must be called: the attempt times out, or the pause before the next one ends."""

    # --- before the call ---

    async def admit(self, runner: Runner) -> Outcome | PendingApproval | None:
        """Check whether the call may run: None if so, else its outcome, or the approval it waits for."""
        try:
            answered = self._enter_middleware()
            if answered is not None:
                return answered
            self._tool = self._find()
            self._arguments = decode_arguments(self._tool, self._asked)
            pending = await self._permit(self._tool, runner)
            if pending is not None:
                return pending
            name, budget = self._asked.name, self._tool.options.budget
            budget = self._settings.config.budgets.get(name) if budget is None else budget
            if not self._run.spend(name, budget):
                message = f"tool {name!r} has been called {budget} times, its budget for one run."
                raise error_of(self._asked, ToolBudgetError, message)
        except ToolError as error:
            return self.fail(error)
        except Exception as error:  # noqa: BLE001 - middleware is foreign code; its failure is the call's failure
            self._note(f"a middleware crashed in a call of {word(self.call.name)}", error)
            return self.fail(execution_error(self.call, error))
        return None

    def _enter_middleware(self) -> Outcome | None:
        for middleware in self._settings.middleware:
            layer = middleware(self._asked, self._run)
            try:
                changed = next(layer)
            except StopIteration as stop:  # it answered the call itself, or dropped it
                if stop.value is None:
                    raise _denied(self.call, "a middleware stopped it") from None
                return conclude(self.call, cast("ToolResult", stop.value))
            self._layers.append(layer)
            if changed is not None:  # the result still answers the model's own call
                own = self.call
                self._asked = msgspec.structs.replace(changed, id=own.id, hosted=own.hosted, asks=own.asks)
        return None

    def _find(self) -> AnyTool:
        if self.call.hosted:
            return _hosted(self.call)
        name, tools, allowed = self._asked.name, self._tools.by_name, self._settings.config.allowed_tools
        if name in tools and (allowed is None or name in allowed or name in self._tools.own):
            return tools[name]
        error = not_found(name, [each for each in tools if allowed is None or each in allowed])
        error.call_id = self._asked.id
        raise error

    async def _permit(self, tool: AnyTool, runner: Runner) -> PendingApproval | None:
        """Raise ToolDeniedError, or return the approval to wait for. Deny beats ask, ask beats allow.

        An approval answers only `Ask`: it does not override a rule that denies. A refusal always applies.
        """
        call = self._asked
        approval = self._run.take_approval(call)
        self._answers = self._run.take_answers_inside(call)
        decision = await self._decide(tool, runner)
        if isinstance(decision, Deny):
            raise _denied(call, decision.reason)
        if approval is not None and not approval.approved:
            raise _denied(call, approval.reason or "the user refused")
        if isinstance(decision, Allow) and decision.arguments:
            if call.hosted:  # the provider runs what the model wrote
                decision = Ask("it was allowed with other arguments, which its provider cannot be given")
            else:  # approvals are still about the call as it was shown
                self._asked = msgspec.structs.replace(call, arguments=decision.arguments)
                self._arguments = decode_arguments(tool, self._asked)
        if isinstance(decision, Allow) and decision.approved:
            return None
        needed = tool.options.requires_approval
        try:
            asks: object = needed(call) if callable(needed) else needed
        except Exception as error:
            raise self._check_failed(f"requires_approval of tool {tool.name}", error) from error
        # If the provider asks for approval, the permission check decides; without one a person does.
        asks = asks or (call.asks and self._settings.permission is None)
        # An answer to a call inside it means that this call has been started before.
        if approval is not None or self._answers or (not isinstance(decision, Ask) and not asks):
            return None
        reason = (decision.reason if isinstance(decision, Ask) else "") or call.asks
        return PendingApproval(call=call, reason=reason or f"{call.name} needs approval")

    async def _decide(self, tool: AnyTool, runner: Runner) -> Decision:
        """The decision of the permission check. A check that fails, or returns something else, denies the call."""
        check, call = self._settings.permission, self._asked
        if check is None:
            return Allow()
        try:
            with stopping(self.stop):
                decision: object = check(call, tool, self._context())
            if isinstance(decision, Awaitable):
                decision = await self._wait_for(cast("Awaitable[object]", decision), runner)
        except ToolCancelledError:
            raise
        except Exception as error:
            raise self._check_failed("the permission check", error) from error
        if not isinstance(decision, Allow | Deny | Ask):
            message = f"it returned a {type(decision).__name__}, not Allow, Deny or Ask"
            raise self._check_failed("the permission check", TypeError(message))
        return decision

    def _check_failed(self, what: str, error: Exception) -> ToolDeniedError:
        """The denial by a check that could not decide."""
        call = self._asked
        self._note(f"{what} crashed, so the call of {word(call.name)} was denied", error)
        return _denied(call, f"the permission check failed ({type(error).__name__}: {error})")

    def _note(self, message: str, error: BaseException) -> None:
        """Note a crash, unless it comes of the end of the run, or is an error that is meant for the model."""
        is_over = self._run.stop.cancelled or self._left
        late = self._run.deadline is not None and time.monotonic() >= self._run.deadline
        if not (is_over or late or isinstance(error, self._run.meant)):
            self.crashes.append(Crash(message, error))

    async def _wait_for(self, awaitable: Awaitable[object], runner: Runner) -> object:
        job: Job | None = None
        try:
            job = self._start_awaitable(runner, awaitable)
            while job.ended is None:
                if self._run.stop.cancelled:
                    raise cancelled(self._asked)
                if self._run.deadline is not None and time.monotonic() >= self._run.deadline:
                    raise TimeoutError("it took too long")
                await runner.wait(self._run.deadline)
            if job.ended.error is not None:
                raise job.ended.error
            return job.ended.value
        finally:
            if job is not None and job.ended is None:
                runner.give_up(job)
            discard(awaitable)
            runner.wake()  # this wait may have consumed the wake-up of another call

    # --- running ---

    def begin(self, runner: Runner) -> Outcome | None:
        """Start an attempt. Returns the outcome if it cannot start: it is too late, or there is no thread for it."""
        tool, call = self._tool, self._asked
        assert tool is not None
        if self._observed is None and (observer := dragoman._observer.current) is not None:
            self._observed = observer.tool_call(call, tool)
        self._began, self._crash = time.monotonic(), None
        # The tool's own limit or the configured one, but never longer than the run has left.
        limit = self._settings.config.execution_timeout if tool.options.timeout is None else tool.options.timeout
        # Python cannot wait longer than TIMEOUT_MAX, so that counts as no limit.
        own = None if limit is None or limit > threading.TIMEOUT_MAX else self._began + limit
        self.due = shorter(own, self._run.deadline)
        self.stop = Stop(self.due)
        try:
            if self.due is not None and self._began >= self.due:
                raise _timed_out(call, 0.0)
            if self._retries:  # the attempt before may have modified its lists and dicts
                self._arguments = decode_arguments(tool, call)
            positional, keywords = tool.arguments.bind(self._arguments)
            if tool.takes_context:
                positional = (self._context(), *positional)
            function = partial(tool.function, *positional, **keywords)
            self._job = self._start(runner, function, is_async=tool.is_async)
        except ToolError as error:
            return self.fail(error)
        except Exception as error:  # noqa: BLE001 - this call failed, others may not
            return self._fail_attempt(self._crashed(error))
        return None

    def _start(self, runner: Runner, function: Callable[[], object], *, is_async: bool) -> Job:
        observed, current = self._observed, CURRENT.set(self.stop)  # the function runs in a copy of this context
        before = None if observed is None else observed.enter()
        try:
            return runner.start(function, is_async=is_async, is_limited=self.stop.deadline is not None)
        finally:
            CURRENT.reset(current)
            if observed is not None:
                observed.leave(before)

    def _start_awaitable(self, runner: Runner, awaitable: Awaitable[object]) -> Job:
        job = self._start(runner, lambda: awaitable, is_async=True)
        job.awaitable = awaitable
        return job

    def look(self, runner: Runner) -> Outcome | PendingApproval | None:
        """The outcome, if the call has ended, or the approval it waits for. May start another attempt."""
        is_over = self.due is not None and time.monotonic() >= self.due
        if self._job is None:
            return self.begin(runner) if is_over and not self._left else None
        ended = self._job.ended
        if ended is None:
            if not is_over:
                return None
            runner.give_up(self._job)
            return self._again_or_fail(_timed_out(self._asked, cast("float", self.due) - self._began))
        try:
            return self._settle(ended, runner)
        except Exception as error:  # noqa: BLE001 - for example no thread for the loop that would await its value
            discard(ended.value)
            return self._again_or_fail(error if isinstance(error, ToolError) else self._crashed(error))

    def _pause(self, paused: Paused) -> PendingApproval:
        call, inside = self.call, paused.pending
        if self._left:
            raise cancelled(call)
        if not inside or not self._run.pauses:
            reason = "it needs approval, which cannot be given here" if inside else "it paused without a pending call"
            raise _denied(call, reason) from paused
        waits_for = tuple([each.inside(call, self._used) for each in inside])
        return PendingApproval(call=call, reason=str(paused), waits_for=waits_for)

    def _settle(self, ended: Ended, runner: Runner) -> Outcome | PendingApproval | None:
        """The outcome of a finished attempt; raises a ToolError if it failed."""
        call, error = self._asked, ended.error
        if self.due is not None and ended.at >= self.due:  # it may have noticed the timeout itself
            raise _timed_out(call, self.due - self._began)
        if isinstance(error, StoppedError) and self.stop.cancelled:
            raise cancelled(call) from error
        if isinstance(error, Paused):
            return self._pause(error)
        if type(error).__name__ == "CancelledError":  # asyncio's or a future's, without importing asyncio
            raise cancelled(call, "it cancelled itself") from error
        if error is not None:
            raise self._crashed(error) from error
        if isinstance(ended.value, Awaitable):  # a sync function that returned a coroutine
            if self._left:
                raise cancelled(call)
            self._job = self._start_awaitable(runner, cast("Awaitable[object]", ended.value))
            return None
        try:
            result = success(call, ended.value, time.monotonic() - self._started, self._retries)
        except ToolExecutionError as error:  # what the function returned is its author's mistake
            self._crashed(error.__cause__ or error)
            raise
        if not result.is_error and cast("AnyTool", self._tool).speaks:
            result = msgspec.structs.replace(result, spoke=True)
        return conclude(call, result)

    def _crashed(self, error: BaseException) -> ToolError:
        """The error of an attempt that ended with this exception: a crash, unless it is one that the tool meant."""
        if not isinstance(error, ToolError):
            self._crash = crash_of(cast("AnyTool", self._tool), self._run, error)
        return execution_error(self._asked, error)

    def _again_or_fail(self, error: ToolError) -> Outcome | None:
        """The outcome of a failed attempt, or None if another one follows: after an error of the tool, or a timeout."""
        self.stop.cancel()  # this attempt is abandoned
        allowed, config = cast("AnyTool", self._tool).options.retries, self._settings.config
        if allowed is None:
            allowed = config.retry.max_retries if config.tool_error_handling is ToolErrorHandling.RETRY else 0
        if error.type not in ("execution", "timeout") or self._left or self._retries >= allowed:
            return self._fail_attempt(error)
        self._settings.logger.debug("tool %s failed, trying again: %s", self._asked.name, error.type)
        self._retries += 1
        self._job = None
        self.due = shorter(time.monotonic() + config.retry.delay(self._retries, chance()), self._run.deadline)
        return None

    def _fail_attempt(self, error: ToolError) -> Outcome:
        """The outcome of a failed attempt that no other one follows."""
        if self._crash is not None:
            self._note(*self._crash)
        return self.fail(error)

    def _context(self) -> ToolContext[object]:
        return ToolContext(
            call_id=self._asked.id,
            tool_name=self._asked.name,
            deps=self._run.deps,
            conversation=self._run.conversation,
            stop=self.stop,
            parent_logger=self._settings.logger,
            attempt=self._retries + 1,
            run=self._run,
            answers=self._answers,
            desk=self,
        )

    # --- during the call, from any thread ---

    @property
    def permission(self) -> PermissionCheck | None:
        """The permission check for this call, and for calls made inside it."""
        return self._settings.permission

    def report(self, stop: Stop, what: str | Event) -> None:
        """Pass on a progress report, unless its attempt was abandoned."""
        if self._report is not None and stop is self.stop and not stop.cancelled:
            self._report(what)

    @property
    def meter(self) -> Meter:
        """What was used inside the tool; made when it is first needed."""
        if self._meter is None:
            self._meter = Meter(self._run.meter)
            self._meter.include(self._run.earlier.pop(self.call.id, None))
        return self._meter

    @property
    def _used(self) -> Usage | None:
        """What was used inside the tool so far; None if that was nothing."""
        return self.meter.inside if self._meter is not None or self.call.id in self._run.earlier else None

    # --- after the call ---

    def leave(self, runner: Runner, why: str) -> Outcome:
        """Stop waiting: the outcome if the call has ended, else cancelled. The tool may still run."""
        self._left = True
        outcome = self.look(runner)
        self.stop.cancel()
        if not isinstance(outcome, Outcome):
            if self._job is not None:
                runner.give_up(self._job)
            outcome = self.fail(cancelled(self.call, why))
        return self.conclude(outcome)

    def conclude(self, outcome: Outcome) -> Outcome:
        """The outcome after middleware. It always answers the call that the model made."""
        call = self.call
        try:
            while self._layers:
                layer = self._layers.pop()
                try:
                    layer.send(outcome.result)
                except StopIteration as stop:
                    outcome = outcome if stop.value is None else conclude(call, stop.value, outcome.error)
                else:
                    layer.close()
                    raise RuntimeError("a middleware must yield exactly once")
        except Exception as error:  # noqa: BLE001 - middleware is foreign code; its failure is the call's failure
            self._note(f"a middleware crashed in a call of {word(call.name)}", error)
            outcome = self.fail(execution_error(call, error))
        finally:
            self.close()
        result = cut_result(outcome.result, self._settings.config)
        if result.usage is None and (used := self._used) is not None:
            result = msgspec.structs.replace(result, usage=used)
        if (result.call_id, result.name) != (call.id, call.name):
            result = msgspec.structs.replace(result, call_id=call.id, name=call.name)
        outcome = outcome if result is outcome.result else Outcome(result, outcome.error)
        if self._observed is None and (observer := dragoman._observer.current) is not None:  # it never ran
            self._observed = observer.tool_call(call, self._tool)
        if self._observed is not None:
            ended = None if self._job is None else self._job.ended
            self._observed.end(outcome, ago=0.0 if ended is None else time.monotonic() - ended.at)
        return outcome

    def close(self) -> None:
        while self._layers:
            try:
                self._layers.pop().close()
            except Exception as error:  # noqa: BLE001 -- the outcome stands
                self._note("a middleware crashed while it was being closed", error)

    def fail(self, error: ToolError) -> Outcome:
        return Outcome(failure(self.call, error, time.monotonic() - self._started, self._retries), error)


def conclude(call: ToolCall, result: ToolResult, error: ToolError | None = None) -> Outcome:
    """The outcome with this result; a result with `is_error` gets an error too."""
    if not result.is_error:
        return Outcome(result)
    return Outcome(result, error or error_of(call, ToolExecutionError, result.text))


def decode_arguments(tool: AnyTool, call: ToolCall) -> object:
    """The decoded arguments; raises ToolValidationError with the raw text in `details`."""
    if call.partial:
        message = f"the arguments of {call.name!r} are incomplete."
        raise error_of(call, ToolValidationError, message, details=call.arguments)
    try:
        return tool.arguments.decode(call.arguments if call.has_arguments else "")
    except InvalidArguments as error:
        message = f"invalid arguments for tool {call.name!r}: {error}."
        raise error_of(call, ToolValidationError, message, details=call.arguments) from None


def error_of(call: ToolCall, kind: type[E], message: str, **more: Any) -> E:
    return kind(message, tool_name=call.name, call_id=call.id, **more)


def _hosted(call: ToolCall) -> AnyTool:
    """A stand-in for a tool that the provider runs; here it is only approved."""

    def approve(**_: object) -> str:
        return "approved"

    return Tool.from_schema(approve, {"type": "object"}, name=call.name)


def _denied(call: ToolCall, reason: str) -> ToolDeniedError:
    if call.hosted:  # the provider gets this text as the reason
        return error_of(call, ToolDeniedError, reason, hint="")
    return error_of(call, ToolDeniedError, f"the call of {call.name!r} was denied: {reason.rstrip('.')}.")


def _timed_out(call: ToolCall, timeout: float) -> ToolTimeoutError:
    return error_of(call, ToolTimeoutError, f"tool {call.name!r} did not finish within {timeout:g} seconds.")


def cancelled(call: ToolCall, why: str = "the run was cancelled") -> ToolCancelledError:
    return error_of(call, ToolCancelledError, f"tool {call.name!r} was not finished: {why}.")


# --- from return values and exceptions to results ---------------------------------------------------------------------

_PARTS = (Text, Json, Media)
_MOST_PARTS = 1_000


def json_ready(value: object) -> object:
    """For values that msgspec cannot encode by itself."""
    dump = getattr(value, "model_dump", None)  # pydantic's models, without importing pydantic
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    message = f"a value of type {type(value).__name__} cannot be written as JSON"
    raise TypeError(message)


_encoder = msgspec.json.Encoder(enc_hook=json_ready)


def _readable(text: str) -> str:
    """The text without lone surrogates (as in odd file names), which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def content_of(value: object) -> tuple[ResultPart, ...]:
    """The content of a result: text and parts as they are, anything else as JSON."""
    if isinstance(value, str):
        return (Text(_readable(value)),)
    if isinstance(value, _PARTS):
        return (value,)
    if isinstance(value, list | tuple) and value and all(isinstance(v, _PARTS) for v in cast("list[object]", value)):
        return tuple(cast("list[ResultPart]", value))
    return (Json(Raw(_encoder.encode(value))),)


def _check_depth(result: ToolResult) -> None:
    for part in (*result.content, result.structured):
        if isinstance(part, Json):
            check_depth(part.raw)


def success(call: ToolCall, value: object, duration: float, retries: int = 0) -> ToolResult:
    """The result of a call that returned. Raises ToolExecutionError if the value cannot be encoded as JSON."""
    try:
        # A tool may return a complete result.
        given = value if isinstance(value, ToolResult) else ToolResult(call.id, call.name, content_of(value))
        result = read_result(given)
        _check_depth(result)
    except (ConfigurationError, TypeError, ValueError, RecursionError) as error:
        reason = TooDeepError(DEEPEST) if isinstance(error, RecursionError) else error
        message = f"tool {call.name!r} returned a value that the model cannot read: {str(reason).rstrip('.')}."
        hint = "Return text, JSON-like data, a dataclass, or a content block."
        raise error_of(call, ToolExecutionError, message, hint=hint) from error
    return msgspec.structs.replace(
        result, call_id=call.id, name=call.name, duration=duration, retries=retries, began=_began(duration)
    )


def failure(call: ToolCall, error: ToolError, duration: float, retries: int = 0) -> ToolResult:
    """The result of a failed call: what happened and what to do next."""
    return ToolResult(
        call.id,
        call.name,
        (Text(_readable(str(error))),),
        is_error=True,
        error_type=error.type,
        duration=duration,
        retries=retries,
        began=_began(duration),
    )


def _began(duration: float) -> datetime:
    """The start time of a call that has just ended after this duration."""
    return datetime.now(UTC) - timedelta(seconds=duration)


def cut_result(result: ToolResult, config: ToolConfig) -> ToolResult:
    """The result within the size limits; what is cut is replaced by a note."""
    kept: list[ResultPart] = []
    room = config.max_result_size
    for part in result.content:
        if isinstance(part, Media):
            size = len(part.data or b"")
            is_small = size <= config.max_media_size
            kept.append(part if is_small else Text(f"[Left out: {part.kind} of {size} bytes, too large to be read.]"))
            continue
        if len(part.text) > room or len(kept) == _MOST_PARTS:
            note = f"[Cut here: the result is longer than {config.max_result_size} characters or {_MOST_PARTS} parts.]"
            kept.append(Text(f"{part.text[:room]}\n{note}"))
            break
        room -= len(part.text)
        kept.append(part)
    structured = result.structured
    if structured is not None and memoryview(structured.raw).nbytes > config.max_result_size:
        kept.append(Text("[Left out: the structured value, which is too large.]"))
    if tuple(kept) == result.content:
        return result
    return msgspec.structs.replace(result, content=tuple(kept), structured=None)


def execution_error(call: ToolCall, error: BaseException) -> ToolError:
    """An exception of a tool as a ToolError that names the tool. A ToolError keeps its text."""
    if isinstance(error, ToolError):
        error.tool_name = error.tool_name or call.name
        error.call_id = error.call_id or call.id
        return error
    message = f"executing tool {call.name!r}: {name_error(error)}"
    wrapped = error_of(call, ToolExecutionError, message, details=error)
    wrapped.__cause__ = error
    return wrapped
