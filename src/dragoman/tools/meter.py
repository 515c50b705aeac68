"""Meters: what runs and tool calls have used, as running totals.

Each run and each tool call has one. That of a call is below that of its run, and that of an agent's run is below that
of the call which it answers, so everything that is counted counts for all who wait for it, however deep it happened.

A model call counts when it is sent. Until its end is known it is `open`, and so it stays if it is given up: what it
used is not known then, and the totals are lower bounds.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, cast

from msgspec import Struct, structs

from dragoman.conversation import Usage

NOTHING: Final = Usage(input=0, output=0)


class Used(Struct, frozen=True, omit_defaults=True):
    """What was used inside a call, for a run in another process. The members are those of a Meter."""

    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    open: int = 0
    uncounted: int = 0


class Meter:
    """What was used, here and by everything below. Safe to use from any thread."""

    # Class attributes as defaults: there is a meter for every turn.
    has_replies: bool = False
    """Whether the replies to its own calls are kept elsewhere, so that `inside` is without them."""
    above: Meter | None = None
    """That of the call or run which this one is a part of."""
    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0
    open: int = 0
    """Model calls that were sent and whose end is not known: in progress, or given up."""
    uncounted: int = 0
    """Replies whose tokens were not reported."""
    _inside: Usage = NOTHING
    _cost_inside: float | None = 0.0

    def __init__(self, above: Meter | None = None) -> None:
        # One for all that are above each other. Re-entrant: a signal handler may look at any moment.
        if above is None:
            self._lock: threading.RLock = threading.RLock()
        else:
            self.above, self._lock = above, above._lock

    def put_below(self, above: Meter) -> None:
        """Count for this one, too, from now on."""
        self.above, self._lock = above, above._lock

    def _all(self) -> Sequence[Meter]:
        """This one, and those above it."""
        if self.above is None:  # nearly always
            return (self,)
        found, meter = list[Meter](), cast("Meter | None", self)
        while meter is not None:
            found.append(meter)
            meter = meter.above
        return found

    # --- counting ---

    def begin_call(self) -> None:
        """Count a model call that is sent now."""
        with self._lock:
            meter: Meter | None = self
            while meter is not None:
                meter.model_calls += 1
                meter.open += 1
                meter = meter.above

    def withdraw_call(self) -> None:
        """Take back a call that could not be sent."""
        with self._lock:
            for each in self._all():
                each.model_calls -= 1
                each.open -= 1

    def end_call(self, usage: Usage | None, cost: float | None, *, known: bool = True) -> None:
        """Count what a call has used. A usage of None was not reported.

        `known`: whether that is all; a call that was given up stays open.
        """
        reported = None if usage is None else usage.tokens
        tokens = 0 if usage is None else tokens_of(usage) if reported is None else max(0, reported)
        with self._lock:
            meter: Meter | None = self
            while meter is not None:
                meter.open -= known
                meter.tokens += tokens
                if reported is None and known:
                    meter.uncounted += 1
                if meter is not self or not self.has_replies:
                    meter._take_in(usage or Usage(), cost)
                meter = meter.above

    def add_usage(self, usage: Usage, cost: float | None) -> None:
        """Count what belongs to no reply: what is known of a call that was given up."""
        with self._lock:
            for each in self._all():
                each.tokens += tokens_of(usage)
                each._take_in(usage, cost)

    def count_tools(self, calls: int) -> None:
        """Count tool calls that begin, or with a negative number such as will begin once more."""
        with self._lock:
            for each in self._all():
                each.tool_calls += calls

    def add(self, used: Used, usage: Usage | None) -> None:
        """Count what a call has used in another process."""
        with self._lock:
            for each in self._all():
                each.model_calls += used.model_calls
                each.tool_calls += used.tool_calls
                each.tokens += used.tokens
                each.open += used.open
                each.uncounted += used.uncounted
                each._take_in(usage or NOTHING, used.cost)

    def include(self, usage: Usage | None) -> None:
        """Include what this call has used in earlier runs, which have counted it."""
        if usage is not None:
            with self._lock:
                self._take_in(usage, usage.charged)

    def _take_in(self, usage: Usage, cost: float | None) -> None:
        self._inside += usage
        known = self._cost_inside
        self._cost_inside = None if known is None or cost is None else known + max(0.0, cost)

    # --- reading ---

    @property
    def inside(self) -> Usage | None:
        """The usage of everything below, with its cost if all of it is known; None if there was nothing."""
        if self._inside is NOTHING and not self.open:
            return None
        with self._lock:
            cost = None if self.open else self._cost_inside
            return structs.replace(self._inside, charged=cost, partial=self._inside.partial or self.open > 0)

    @property
    def used(self) -> Used:
        """The totals, for a run in another process."""
        with self._lock:
            return Used(self.model_calls, self.tool_calls, self.tokens, self._cost_inside, self.open, self.uncounted)


def tokens_of(usage: Usage) -> int:
    """The tokens of a usage, as far as they were reported; never below zero, whatever an engine says."""
    return max(0, usage.total or (usage.input or 0) + (usage.output or 0))
