"""The values everything else is made of: blocks, messages, conversations, events.

Frozen, compared by value, and without any I/O: see docs/ARCHITECTURE.md for the rooms around this one.
"""

from .blocks import (
    Block as Block,
)
from .blocks import (
    Json as Json,
)
from .blocks import (
    Media as Media,
)
from .blocks import (
    MediaKind as MediaKind,
)
from .blocks import (
    Opaque as Opaque,
)
from .blocks import (
    ResultPart as ResultPart,
)
from .blocks import (
    Text as Text,
)
from .blocks import (
    Thinking as Thinking,
)
from .blocks import (
    ToolCall as ToolCall,
)
from .blocks import (
    ToolResult as ToolResult,
)
from .conversation import Conversation as Conversation
from .conversation import Repaired as Repaired
from .events import (
    BlockReceived as BlockReceived,
)
from .events import (
    Completed as Completed,
)
from .events import (
    Event as Event,
)
from .events import (
    Failed as Failed,
)
from .events import (
    ReplyEvent as ReplyEvent,
)
from .events import (
    ReplyStarted as ReplyStarted,
)
from .events import (
    TextDelta as TextDelta,
)
from .events import (
    TextEnded as TextEnded,
)
from .events import (
    TextStarted as TextStarted,
)
from .events import (
    ThinkingDelta as ThinkingDelta,
)
from .events import (
    ThinkingEnded as ThinkingEnded,
)
from .events import (
    ThinkingStarted as ThinkingStarted,
)
from .events import (
    ToolCallDelta as ToolCallDelta,
)
from .events import (
    ToolCallEnded as ToolCallEnded,
)
from .events import (
    ToolCallStarted as ToolCallStarted,
)
from .events import (
    ToolFinished as ToolFinished,
)
from .events import (
    ToolStarted as ToolStarted,
)
from .events import (
    UsageReported as UsageReported,
)
from .fold import Fold as Fold
from .fold import fold as fold
from .fold import unfold as unfold
from .json_form import (
    conversation_from_json as conversation_from_json,
)
from .json_form import (
    conversation_to_json as conversation_to_json,
)
from .json_form import (
    message_from_json as message_from_json,
)
from .json_form import (
    message_to_json as message_to_json,
)
from .message import Message as Message
from .message import Role as Role
from .message import StopReason as StopReason
from .message import Usage as Usage
from .tool_spec import OneTool as OneTool
from .tool_spec import ToolChoice as ToolChoice
from .tool_spec import ToolExample as ToolExample
from .tool_spec import ToolSpec as ToolSpec
from .validity import Change as Change
from .validity import ChangeKind as ChangeKind
from .values import FrozenDict as FrozenDict
from .values import Native as Native
from .values import Value as Value
from .values import memory_of as memory_of
