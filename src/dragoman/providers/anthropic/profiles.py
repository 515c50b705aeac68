"""What Claude models can do, as rows.

The rows follow the provider's documentation of November 2026. An unknown Claude is treated like the newest ones, which
accept the least: a request that asks for too little is better than one that is refused.
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.providers.profile import Profile, ProfileRow, ToolLimits, row, words

# --- quirks ----------------------------------------------------------------------------------------------------------

ALWAYS_THINKS: Final = "always_thinks"
"""Thinking cannot be turned off: `thinking.type` "disabled" is refused."""
OFF_BETWEEN_TOOLS: Final = "off_between_tools"
"""Thinking is turned off with `thinking.type` "between_tools"; "disabled" is refused."""
HIDDEN: Final = "hidden_thinking"
"""Thinking comes back without its text unless `thinking.display` asks for it."""
BOUND: Final = "bound_thinking"
"""A thinking block is signed over everything before it; a changed prefix is an error unless it may be dropped."""
BUDGETS_TOO: Final = "budgets_too"
"""Takes a budget of thinking tokens as well, beside adaptive thinking."""
ONE_SAMPLER: Final = "one_sampler"
"""Takes temperature or top_p, not both."""
OLD_COMPUTER: Final = "old_computer"
"""Knows the computer tool of January 2025, not that of November."""
VERTEX: Final = "vertex"
"""Is asked through Vertex AI: the path names the model, and the body the version of the API."""

# --- the dialect -----------------------------------------------------------------------------------------------------

_NO_SEED = words("seed logprobs choices")
_NO_SAMPLING = _NO_SEED | words("temperature top_k top_p")

BASE = Profile(
    provider="anthropic",
    dialect="anthropic",
    media=frozenset(["image", "document"]),
    media_urls=frozenset(["image", "document"]),
    tool_result_media=frozenset(["image", "document"]),
    tool_limits=ToolLimits(name_pattern=r"[a-zA-Z0-9_-]{1,128}", max_name_length=128),
    tool_examples=True,
    needs_tools_of_history=True,
    tool_schema="anthropic_strict",
    structured="tool",
    structured_schema="anthropic_strict",
    reasoning="budget",
    unsupported=_NO_SEED,
    # The API demands max_tokens in every request.
    default_max_tokens=8192,
)

# --- its models ------------------------------------------------------------------------------------------------------

_ALL_EFFORTS = words("low medium high xhigh max")
_EFFORTS_OF_4_6 = _ALL_EFFORTS - {"xhigh"}
_ANY_CHOICE = words("auto none required tool")
_SMALL = 200_000


def _row(models: str, **fields: Any) -> ProfileRow:
    return row("anthropic", models, **fields)


# The newest models first, then older and older families: later rows win.
ROWS: tuple[ProfileRow, ...] = (
    _row("*", counts_tokens=True),
    _row(
        "claude-*",
        strict_tools=True,
        structured="native",
        reasoning="adaptive",
        efforts=_ALL_EFFORTS,
        unsupported=_NO_SAMPLING,
        tool_choices=words("auto none"),
        tool_search=10_000,
        quirks=frozenset([ALWAYS_THINKS, HIDDEN, BOUND]),
        context_window=1_000_000,
        max_output=128_000,
    ),
    _row("claude-sonnet-5-5*", quirks=frozenset([OFF_BETWEEN_TOOLS, HIDDEN, BOUND])),
    _row("claude-haiku-5-5*", tool_choices=_ANY_CHOICE, quirks=frozenset([HIDDEN, BOUND])),
    _row("claude-fable-5 claude-mythos-5", tool_choices=_ANY_CHOICE, quirks=frozenset([ALWAYS_THINKS, HIDDEN])),
    _row("claude-mythos-preview*", efforts=_EFFORTS_OF_4_6, quirks=frozenset([ALWAYS_THINKS, HIDDEN, BUDGETS_TOO])),
    _row(
        "claude-opus-5 claude-sonnet-5 claude-opus-4-8* claude-opus-4-7*",
        tool_choices=_ANY_CHOICE,
        quirks=frozenset([HIDDEN]),
    ),
    _row(
        "claude-opus-4-6* claude-sonnet-4-6*",
        efforts=_EFFORTS_OF_4_6,
        unsupported=_NO_SEED,
        tool_choices=_ANY_CHOICE,
        quirks=frozenset([BUDGETS_TOO, ONE_SAMPLER]),
    ),
    _row(
        "claude-opus-4-5* claude-sonnet-4-5* claude-haiku-4-5* claude-opus-4-1*",
        reasoning="budget",
        efforts=words(),
        unsupported=_NO_SEED,
        tool_choices=_ANY_CHOICE,
        quirks=frozenset([ONE_SAMPLER, OLD_COMPUTER]),
        context_window=_SMALL,
        max_output=64_000,
    ),
    # The one model that takes an effort beside a budget.
    _row("claude-opus-4-5*", efforts=words("low medium high"), quirks=frozenset([ONE_SAMPLER])),
    _row(
        "claude-opus-4-0* claude-opus-4-20* claude-sonnet-4-0* claude-sonnet-4-20* claude-4-* claude-3*",
        strict_tools=False,
        structured="tool",
        tool_search=0,
        reasoning="budget",
        efforts=words(),
        unsupported=_NO_SEED,
        tool_choices=_ANY_CHOICE,
        quirks=frozenset([OLD_COMPUTER]),
        context_window=_SMALL,
        max_output=64_000,
    ),
    _row("claude-opus-4-1* claude-opus-4-0* claude-opus-4-20* claude-4-opus*", max_output=32_000, tool_search=0),
    _row("claude-3-5*", reasoning="none", max_output=8192),
    # The first generation reads no PDF and writes at most 4,096 tokens; gateways still serve it.
    _row(
        "claude-3-opus* claude-3-sonnet* claude-3-haiku*",
        reasoning="none",
        media=words("image"),
        media_urls=words("image"),
        tool_result_media=words("image"),
        default_max_tokens=4096,
        max_output=4096,
    ),
)
