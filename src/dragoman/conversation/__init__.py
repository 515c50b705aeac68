"""The values that everything else uses: blocks, messages, conversations, events. Frozen, and without any I/O."""

from .blocks import (
    Block as Block,
    Citation as Citation,
    Json as Json,
    Media as Media,
    MediaKind as MediaKind,
    Opaque as Opaque,
    ResultPart as ResultPart,
    ServerToolUse as ServerToolUse,
    Text as Text,
    Thinking as Thinking,
    ToolCall as ToolCall,
    ToolResult as ToolResult,
    source_lines as source_lines,
    sources_of as sources_of,
)
from .conversation import Conversation as Conversation, Repaired as Repaired
from .events import (
    AnswerGrown as AnswerGrown,
    BlockReceived as BlockReceived,
    Completed as Completed,
    Ended as Ended,
    Event as Event,
    Failed as Failed,
    HandedOver as HandedOver,
    ReplyEvent as ReplyEvent,
    ReplyStarted as ReplyStarted,
    RunEnded as RunEnded,
    TextCited as TextCited,
    TextDelta as TextDelta,
    TextEnded as TextEnded,
    TextStarted as TextStarted,
    ThinkingDelta as ThinkingDelta,
    ThinkingEnded as ThinkingEnded,
    ThinkingStarted as ThinkingStarted,
    ToolCallDelta as ToolCallDelta,
    ToolCallEnded as ToolCallEnded,
    ToolCallStarted as ToolCallStarted,
    ToolFinished as ToolFinished,
    ToolProgress as ToolProgress,
    ToolStarted as ToolStarted,
    UsageReported as UsageReported,
)
from .fold import Fold as Fold, fold as fold, unfold as unfold
from .json_form import (
    conversation_from_json as conversation_from_json,
    conversation_to_json as conversation_to_json,
    message_from_json as message_from_json,
    message_to_json as message_to_json,
    tool_spec_from_json as tool_spec_from_json,
    tool_spec_to_json as tool_spec_to_json,
)
from .message import (
    BROKEN_OFF as BROKEN_OFF,
    CUT_OFF as CUT_OFF,
    Account as Account,
    Attempt as Attempt,
    Message as Message,
    Role as Role,
    StopReason as StopReason,
)
from .tool_spec import (
    OneTool as OneTool,
    ToolChoice as ToolChoice,
    ToolExample as ToolExample,
    ToolSpec as ToolSpec,
    parse_schema as parse_schema,
)
from .usage import Usage as Usage
from .validity import (
    Change as Change,
    ChangeKind as ChangeKind,
    drop_unanswerable_calls as drop_unanswerable_calls,
    unanswered_cut_reply as unanswered_cut_reply,
)
from .values import FrozenDict as FrozenDict, Native as Native, Value as Value, memory_of as memory_of
