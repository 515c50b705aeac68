"""What Google's models can do, as rows.

The base profile is that of the newest models, also for unknown names; the rows are for older models and exceptions.

Quirks of this dialect:

    thought_signatures   the first function call of each message must be sent back with a signature
    tool_invocations     calls and results of the provider's own tools are parts, which are sent back
    no_combinations      functions, the provider's own tools and a schema for the reply exclude each other
    vertex               the base URL is that of a project and a region, or a version, on Vertex AI
"""

from __future__ import annotations

from typing import Any

from dragoman.conversation import MediaKind
from dragoman.providers.profile import Profile, ProfileRow, ToolLimits, row, words

_ALL_MEDIA: frozenset[MediaKind] = frozenset(["image", "document", "audio", "video"])

BASE = Profile(
    provider="gemini",
    dialect="gemini",
    media=_ALL_MEDIA,
    media_urls=_ALL_MEDIA,
    tool_result_media=frozenset(["image", "document"]),
    tool_limits=ToolLimits(max_tools=512, name_pattern=r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", max_name_length=64),
    single_tool_calls=False,
    strict_tools=True,
    tool_schema="json_schema",
    structured="native",
    structured_schema="json_schema",
    reasoning="effort",
    efforts=frozenset(["minimal", "low", "medium", "high"]),
    unsupported=frozenset(["user"]),
    context_window=1_048_576,
    max_output=65_536,
    quirks=frozenset(["thought_signatures", "tool_invocations"]),
)


def _row(models: str, **fields: Any) -> ProfileRow:
    """A row for models, also by names with a path (`models/…`, `publishers/…/…`)."""
    return row("gemini", " ".join([f"{model} */{model}" for model in models.split()]), **fields)


_PLAIN: dict[str, Any] = {"reasoning": "none", "efforts": words()}
_NO_TOOLS: dict[str, Any] = {**_PLAIN, "tools": False, "structured": "prompt"}
_IMAGE = words("image")

ROWS: tuple[ProfileRow, ...] = (
    row("gemini", counts_tokens=True),
    # --- before thinking ---
    _row("gemini-2.0*", **_PLAIN, tool_result_media=words(), strict_tools=False, max_output=8_192),
    _row("gemini-2.0*", quirks=words("no_combinations"), native_beside_tools=False),
    # --- thinking by a number of tokens ---
    _row(
        "gemini-2.5*",
        tool_result_media=words(),
        reasoning="budget",
        efforts=words("none minimal low medium high"),
        quirks=words("no_combinations"),
        native_beside_tools=False,
    ),
    _row("gemini-2.5-pro*", efforts=words("minimal low medium high")),  # always thinks
    # --- thinking by level ---
    _row("gemini-3-pro*", efforts=words("low high")),
    _row("gemini-3.?-pro* gemini-3.[7-9]-flash gemini-3.[7-9]-flash-preview*", efforts=words("low medium high")),
    # --- models that make pictures or speech call no functions ---
    _row("gemini-2.*-image* gemini-2.0-flash-exp-image*", **_NO_TOOLS, media=_IMAGE, media_urls=_IMAGE),
    _row("gemini-2.*-image* gemini-2.0-flash-exp-image*", context_window=32_768, max_output=32_768),
    _row(
        "gemini-3*-image*",
        media=words("image document"),
        media_urls=words("image document"),
        tools=False,
        efforts=words("minimal high"),
        context_window=65_536,
        max_output=32_768,
    ),
    _row("gemini-3-pro-image*", efforts=words("high")),
    _row("gemini-*-tts*", **_NO_TOOLS, media=words(), media_urls=words(), context_window=8_192, max_output=16_384),
    # --- the open models that the same API serves ---
    _row("gemma-3*", **_NO_TOOLS, media=_IMAGE, media_urls=_IMAGE, tool_result_media=words(), system_role="user"),
    _row("gemma-3*", context_window=131_072, max_output=8_192, quirks=words()),
)
