"""A chain of models: where one fails, the next one answers.

Each model is asked by a call of its own engine, which tries again as it always does; only then comes the next model,
and only while nothing of an answer has come. What the chain adds is which model is asked (order, breakers), which
failures move on (a table), one budget of attempts over all, and one ledger.

Owns: Fallback, FallbackEngine and AsyncFallbackEngine, FallbackCall. Must not know: HTTP, dialects, plain or async.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from dragoman._checks import CheckedMeta, NotNegative, Positive, overlay
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
from .health import Leave, ModelHealth, health_of

E = TypeVar("E", bound=Engine | AsyncEngine)

_LOGGER: Final = logging.getLogger("dragoman.engines")

_CANNOT_TAKE: Final = (ConfigurationError, LossyConversionError)
"""What a model says that cannot take a call at all."""

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
"""What a model call can fail with, in one word each."""

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
    """What the call has failed with, in one word."""
    return next(_FAILURES[kind] for kind in type(error).__mro__ if kind in _FAILURES)


class Fallback(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the next model of a chain is asked, and which one that is."""

    on: frozenset[Failure] = frozenset(
        {
            *("overloaded", "rate_limit", "timeout", "connection", "server_error", "bad_reply", "context_too_long"),
            *("authentication", "permission", "model_not_found"),
        }
    )
    """The failures after which the next model is asked: what another one may well do better. After `context_too_long`
    models whose window is known to be no larger are passed over."""
    order: Literal["preference", "cost", "latency"] = "preference"
    """As they are named; those that cost less first, of which the price is known; or those that begin to answer sooner,
    as measured in this process, where those that are not measured yet come first."""
    attempts: Positive = 6
    """Attempts in all, of all models, for one reply. One is kept for each model that is still to come."""
    longest_wait: NotNegative = 5.0
    """The most seconds that are waited to try a model again while there is another one to ask."""
    failures: Positive = 3
    """So many failed attempts in a row, of all calls of the process, open a model's breaker: it is passed over."""
    open_for: NotNegative = 10.0
    """The seconds for which it is open, twice as many each time that it opens again …"""
    longest_open: NotNegative = 300.0
    """… and the most that they grow to."""


_USUAL: Final = Usage(input=3000, output=1000)
"""A request like many others, by which models are compared."""


def cost_rank(engine: BaseEngine) -> float:
    """What a usual request costs, to be compared with other models; without end if nobody knows."""
    prices = engine.known_prices
    return math.inf if prices is None else prices.cost(_USUAL) or 0.0


# --- one call ---------------------------------------------------------------------------------------------------------


class _Trial:
    """One model that is being asked, or was."""

    def __init__(self, engine: BaseEngine, call: ReplyCall, leave: Leave, now: float) -> None:
        self.engine: Final = engine
        self.call: Final = call
        self.leave: Final = leave
        self.health: Final = health_of(engine)
        self.began: Final = now
        self.counted: ProviderError | None = None
        """The last error that its breaker was told of."""
        self.is_over: bool = False
        self.is_measured: bool = False

    def ledger(self, before: int) -> list[AttemptRecord]:
        """Its attempts, counted on from those of the models `before` it."""
        replace, name = msgspec.structs.replace, self.engine.name
        return [replace(each, number=before + each.number, model=each.model or name) for each in self.call.attempts]


