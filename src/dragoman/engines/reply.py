"""What a model call gives back, beside the message.

Owns: Reply, the account of one call: what was received, what had to be changed for it, and how many attempts it took.
Must not know: how the call was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from dragoman.conversation import Message
from dragoman.providers.codec import Adaptation, Loss
from dragoman.transport.retry import AttemptRecord

if TYPE_CHECKING:
    from dragoman.transport.rate_limits import RateLimits

__all__ = ["Reply"]


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
        from dragoman.transport.rate_limits import rate_limits_of  # most calls never need it

        return rate_limits_of(self.headers, self.received)
