"""What happens to one tool call, from the model's request to its result.

Owns: the order of things: middleware, is it there, do the arguments fit, may it run, is there budget left, run, retry.
Must not know: threads, event loops, or other calls. It asks for effects (`Invoke`, `Sleep`) and is told how they went,
so that plain and async runs, one call and many, share this one description.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

import msgspec

from dragoman.conversation import ToolCall, ToolResult
from dragoman.errors import (
    ToolBudgetError,
    ToolCancelledError,
    ToolDeniedError,
    ToolError,
    ToolExecutionError,
    ToolTimeoutError,
    ToolValidationError,
)
from dragoman.tools.arguments.problems import InvalidArguments
from dragoman.tools.config import ToolConfig, ToolErrorHandling
from dragoman.tools.context import ToolContext
from dragoman.tools.definition import AnyTool
from dragoman.tools.permission import Allow, Ask, Decision, Deny, PendingApproval, PermissionCheck
from dragoman.tools.registry import ToolSet, not_found

from .results import execution_error, failure, success
from .run import ToolRun

__all__ = [
    "Effect",
    "Invoke",
    "Middleware",
    "Outcome",
    "Procedure",
    "Settings",
    "Sleep",
    "cancelled",
    "decode",
    "procedure",
]

Middleware: TypeAlias = Callable[[ToolCall, ToolRun], Generator[ToolCall | None, ToolResult, ToolResult | None]]
"""Around a call: yield (the call to make instead, or None for the same), receive its result, return the result to give
instead, or None for the same. Returning before the yield answers the call without running it. A generator has no
colour: the same middleware serves plain and async runs."""


class Invoke:
    """Effect: call this function, wait for it no longer than `timeout`, and note how it went."""

    __slots__ = ("error", "function", "is_async", "timed_out", "timeout", "value")

    def __init__(self, function: Callable[[], Any], *, is_async: bool, timeout: float | None) -> None:
        self.function: Callable[[], Any] = function
        self.is_async: bool = is_async
        self.timeout: float | None = timeout
        self.value: object = None
        self.error: BaseException | None = None
        self.timed_out: bool = False


class Sleep(msgspec.Struct, frozen=True):
    """Effect: do nothing for a while."""

    seconds: float


Effect: TypeAlias = Invoke | Sleep


class Outcome(msgspec.Struct, frozen=True):
    """How a call ended: a result, and the error behind it if it failed."""

    result: ToolResult
    error: ToolError | None = None


Procedure: TypeAlias = Generator[Effect, None, Outcome | PendingApproval]
_Layer: TypeAlias = Generator[ToolCall | None, ToolResult, ToolResult | None]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor was built with."""

    config: ToolConfig
    permission: PermissionCheck | None
    middleware: Sequence[Middleware]
    logger: logging.Logger
    clock: Callable[[], float]
    random: Callable[[], float]


def procedure(tools: ToolSet, call: ToolCall, run: ToolRun, settings: Settings) -> Procedure:
    """Carry out one call. Never raises for what the tool, the model, the policy or the middleware did wrong."""
    started = settings.clock()
    entered: list[_Layer] = []
    outcome: Outcome | PendingApproval | None = None
    asked = call
    try:
        for middleware in settings.middleware:
            layer = middleware(asked, run)
            try:
                asked = next(layer) or asked
            except StopIteration as stop:
                outcome = _answered(call, cast("ToolResult | None", stop.value))
                break
            entered.append(layer)
        if outcome is None:
            outcome = yield from _call(tools, asked, run, settings, started)
        while entered and isinstance(outcome, Outcome):
            outcome = _left(entered.pop(), outcome)
    except Exception as error:  # noqa: BLE001 -- middleware is foreign code; its failure is the call's failure
        outcome = _failed(call, execution_error(call, error), settings.clock() - started)
    finally:
        for layer in entered:
            layer.close()
    if isinstance(outcome, Outcome) and outcome.result.call_id != call.id:
        # Whatever the middleware made of it, this answers the call that the model made.
        return Outcome(msgspec.structs.replace(outcome.result, call_id=call.id), outcome.error)
    return outcome


def _answered(call: ToolCall, result: ToolResult | None) -> Outcome:
    """A middleware answered the call itself, or swallowed it."""
    if result is None:
        raise _denied(call, "a middleware stopped it")
    if not result.is_error:
        return Outcome(result)
    return Outcome(result, ToolExecutionError(result.text, tool_name=call.name, call_id=call.id))