class FallbackCall(ReplyCall):
    """One call of a chain: the calls of its models, one after the other, until one of them has begun to answer."""

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
        """The models that were not looked at yet."""
        self._asleep: list[BaseEngine] = []
        """Those that were passed over because their breakers are open."""
        self._trial: _Trial | None = None
        """The model that is being asked, or was last."""
        self._made: int = 0
        """Attempts of the models before it."""
        self._window: int | None = None
        """What the next model has to take more than."""
        self._reasons: list[str] = []
        """Why models did not answer."""
        self._error: DragomanError | None = None
        """The last one of a provider, or else the first of another kind."""

    @property
    def account(self) -> Reply:
        trial = self._trial
        if trial is None:
            return super().account
        attempts = self.attempts if trial.is_over else [*self.attempts, *trial.ledger(self._made)]
        return msgspec.structs.replace(trial.call.account, attempts=tuple(attempts))

    async def advance(self) -> None:
        trial = self._trial or self._open()
        if trial is None:
            assert self._error is not None  # each of them has refused the call
            raise self._error
        try:
            events = await trial.call.next()
        except _CANNOT_TAKE as problem:  # a call over HTTP does not begin with one; others may
            if self._stream and self.has_begun:
                self._conclude(trial, problem)  # never two answers
                self._error = problem
                raise self._explain(problem) from None
            if not self._follow(trial, problem):
                raise self._explain(problem) from None
            self._fold, self._unsaid = Fold(), []
            return
        failure = trial.call.failure
        if failure is not None:
            self.take(events[:-1])  # without the event of the failure, which the chain has itself
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
        if trial is None or trial.is_over:  # nobody is left
            return False
        if self._stream and self.has_begun:
            self._conclude(trial, error)  # never two answers
            self._error = error
        elif self._follow(trial, error):
            return True
        self._explain(error)
        return False

    async def release(self) -> None:
        if self._trial is not None:
            await self._trial.call.aclose()

    async def aclose(self) -> None:
        await super().aclose()
        trial = self._trial
        if trial is not None and not trial.is_over:  # the caller has left: if it had begun to answer, it does answer
            trial.is_over = True
            self.attempts += trial.ledger(self._made)
            if self._handed_over:
                trial.health.answered()
            else:
                trial.health.dropped(self._chain.clock(), trial.leave)

    # --- which model is asked ---

    def _follow(self, trial: _Trial, error: DragomanError) -> bool:
        """Ask the next model after this one has failed; not if this failure ends the call, or nobody is left."""
        self._conclude(trial, error)
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
        """Make the call of the next model ready; None if there is none."""
        conversation, tools = self._asked
        while (chosen := self._choose()) is not None:
            engine, leave = chosen
            try:
                options = self._chain.options_for(engine, self._options)
                call = engine.begin(conversation, tools, options, stream=self._stream, veto=self._veto)
            except BaseException as error:
                health_of(engine).dropped(self._chain.clock(), leave)
                if not isinstance(error, _CANNOT_TAKE):
                    raise
                self._refuse(engine, error)
                self._pass_over(engine, error.message)
                continue
            self._trial = _Trial(engine, call, leave, self._chain.clock())
            return self._trial
        return None

    def _refuse(self, engine: BaseEngine, error: DragomanError) -> None:
        """A model cannot take this call. Of the first, that is an error as it would be without a chain."""
        if engine is self._chain.engines[0] and not isinstance(error, LossyConversionError):
            raise error
        self._error = self._error or error

    def _choose(self) -> tuple[BaseEngine, Leave] | None:
        """The next model that may be asked, and how."""
        policy, now = self._chain.fallback, self._chain.clock()
        if self._made >= policy.attempts:
            for engine in self._coming:
                self._pass_over(engine, f"all {policy.attempts} attempts are used up")
            self._coming = []
        while self._coming:
            engine = self._coming.pop(0)
            health, window = health_of(engine), None if self._window is None else engine.context_window
            if self._window is not None and window is not None and window <= self._window:
                self._pass_over(engine, f"its window of {window} tokens is no larger")
            elif (leave := health.begin(now)) is not None:
                return engine, leave
            else:
                self._asleep.append(engine)
                self._pass_over(engine, f"its breaker is open for {health.left(now):.1f} s")
        if self._asleep and self._trial is None:
            # To fail without having asked anybody helps nobody: the one that will be tried first is tried now.
            engine = min(self._asleep, key=lambda each: health_of(each).left(now))
            self._asleep = []
            return engine, "free"
        return None

    def _pass_over(self, engine: BaseEngine, why: str) -> None:
        self.attempts.append(AttemptRecord(number=0, outcome=f"passed over: {why}", model=engine.name))
        self._reasons.append(f"{engine.name} was passed over: {why}")

    # --- what came of it ---

    def _veto(self, error: ProviderError, after: float) -> str:
        """Why the model that is being asked is not tried once more."""
        trial, policy, now = self._trial, self._chain.fallback, self._chain.clock()
        assert trial is not None
        made = self._made + len(trial.call.account.attempts) + 1
        if made + len(self._coming) >= policy.attempts:
            return f"{made} of {policy.attempts} attempts of all models made"
        if self._coming and after > policy.longest_wait:
            return f"another model need not wait {after:g} s"
        self._count(trial, error, now)
        left = trial.health.left(now)
        if left:
            return f"its breaker is open for {left:.1f} s"
        return "" if self.veto is None else self.veto(error, after)  # of the chain that this one is a model of

    def _count(self, trial: _Trial, error: ProviderError, now: float, advice: float | None = None) -> None:
        """Tell the breaker of a failure, unless it is the request's or our own; then the provider is well."""
        policy, kind = self._chain.fallback, failure_of(error)
        trial.counted = error
        if error.code in _OURS:
            trial.health.dropped(now, trial.leave)
        elif kind == "context_too_long" or kind not in policy.on:
            trial.health.answered()
        else:
            most, first, longest = policy.failures, policy.open_for, policy.longest_open
            trial.health.failed(now, trial.leave, most=most, first=first, longest=longest, advice=advice)

    def _conclude(self, trial: _Trial, error: DragomanError | None) -> None:
        """Take the ledger of a model over, and tell its breaker how it went."""
        now = self._chain.clock()
        trial.is_over = True
        what = "" if error is None else _describe(error)
        records = trial.ledger(self._made) or [  # an engine that keeps none has made one attempt
            AttemptRecord(
                number=self._made + 1, outcome=what or "ok", model=trial.engine.name, duration=now - trial.began
            )
        ]
        self.attempts += records
        self._made += len(records)
        if error is None:
            trial.health.answered()
            return
        self._reasons.append(f"{trial.engine.name} failed: {what}")
        if not isinstance(error, ProviderError):
            trial.health.dropped(now, trial.leave)
        elif trial.counted is not error:
            self._count(trial, error, now, error.retry_after)

    def _explain(self, error: DragomanError) -> DragomanError:
        """The error that the chain ends with, which knows of all models."""
        final = self._error if self._error is not None and not isinstance(error, ProviderError) else error
        if isinstance(final, ProviderError):
            final.attempts = tuple(self.attempts)
        if len(self._reasons) > 1:
            final.hint = f"{final.hint} Of the models, {'; '.join(self._reasons)}."
        return final


