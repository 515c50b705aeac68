"""Refusing to go on where a model would not get all of a conversation.

Owns: the error for it, the same for one call and for a switch of models.
"""

from __future__ import annotations

from dragoman.errors import LossyConversionError
from dragoman.providers.codec import Loss

__all__ = ["lossy"]


def lossy(name: str, losses: tuple[Loss, ...]) -> LossyConversionError:
    """The caller wants the model to get everything, and it would not."""
    more = f" (and {len(losses) - 1} more)" if losses[1:] else ""
    message = f"{name} would not get all of the conversation: {losses[0]}{more}."
    return LossyConversionError(message, losses=tuple(map(str, losses)))