def _left(layer: _Layer, outcome: Outcome) -> Outcome:
    """The outcome after this layer of middleware has seen it."""
    try:
        layer.send(outcome.result)
    except StopIteration as stop:
        changed = cast("ToolResult | None", stop.value)
        return outcome if changed is None else Outcome(changed, outcome.error if changed.is_error else None)
    layer.close()
    message = "a middleware must yield exactly once"
    raise RuntimeError(message)


def _call(tools: ToolSet, call: ToolCall, run: ToolRun, settings: Settings, started: float) -> Procedure:
    """The call itself, within the middleware."""
    retries = 0
    try:
        tool = _usable(tools, call, settings.config)
        arguments = decode(tool, call)
        context = _context(tool, call, run, settings)
        if pending := (yield from _permit(tool, call, context, run, settings)):
            return pending
        _spend(tool, call, run, settings.config)
        allowed = _retries_of(tool, settings.config)
        function = _bound_call(tool, arguments, context)
        while True:
            timeout = _timeout(tool, run, settings)
            if context is not None and timeout is not None:
                context.deadline = settings.clock() + timeout
            try:
                effect = Invoke(function, is_async=tool.is_async, timeout=timeout)
                value = yield from _attempt(call, effect, settings.clock)
                return Outcome(success(call, value, settings.clock() - started, retries))
            except ToolError as error:
                # Only what may end better next time: the tool itself failed, or it took too long.
                if retries >= allowed or error.type not in ("execution", "timeout") or run.cancelled:
                    raise
                settings.logger.debug("tool %s failed, trying again: %s", call.name, error.type)
            retries += 1
            if context is not None:
                context.attempt += 1
            yield Sleep(settings.config.retry.delay(retries, settings.random()))
    except ToolError as error:
        return _failed(call, error, settings.clock() - started, retries)


def _failed(call: ToolCall, error: ToolError, duration: float, retries: int = 0) -> Outcome:
    return Outcome(failure(call, error, duration, retries), error)


def _usable(tools: ToolSet, call: ToolCall, config: ToolConfig) -> AnyTool:
    tool = tools.find(call.name)
    allowed = config.allowed_tools
    if tool is None or (allowed is not None and call.name not in allowed):
        offered = [name for name in tools.by_name if allowed is None or name in allowed]
        error = not_found(call.name, offered)
        error.call_id = call.id
        raise error
    return tool


def decode(tool: AnyTool, call: ToolCall) -> object:
    """The call's arguments as the tool wants them, or ToolValidationError with the raw text kept."""
    if call.partial:
        message = f"the arguments of {call.name!r} broke off before they were complete."
        raise ToolValidationError(message, tool_name=call.name, call_id=call.id, details=call.arguments)
    try:
        return tool.arguments.decode(call.arguments)
    except Exception:  # noqa: BLE001, S110 -- the quick way says only that something is wrong; the other one says what
        pass
    try:
        return tool.arguments.recover(call.arguments)
    except InvalidArguments as error:
        message = f"invalid arguments for tool {call.name!r}: {error}."
        raise ToolValidationError(message, tool_name=call.name, call_id=call.id, details=call.arguments) from None


def _context(tool: AnyTool, call: ToolCall, run: ToolRun, settings: Settings) -> ToolContext[object] | None:
    """What the tool or the permission check may know, if either wants to."""
    if not tool.takes_context and settings.permission is None:
        return None
    return ToolContext(
        call_id=call.id,
        tool_name=call.name,
        deps=run.deps,
        conversation=run.conversation,
        deadline=run.deadline,
        clock=settings.clock,
        cancelled=lambda: run.cancelled,
        logger=settings.logger,
    )


def _permit(
    tool: AnyTool, call: ToolCall, context: ToolContext[object] | None, run: ToolRun, settings: Settings
) -> Generator[Effect, None, PendingApproval | None]:
    """Raise ToolDeniedError, or say what to wait for. Deny beats ask, ask beats allow; approval only answers ask."""
    decision: Decision = Allow()
    if settings.permission is not None and context is not None:
        try:
            check = settings.permission(call, tool, context)
        except Exception as error:
            raise _check_failed(call, error) from error
        if isinstance(check, Awaitable):
            waiting = Invoke(lambda: check, is_async=True, timeout=_remaining(run, settings))
            yield waiting
            if waiting.error is not None or waiting.timed_out:
                _discard(check)
                raise _check_failed(call, waiting.error)
            check = waiting.value
        decision = cast("Decision", check)
    if isinstance(decision, Deny):
        raise _denied(call, decision.reason)
    needed = tool.options.requires_approval
    asks = needed(call) if callable(needed) else needed
    if not isinstance(decision, Ask) and not asks:
        return None
    approval = run.approval_of(call)
    if approval is None:
        reason = decision.reason if isinstance(decision, Ask) else ""
        return PendingApproval(call=call, reason=reason or f"{call.name} needs approval")
    if not approval.approved:
        raise _denied(call, approval.reason or "the user refused")
    return None