def _describe(error: DragomanError) -> str:
    """Why a model failed, in a few words."""
    if not isinstance(error, ProviderError):
        return error.message
    return f"{failure_of(error)}" if error.status is None else f"{failure_of(error)}, status {error.status}"


# --- engines ----------------------------------------------------------------------------------------------------------


class _Chain(BaseEngine, Generic[E]):
    """What both colours share. To whoever asks what it can do, it is its first model."""

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
        owned   of the engines, those that are closed together with the chain
        """
        if not engines:
            raise ConfigurationError("A chain needs a model.", hint='Name some: ["anthropic:…", "openai:…"].')
        first = engines[0]
        self.engines: Final[tuple[E, ...]] = tuple(engines)
        self.fallback: Final[Fallback] = Fallback() if fallback is None else fallback
        self.clock: Final[Callable[[], float]] = clock
        self._owned: Final[tuple[E, ...]] = tuple(owned)
        self.name: str = first.name
        # What all of them can do: tools that one finds for itself, another would be told of in full.
        searched = min([each.profile.tool_search for each in engines])
        self.profile: Profile = first.profile.with_changes(tool_search=searched)
        self._is_uniform: Final[bool] = all(each.options == first.options for each in engines)
        self.options: ModelOptions = first.options if self._is_uniform else ModelOptions()

    def options_for(self, engine: BaseEngine, given: ModelOptions | None) -> ModelOptions | None:
        """The options of a call for one model: over what its engine was made with, if that differs from the others'."""
        if given is None or self._is_uniform:
            return given
        # Whether tools are called and what is answered is said anew for every step.
        merged, replace = overlay(given, engine.options), msgspec.structs.replace
        return replace(merged, tool_choice=given.tool_choice, response_format=given.response_format)

    @property
    def health(self) -> tuple[ModelHealth, ...]:
        """How each model is doing, as far as this process knows: its breaker, and how soon it answers."""
        return tuple([health_of(each).view(each.name, self.clock()) for each in self.engines])

    def in_order(self, *, stream: bool) -> list[BaseEngine]:
        """The models in the order in which they are to be asked."""
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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join([each.name for each in self.engines])}>"


class FallbackEngine(_Chain[Engine], Engine):
    """Several models of which the next one answers where one fails; made by `engine([…])`. Safe to share."""

    def close(self) -> None:
        for each in self._owned:
            each.close()


class AsyncFallbackEngine(_Chain[AsyncEngine], AsyncEngine):
    """FallbackEngine for a program on an event loop; made by `async_engine([…])`."""

    async def aclose(self) -> None:
        for each in self._owned:
            await each.aclose()
