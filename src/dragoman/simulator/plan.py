"""What will be sent in answer to one request, before any of it is bytes.

Owns: Plan, which faults change, and which is then carried out step by step.
Must not know: particular faults, sockets, time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from .dialects.dialect import Answer, Dialect, Frame
from .reply import Chunking

__all__ = ["Body", "Ending", "Pause", "Place", "Plan"]

Body: TypeAlias = Literal["sse", "array", "json"]
"""Events of a stream; the JSON array that Gemini streams where nobody asked for events; one JSON value."""

Ending: TypeAlias = Literal["reset", "close", "end"]
"""A reset of the connection; a close before the body is complete; a body that HTTP takes for complete."""


@dataclass(frozen=True)
class Place:
    """A place in the body as it is sent: after so many bytes (from its end if negative), or after a share of all."""

    after: int | None = None
    share: float = 0.5

    def of(self, total: int) -> int:
        """The place in a body of `total` bytes."""
        if self.after is None:
            return min(total, int(total * self.share))
        return min(total, self.after) if self.after >= 0 else max(total + self.after, 0)


@dataclass(frozen=True)
class Pause:
    """Nothing is sent for a while. `seconds` None: until the client closes, or the simulator's own limit."""

    seconds: float | None
    go_on: bool = False
    """Whether the rest follows; otherwise the connection is closed."""


@dataclass
class Plan:
    """The response to one request."""

    dialect: Dialect
    answer: Answer
    body: Body
    frames: list[Frame]
    """The events; of a body that is one JSON value, that value."""
    chunking: Chunking
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    replaced: bytes | None = None
    """A body that is sent instead of the events."""
    line_end: bytes = b"\n"
    keep_alive_comment: bytes = b""
    """Sent before every event; before a whole reply as an empty line."""
    compressed: bool = False
    length_error: int = 0
    """How much more, or less, the content length promises than is sent."""
    before: Pause | None = None
    """Ahead of everything."""
    abandoned: Ending | None = None
    """The connection ends without any response."""
    stall: tuple[Place, Pause] | None = None
    cut: tuple[Place, Ending] | None = None
    drip: tuple[int, float] | None = None
    """Bytes of a write, and seconds after it."""

    @property
    def streamed(self) -> bool:
        """Whether the body is a stream of events."""
        return self.body != "json"

    def middle(self, share: float = 0.5) -> int:
        """An index among the events at which something may be put in: behind the first, not behind the last marks."""
        last = next((i for i, frame in enumerate(self.frames) if frame.kind in {"finish", "end"}), len(self.frames))
        return max(min(1, last), min(last, round(last * share)))
