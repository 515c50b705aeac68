"""A chain of models: if one fails, the next one answers.

Each model is called through its own engine, with that engine's retries; then comes the next model, but only while no
part of an answer has arrived. The chain adds the order of the models, their breakers, which failures fall back, one
budget of attempts for all, and one list of attempts. Must not know: HTTP, dialects, sync or async.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from dragoman._checks import CheckedMeta, NotNegative, Positive, of_unmade, overlay
from dragoman.conversation import Conversation, Fold, ToolSpec, Usage
from dragoman.errors import (
    AuthenticationError,
    ConfigurationError,
    ConnectionFailedError,
    ContentFilteredError,
    ContextTooLongError,
    DragomanError,
    InvalidRequestError,
    LossyConversionError,
    ModelNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProtocolError,
    ProviderError,
    RateLimitError,
    RequestTimeoutError,
)
from dragoman.providers import Loss, ModelOptions, Profile
from dragoman.transport import AttemptRecord

from .base import AsyncEngine, BaseEngine, Engine
from .call import Reply, ReplyCall
from .health import Health, ModelHealth, health_of

E = TypeVar("E", bound=Engine | AsyncEngine)

_LOGGER: Final = logging.getLogger("dragoman.engines")

_CANNOT_TAKE: Final = (ConfigurationError, LossyConversionError)
"""Errors of a model that cannot take a call at all."""

Failure: TypeAlias = Literal[
    "overloaded",
    "rate_limit",
    "timeout",
    "connection",
    "server_error",
    "bad_reply",
    "context_too_long",
    "authentication",
    "permission",
    "model_not_found",
    "content_filtered",
    "invalid_request",
]
"""How a model call can fail."""

_FAILURES: Final[dict[type[BaseException], Failure]] = {
    OverloadedError: "overloaded",
    RateLimitError: "rate_limit",
    RequestTimeoutError: "timeout",
    ConnectionFailedError: "connection",
    ProtocolError: "bad_reply",
    ContextTooLongError: "context_too_long",
    AuthenticationError: "authentication",
    PermissionDeniedError: "permission",
    ModelNotFoundError: "model_not_found",
    ContentFilteredError: "content_filtered",
    InvalidRequestError: "invalid_request",
    ProviderError: "server_error",  # whatever else
}
_OURS: Final = frozenset({"limiter", "pool_timeout"})
"""Codes of failures that say nothing about the provider."""


def failure_of(error: ProviderError) -> Failure:
    """How the call has failed."""
    return next(_FAILURES[kind] for kind in type(error).__mro__ if kind in _FAILURES)


class Fallback(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a chain calls the next model, and which one."""

    on: frozenset[Failure] = frozenset(
        {
            *("overloaded", "rate_limit", "timeout", "connection", "server_error", "bad_reply", "context_too_long"),
            *("authentication", "permission", "model_not_found"),
        }
    )
    """The failures after which the next model is called. After `context_too_long`, models whose context window is known
    to be no larger are skipped."""
    order: Literal["preference", "cost", "latency"] = "preference"
    """As named; cheapest first, unknown prices last; or fastest first, as measured in this process, models without a
    measurement before all others."""
    attempts: Positive = 6
    """Attempts of all models together for one reply. One is reserved for each model that is still to come."""
    longest_wait: NotNegative = 5.0
    """The longest pause, in seconds, before a retry of the same model while there is another one."""
    failures: Positive = 3
    """So many failed attempts in a row, of all calls of the process, open a model's breaker: it is skipped."""
    open_for: NotNegative = 10.0
    """Seconds for which it opens first, doubled each time that it opens again."""
    longest_open: NotNegative = 300.0
    """The most seconds for which it opens."""


_TYPICAL: Final = Usage(input=3000, output=1000)
"""A typical request, to compare the prices of models."""


def cost_rank(engine: BaseEngine) -> float:
    """The price of a typical request; infinite if it is not known."""
    prices = engine.known_prices
    return math.inf if prices is None else prices.cost(_TYPICAL) or 0.0


# --- one call ---------------------------------------------------------------------------------------------------------


