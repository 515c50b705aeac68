"""The meter of a run: what it has used, its own limits, and those of the runs that wait for it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, cast

import msgspec

import dragoman.providers
from dragoman.conversation import Usage
from dragoman.errors import LimitReachedError, UnknownCostError, UnknownUsageError
from dragoman.tools import Batch, Meter

from .step import NOTHING_SPENT, AskModel, LimitReached, Limits, RunTools, Spent

if TYPE_CHECKING:
    from dragoman.conversation import Conversation
    from dragoman.engines import BaseEngine, Reply

_PASSABLE: Final = ("tokens", "cost")
"""Limits that a step may pass: what it uses is known only afterwards."""

_ASKING: Final = AskModel(first=False)
_WHOLE: Final = ("model_calls", "tool_calls")


class RunMeter(Meter):
    """What a run has used. Before each step it is checked against the limits of the run and of its callers."""

    has_replies = True
    _steps: int = 0
    _at_least: bool = False

    def __init__(self, limits: Limits, before: Spent, clock: Callable[[], float]) -> None:
        super().__init__()
        self.limits: Limits = limits
        """They apply to earlier and current usage together."""
        self.began: float = clock() - before.seconds
        self._clock: Callable[[], float] = clock
        if before is not NOTHING_SPENT:
            self._steps, self.model_calls, self.tool_calls = before.steps, before.model_calls, before.tool_calls
            self.tokens, self._at_least = before.tokens, before.at_least
        self._needs_to_know: bool = limits.tokens is not None or limits.cost is not None
        """Whether there is a limit of what only replies tell."""
        self.has_more_limits: bool = self._needs_to_know
        """Whether there are limits that `next_step` does not check."""
        self._cost: float | None = before.cost if limits.cost is not None else None
        """Of the run's own replies, if there is a limit of it."""

    @property
    def spent(self) -> Spent:
        """What the run has used so far, including its agents."""
        cost = self._cost
        spent = Spent(
            steps=self._steps,
            model_calls=self.model_calls,
            tool_calls=self.tool_calls,
            tokens=self.tokens,
            cost=None if cost is None else dragoman.providers.total_cost([cost, self._cost_inside]),
            seconds=self._clock() - self.began,
            at_least=self.open > 0 or self.uncounted > 0 or self._at_least,
        )
        passed = self._passed(spent) if self._needs_to_know else ()
        return msgspec.structs.replace(spent, passed=passed) if passed else spent

    @property
    def overrun(self) -> str:
        """By how much the run has passed its limits, in words; empty if it has not."""
        spent = self.spent
        what = [f"{getattr(spent, name):g} {name} of {getattr(self.limits, name):g}" for name in spent.passed]
        return f"The run passed its limits: {', '.join(what)}.".replace("_", " ") if what else ""

    def _passed(self, spent: Spent) -> tuple[str, ...]:
        values = [(name, getattr(spent, name), getattr(self.limits, name)) for name in _PASSABLE]
        return tuple([name for name, used, limit in values if None not in (used, limit) and used > limit])

    @property
    def callers(self) -> Iterator[RunMeter]:
        """Those of the runs that wait for this one, the nearest first."""
        return (cast("RunMeter", each) for each in self._all() if each is not self and each.has_replies)

    def put_below(self, above: Meter) -> None:
        super().put_below(above)
        self.has_more_limits = True

    # --- counting ---

    def send(self, engine: BaseEngine, conversation: Conversation) -> None:
        """Count a model call that is sent now. Raises LimitReachedError if it must not be."""
        if not self.has_more_limits:
            self.begin_call()
            return
        with self._lock:  # nobody below the same caller can come in between
            self.check(_ASKING, engine, conversation)
            self.begin_call()

    def begin_tools(self, step: RunTools, engine: BaseEngine, conversation: Conversation) -> None:
        """Count tool calls that begin now. Raises LimitReachedError if they must not."""
        with self._lock:
            self.check(step, engine, conversation)
            self.count_tools(len(step.calls))

    def count_reply(self, reply: Reply, *, steps: int) -> None:
        """Count what a model call has used; `steps` is 0 for one that a context policy made."""
        self._steps += steps
        for usage in reply.repeated:
            self.add_usage(usage, usage.charged or 0.0)
        message, is_asked_for = reply.message, self._cost is not None or self.above is not None
        if message.interrupted:  # the call was given up, so it stays open
            self.end_call(message.usage or Usage(), 0.0, known=False)
            return
        cost = reply.cost if is_asked_for else None  # the table of prices is read only then
        if self._cost is not None:
            self._cost = dragoman.providers.total_cost([self._cost, cost])
        self.end_call(message.usage, cost)

    # --- limits ---

    def check(self, step: AskModel | RunTools, engine: BaseEngine, conversation: Conversation) -> None:
        """Check this step against what is unknown and the limits of callers; `next_step` checks the run's own limits.

        Raises UnknownCostError, UnknownUsageError or LimitReachedError.
        """
        if self._needs_to_know and isinstance(step, AskModel):
            self._check_known("The run", engine, conversation)
        for caller in self.callers if self.above is not None else ():
            limits, spent = caller.limits, caller.spent
            if isinstance(step, RunTools):
                reached = limits.reached_by_tools(spent, len(step.calls))
            else:
                caller._check_known("The caller", engine, conversation)
                reached = msgspec.structs.replace(limits, steps=None).reached(spent)
            if reached is not None:
                message = f"The caller's limit: {LimitReached(*reached)}"
                raise LimitReachedError(message, conversation=conversation, limit=reached[0])

    def _check_known(self, whose: str, engine: BaseEngine, conversation: Conversation) -> None:
        """Raise if a limit cannot be enforced, because what it is about is not known."""
        limits = self.limits
        if limits.cost is not None:
            known = self.spent.cost is not None
            if not known or not engine.priced:
                what = f"what {engine.name} costs" if known else "what the replies so far have cost"
                message = f"{whose} has a limit of cost, but it is not known {what}."
                raise UnknownCostError(message, conversation=conversation)
        if limits.tokens is not None and self.uncounted:
            message = f"{whose} has a limit of tokens, but {engine.name} does not report how many it uses."
            raise UnknownUsageError(message, conversation=conversation)


# --- calls that run in other processes --------------------------------------------------------------------------------


def share_limits(batch: Batch, asking: Sequence[bool]) -> list[Limits]:
    """What each call of a batch may use of what is left of the run's limits, if all of them run at once elsewhere.

    `asking` says which of them may call models, because they are agents: only these get a share.
    """
    meter, among = batch.run.meter, max(1, sum(asking))
    if not isinstance(meter, RunMeter):
        return [Limits()] * len(asking)
    places = itertools.accumulate(asking, initial=0)
    limits, spent = meter.limits, meter.spent
    return [
        Limits(
            **{
                name: _share(limit - (getattr(spent, name) or 0), among, place, whole=name in _WHOLE)
                for name in (*_WHOLE, *_PASSABLE)
                if (limit := getattr(limits, name)) is not None
            }
        )
        for place, _ in zip(places, asking, strict=False)
    ]


def _share(left: float, among: int, place: int, *, whole: bool) -> float:
    if left <= 0 or math.isinf(left):
        return max(0.0, left)
    return (left + place) // among if whole else left / among
