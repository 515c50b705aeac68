"""What happens to one tool call, from the model's request to its result.

The order of things: middleware, is the tool there, do the arguments fit, may it run, is there budget left; run, and
retry. Functions are run by a `Runner`, so plain and async runs, one call and many, share this one description.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

import msgspec
from msgspec import Raw

from dragoman.conversation import Json, Media, ResultPart, Text, ToolCall, ToolResult
from dragoman.errors import (
    ToolBudgetError,
    ToolCancelledError,
    ToolDeniedError,
    ToolError,
    ToolExecutionError,
    ToolTimeoutError,
    ToolValidationError,
)

from .arguments.problems import InvalidArguments
from .definition import AnyTool
from .registry import ToolSet, not_found
from .run import (
    Allow,
    Ask,
    Decision,
    Deny,
    PendingApproval,
    PermissionCheck,
    ToolConfig,
    ToolContext,
    ToolErrorHandling,
    ToolRun,
)
from .runner import Runner, StoppedError, TimedOutError, discard

if TYPE_CHECKING:
    import logging

Middleware: TypeAlias = Callable[[ToolCall, ToolRun], Generator[ToolCall | None, ToolResult, ToolResult | None]]
"""Around a call: yield (the call to make instead, or None for the same), receive its result, return the result to give
instead, or None for the same. Returning before the yield answers the call without running it. A generator has no
colour: the same middleware serves plain and async runs."""

_Layer: TypeAlias = Generator[ToolCall | None, ToolResult, ToolResult | None]


class Outcome(msgspec.Struct, frozen=True):
    """How a call ended: a result, and the error behind it if it failed."""

    result: ToolResult
    error: ToolError | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor was built with."""

    config: ToolConfig
    permission: PermissionCheck | None
    middleware: Sequence[Middleware]
    logger: logging.Logger
    clock: Callable[[], float]
    random: Callable[[], float]


