"""What an engine can do with tools, in one value.

Owns: ToolFeatures, a summary of the profile for programs that choose by ability.
"""

from __future__ import annotations

from msgspec import Struct

from dragoman.providers.profile import Profile, ToolLimits

__all__ = ["ToolFeatures", "features_of"]


class ToolFeatures(Struct, frozen=True, kw_only=True):
    """What a model can do with tools."""

    supports_tools: bool
    supports_parallel_calls: bool
    supports_tool_choice: bool
    supports_strict: bool
    supports_streaming: bool
    supports_media_results: bool
    supported_choices: frozenset[str]
    limits: ToolLimits


def features_of(profile: Profile) -> ToolFeatures:
    """The summary of a profile."""
    return ToolFeatures(
        supports_tools=profile.tools,
        supports_parallel_calls=profile.tools and profile.parallel_tool_calls,
        supports_tool_choice=profile.tools and len(profile.tool_choices) > 1,
        supports_strict=profile.strict_tools,
        supports_streaming=True,
        supports_media_results=bool(profile.tool_result_media),
        supported_choices=profile.tool_choices if profile.tools else frozenset(),
        limits=profile.tool_limits,
    )
