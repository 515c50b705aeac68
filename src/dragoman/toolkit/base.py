"""What the ready tools share: arguments that must not be empty, and deadlines."""

from __future__ import annotations

import time
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from dragoman.tools import ToolContext

Given: TypeAlias = Annotated[str, Meta(min_length=1)]
"""An argument that must not be empty: models send an empty string if they mean none."""


class OutOfTimeError(Exception):
    """The deadline has passed. Not TimeoutError, which the network raises too."""


class Deadline(Struct, frozen=True):
    """How long a call may run: until its time is over, or it is cancelled."""

    at: float
    """On the clock of `time.monotonic`."""
    seconds: float
    """From its start."""
    context: ToolContext[object]

    @staticmethod
    def of(context: ToolContext[object], seconds: float) -> Deadline:
        """So many seconds from now, or a moment before the call's own timeout, to report what there is."""
        left = context.remaining
        if left is not None:
            seconds = min(seconds, left - min(1.0, 0.2 * left))
        return Deadline(time.monotonic() + seconds, seconds, context)

    def check(self) -> None:
        """Raise OutOfTimeError if the time is over, and ToolCancelledError if the call was cancelled."""
        self.context.raise_if_cancelled()
        if time.monotonic() >= self.at:
            raise OutOfTimeError
