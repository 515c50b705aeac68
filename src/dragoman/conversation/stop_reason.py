"""Why a reply ended: one list for all providers.

Owns: the enumeration. The provider's own word is kept beside it in `Message.raw_stop_reason`.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["StopReason"]


class StopReason(Enum):
    """Why a reply ended."""

    END = "end"
    """The model finished its answer."""
    TOOL_CALLS = "tool_calls"
    """The model waits for the results of its tool calls."""
    MAX_TOKENS = "max_tokens"
    """The answer was cut at the limit of tokens."""
    STOP_SEQUENCE = "stop_sequence"
    """One of the caller's stop sequences was reached."""
    REFUSAL = "refusal"
    """The model declined."""
    CONTENT_FILTER = "content_filter"
    """The provider cut or withheld the answer."""
    CONTEXT_FULL = "context_full"
    """The model's context window ran out while it answered."""
    PAUSED = "paused"
    """The provider paused a long turn; send the conversation again to continue it."""
    INTERRUPTED = "interrupted"
    """The stream ended before the reply was complete: cancelled, or the connection broke."""
    ERROR = "error"
    """The provider reported an error in the middle of the reply."""
    OTHER = "other"
    """None of these; the raw reason says more."""
