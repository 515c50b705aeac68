"""The version of OpenTelemetry's conventions, our metrics, and the values that are called something else there.

Names follow release 1.41.1 of the semantic conventions, the last one that contains those for generative AI; since then
they have a repository of their own (open-telemetry/semantic-conventions-genai), which has no release yet. Names from
there are marked. What no convention has a name for starts with `dragoman.`.
"""

from __future__ import annotations

from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.41.1"

_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_RUN_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
_TOKENS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)

HISTOGRAMS: Final = {
    "gen_ai.client.token.usage": ("{token}", "Tokens that a model read and wrote.", _TOKENS),
    "gen_ai.client.operation.duration": ("s", "The duration of a model call.", _SECONDS),
    "gen_ai.client.operation.time_to_first_chunk": ("s", "From the request to the first part of a stream.", _SECONDS),
    "gen_ai.invoke_agent.duration": ("s", "The duration of a turn.", _RUN_SECONDS),  # from the new repository
    "gen_ai.execute_tool.duration": ("s", "The duration of a tool call.", _SECONDS),  # from the new repository
    "dragoman.client.wait": ("s", "The wait before another attempt.", _SECONDS),
    "dragoman.client.queue": ("s", "The time of an attempt in the limiter's queue.", _SECONDS),
    "dragoman.store.save.duration": ("s", "The duration of saving a snapshot.", _SECONDS),
}
"""Unit, description and bucket limits, by name."""

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
"""Providers with another name in the conventions."""

FINISH: Final = {
    "end": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tool_call",
    "max_tokens": "length",
    "context_full": "length",
    "refusal": "content_filter",
}
"""Stop reasons with another name in the conventions."""
