"""What a fault is.

Owns: the base class, and the words for what a client makes of a fault.
Must not know: particular faults, sockets and time. A fault changes a plan; carrying it out is done elsewhere.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from msgspec import Struct

from dragoman.simulator.plan import Plan

__all__ = ["Effect", "Fault"]

Effect: TypeAlias = Literal["none", "failure", "broken", "silence", "unclear"]
"""What a client makes of a reply with a fault.

    none      unusual, but in order: it must get the complete reply
    failure   the provider says that it failed: an error of the right kind
    broken    the reply is damaged or incomplete: it must not be taken for a complete one
    silence   nothing more comes: only a timeout of the client's own, or the simulator's limit, ends it
    unclear   depends on the dialect, or cannot be noticed in it
"""


def _snake(name: str) -> str:
    return "".join([f"_{letter.lower()}" if letter.isupper() else letter for letter in name]).lstrip("_")


class Fault(Struct, frozen=True, forbid_unknown_fields=True, tag=_snake, tag_field="fault"):
    """Something that goes wrong. To make one of your own, write a subclass with `apply`."""

    usual_effect: ClassVar[Effect] = "none"
    streams_only: ClassVar[bool] = False
    """Whether a whole reply shows nothing of it."""

    def effect(self, *, streamed: bool = True) -> Effect:
        """What a client makes of a streamed, or a whole, reply with this fault."""
        return "none" if self.streams_only and not streamed else self.usual_effect

    def apply(self, plan: Plan) -> None:
        """Change the plan of what will be sent."""
        raise NotImplementedError
