"""What the ready tools share: `ready`, which defines one, and `Deadline`, which says how long one may work."""

from __future__ import annotations

import functools
import select
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, Unpack, cast

import msgspec
from msgspec import Raw, Struct, structs

from dragoman.errors import ToolValidationError
from dragoman.tools import Tool, ToolContext, ToolSettings

R = TypeVar("R")

_POLL_SECONDS: Final = 0.05
"""How soon a cancelled call is noticed while it waits."""


def ready(*, needs: Sequence[str] = (), **settings: Unpack[ToolSettings]) -> Callable[[Callable[..., R]], Tool[..., R]]:
    """`@tool` for a function that takes its arguments by name.

    The arguments in `needs` must be more than an empty text: models leave them out, or send them empty. In the function
    they have an empty default; the model is told that they are required.
    """

    def define(function: Callable[..., R]) -> Tool[..., R]:
        @functools.wraps(function)
        def checked(*context: object, **arguments: object) -> R:
            missing = [f"missing {name} argument" for name in needs if not arguments.get(name)]
            if missing:
                raise ToolValidationError("; ".join(missing), tool_name=settings.get("name", ""), hint="")
            return function(*context, **arguments)

        made = cast("Tool[..., R]", Tool.from_function(checked, **settings))
        schema: dict[str, Any] = msgspec.json.decode(made.spec.parameters)
        for name in needs:
            schema["properties"][name].pop("default", None)
        if required := {*schema.get("required", ()), *needs}:
            schema["required"] = [name for name in schema["properties"] if name in required]
        return structs.replace(made, spec=structs.replace(made.spec, parameters=Raw(msgspec.json.encode(schema))))

    return define


class OutOfTimeError(Exception):
    """The time is over. Not TimeoutError, which the system has for a network that does not answer."""


class Deadline(Struct, frozen=True):
    """How long a call may work: until its time is over, and only while somebody waits for its result."""

    at: float
    """On the clock of `time.monotonic`."""
    context: ToolContext[object]

    @staticmethod
    def of(context: ToolContext[object], seconds: float) -> Deadline:
        """So many seconds from now, or a moment before the call's own time is over: enough to report what there is."""
        left = context.remaining
        if left is not None:
            seconds = min(seconds, left - min(1.0, 0.2 * left))
        return Deadline(time.monotonic() + seconds, context)

    def check(self) -> None:
        """Raise OutOfTimeError if the time is over, and ToolCancelledError if nobody waits any more."""
        self.context.raise_if_cancelled()
        if time.monotonic() >= self.at:
            raise OutOfTimeError

    @property
    def pause(self) -> float:
        """For how long to wait before the next look at whether the work is still wanted. Raises like `check`."""
        self.check()
        return min(_POLL_SECONDS, max(0.0, self.at - time.monotonic()))

    def wait_for(self, file: int, *, writing: bool = False) -> None:
        """Wait until a file descriptor has something to read, or takes something. Raises like `check`."""
        poll = select.poll()
        poll.register(file, select.POLLOUT if writing else select.POLLIN)
        while not poll.poll(self.pause * 1000):
            pass
