"""Token counts, under all the names that servers give them.

Owns: which member counts what.
Must not know: when a reply is complete.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw

from dragoman.conversation import Usage
from dragoman.errors import ProtocolError

from .wire import integer, members

__all__ = ["usage_of"]

_Path = tuple[str, ...]

# The first of these that is there counts. `prompt_tokens` includes what came from a cache.
_CACHE_READ: Final[tuple[_Path, ...]] = (
    ("prompt_tokens_details", "cached_tokens"),
    ("prompt_token_details", "cached_tokens"),
    ("prompt_cache_hit_tokens",),  # DeepSeek
    ("num_cached_tokens",),  # Mistral
    ("cached_tokens",),  # Together, Moonshot
)
_CACHE_WRITE: Final[tuple[_Path, ...]] = (
    ("prompt_tokens_details", "cache_write_tokens"),
    ("prompt_tokens_details", "cache_creation_tokens"),
)
_REASONING: Final[tuple[_Path, ...]] = (
    ("completion_tokens_details", "reasoning_tokens"),
    ("reasoning_tokens",),
)


def usage_of(raw: Raw) -> Usage | None:
    """The counts of a `usage` member; None if it counts nothing."""
    try:
        fields = members(raw)
    except ProtocolError:
        return None
    read, written, total = (integer(fields.get(f"{name}_tokens")) for name in ("prompt", "completion", "total"))
    if read is None and written is None and total is None:
        return None
    reasoning = _first(fields, _REASONING)
    if reasoning and None not in (read, written) and total == (read or 0) + (written or 0) + reasoning:
        # xAI counts reasoning beside the completion; here it is a part of the output.
        written = (written or 0) + reasoning
    return Usage(
        input=read,
        output=written,
        cache_read=_first(fields, _CACHE_READ),
        cache_write=_first(fields, _CACHE_WRITE),
        reasoning=reasoning,
        total=total,
    )


def _first(fields: dict[str, Raw], paths: tuple[_Path, ...]) -> int | None:
    for path in paths:
        found: Raw | None = fields.get(path[0])
        for name in path[1:]:
            found = _inside(found, name)
        count = integer(found)
        if count is not None:
            return count
    return None


def _inside(raw: Raw | None, name: str) -> Raw | None:
    if raw is None or not bytes(raw).startswith(b"{"):
        return None
    try:
        return members(raw).get(name)
    except ProtocolError:
        return None
