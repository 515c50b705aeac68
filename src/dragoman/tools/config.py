"""How tools are used in a run, as plain data that a configuration file can hold.

What is code rather than data (permissions, middleware, hooks) goes to the executor's constructor.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from dragoman.conversation import ToolChoice
from dragoman.errors import ConfigurationError


def _not_negative(config: Struct, *names: str) -> None:
    for name in names:
        value: float | None = getattr(config, name)
        # `not >=` rather than `<`: NaN compares false with everything.
        if value is not None and not value >= 0:
            message = f"{name} is {value}."
            raise ConfigurationError(message, hint=f"Give {name} a value of 0 or more.")


class ToolErrorHandling(Enum):
    """What a run does when a tool fails."""

    CONTINUE = "continue"
    """The model reads the error and goes on. A tool is retried only if its definition says so."""
    ABORT = "abort"
    """The run stops; calls that have not finished are cancelled."""
    RETRY = "retry"
    """Every tool is retried, except those that say `retries=0`; then the model reads the error."""


class RetryConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a failed or timed-out call is tried again, and how long to wait in between."""

    max_retries: int = 2
    backoff_base: float = 0.5
    """Seconds before the first retry."""
    backoff_factor: float = 2.0
    backoff_max: float = 30.0
    jitter: float = 0.25
    """The wait varies by up to this share in both directions, so that many clients do not retry in step."""

    def __post_init__(self) -> None:
        _not_negative(self, "max_retries", "backoff_base", "backoff_factor", "backoff_max", "jitter")

    def delay(self, retry: int, random: float) -> float:
        """Seconds to wait before retry number `retry` (from 1); `random` is between 0 and 1."""
        # Capped before the power can overflow: 2.0 ** 2000 is an error in Python.
        exponent = min(retry - 1, 64)
        wait = min(self.backoff_base * self.backoff_factor**exponent, self.backoff_max)
        return max(0.0, wait * (1.0 + self.jitter * (2.0 * random - 1.0)))


class ToolConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How tools are used in a run."""

    enabled: bool = True
    tool_choice: ToolChoice = "auto"
    max_iterations: int = 20
    execution_timeout: float | None = None
    """Seconds for one try of one call, where the tool does not say otherwise (`inf`: no limit). None: no limit."""
    run_timeout: float | None = None
    """Seconds for all tool calls of a run, counted from its start. None: no limit."""
    max_parallel_tools: int = 5
    """How many calls run at once. 1 runs them one after the other, in the caller's own thread where possible."""
    allowed_tools: frozenset[str] | None = None
    """The tools that may be called; None means all."""
    budgets: dict[str, int] = {}
    """How often each tool may be called in a run, where the tool does not say otherwise."""
    tool_error_handling: ToolErrorHandling = ToolErrorHandling.CONTINUE
    retry: RetryConfig = RetryConfig()

    def __post_init__(self) -> None:
        if self.max_parallel_tools < 1:
            message = f"max_parallel_tools is {self.max_parallel_tools}."
            raise ConfigurationError(
                message, hint="Use 1 to run tools one after the other, or more to run them at once."
            )
        _not_negative(self, "max_iterations", "execution_timeout", "run_timeout")
        for name, budget in self.budgets.items():
            if budget < 0:
                message = f"budgets allows {budget} calls of {name!r}."
                raise ConfigurationError(message, hint="Give it a value of 0 or more.")
