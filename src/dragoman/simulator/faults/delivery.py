"""Faults of the way that a good reply takes: its pace, its completeness, HTTP.

Owns: delay, drip, stall, cut, wrong length, compression.
Must not know: what the reply says.
"""

from __future__ import annotations

from dragoman.simulator.plan import Ending, Pause, Place, Plan

from .fault import Effect, Fault

__all__ = ["Cut", "Delay", "Drip", "Gzip", "Stall", "WrongLength"]


class Delay(Fault, frozen=True):
    """The reply comes late."""

    seconds: float

    def apply(self, plan: Plan) -> None:
        """Wait before the first byte."""
        plan.before = Pause(self.seconds, go_on=True)


class Drip(Fault, frozen=True):
    """The reply comes in small pieces with pauses between them."""

    size: int = 64
    """Bytes of a piece."""
    seconds: float = 0.001

    def apply(self, plan: Plan) -> None:
        """Slow the writes down."""
        plan.drip = (self.size, self.seconds)


class Stall(Fault, frozen=True):
    """The reply stops in the middle, and the connection stays open."""

    seconds: float | None = None
    """None: until the client closes, or the simulator's limit."""
    after: int | None = None
    """Bytes of the body, from its end if negative; None: a share of it."""
    share: float = 0.5
    go_on: bool = False
    """Whether the rest comes after the stall; otherwise the connection is closed."""

    def effect(self, *, streamed: bool = True) -> Effect:
        """A stall that ends is only slow."""
        return "none" if self.go_on else "silence"

    def apply(self, plan: Plan) -> None:
        """Stop in the middle."""
        plan.stall = (Place(self.after, self.share), Pause(self.seconds, self.go_on))


class Cut(Fault, frozen=True):
    """The reply breaks off: Cut(after=100), or Cut(share=0.9)."""

    how: Ending = "close"
    """`reset`: the connection is reset; `close`: it is closed, and HTTP can tell that the body is not complete; `end`:
    the body is short, but complete as far as HTTP can tell."""
    after: int | None = None
    """Bytes of the body, from its end if negative; None: a share of it."""
    share: float = 0.5

    def effect(self, *, streamed: bool = True) -> Effect:
        """At the very end of a stream nothing of the reply may be missing."""
        return "unclear" if streamed and self.after is not None and self.after < 0 else "broken"

    def apply(self, plan: Plan) -> None:
        """Break off."""
        plan.cut = (Place(self.after, self.share), self.how)


class WrongLength(Fault, frozen=True):
    """The content length promises more than comes (`by` > 0), or less."""

    by: int = 7

    def effect(self, *, streamed: bool = True) -> Effect:
        """A stream may be over, for its reader, before the missing bytes matter."""
        return "unclear" if streamed else "broken"

    def apply(self, plan: Plan) -> None:
        """Promise something else than what is sent."""
        plan.length_error = self.by


class Gzip(Fault, frozen=True):
    """The body is compressed, where the client said that it can read that."""

    always: bool = False
    """Also where it did not."""

    def apply(self, plan: Plan) -> None:
        """Compress the body, each event so that it can be read at once."""
        plan.compressed = self.always or "gzip" in plan.answer.request.headers.get("accept-encoding", "")