class CallExecution:
    """One call under way. `admit`, then `run` if that gave nothing, then `conclude` with the outcome.

    None of them raises for what the tool, the model, the policy or the middleware did wrong: that is an outcome too.
    """

    def __init__(self, tools: ToolSet, call: ToolCall, run: ToolRun, settings: Settings) -> None:
        self._tools: ToolSet = tools
        self._call: ToolCall = call
        self._run: ToolRun = run
        self._settings: Settings = settings
        self._asked: ToolCall = call
        """The call to be made, as the middleware wants it."""
        self._layers: list[_Layer] = []
        self._tool: AnyTool | None = None
        self._arguments: object = None
        self._started: float = settings.clock()
        self._retries: int = 0
        self._given_up: bool = False

    # --- before ---

    async def admit(self, runner: Runner) -> Outcome | PendingApproval | None:
        """Find out whether the call may run: None if so, else how it ended, or what it waits for."""
        try:
            answered = self._enter_middleware()
            if answered is not None:
                return answered
            self._tool = _find(self._tools, self._asked, self._settings.config)
            self._arguments = decode_arguments(self._tool, self._asked)
            pending = await self._permit(self._tool, runner)
            if pending is not None:
                return pending
            self._spend(self._tool)
        except ToolError as error:
            return self.fail(error)
        except Exception as error:  # noqa: BLE001 - middleware is foreign code; its failure is the call's failure
            return self.fail(execution_error(self._call, error))
        return None

    def _enter_middleware(self) -> Outcome | None:
        for middleware in self._settings.middleware:
            layer = middleware(self._asked, self._run)
            try:
                changed = next(layer)
            except StopIteration as stop:
                return _answer(self._call, cast("ToolResult | None", stop.value))
            self._layers.append(layer)
            if changed is not None:  # whatever it asks for, it is this call of the model that waits for an answer
                self._asked = msgspec.structs.replace(changed, id=self._call.id)
        return None

    async def _permit(self, tool: AnyTool, runner: Runner) -> PendingApproval | None:
        """Raise ToolDeniedError, or say what to wait for. Deny beats ask, ask beats allow.

        A person's yes only answers ask: it does not beat a rule that denies. A person's no holds in any case.
        """
        call = self._asked
        decision = await self._decide(tool, runner)
        if isinstance(decision, Deny):
            raise _denied(call, decision.reason)
        approval = self._run.take_approval(call)
        if approval is not None and not approval.approved:
            raise _denied(call, approval.reason or "the user refused")
        if isinstance(decision, Allow) and decision.approved:
            return None
        needed = tool.options.requires_approval
        try:
            asks = needed(call) if callable(needed) else needed
        except Exception as error:
            raise _check_failed(call, error) from error
        if approval is not None or (not isinstance(decision, Ask) and not asks):
            return None
        reason = decision.reason if isinstance(decision, Ask) else ""
        return PendingApproval(call=call, reason=reason or f"{call.name} needs approval")

    async def _decide(self, tool: AnyTool, runner: Runner) -> Decision:
        """What the permission check says. One that fails, or says something else, has not allowed anything."""
        check, call = self._settings.permission, self._asked
        if check is None:
            return _ALLOWED
        try:
            said: object = check(call, tool, self._context(self._run.deadline))
            if isinstance(said, Awaitable):
                waiting = cast("Awaitable[object]", said)
                try:
                    said = await runner.call(lambda: waiting, is_async=True, seconds=self._remaining())
                finally:
                    discard(waiting)
        except TimedOutError:
            raise _check_failed(call, None) from None
        except StoppedError:
            raise cancelled(call) from None
        except Exception as error:
            raise _check_failed(call, error) from error
        if not isinstance(said, Allow | Deny | Ask):
            message = f"it answered with a {type(said).__name__}, not with Allow, Deny or Ask"
            raise _check_failed(call, TypeError(message))
        return said

    def _spend(self, tool: AnyTool) -> None:
        budget = tool.options.budget
        if budget is None:
            budget = self._settings.config.budgets.get(self._asked.name)
        if not self._run.spend(self._asked.name, budget):
            message = f"tool {self._asked.name!r} may be called {budget} times in a run and has been."
            raise ToolBudgetError(message, tool_name=self._asked.name, call_id=self._asked.id)

    # --- running ---

    async def run(self, runner: Runner) -> Outcome:
        """Run the tool, again where that is allowed and may help."""
        tool, call = self._tool, self._asked
        assert tool is not None
        clock = self._settings.clock
        try:
            while True:
                try:
                    value = await self._try(tool, runner)
                    return conclude(call, success(call, value, clock() - self._started, self._retries))
                except ToolError as error:
                    # Only what may end better next time: the tool itself failed, or it took too long.
                    if error.type not in ("execution", "timeout") or not self._may_retry(tool):
                        raise
                    self._settings.logger.debug("tool %s failed, trying again: %s", call.name, error.type)
                self._retries += 1
                self._arguments = decode_arguments(tool, call)  # the try before may have changed its lists and dicts
                await runner.sleep(self._settings.config.retry.delay(self._retries, self._settings.random()))
        except ToolError as error:
            return self.fail(error)
        except StoppedError:
            return self.fail(cancelled(call))

    def _may_retry(self, tool: AnyTool) -> bool:
        if self._run.cancelled or self._given_up:
            return False
        allowed, config = tool.options.retries, self._settings.config
        if allowed is None:
            allowed = config.retry.max_retries if config.tool_error_handling is ToolErrorHandling.RETRY else 0
        return self._retries < allowed

    async def _try(self, tool: AnyTool, runner: Runner) -> object:
        """One try; raises a ToolError if it fails."""
        call, timeout = self._asked, self._timeout(tool)
        if timeout is not None and timeout <= 0:  # too late to even begin
            raise _timed_out(call, timeout)
        began = self._settings.clock()
        try:
            function = self._bind(tool, None if timeout is None else began + timeout)
            value = await runner.call(function, is_async=tool.is_async, seconds=timeout)
            if hasattr(type(value), "__await__"):  # a plain function that returned a coroutine after all
                value = await self._await(value, runner, None if timeout is None else began + timeout)
            return value
        except TimedOutError:
            raise _timed_out(call, timeout or 0.0) from None
        except StoppedError:
            raise
        except BaseException as error:
            if type(error).__name__ == "CancelledError":  # asyncio's or a future's; asyncio may not even be loaded
                if runner.is_cancelled:
                    raise
                raise cancelled(call) from error  # the tool's own
            if not isinstance(error, Exception | SystemExit):
                raise
            raise execution_error(call, error) from error

    async def _await(self, value: object, runner: Runner, deadline: float | None) -> object:
        """What a plain function meant when it returned something to be awaited."""
        left = None if deadline is None else deadline - self._settings.clock()
        try:
            if left is not None and left <= 0:
                raise TimedOutError
            return await runner.call(lambda: value, is_async=True, seconds=left)
        finally:
            discard(value)

    def _bind(self, tool: AnyTool, deadline: float | None) -> Callable[[], object]:
        """The function with its arguments. Each try has a context of its own, which knows when it was given up."""
        positional, keywords = tool.arguments.bind(self._arguments)
        if tool.takes_context:
            positional = (self._context(deadline), *positional)
        return partial(tool.function, *positional, **keywords)

    def _context(self, deadline: float | None) -> ToolContext[object]:
        attempt = self._retries + 1
        return ToolContext(
            call_id=self._asked.id,
            tool_name=self._asked.name,
            deps=self._run.deps,
            conversation=self._run.conversation,
            deadline=deadline,
            clock=self._settings.clock,
            given_up=lambda: self._given_up or self._run.cancelled or self._retries >= attempt,
            parent_logger=self._settings.logger,
            attempt=attempt,
        )

    def _remaining(self) -> float | None:
        deadline = self._run.deadline
        return None if deadline is None else max(0.0, deadline - self._settings.clock())

    def _timeout(self, tool: AnyTool) -> float | None:
        """How long one try may take: the tool's own limit or the run's, and never longer than the run has left."""
        own = self._settings.config.execution_timeout if tool.options.timeout is None else tool.options.timeout
        left = self._remaining()
        if own is None or left is None:
            return left if own is None else own
        return min(own, left)

    # --- after ---

    def give_up(self) -> None:
        """Nobody waits for this call any more; the tool may still run, and its context says so."""
        self._given_up = True

    def cancel(self, why: str) -> Outcome:
        """The end of a call that is not finished: it knows how long it took and how often it was tried."""
        return self.conclude(self.fail(cancelled(self._call, why)))

    def conclude(self, outcome: Outcome) -> Outcome:
        """The outcome after the middleware has seen it. It answers the call that the model made, whatever that did."""
        call = self._call
        try:
            while self._layers:
                outcome = _leave(self._layers.pop(), call, outcome)
        except Exception as error:  # noqa: BLE001 - middleware is foreign code; its failure is the call's failure
            outcome = self.fail(execution_error(call, error))
        finally:
            self.close()
        if (outcome.result.call_id, outcome.result.name) != (call.id, call.name):
            return Outcome(msgspec.structs.replace(outcome.result, call_id=call.id, name=call.name), outcome.error)
        return outcome

    def close(self) -> None:
        """Leave the middleware without a result."""
        while self._layers:
            try:
                self._layers.pop().close()
            except Exception:
                self._settings.logger.exception("a middleware failed while it was being closed")

    def fail(self, error: ToolError) -> Outcome:
        """The outcome of a call that ended with this error."""
        return Outcome(failure(self._call, error, self._settings.clock() - self._started, self._retries), error)


