"""The values everything else is made of: blocks, messages, conversations, events.

Frozen, compared by value, and without any I/O: see docs/ARCHITECTURE.md for the rooms around this one.
"""

from .blocks import Block, Json, Media, MediaKind, Opaque, ResultPart, Text, Thinking, ToolCall, ToolResult
from .conversation import Conversation, Repaired
from .events import (
    BlockReceived,
    Completed,
    Event,
    Failed,
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
    ToolFinished,
    ToolStarted,
    UsageReported,
)
from .fold import Fold, fold, unfold
from .json_form import conversation_from_json, conversation_to_json, message_from_json, message_to_json
from .message import Message, Role, StopReason, Usage
from .tool_spec import OneTool, ToolChoice, ToolExample, ToolSpec
from .validity import Change, ChangeKind
from .values import FrozenDict, Native, Value

__all__ = [
    "Block",
    "BlockReceived",
    "Change",
    "ChangeKind",
    "Completed",
    "Conversation",
    "Event",
    "Failed",
    "Fold",
    "FrozenDict",
    "Json",
    "Media",
    "MediaKind",
    "Message",
    "Native",
    "OneTool",
    "Opaque",
    "Repaired",
    "ReplyEvent",
    "ReplyStarted",
    "ResultPart",
    "Role",
    "StopReason",
    "Text",
    "TextDelta",
    "TextEnded",
    "TextStarted",
    "Thinking",
    "ThinkingDelta",
    "ThinkingEnded",
    "ThinkingStarted",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallEnded",
    "ToolCallStarted",
    "ToolChoice",
    "ToolExample",
    "ToolFinished",
    "ToolResult",
    "ToolSpec",
    "ToolStarted",
    "Usage",
    "UsageReported",
    "Value",
    "conversation_from_json",
    "conversation_to_json",
    "fold",
    "message_from_json",
    "message_to_json",
    "unfold",
]
