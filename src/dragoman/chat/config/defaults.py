"""What holds where nobody says anything.

Owns: the default provider, the default models, and the default limits of a reply.
Must not know: where settings come from. What else has a default has it beside its field, in Config.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DEFAULT_PROVIDER", "default_max_tokens", "default_model"]

DEFAULT_PROVIDER: Final = "openai"

_MODELS: Final = {
    "anthropic": "claude-sonnet-4-5",
    "claude-local": "default",
    "gemini": "gemini-3-flash-preview",
    "openai": "gpt-5",
    "openai-responses": "gpt-5",
}

# Anthropic's is not here: its API cannot do without a limit, so the profiles of its models have one.
_MAX_TOKENS: Final = {"gemini": 8192, "openai": 4096, "openai-responses": 4096}


def default_model(provider: str) -> str:
    """The model of a provider where none is named; empty if it has no default."""
    return _MODELS.get(provider, "")


def default_max_tokens(provider: str) -> int | None:
    """The most tokens of a reply where nobody says; None: as the model's profile says, or the provider does."""
    return _MAX_TOKENS.get(provider)