_ALLOWED = Allow()


def _answer(call: ToolCall, result: ToolResult | None) -> Outcome:
    """A middleware answered the call itself, or swallowed it."""
    if result is None:
        raise _denied(call, "a middleware stopped it")
    return conclude(call, result)


def conclude(call: ToolCall, result: ToolResult, error: ToolError | None = None) -> Outcome:
    """The outcome with this result. A failure that only the result tells of is an error like any other."""
    if not result.is_error:
        return Outcome(result)
    return Outcome(result, error or ToolExecutionError(result.text, tool_name=call.name, call_id=call.id))


def _leave(layer: _Layer, call: ToolCall, outcome: Outcome) -> Outcome:
    """The outcome after this layer of middleware has seen it."""
    try:
        layer.send(outcome.result)
    except StopIteration as stop:
        changed = cast("ToolResult | None", stop.value)
        return outcome if changed is None else conclude(call, changed, outcome.error)
    layer.close()
    message = "a middleware must yield exactly once"
    raise RuntimeError(message)


def _find(tools: ToolSet, call: ToolCall, config: ToolConfig) -> AnyTool:
    tool = tools.find(call.name)
    allowed = config.allowed_tools
    if tool is None or (allowed is not None and call.name not in allowed):
        offered = [name for name in tools.by_name if allowed is None or name in allowed]
        error = not_found(call.name, offered)
        error.call_id = call.id
        raise error
    return tool


