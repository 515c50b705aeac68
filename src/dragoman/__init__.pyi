from dragoman._version import __version__ as __version__
from dragoman.chat import (
    AsyncChatClient as AsyncChatClient,
)
from dragoman.chat import (
    AsyncChatStream as AsyncChatStream,
)
from dragoman.chat import (
    ChatClient as ChatClient,
)
from dragoman.chat import (
    ChatStream as ChatStream,
)
from dragoman.chat import (
    Prompt as Prompt,
)
from dragoman.chat import (
    load_config as load_config,
)
from dragoman.chat import (
    new as new,
)
from dragoman.chat import (
    new_async as new_async,
)
from dragoman.conversation import (
    Block as Block,
)
from dragoman.conversation import (
    Completed as Completed,
)
from dragoman.conversation import (
    Conversation as Conversation,
)
from dragoman.conversation import (
    Event as Event,
)
from dragoman.conversation import (
    Media as Media,
)
from dragoman.conversation import (
    Message as Message,
)
from dragoman.conversation import (
    StopReason as StopReason,
)
from dragoman.conversation import (
    Text as Text,
)
from dragoman.conversation import (
    TextDelta as TextDelta,
)
from dragoman.conversation import (
    Thinking as Thinking,
)
from dragoman.conversation import (
    ThinkingDelta as ThinkingDelta,
)
from dragoman.conversation import (
    ToolCall as ToolCall,
)
from dragoman.conversation import (
    ToolCallDelta as ToolCallDelta,
)
from dragoman.conversation import (
    ToolChoice as ToolChoice,
)
from dragoman.conversation import (
    ToolFinished as ToolFinished,
)
from dragoman.conversation import (
    ToolResult as ToolResult,
)
from dragoman.conversation import (
    ToolSpec as ToolSpec,
)
from dragoman.conversation import (
    ToolStarted as ToolStarted,
)
from dragoman.conversation import (
    Usage as Usage,
)
from dragoman.conversation import (
    conversation_from_json as conversation_from_json,
)
from dragoman.conversation import (
    conversation_to_json as conversation_to_json,
)
from dragoman.conversation import (
    fold as fold,
)
from dragoman.engines import (
    AsyncClaudeEngine as AsyncClaudeEngine,
)
from dragoman.engines import (
    AsyncEngine as AsyncEngine,
)
from dragoman.engines import (
    AsyncScriptedEngine as AsyncScriptedEngine,
)
from dragoman.engines import (
    ClaudeEngine as ClaudeEngine,
)
from dragoman.engines import (
    Engine as Engine,
)
from dragoman.engines import (
    Reply as Reply,
)
from dragoman.engines import (
    ScriptedEngine as ScriptedEngine,
)
from dragoman.engines import (
    async_engine as async_engine,
)
from dragoman.engines import (
    engine as engine,
)
from dragoman.errors import DragomanError as DragomanError
from dragoman.loop import (
    AsyncOrchestrator as AsyncOrchestrator,
)
from dragoman.loop import (
    DropToolResults as DropToolResults,
)
from dragoman.loop import (
    Limits as Limits,
)
from dragoman.loop import (
    Orchestrator as Orchestrator,
)
from dragoman.loop import (
    Prices as Prices,
)
from dragoman.loop import (
    RunResult as RunResult,
)
from dragoman.loop import (
    Summarise as Summarise,
)
from dragoman.loop import (
    arun_tool_calling_loop as arun_tool_calling_loop,
)
from dragoman.loop import (
    run_tool_calling_loop as run_tool_calling_loop,
)
from dragoman.providers import ModelOptions as ModelOptions
from dragoman.providers import Reasoning as Reasoning
from dragoman.providers import check as check
from dragoman.stores import (
    AsyncPostgresStore as AsyncPostgresStore,
)
from dragoman.stores import (
    ConversationStore as ConversationStore,
)
from dragoman.stores import (
    FileStore as FileStore,
)
from dragoman.stores import (
    MemoryStore as MemoryStore,
)
from dragoman.stores import (
    PostgresStore as PostgresStore,
)
from dragoman.stores import (
    SqliteStore as SqliteStore,
)
from dragoman.stores import (
    aresume as aresume,
)
from dragoman.stores import (
    generate_encryption_key as generate_encryption_key,
)
from dragoman.stores import (
    resume as resume,
)
from dragoman.tools import (
    Allow as Allow,
)
from dragoman.tools import (
    Ask as Ask,
)
from dragoman.tools import (
    Deny as Deny,
)
from dragoman.tools import (
    RetryConfig as RetryConfig,
)
from dragoman.tools import (
    Tool as Tool,
)
from dragoman.tools import (
    ToolConfig as ToolConfig,
)
from dragoman.tools import (
    ToolContext as ToolContext,
)
from dragoman.tools import (
    ToolExecutor as ToolExecutor,
)
from dragoman.tools import (
    ToolRegistry as ToolRegistry,
)
from dragoman.tools import (
    approve as approve,
)
from dragoman.tools import (
    deny as deny,
)
from dragoman.tools import (
    execute_tool as execute_tool,
)
from dragoman.tools import (
    tool as tool,
)
from dragoman.transport import RetryPolicy as RetryPolicy
from dragoman.transport import Tape as Tape
from dragoman.transport import Timeouts as Timeouts

from . import errors as errors
