"""What a script says: one reply of the model, in our own values.

Owns: Reply, and how finely it is cut into pieces (Chunking).
Must not know: how a dialect writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from dragoman.conversation import Block, StopReason, Text, ToolResult, Usage

if TYPE_CHECKING:  # a fault changes how a reply is sent, so the two name each other's types
    from .faults import Fault

__all__ = ["Chunking", "Reply"]


@dataclass(frozen=True)
class Chunking:
    """How finely a reply is cut: into deltas, and these into writes to the connection."""

    delta: int | None = 16
    """Characters of text or arguments in one event of a stream; None puts a whole block into one event."""
    write: int | Literal["event", "reply"] = "event"
    """One write (and one HTTP chunk) for each event, for so many bytes, or for the reply as a whole."""

    def __post_init__(self) -> None:
        if (self.delta is not None and self.delta < 1) or (isinstance(self.write, int) and self.write < 1):
            message = "a piece has at least one character or byte"
            raise ValueError(message)

    def pieces(self, text: str) -> list[str]:
        """The text in pieces of one delta each; an empty text has none."""
        size = self.delta or max(len(text), 1)
        return [text[start : start + size] for start in range(0, len(text), size)]


_NOT_A_REPLY = {
    StopReason.INTERRUPTED: "a reply that breaks off is a reply with a fault: Reply(..., faults=[Cut()])",
    StopReason.ERROR: "a reply that fails is a reply with a fault: Reply(..., faults=[ErrorEvent()])",
}


@dataclass(frozen=True, init=False)
class Reply:
    """One scripted reply. It is written in the dialect of the request, streamed or whole as the request asks.

    Content is given in order: strings and blocks. `Thinking.provider` does not matter here, since every dialect writes
    thinking in its own way; an `Opaque` block, and `native` fields, are written in the dialect that they name and left
    out in the others.
    """

    blocks: tuple[Block, ...]
    usage: Usage | None = None
    """None: counts made up from the lengths of request and reply. `Usage()`, which knows nothing: not reported."""
    stop_reason: StopReason | None = None
    """None: tool calls if there are any, else the end of the answer."""
    raw_stop_reason: str | None = None
    """A word of the provider's own, written instead of the usual one for the stop reason."""
    faults: tuple[Fault, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further headers of the response, e.g. rate limits."""
    chunking: Chunking | None = None
    """None: as the simulator does by default."""
    model: str | None = None
    """The model that answers, where it is not the one that was asked for."""

    def __init__(
        self,
        *content: str | Block,
        usage: Usage | None = None,
        stop_reason: StopReason | None = None,
        raw_stop_reason: str | None = None,
        faults: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
        chunking: Chunking | None = None,
        model: str | None = None,
    ) -> None:
        blocks = tuple(Text(part) if isinstance(part, str) else part for part in content)
        if any(isinstance(block, ToolResult) for block in blocks):
            message = "a model calls tools, it does not give their results: put a ToolCall into a reply"
            raise ValueError(message)
        if stop_reason in _NOT_A_REPLY:
            raise ValueError(_NOT_A_REPLY[stop_reason])
        values: dict[str, object] = {
            "blocks": blocks,
            "usage": usage,
            "stop_reason": stop_reason,
            "raw_stop_reason": raw_stop_reason,
            "faults": tuple(faults),
            "headers": dict(headers or {}),
            "chunking": chunking,
            "model": model,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