class _Trial(Struct, eq=False):
    """The call of one model."""

    engine: BaseEngine
    call: ReplyCall
    probe: bool
    health: Health
    began: float
    counted: ProviderError | None = None
    """The last error that was reported to its breaker."""
    is_over: bool = False
    is_measured: bool = False

    def numbered_attempts(self, before: int) -> list[AttemptRecord]:
        """Its attempts, numbered after the `before` attempts of earlier models."""
        replace, name = msgspec.structs.replace, self.engine.name
        return [replace(each, number=before + each.number, model=each.model or name) for each in self.call.attempts]


class FallbackCall(ReplyCall):
    """One call of a chain: the calls of its models, one after the other, until one begins to answer."""

    def __init__(
        self,
        chain: _Chain[Any],
        conversation: Conversation,
        tools: Sequence[ToolSpec],
        options: ModelOptions | None,
        *,
        stream: bool,
    ) -> None:
        super().__init__()
        self._chain: _Chain[Any] = chain
        self._asked: tuple[Conversation, Sequence[ToolSpec]] = (conversation, tools)
        self._options: ModelOptions | None = options
        self._stream: bool = stream
        self._coming: list[BaseEngine] = chain.in_order(stream=stream)
        """The models that are still to come."""
        self._open_breakers: list[BaseEngine] = []
        """The models that were skipped because their breakers are open."""
        self._trial: _Trial | None = None
        """The current or last model."""
        self._made: int = 0
        """Attempts of the models before it."""
        self._window: int | None = None
        """The context window that was too small."""
        self._reasons: list[str] = []
        """Why models did not answer."""
        self._error: DragomanError | None = None
        """The last error of a provider, or else the first of another kind."""

    @property
    def account(self) -> Reply:
        trial = self._trial
        if trial is None:
            return super().account
        reply, attempts, repeated = trial.call.account, self.attempts, self._repeated
        if not trial.is_over:
            attempts, repeated = [*attempts, *trial.numbered_attempts(self._made)], [*repeated, *reply.repeated]
        return msgspec.structs.replace(reply, attempts=tuple(attempts), repeated=tuple(repeated))

    async def advance(self) -> None:
        trial = self._trial or self._open()
        if trial is None:
            assert self._error is not None  # every model has refused the call
            raise self._error
        try:
            events = await trial.call.next()
        except _CANNOT_TAKE as problem:  # only engines that find out late, such as a local model
            if not self._fall_back(trial, problem):
                raise self._explain(problem) from None
            self._fold, self._unsaid = Fold(), []
            return
        failure = trial.call.failure
        if failure is not None:
            self.take(events[:-1])  # without its Failed event: the chain has its own
            raise failure
        if events and not trial.is_measured:
            trial.is_measured, now = True, self._chain.clock()
            trial.health.measure(now - trial.began, now, stream=self._stream)
        self.take(events)
        if not events:
            self.over = True
            self._conclude(trial, None)

    async def try_again(self, error: ProviderError) -> bool:
        trial = self._trial
        if trial is None or trial.is_over:  # no model is left
            return False
        if self._fall_back(trial, error):
            return True
        self._explain(error)
        return False

    async def release(self) -> None:
        if self._trial is not None:
            await self._trial.call.aclose()

    async def aclose(self) -> None:
        await super().aclose()
        trial = self._trial
        if trial is not None and not trial.is_over:  # the caller has left
            trial.is_over = True
            self.attempts += trial.numbered_attempts(self._made)
            self._repeated += trial.call.account.repeated
            if self._handed_over:
                trial.health.answered()
            else:
                trial.health.dropped(self._chain.clock(), probe=trial.probe)

    # --- choosing a model ---

    def _fall_back(self, trial: _Trial, error: DragomanError) -> bool:
        """Start the call of the next model, unless this failure ends the call or no model is left."""
        self._conclude(trial, error)
        if self._stream and self.has_begun:  # never two answers
            self._error = error
            return False
        if not isinstance(error, ProviderError):
            self._refuse(trial.engine, error)
        else:
            self._error, kind = error, failure_of(error)
            if kind not in self._chain.fallback.on:
                return False
            if kind == "context_too_long":
                self._window = max(self._window or 0, trial.engine.context_window or 0)
        why, following = self._reasons[-1], self._open()
        if following is not None:
            _LOGGER.warning("%s; asking %s instead", why, following.engine.name)
        return following is not None

    def _open(self) -> _Trial | None:
        """Prepare the call of the next model; None if there is none."""
        conversation, tools = self._asked
        while (chosen := self._choose()) is not None:
            engine, probe = chosen
            health = health_of(engine)
            try:
                options = self._chain.options_for(engine, self._options)
                call = engine.begin(conversation, tools, options, stream=self._stream, veto=self._veto)
            except BaseException as error:
                health.dropped(self._chain.clock(), probe=probe)
                if not isinstance(error, _CANNOT_TAKE):
                    raise
                self._refuse(engine, error)
                self._skip(engine, error.message)
                continue
            self._trial = _Trial(engine, call, probe, health, self._chain.clock())
            return self._trial
        return None

    def _refuse(self, engine: BaseEngine, error: DragomanError) -> None:
        """A model cannot take this call. For the first model that is an error, as without a chain."""
        if engine is self._chain.engines[0] and not isinstance(error, LossyConversionError):
            raise error
        self._error = self._error or error

    def _choose(self) -> tuple[BaseEngine, bool] | None:
        """The next model, and whether its call is a probe; None if there is none."""
        policy, now = self._chain.fallback, self._chain.clock()
        if self._made >= policy.attempts:
            for engine in self._coming:
                self._skip(engine, f"all {policy.attempts} attempts are used up")
            self._coming = []
        while self._coming:
            engine = self._coming.pop(0)
            health, window = health_of(engine), None if self._window is None else engine.context_window
            if self._window is not None and window is not None and window <= self._window:
                self._skip(engine, f"its window of {window} tokens is no larger")
            elif (kind := health.begin(now)) is not None:
                return engine, kind == "probe"
            else:
                self._open_breakers.append(engine)
                self._skip(engine, f"its breaker is open for {health.open_for(now):.1f} s")
        if self._open_breakers and self._trial is None:  # no model was called: try the one that would close first
            engine = min(self._open_breakers, key=lambda each: health_of(each).open_for(now))
            self._open_breakers = []
            return engine, False
        return None

    def _skip(self, engine: BaseEngine, why: str) -> None:
        self.attempts.append(AttemptRecord(number=0, outcome=f"skipped: {why}", model=engine.name))
        self._reasons.append(f"{engine.name} was skipped: {why}")

    # --- results ---

    def _veto(self, error: ProviderError, after: float) -> str:
        """Why the current model must not be retried; empty if it may."""
        trial, policy, now = self._trial, self._chain.fallback, self._chain.clock()
        assert trial is not None
        made = self._made + len(trial.call.account.attempts) + 1
        if made + len(self._coming) >= policy.attempts:
            return f"{made} of {policy.attempts} attempts of all models made"
        if self._coming and after > policy.longest_wait:
            return f"another model need not wait {after:g} s"
        self._count(trial, error, now)
        left = trial.health.open_for(now)
        if left:
            return f"its breaker is open for {left:.1f} s"
        return "" if self.veto is None else self.veto(error, after)  # of an outer chain

    def _count(self, trial: _Trial, error: ProviderError, now: float, advice: float | None = None) -> None:
        """Report a failure to the breaker, unless the request or we ourselves are the reason."""
        policy, kind = self._chain.fallback, failure_of(error)
        trial.counted = error
        if error.code in _OURS:
            trial.health.dropped(now, probe=trial.probe)
        elif kind == "context_too_long" or kind not in policy.on:
            trial.health.answered()
        else:
            trial.health.failed(now, policy, probe=trial.probe, advice=advice)

    def _conclude(self, trial: _Trial, error: DragomanError | None) -> None:
        """Take over the attempts of a model, and report the outcome to its breaker."""
        now = self._chain.clock()
        trial.is_over = True
        what = "" if error is None else _describe(error)
        records = trial.numbered_attempts(self._made) or [  # an engine that records none has made one
            AttemptRecord(
                number=self._made + 1, outcome=what or "ok", model=trial.engine.name, duration=now - trial.began
            )
        ]
        self.attempts += records
        self._repeated += trial.call.account.repeated
        self._made += len(records)
        if error is None:
            trial.health.answered()
            return
        self._reasons.append(f"{trial.engine.name} failed: {what}")
        if not isinstance(error, ProviderError):
            trial.health.dropped(now, probe=trial.probe)
        elif trial.counted is not error:
            self._count(trial, error, now, error.retry_after)

    def _explain(self, error: DragomanError) -> DragomanError:
        """The error that the chain ends with; its hint names all models."""
        final = self._error if self._error is not None and not isinstance(error, ProviderError) else error
        if isinstance(final, ProviderError):
            final.attempts = tuple(self.attempts)
        if len(self._reasons) > 1:
            final.hint = f"{final.hint} Of the models, {'; '.join(self._reasons)}."
        return final


