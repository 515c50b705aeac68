from dragoman._version import __version__ as __version__
from dragoman.chat import (
    AsyncChatClient as AsyncChatClient,
    AsyncChatStream as AsyncChatStream,
    ChatClient as ChatClient,
    ChatStream as ChatStream,
    Prompt as Prompt,
    agent_tool as agent_tool,
    load_config as load_config,
    new as new,
    new_async as new_async,
)
from dragoman.conversation import (
    Block as Block,
    Completed as Completed,
    Conversation as Conversation,
    Event as Event,
    Media as Media,
    Message as Message,
    StopReason as StopReason,
    Text as Text,
    TextDelta as TextDelta,
    Thinking as Thinking,
    ThinkingDelta as ThinkingDelta,
    ToolCall as ToolCall,
    ToolCallDelta as ToolCallDelta,
    ToolChoice as ToolChoice,
    ToolFinished as ToolFinished,
    ToolResult as ToolResult,
    ToolSpec as ToolSpec,
    ToolStarted as ToolStarted,
    Usage as Usage,
    conversation_from_json as conversation_from_json,
    conversation_to_json as conversation_to_json,
    fold as fold,
)
from dragoman.engines import (
    AsyncClaudeEngine as AsyncClaudeEngine,
    AsyncEngine as AsyncEngine,
    AsyncScriptedEngine as AsyncScriptedEngine,
    ClaudeEngine as ClaudeEngine,
    Engine as Engine,
    Reply as Reply,
    ScriptedEngine as ScriptedEngine,
    async_engine as async_engine,
    engine as engine,
)
from dragoman.errors import DragomanError as DragomanError
from dragoman.loop import (
    AsyncOrchestrator as AsyncOrchestrator,
    DropToolResults as DropToolResults,
    Limits as Limits,
    Orchestrator as Orchestrator,
    RunContext as RunContext,
    RunResult as RunResult,
    Summarise as Summarise,
    arun_tool_calling_loop as arun_tool_calling_loop,
    run_tool_calling_loop as run_tool_calling_loop,
)
from dragoman.providers import (
    ModelOptions as ModelOptions,
    Prices as Prices,
    Reasoning as Reasoning,
    check as check,
)
from dragoman.stores import (
    ConversationStore as ConversationStore,
    FileStore as FileStore,
    MemoryStore as MemoryStore,
    PostgresStore as PostgresStore,
    SqliteStore as SqliteStore,
    aresume as aresume,
    generate_encryption_key as generate_encryption_key,
    resume as resume,
)
from dragoman.tools import (
    Allow as Allow,
    Ask as Ask,
    Deny as Deny,
    RetryConfig as RetryConfig,
    Tool as Tool,
    ToolConfig as ToolConfig,
    ToolContext as ToolContext,
    ToolExecutor as ToolExecutor,
    ToolRegistry as ToolRegistry,
    approve as approve,
    deny as deny,
    execute_tool as execute_tool,
    tool as tool,
)
from dragoman.transport import RetryPolicy as RetryPolicy, Tape as Tape, Timeouts as Timeouts

from . import errors as errors