def decode_arguments(tool: AnyTool, call: ToolCall) -> object:
    """The call's arguments as the tool wants them, or ToolValidationError with the raw text kept."""
    if call.partial:
        message = f"the arguments of {call.name!r} broke off before they were complete."
        raise ToolValidationError(message, tool_name=call.name, call_id=call.id, details=call.arguments)
    try:
        return tool.arguments.decode(call.arguments)
    except InvalidArguments as error:
        message = f"invalid arguments for tool {call.name!r}: {error}."
        raise ToolValidationError(message, tool_name=call.name, call_id=call.id, details=call.arguments) from None


def _denied(call: ToolCall, reason: str) -> ToolDeniedError:
    message = f"the call of {call.name!r} was denied: {reason.rstrip('.')}."
    return ToolDeniedError(message, tool_name=call.name, call_id=call.id)


def _check_failed(call: ToolCall, error: BaseException | None) -> ToolDeniedError:
    what = "it took too long" if error is None else f"{type(error).__name__}: {error}"
    return _denied(call, f"the permission check failed ({what})")


def _timed_out(call: ToolCall, timeout: float) -> ToolTimeoutError:
    message = f"tool {call.name!r} did not finish within {timeout:g} seconds."
    return ToolTimeoutError(message, tool_name=call.name, call_id=call.id)


def cancelled(call: ToolCall, why: str = "the run was cancelled") -> ToolCancelledError:
    """The error of a call that was not finished."""
    return ToolCancelledError(f"tool {call.name!r} was not finished: {why}.", tool_name=call.name, call_id=call.id)


# --- from what a function returned or raised to what the model reads --------------------------------------------------

NOTHING: tuple[ResultPart, ...] = (Json(Raw(b"null")),)
"""What the model reads of a function that returned None."""
_PARTS = (Text, Json, Media)


def _json_ready(value: object) -> object:
    """For values that msgspec cannot write by itself."""
    dump = getattr(value, "model_dump", None)  # pydantic's models, without importing pydantic
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    message = f"a value of type {type(value).__name__} cannot be written as JSON"
    raise TypeError(message)


_encoder = msgspec.json.Encoder(enc_hook=_json_ready)


def _readable(text: str) -> str:
    """The text as UTF-8 can carry it: half a surrogate pair, as in odd file names, makes a conversation unwritable."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def content_of(value: object) -> tuple[ResultPart, ...]:
    """What the model reads: text as it is, parts as they are, anything else as JSON."""
    if isinstance(value, str):
        return (Text(_readable(value)),)
    if value is None:
        return NOTHING
    if isinstance(value, _PARTS):
        return (value,)
    if isinstance(value, list | tuple) and value and all(isinstance(v, _PARTS) for v in cast("list[object]", value)):
        return tuple(cast("list[ResultPart]", value))
    return (Json(Raw(_encoder.encode(value))),)


def success(call: ToolCall, value: object, duration: float, retries: int = 0) -> ToolResult:
    """The result of a call that returned. Raises ToolExecutionError if the value cannot be written as JSON."""
    if isinstance(value, ToolResult):  # a tool that wants the last word on its result
        return msgspec.structs.replace(value, call_id=call.id, name=call.name, duration=duration, retries=retries)
    try:
        content = content_of(value)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"tool {call.name!r} returned a value that the model cannot read: {error}."
        hint = "Return text, JSON-like data, a dataclass, or a content block."
        raise ToolExecutionError(message, tool_name=call.name, call_id=call.id, hint=hint) from error
    return ToolResult(call.id, call.name, content, duration=duration, retries=retries)


def failure(call: ToolCall, error: ToolError, duration: float, retries: int = 0) -> ToolResult:
    """The result of a call that failed; the model reads what happened and what to do next."""
    return ToolResult(
        call.id,
        call.name,
        (Text(_readable(str(error))),),
        is_error=True,
        error_type=error.type,
        duration=duration,
        retries=retries,
    )


def execution_error(call: ToolCall, error: BaseException) -> ToolError:
    """What a tool raised, as an error that names the tool. A ToolError keeps its own text."""
    if isinstance(error, ToolError):
        error.tool_name = error.tool_name or call.name
        error.call_id = error.call_id or call.id
        return error
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 -- an exception whose text raises is still only a failed tool
        text = ""
    message = f"executing tool {call.name!r}: {type(error).__name__}{': ' if text else ''}{text}"
    wrapped = ToolExecutionError(message, tool_name=call.name, call_id=call.id, details=error)
    wrapped.__cause__ = error
    return wrapped
