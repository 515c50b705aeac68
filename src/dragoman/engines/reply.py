"""What a model call gives back.

Owns: Reply, the account of one call: what was received, what had to be changed for it, and how many attempts it took;
the error for a model that would not get all of a conversation.
Must not know: how the call was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from dragoman.conversation import Message
from dragoman.errors import LossyConversionError
from dragoman.providers import Adaptation, Loss
from dragoman.transport import AttemptRecord

if TYPE_CHECKING:
    from dragoman.transport import RateLimits


class Reply(Struct, frozen=True, kw_only=True):
    """A model's answer and the account of how it was had."""

    message: Message
    """Complete, or marked interrupted with everything that was received."""
    request_id: str | None = None
    headers: Mapping[str, str] = {}
    received: float = 0.0
    """When: the Unix time."""
    adaptations: tuple[Adaptation, ...] = ()
    """Options and schemas that were changed to suit the model."""
    losses: tuple[Loss, ...] = ()
    """Parts of the history that this model did not get."""
    attempts: tuple[AttemptRecord, ...] = ()
    """The ledger: every attempt, why it failed, how long was waited."""

    @property
    def rate_limits(self) -> RateLimits | None:
        """What the provider said about its limits; None if nothing. Read from the headers when it is asked for."""
        from dragoman.transport import rate_limits_of  # most calls never need it

        return rate_limits_of(self.headers, self.received)


def lossy(name: str, losses: tuple[Loss, ...]) -> LossyConversionError:
    """The error for a model that would not get everything, where the caller wants it to."""
    more = f" (and {len(losses) - 1} more)" if losses[1:] else ""
    message = f"{name} would not get all of the conversation: {losses[0]}{more}."
    return LossyConversionError(message, losses=tuple(map(str, losses)))
