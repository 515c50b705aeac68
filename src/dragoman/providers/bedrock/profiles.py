"""What models on Bedrock can do, as rows.

Names are `maker.model`, mostly with a region or `global` before them (`us.anthropic.claude-…`), or an ARN, which tells
nothing about the model: use `profile={…}`. Claude's rows are those of Claude's own API.

Quirks of this dialect, beside those of Claude:

    claude             has parameters of its own, and Claude's thinking
    nova               has the parameters of Amazon's own models
    reasoning_effort   the parameter for the effort; others have `reasoning_config`
    cache_points       takes cache marks in the system prompt and the messages
    cache_tools        … and behind the tools
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.providers.anthropic.profiles import ROWS as CLAUDE_ROWS
from dragoman.providers.profile import Profile, ProfileRow, ToolLimits, row, words

CLAUDE: Final = "claude"
NOVA: Final = "nova"
REASONING_MEMBERS: Final = ("reasoning_effort", "reasoning_config")
CACHE_POINTS: Final = "cache_points"
CACHE_TOOLS: Final = "cache_tools"

_NEVER = words("seed user logprobs choices")

BASE = Profile(
    provider="bedrock",
    dialect="bedrock",
    media=words("image document"),
    media_urls=words(),
    tool_result_media=words(),
    tool_limits=ToolLimits(name_pattern=r"[a-zA-Z0-9_-]{1,64}", max_name_length=64),
    tool_choices=words("auto none required tool"),
    single_tool_calls=False,
    needs_tools_of_history=True,
    structured="tool",
    structured_schema="anthropic_strict",
    unsupported=_NEVER | {"top_k"},
)


def _row(models: str, **fields: Any) -> ProfileRow:
    """A row for models, with anything before the maker's name."""
    return row("bedrock", " ".join([f"*{model}" for model in models.split()]), **fields)


def _claude(known: ProfileRow) -> ProfileRow:
    """A row of Claude's own API, adapted to Bedrock."""
    fields = dict(known.fields)
    fields["quirks"] = words(f"{CLAUDE} {CACHE_POINTS} {CACHE_TOOLS}") | fields.get("quirks", words())
    if "unsupported" in fields:
        fields["unsupported"] |= _NEVER
    for name in ("media_urls", "default_max_tokens"):
        fields.pop(name, None)
    return _row(" ".join([f"anthropic.{model}" for model in known.models]), **fields)


_EFFORTS = words("low medium high")

ROWS: tuple[ProfileRow, ...] = (
    _row("anthropic.claude*", tool_schema="anthropic_strict", tool_result_media=words("image document")),
    _row("anthropic.claude*", single_tool_calls=True),
    *map(_claude, CLAUDE_ROWS),
    _row(
        "amazon.nova*",
        media=words("image document video"),
        tool_result_media=words("image document video"),
        unsupported=_NEVER,
        quirks=words(f"{NOVA} {CACHE_POINTS}"),
        context_window=300_000,
        max_output=10_000,
    ),
    _row("amazon.nova-micro*", media=words(), tool_result_media=words(), context_window=128_000),
    _row("amazon.nova-2*", reasoning="effort", efforts=_EFFORTS, context_window=1_000_000, max_output=64_000),
    _row("meta.llama4*", tool_result_media=words("image document")),
    _row("mistral.pixtral*", tool_result_media=words("document")),
    _row("amazon.titan*", tools=False, structured="prompt", media=words("document")),
    # --- makers whose models have structured replies ---
    _row("google.gemma-* minimax.* nvidia.* zai.* moonshot*.* qwen.* deepseek.v3*", structured="native"),
    _row("mistral.mistral-large-3* mistral.magistral* mistral.ministral* mistral.voxtral*", structured="native"),
    _row("openai.gpt-oss*", structured="native", media=words(), reasoning="effort", efforts=_EFFORTS),
    _row("openai.gpt-oss*", quirks=words("reasoning_effort"), context_window=131_072),
    _row("qwen.qwen3*", media=words(), reasoning="effort", efforts=_EFFORTS, quirks=words("reasoning_config")),
    _row("deepseek.r1*", tools=False, structured="prompt", media=words("document")),
)
