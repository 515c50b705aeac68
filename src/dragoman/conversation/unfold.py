"""From a message back to the events that would have built it.

Owns: `unfold`, the inverse of `fold`: for scripted replies, and for replaying a stored reply as if it were arriving.
Must not know: providers.
"""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.errors import ConversationError

from .blocks import Block, Text, Thinking, ToolCall, ToolResult
from .events import (
    BlockReceived,
    Completed,
    ReplyEvent,
    ReplyStarted,
    TextDelta,
    TextEnded,
    TextStarted,
    ThinkingDelta,
    ThinkingEnded,
    ThinkingStarted,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
    UsageReported,
)
from .message import Message
from .stop_reason import StopReason

__all__ = ["unfold"]


def unfold(message: Message, *, piece: int | None = None) -> Iterator[ReplyEvent]:
    """The events of a reply, its texts in pieces of so many characters (None: each in one piece)."""
    yield ReplyStarted(message.provider or "", message.model, message.id, message.time)
    for index, block in enumerate(message.blocks):
        yield from _part(index, block, piece)
    if message.usage is not None:
        yield UsageReported(message.usage)
    if not message.interrupted:
        yield Completed(message.stop_reason or _natural_end(message), message.raw_stop_reason, message.native)


def _natural_end(message: Message) -> StopReason:
    return StopReason.TOOL_CALLS if message.tool_calls else StopReason.END


def _part(index: int, block: Block, piece: int | None) -> Iterator[ReplyEvent]:
    match block:
        case Text():
            yield TextStarted(index, "")
            for text in _pieces(block.text, piece):
                yield TextDelta(index, "", text)
            yield TextEnded(index, "", block.native)
        case Thinking():
            yield ThinkingStarted(index, "", block.provider)
            for text in _pieces(block.text, piece):
                yield ThinkingDelta(index, "", text)
            yield ThinkingEnded(index, "", block.signature, block.encrypted, block.native)
        case ToolCall():
            yield ToolCallStarted(index, block.id, block.name)
            for text in _pieces(block.arguments, piece):
                yield ToolCallDelta(index, block.id, text)
            if not block.partial:
                yield ToolCallEnded(index, block.id, block.native)
        case ToolResult():
            message = f"A result (of call {block.call_id!r}) cannot be part of a model's reply."
            raise ConversationError(message, hint="Put results into a message of their own: Message.tool([...]).")
        case _:
            yield BlockReceived(index, "", block)


def _pieces(text: str, size: int | None) -> Iterator[str]:
    if size is None:
        if text:
            yield text
        return
    if size < 1:
        message = f"a text cannot be cut into pieces of {size} characters"
        raise ValueError(message)
    for start in range(0, len(text), size):
        yield text[start : start + size]
