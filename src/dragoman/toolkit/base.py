"""What the ready tools share: arguments that must be given, and how long a call may work."""

from __future__ import annotations

import time
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from dragoman.tools import ToolContext

Given: TypeAlias = Annotated[str, Meta(min_length=1)]
"""An argument that must be more than an empty text, which models send where they mean nothing at all."""


class OutOfTimeError(Exception):
    """The time is over. Not TimeoutError, which the system has for a network that does not answer."""


class Deadline(Struct, frozen=True):
    """How long a call may work: until its time is over, and only while somebody waits for its result."""

    at: float
    """On the clock of `time.monotonic`."""
    seconds: float
    """From its beginning."""
    context: ToolContext[object]

    @staticmethod
    def of(context: ToolContext[object], seconds: float) -> Deadline:
        """So many seconds from now, or a moment before the call's own time is over: enough to report what there is."""
        left = context.remaining
        if left is not None:
            seconds = min(seconds, left - min(1.0, 0.2 * left))
        return Deadline(time.monotonic() + seconds, seconds, context)

    def check(self) -> None:
        """Raise OutOfTimeError if the time is over, and ToolCancelledError if nobody waits any more."""
        self.context.raise_if_cancelled()
        if time.monotonic() >= self.at:
            raise OutOfTimeError
