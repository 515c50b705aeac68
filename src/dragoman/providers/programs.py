"""Profiles of the providers that are a program on this machine; dragoman.engines runs them, without a codec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .anthropic.profiles import BASE
from .profile import Profile, ToolLimits, words

# The models are Anthropic's, but the program passes on only some options.
_CLAUDE: Final = BASE.with_changes(
    provider="claude-local",
    dialect="claude_cli",
    # The program adds a prefix to a tool's name, and the API takes 128 characters.
    tool_limits=ToolLimits(name_pattern=r"[a-zA-Z0-9_-]{1,64}", max_name_length=64, max_description_length=2048),
    tool_result_media=words("image"),
    tool_examples=False,
    tool_choices=words("auto none"),
    single_tool_calls=False,
    needs_tools_of_history=False,
    tool_schema="json_schema",
    structured="native",
    structured_schema="json_schema",
    reasoning="adaptive",
    efforts=words("low medium high xhigh max"),
    unsupported=words("seed stop temperature top_k top_p user logprobs choices"),
    default_max_tokens=None,
)

# A small model that llama.cpp runs in a child process. Tool names are part of a grammar, so any name will do.
_LOCAL: Final = Profile(
    provider="local",
    dialect="local",
    media=words(),
    media_urls=words(),
    tool_limits=ToolLimits(name_pattern=r"[\s\S]{1,200}", max_name_length=200),
    parallel_tool_calls=False,
    strict_tools=True,
    reasoning_replayed=False,
    unsupported=words("user logprobs choices"),
    default_max_tokens=2048,  # a small model may not stop by itself
    context_window=8192,
)

PROFILES: Final[Mapping[str, Profile]] = {profile.provider: profile for profile in (_CLAUDE, _LOCAL)}
"""By the name before the model in `provider:model`."""
