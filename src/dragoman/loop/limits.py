"""How far a run may go, and how far it has gone.

Owns: the limits, what counts against each of them, and prices.
Must not know: how anything is run, nor what time it is; who runs the loop tells.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from dragoman.conversation import Usage
from dragoman.errors import ConfigurationError

_MILLION = 1_000_000


class Prices(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a million tokens cost, in any currency. Cached input costs as much as other input unless said otherwise."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def cost(self, usage: Usage) -> float:
        """The price of these tokens; what a provider did not report counts as nothing."""
        read, written = usage.cache_read or 0, usage.cache_write or 0
        plain = max(0, (usage.input or 0) - read - written)
        total = plain * self.input + (usage.output or 0) * self.output
        total += read * (self.input if self.cache_read is None else self.cache_read)
        total += written * (self.input if self.cache_write is None else self.cache_write)
        return total / _MILLION


class Spent(Struct, frozen=True, kw_only=True):
    """What a run has used up so far."""

    steps: int = 0
    """Answers of the model that the loop has asked for."""
    model_calls: int = 0
    """Calls of the model, those for shortening the history included."""
    tool_calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a run may go. None: as far as it likes."""

    steps: int | None = 20
    model_calls: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    """Of all replies of the run, input and output together. A reply that goes beyond is kept; no other is asked for."""
    cost: float | None = None
    """In the currency of `prices`, which this limit needs."""
    seconds: float | None = None
    """Checked between steps; tools still running at that time are given up."""
    prices: Prices | None = None

    def __post_init__(self) -> None:
        for name, limit in self._set():
            if not limit >= 0:  # NaN compares false with everything
                message = f"The limit of {name} is {limit}."
                raise ConfigurationError(message, hint="Give it a value of 0 or more, or None for no limit.")
        if self.cost is not None and self.prices is None:
            message = "A limit of cost needs prices to count with."
            raise ConfigurationError(message, hint="Say Limits(cost=…, prices=Prices(input=…, output=…)).")

    def _set(self) -> Iterator[tuple[str, float]]:
        for name in Spent.__struct_fields__:
            limit: float | None = getattr(self, name)
            if limit is not None:
                yield name, limit

    def reached(self, spent: Spent) -> tuple[str, float] | None:
        """The first limit that leaves no room for asking the model once more."""
        # One by one, since this is asked before every step. Who has used all tool calls may still hear what the model
        # makes of them.
        if self.steps is not None and spent.steps >= self.steps:
            return "steps", self.steps
        if self.model_calls is not None and spent.model_calls >= self.model_calls:
            return "model_calls", self.model_calls
        if self.tokens is not None and spent.tokens >= self.tokens:
            return "tokens", self.tokens
        if self.cost is not None and spent.cost >= self.cost:
            return "cost", self.cost
        if self.seconds is not None and spent.seconds >= self.seconds:
            return "seconds", self.seconds
        return None

    def reached_by_tools(self, spent: Spent, calls: int) -> tuple[str, float] | None:
        """The first limit that leaves no room for running so many tool calls."""
        if self.tool_calls is not None and spent.tool_calls + calls > self.tool_calls:
            return "tool_calls", self.tool_calls
        if self.seconds is not None and spent.seconds >= self.seconds:
            return "seconds", self.seconds
        return None
