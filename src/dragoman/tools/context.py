"""What a running tool may know about its call: ToolContext, the optional first parameter of a tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from dragoman.conversation import Conversation
from dragoman.errors import ToolCancelledError

if TYPE_CHECKING:
    import logging

Deps = TypeVar("Deps")


class ToolContext(Generic[Deps]):
    """The call a tool runs for. A tool that declares it as its first parameter gets it; the model never sees it."""

    __slots__ = (
        "_cancelled",
        "_clock",
        "_logger",
        "attempt",
        "call_id",
        "conversation",
        "deadline",
        "deps",
        "tool_name",
    )

    def __init__(
        self,
        *,
        call_id: str,
        tool_name: str,
        deps: Deps,
        conversation: Conversation,
        deadline: float | None,
        clock: Callable[[], float],
        cancelled: Callable[[], bool],
        logger: logging.Logger,
        attempt: int = 1,
    ) -> None:
        self.call_id: str = call_id
        self.tool_name: str = tool_name
        self.deps: Deps = deps
        """Whatever the program gave to the run for its tools."""
        self.conversation: Conversation = conversation
        """The conversation as it was when the model made the call."""
        self.deadline: float | None = deadline
        """When the call must be done, on the clock of `time.monotonic`; None means no limit."""
        self.attempt: int = attempt
        """1 for the first try, then 2 for the first retry, and so on."""
        self._clock: Callable[[], float] = clock
        self._cancelled: Callable[[], bool] = cancelled
        self._logger: logging.Logger = logger

    @property
    def logger(self) -> logging.Logger:
        """A logger of the tool's own, below that of the executor."""
        return self._logger.getChild(self.tool_name)

    @property
    def remaining(self) -> float | None:
        """Seconds left, never negative; None means no limit."""
        return None if self.deadline is None else max(0.0, self.deadline - self._clock())

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more: the time is over, or the run was cancelled, aborted or left.

        A long-running function should look at it now and then; a thread cannot be stopped from outside.
        """
        return self._cancelled() or self.remaining == 0.0

    def raise_if_cancelled(self) -> None:
        """Stop here if nobody waits for the result any more."""
        if self.cancelled:
            message = f"The call of {self.tool_name!r} was cancelled."
            raise ToolCancelledError(message, tool_name=self.tool_name, call_id=self.call_id)