def _denied(call: ToolCall, reason: str) -> ToolDeniedError:
    message = f"the call of {call.name!r} was denied: {reason.rstrip('.')}."
    return ToolDeniedError(message, tool_name=call.name, call_id=call.id)


def _check_failed(call: ToolCall, error: BaseException | None) -> ToolDeniedError:
    what = "it took too long" if error is None else f"{type(error).__name__}: {error}"
    return _denied(call, f"the permission check failed ({what})")


def _spend(tool: AnyTool, call: ToolCall, run: ToolRun, config: ToolConfig) -> None:
    budget = tool.options.budget
    if budget is None:
        budget = config.budgets.get(call.name)
    if budget is not None and run.counts[call.name] >= budget:
        message = f"tool {call.name!r} may be called {budget} times in a run and has been."
        raise ToolBudgetError(message, tool_name=call.name, call_id=call.id)
    run.counts[call.name] += 1


def _retries_of(tool: AnyTool, config: ToolConfig) -> int:
    if tool.options.retries is not None:
        return tool.options.retries
    return config.retry.max_retries if config.tool_error_handling is ToolErrorHandling.RETRY else 0


def _remaining(run: ToolRun, settings: Settings) -> float | None:
    return None if run.deadline is None else max(0.0, run.deadline - settings.clock())


def _timeout(tool: AnyTool, run: ToolRun, settings: Settings) -> float | None:
    """How long one try may take: the tool's own limit or the run's, and never longer than the run has left."""
    own = settings.config.execution_timeout if tool.options.timeout is None else tool.options.timeout
    left = _remaining(run, settings)
    if own is None or left is None:
        return left if own is None else own
    return min(own, left)


def _attempt(call: ToolCall, effect: Invoke, clock: Callable[[], float]) -> Generator[Effect, None, object]:
    """One try; raises a ToolError if it fails."""
    began = clock()
    yield effect
    value = _value_of(effect, call)
    if hasattr(type(value), "__await__"):  # a plain function that returned a coroutine after all
        rest = None if effect.timeout is None else max(0.0, effect.timeout - (clock() - began))
        effect = Invoke(lambda: value, is_async=True, timeout=rest)
        yield effect
        if effect.timed_out:
            _discard(value)
        value = _value_of(effect, call)
    return value


def _discard(awaitable: object) -> None:
    """Close a coroutine that was never begun, so that Python does not complain that nobody awaited it."""
    if inspect.iscoroutine(awaitable) and inspect.getcoroutinestate(awaitable) == inspect.CORO_CREATED:
        awaitable.close()


def _bound_call(tool: AnyTool, arguments: object, context: ToolContext[object] | None) -> Callable[[], Any]:
    """The function with everything it is to be called with."""
    positional = tool.arguments.positional(arguments)
    if tool.takes_context:
        positional = (context, *positional)
    keywords = tool.arguments.keywords(arguments) if tool.arguments.keywords is not None else {}
    return partial(tool.function, *positional, **keywords)


def _value_of(effect: Invoke, call: ToolCall) -> object:
    if effect.timed_out:
        message = f"tool {call.name!r} did not finish within {effect.timeout:g} seconds."
        raise ToolTimeoutError(message, tool_name=call.name, call_id=call.id)
    if effect.error is None:
        return effect.value
    if type(effect.error).__name__ == "CancelledError":  # asyncio's or a future's; asyncio may not even be loaded
        raise cancelled(call) from effect.error
    raise execution_error(call, effect.error)


def cancelled(call: ToolCall, why: str = "the run was cancelled") -> ToolCancelledError:
    """The error of a call that was not finished."""
    return ToolCancelledError(f"tool {call.name!r} was not finished: {why}.", tool_name=call.name, call_id=call.id)