def _describe(error: DragomanError) -> str:
    if not isinstance(error, ProviderError):
        return error.message
    return failure_of(error) if error.status is None else f"{failure_of(error)}, status {error.status}"


# --- engines ----------------------------------------------------------------------------------------------------------


class _Chain(BaseEngine, Generic[E]):
    """What both engines share. Its properties are those of its first model."""

    asks_others = True

    def __init__(
        self,
        engines: Sequence[E],
        fallback: Fallback | None = None,
        *,
        owned: Iterable[E] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        owned   the engines that are closed together with the chain
        """
        if not engines:
            hint = 'Name one or more, such as ["anthropic:claude-sonnet-4-5", "local:"].'
            raise ConfigurationError("The list of models is empty.", hint=hint)
        first = engines[0]
        self.engines: Final[tuple[E, ...]] = tuple(engines)
        self.fallback: Final[Fallback] = Fallback() if fallback is None else fallback
        self.clock: Final[Callable[[], float]] = clock
        self._owned: Final[tuple[E, ...]] = tuple(owned)
        self.name: str = first.name
        # Tool search only if every model has it.
        searched = min([each.profile.tool_search for each in engines])
        self.profile: Profile = first.profile.with_changes(tool_search=searched)
        self._is_uniform: Final[bool] = all(each.options == first.options for each in engines)
        self.options: ModelOptions = first.options if self._is_uniform else ModelOptions()

    def options_for(self, engine: BaseEngine, given: ModelOptions | None) -> ModelOptions | None:
        """The options of a call for one model: merged with its engine's own, if the engines' options differ."""
        if given is None or self._is_uniform:
            return given
        # These two are set anew for every step.
        merged, replace = overlay(given, engine.options), msgspec.structs.replace
        return replace(merged, tool_choice=given.tool_choice, response_format=given.response_format)

    @property
    def health(self) -> tuple[ModelHealth, ...]:
        """The breaker and the latency of each model, as far as this process knows."""
        return tuple([health_of(each).view(each.name, self.clock()) for each in self.engines])

    def in_order(self, *, stream: bool) -> list[BaseEngine]:
        """The models in the order in which they are called."""
        now = self.clock()
        match self.fallback.order:
            case "preference":
                return list(self.engines)
            case "cost":
                return sorted(self.engines, key=cost_rank)
            case "latency":
                return sorted(self.engines, key=lambda each: health_of(each).latency(now, stream=stream) or 0.0)

    def call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> FallbackCall:
        return FallbackCall(self, conversation, tools, options, stream=stream)

    def count_call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None
    ) -> ReplyCall | None:
        return self.engines[0].count_call(conversation, tools, options)

    @property
    def priced(self) -> bool:
        return all(each.priced for each in self.engines)

    @property
    def context_window(self) -> int | None:
        return self.engines[0].context_window

    def losses(self, conversation: Conversation) -> tuple[Loss, ...]:
        return self.engines[0].losses(conversation)

    def prepare_tools(self, tools: Sequence[ToolSpec]) -> object:
        return self.engines[0].prepare_tools(tools)

    @of_unmade
    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join([each.name for each in self.engines])}>"


class FallbackEngine(_Chain[Engine], Engine):
    """Several models: if one fails, the next one answers. Created by `engine([…])`; safe to share between threads."""

    def close(self) -> None:
        for each in self._owned:
            each.close()


class AsyncFallbackEngine(_Chain[AsyncEngine], AsyncEngine):
    """FallbackEngine for a program on an event loop; created by `async_engine([…])`."""

    async def aclose(self) -> None:
        for each in self._owned:
            await each.aclose()
