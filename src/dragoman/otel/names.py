"""The names of everything that is told to OpenTelemetry, in one table.

They follow release 1.41.1 of the semantic conventions, the last one that contains those for generative AI; since then
these live in a repository of their own (open-telemetry/semantic-conventions-genai), which has no release yet. What is
from there is marked. What no convention has a name for begins with `dragoman.`, but for the cost, which has the name
that others gave it.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "1.41.1"
SCHEMA_URL: Final = f"https://opentelemetry.io/schemas/{VERSION}"
SCOPE: Final = "dragoman"

# --- operations, which are also the first word of a span's name -------------------------------------------------------

INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
SAVE: Final = "dragoman.save"

# --- attributes of spans and metrics ----------------------------------------------------------------------------------

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION: Final = "gen_ai.conversation.id"
OUTPUT_TYPE: Final = "gen_ai.output.type"
ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

REQUEST_MODEL: Final = "gen_ai.request.model"
STREAM: Final = "gen_ai.request.stream"
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
TEMPERATURE: Final = "gen_ai.request.temperature"
TOP_P: Final = "gen_ai.request.top_p"
TOP_K: Final = "gen_ai.request.top_k"
STOP_SEQUENCES: Final = "gen_ai.request.stop_sequences"
SEED: Final = "gen_ai.request.seed"
CHOICES: Final = "gen_ai.request.choice.count"
REASONING_LEVEL: Final = "gen_ai.request.reasoning.level"  # from the new repository

RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"  # `cache_write` in the new repository
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - no password
COST: Final = "operation.cost"
"""In US dollars. No convention has a name for it; this is that of pydantic-ai, which Logfire reads."""

TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
TOOL_RETRIES: Final = "dragoman.tool.retries"

ENDING: Final = "dragoman.run.ending"
STEPS: Final = "dragoman.run.steps"
PASSED_OVER: Final = "dragoman.run.passed_over"
"""Models of a chain that were not asked, by name."""
LOSSES: Final = "dragoman.losses"
"""Kinds of things in the history that the model did not get as they were."""

# What was said; only where it is switched on.
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
LEFT_OUT: Final = "dragoman.content.left_out"
"""How many messages, the oldest, had no room."""

# --- events of a model call's span ------------------------------------------------------------------------------------

ATTEMPT: Final = "dragoman.attempt"
ATTEMPT_NUMBER: Final = "dragoman.attempt.number"
ATTEMPT_OUTCOME: Final = "dragoman.attempt.outcome"
ATTEMPT_WAITED: Final = "dragoman.attempt.waited"
ATTEMPT_QUEUED: Final = "dragoman.attempt.queued"
ATTEMPT_DURATION: Final = "dragoman.attempt.duration"
ATTEMPT_REQUEST_ID: Final = "dragoman.attempt.request_id"
HTTP_STATUS: Final = "http.response.status_code"

# --- metrics: name, unit, description, limits of buckets --------------------------------------------------------------

_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_RUN_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
_TOKENS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)

TOKEN_USAGE_METRIC: Final = ("gen_ai.client.token.usage", "{token}", "Tokens that a model read and wrote.", _TOKENS)
DURATION_METRIC: Final = ("gen_ai.client.operation.duration", "s", "The duration of a model call.", _SECONDS)
FIRST_CHUNK_METRIC: Final = (
    "gen_ai.client.operation.time_to_first_chunk",
    "s",
    "From the request to the first part of a streamed answer.",
    _SECONDS,
)
RUN_METRIC: Final = ("gen_ai.invoke_agent.duration", "s", "The duration of a turn.", _RUN_SECONDS)  # new repository
TOOL_METRIC: Final = ("gen_ai.execute_tool.duration", "s", "The duration of a tool call.", _SECONDS)  # new repository
WAIT_METRIC: Final = ("dragoman.client.wait", "s", "How long was waited before another attempt.", _SECONDS)
QUEUE_METRIC: Final = ("dragoman.client.queue", "s", "How long an attempt waited in the limiter's line.", _SECONDS)
SAVE_METRIC: Final = ("dragoman.store.save.duration", "s", "The duration of saving a snapshot.", _SECONDS)
RETRIES_METRIC: Final = ("dragoman.client.retries", "{attempt}", "Attempts after the first one of a model call.")

# --- values that the conventions have names for -----------------------------------------------------------------------

PROVIDERS: Final = {
    "openai-responses": "openai",
    "azure": "azure.ai.openai",
    "azure-responses": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "bedrock-mantle": "aws.bedrock",
    "bedrock-mantle-chat": "aws.bedrock",
    "vertex": "gcp.vertex_ai",
    "vertex-claude": "gcp.vertex_ai",
    "claude-local": "anthropic",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
"""Providers that are called something else there."""

FINISH: Final = {
    "end": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tool_call",
    "max_tokens": "length",
    "context_full": "length",
    "refusal": "content_filter",
}
"""Why a reply ended, where it is called something else there."""
