"""What happens to one tool call, from the model's request to its result.

Owns: the order of things: middleware, is it there, do the arguments fit, may it run, is there budget left, run, retry.
Must not know: threads, event loops, or other calls. It asks for effects (`Invoke`, `Sleep`) and is told how they went,
so that plain and async runs, one call and many, share this one description.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

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

from .effects import Effect, Flag, Invoke, Sleep, discard
from .results import execution_error, failure, success
from .run import ToolRun

if TYPE_CHECKING:
    import logging

__all__ = ["Middleware", "Outcome", "Procedure", "Settings", "cancelled", "concluded", "decode", "procedure"]

Middleware: TypeAlias = Callable[[ToolCall, ToolRun], Generator[ToolCall | None, ToolResult, ToolResult | None]]
"""Around a call: yield (the call to make instead, or None for the same), receive its result, return the result to give
instead, or None for the same. Returning before the yield answers the call without running it. A generator has no
colour: the same middleware serves plain and async runs."""


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
    """Carry out one call. Never raises for what the tool, the model, the policy or the middleware did wrong.

    A ToolCancelledError that is thrown in ends it as if the tool had raised it.
    """
    started = settings.clock()
    entered: list[_Layer] = []
    outcome: Outcome | PendingApproval | None = None
    asked = call
    try:
        for middleware in settings.middleware:
            layer = middleware(asked, run)
            try:
                changed = next(layer)
            except StopIteration as stop:
                outcome = _answered(call, cast("ToolResult | None", stop.value))
                break
            entered.append(layer)
            if changed is not None:  # whatever it asks for, it is this call of the model that waits for an answer
                asked = msgspec.structs.replace(changed, id=call.id)
        if outcome is None:
            outcome = yield from _call(tools, asked, run, settings, started)
        while entered and isinstance(outcome, Outcome):
            outcome = _left(entered.pop(), call, outcome)
    except Exception as error:  # noqa: BLE001 -- middleware is foreign code; its failure is the call's failure
        outcome = _failed(call, execution_error(call, error), settings.clock() - started)
    finally:
        for layer in reversed(entered):
            _close(layer, settings.logger)
    if isinstance(outcome, Outcome) and (outcome.result.call_id, outcome.result.name) != (call.id, call.name):
        # Whatever the middleware made of it, this answers the call that the model made.
        return Outcome(msgspec.structs.replace(outcome.result, call_id=call.id, name=call.name), outcome.error)
    return outcome


def _close(layer: _Layer, logger: logging.Logger) -> None:
    try:
        layer.close()
    except Exception:
        logger.exception("a middleware failed while it was being closed")


def _answered(call: ToolCall, result: ToolResult | None) -> Outcome:
    """A middleware answered the call itself, or swallowed it."""
    if result is None:
        raise _denied(call, "a middleware stopped it")
    return concluded(call, result)


def concluded(call: ToolCall, result: ToolResult, error: ToolError | None = None) -> Outcome:
    """The outcome with this result. A failure that only the result tells of is an error like any other."""
    if not result.is_error:
        return Outcome(result)
    return Outcome(result, error or ToolExecutionError(result.text, tool_name=call.name, call_id=call.id))


def _left(layer: _Layer, call: ToolCall, outcome: Outcome) -> Outcome:
    """The outcome after this layer of middleware has seen it."""
    try:
        layer.send(outcome.result)
    except StopIteration as stop:
        changed = cast("ToolResult | None", stop.value)
        return outcome if changed is None else concluded(call, changed, outcome.error)
    layer.close()
    message = "a middleware must yield exactly once"
    raise RuntimeError(message)


def _call(tools: ToolSet, call: ToolCall, run: ToolRun, settings: Settings, started: float) -> Procedure:
    """The call itself, within the middleware."""
    retries = 0
    try:
        tool = _usable(tools, call, settings.config)
        arguments = decode(tool, call)
        if pending := (yield from _permit(tool, call, run, settings)):
            return pending
        _spend(tool, call, run, settings.config)
        allowed = _retries_of(tool, settings.config)
        while True:
            try:
                effect = _effect(tool, call, arguments, run, settings, attempt=retries + 1)
                value = yield from _attempt(call, effect, settings.clock)
                return concluded(call, success(call, value, settings.clock() - started, retries))
            except ToolError as error:
                # Only what may end better next time: the tool itself failed, or it took too long.
                if retries >= allowed or error.type not in ("execution", "timeout") or run.cancelled:
                    raise
                settings.logger.debug("tool %s failed, trying again: %s", call.name, error.type)
            retries += 1
            arguments = decode(tool, call)  # the try before may have changed its lists and dicts, or still be at it
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


def _context(
    call: ToolCall, run: ToolRun, settings: Settings, *, deadline: float | None, attempt: int, given_up: Flag
) -> ToolContext[object]:
    return ToolContext(
        call_id=call.id,
        tool_name=call.name,
        deps=run.deps,
        conversation=run.conversation,
        deadline=deadline,
        clock=settings.clock,
        cancelled=lambda: given_up.is_set or run.cancelled,
        logger=settings.logger,
        attempt=attempt,
    )


def _permit(
    tool: AnyTool, call: ToolCall, run: ToolRun, settings: Settings
) -> Generator[Effect, None, PendingApproval | None]:
    """Raise ToolDeniedError, or say what to wait for. Deny beats ask, ask beats allow.

    A person's yes only answers ask: it does not beat a rule that denies. A person's no holds in any case.
    """
    decision = yield from _decision(tool, call, run, settings)
    if isinstance(decision, Deny):
        raise _denied(call, decision.reason)
    approval = run.take_approval(call)
    if approval is not None and not approval.approved:
        raise _denied(call, approval.reason or "the user refused")
    if isinstance(decision, Allow) and decision.approved:
        return None
    needed = tool.options.requires_approval
    try:
        asks = needed(call) if callable(needed) else needed
    except Exception as error:
        raise _check_failed(call, error) from error
    if not isinstance(decision, Ask) and not asks:
        return None
    if approval is None:
        reason = decision.reason if isinstance(decision, Ask) else ""
        return PendingApproval(call=call, reason=reason or f"{call.name} needs approval")
    return None


def _decision(tool: AnyTool, call: ToolCall, run: ToolRun, settings: Settings) -> Generator[Effect, None, Decision]:
    """What the permission check says. One that fails, or says something else, has not allowed anything."""
    if settings.permission is None:
        return Allow()
    context = _context(call, run, settings, deadline=run.deadline, attempt=1, given_up=Flag())
    try:
        said: object = settings.permission(call, tool, context)
    except Exception as error:
        raise _check_failed(call, error) from error
    if isinstance(said, Awaitable):
        check = cast("Awaitable[object]", said)
        waiting = Invoke(lambda: check, is_async=True, timeout=_remaining(run, settings))
        try:
            yield waiting
        finally:
            discard(check)
        if waiting.error is not None or waiting.timed_out:
            raise _check_failed(call, waiting.error)
        said = waiting.value
    if not isinstance(said, Allow | Deny | Ask):
        message = f"it answered with a {type(said).__name__}, not with Allow, Deny or Ask"
        raise _check_failed(call, TypeError(message))
    return said


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
    if not run.spend(call.name, budget):
        message = f"tool {call.name!r} may be called {budget} times in a run and has been."
        raise ToolBudgetError(message, tool_name=call.name, call_id=call.id)


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
        try:
            yield effect
        finally:
            discard(value)
        value = _value_of(effect, call)
    return value


def _effect(
    tool: AnyTool, call: ToolCall, arguments: object, run: ToolRun, settings: Settings, *, attempt: int
) -> Invoke:
    """One try. It has a context of its own: one that was given up must not see that the next has time left."""
    timeout, given_up = _timeout(tool, run, settings), Flag()
    positional = tool.arguments.positional(arguments)
    if tool.takes_context:
        deadline = None if timeout is None else settings.clock() + timeout
        context = _context(call, run, settings, deadline=deadline, attempt=attempt, given_up=given_up)
        positional = (context, *positional)
    keywords = tool.arguments.keywords(arguments) if tool.arguments.keywords is not None else {}
    function = partial(tool.function, *positional, **keywords)
    return Invoke(function, is_async=tool.is_async, timeout=timeout, given_up=given_up)


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
