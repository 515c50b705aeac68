"""The servers that speak this dialect, each in its own way.

Owns: a row for each server that the catalogue knows by name, and rows for its models that differ.
Must not know: OpenAI's own models (profiles.py has them), how anything is encoded.
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.providers.profile import ProfileRow, ToolLimits

__all__ = ["SERVERS"]

_NONE: Final = frozenset[str]()
_IMAGE: Final = frozenset(["image"])
_LOW_TO_HIGH: Final = frozenset(["low", "medium", "high"])
_NEW_MAX_TOKENS: Final = {"max_tokens": "max_completion_tokens"}


def _row(provider: str, *models: str, **fields: Any) -> ProfileRow:
    return ProfileRow(provider=provider, models=models or ("*",), fields=fields)


_GROQ: Final = frozenset(["plain_history"])
_MISTRAL: Final = frozenset(
    [
        "assistant_after_tool",
        "call_id_of_9",
        "document_url",
        "no_stream_options",
        "plain_history",
        "plain_input_audio",
    ]
)
_OPENROUTER: Final = frozenset(["reasoning_object"])

SERVERS: Final[tuple[ProfileRow, ...]] = (
    # --- Cerebras: strict about unknown members; reasoning goes back to gpt-oss only ---
    _row(
        "cerebras",
        media=_NONE,
        renamed=_NEW_MAX_TOKENS,
        unsupported=frozenset(["top_k"]),
        strict_tools=True,
        tool_schema="openai_strict",
        structured_schema="openai_strict",
        reasoning="none",
        reasoning_replayed=False,
        quirks=frozenset(["plain_history"]),
    ),
    _row("cerebras", "gpt-oss*", reasoning="effort", efforts=_LOW_TO_HIGH, reasoning_replayed=True),
    _row("cerebras", "zai-glm*", reasoning="effort", efforts=frozenset(["none"])),
    # --- DeepSeek: thinks unless told otherwise; a turn that called tools must show its reasoning ---
    # https://api-docs.deepseek.com/guides/thinking_mode
    _row(
        "deepseek",
        media=_NONE,
        unsupported=frozenset(["seed", "top_k", "user"]),
        parallel_tool_calls=False,
        tool_choices=frozenset(["auto", "none"]),
        structured="prompt",
        efforts=frozenset(["none", "low", "high", "max"]),
        quirks=frozenset(["content_always", "reasoning_with_calls", "thinking_switch"]),
    ),
    # The old names stand for one model with thinking on and off.
    _row("deepseek", "deepseek-chat*", "deepseek-reasoner*", reasoning="none"),
    _row("deepseek", "deepseek-chat*", tool_choices=frozenset(["auto", "none", "required", "tool"]), structured="tool"),
    # --- Fireworks: strict about unknown members ---
    _row("fireworks", quirks=frozenset(["plain_history"])),
    # --- Groq: strict about unknown members; a schema for replies with few models only ---
    _row(
        "groq",
        renamed=_NEW_MAX_TOKENS,
        unsupported=frozenset(["top_k"]),
        tool_limits=ToolLimits(max_tools=128),
        structured="tool",
        reasoning="none",
        reasoning_replayed=False,
        quirks=_GROQ,
    ),
    _row("groq", "llama-3*", "moonshotai/*", "openai/gpt-oss*", "qwen/qwen3-32b", media=_NONE),
    _row("groq", "meta-llama/llama-4*", "moonshotai/*", structured="native"),
    _row(
        "groq",
        "openai/gpt-oss*",
        structured="native",
        structured_schema="openai_strict",
        reasoning="effort",
        efforts=_LOW_TO_HIGH,
        reasoning_replayed=True,
        quirks=_GROQ | {"reasoning_format"},
    ),
    _row("groq", "qwen/*", reasoning="effort", quirks=_GROQ | {"effort_default"}),
    # It runs tools of its own, and none of the caller's.
    _row("groq", "groq/compound*", "compound*", tools=False, structured="prompt", media=_NONE),
    # --- Hugging Face: a router before many servers, some of them strict ---
    _row("huggingface", quirks=frozenset(["plain_history"])),
    # --- programs on the user's machine ---
    _row("llamacpp", media=frozenset(["image", "audio"]), reasoning="none"),
    _row(
        "lmstudio",
        media_urls=_NONE,
        tool_choices=frozenset(["auto", "none", "required"]),
        reasoning="none",
    ),
    # Ollama fetches no URLs, and passes over `tool_choice`: https://docs.ollama.com/api/openai-compatibility
    _row(
        "ollama",
        media_urls=_NONE,
        unsupported=frozenset(["top_k", "user"]),
        parallel_tool_calls=False,
        tool_choices=frozenset(["auto"]),
        efforts=_LOW_TO_HIGH | {"none"},
    ),
    _row("vllm", media=frozenset(["image", "audio", "video"]), media_urls=frozenset(["image", "audio", "video"])),
    # --- Mistral: strict about unknown members, about ids, and about who speaks after whom ---
    _row(
        "mistral",
        media=frozenset(["image", "document"]),
        media_urls=frozenset(["image", "document"]),
        renamed={"seed": "random_seed"},
        unsupported=frozenset(["top_k", "user"]),
        reasoning="none",
        quirks=_MISTRAL,
    ),
    _row("mistral", "voxtral*", media=frozenset(["audio"]), media_urls=_NONE),
    _row("mistral", "mistral-small*", "mistral-medium*", reasoning="effort", efforts=frozenset(["none", "high"])),
    _row("mistral", "mistral-small-2[0-5]*", "mistral-medium-2[0-5]*", reasoning="none"),
    # --- OpenRouter: a router before many models ---
    _row(
        "openrouter",
        media=frozenset(["image", "document", "audio", "video"]),
        media_urls=frozenset(["image", "document", "video"]),
        strict_tools=True,
        efforts=frozenset(["none", "minimal", "low", "medium", "high", "xhigh"]),
        quirks=_OPENROUTER,
    ),
    _row("openrouter", "openai/*", tool_schema="openai_strict", structured_schema="openai_strict"),
    # Others cache by themselves.
    _row("openrouter", "anthropic/*", "google/*", "~anthropic/*", "~google/*", quirks=_OPENROUTER | {"cache_marks"}),
    # --- xAI: few of its models take an effort; those that reason take no stop sequences ---
    _row("xai", renamed=_NEW_MAX_TOKENS, unsupported=frozenset(["top_k"]), reasoning="none"),
    _row("xai", "grok-3-mini*", "grok-4*", "grok-code*", "grok-build*", unsupported=frozenset(["stop", "top_k"])),
    _row("xai", "*non-reasoning*", unsupported=frozenset(["top_k"])),
    _row("xai", "grok-3-mini*", reasoning="effort", efforts=frozenset(["low", "high"])),
    _row("xai", "grok-4.3*", reasoning="effort", efforts=frozenset(["none", "low", "medium", "high", "xhigh"])),
    _row("xai", "grok-4.[4-9]*", reasoning="effort", efforts=frozenset(["low", "medium", "high", "xhigh"])),
    # --- Z.ai: https://docs.z.ai/api-reference/llm/chat-completion ---
    _row(
        "zai",
        media=_NONE,
        renamed={"user": "user_id"},
        unsupported=frozenset(["seed", "top_k"]),
        parallel_tool_calls=False,
        tool_choices=frozenset(["auto"]),
        structured="prompt",
        quirks=frozenset(["thinking_switch"]),
    ),
    _row("zai", "glm-4*", quirks=frozenset(["bare_thinking_switch"])),
    _row("zai", "glm-*v*", media=_IMAGE | {"video"}, media_urls=_IMAGE | {"video"}),
)
