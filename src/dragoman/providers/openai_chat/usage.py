"""Token counts, under all the names that servers give them.

Owns: which member counts what.
Must not know: when a reply is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Usage
from dragoman.errors import ProtocolError

from .wire import integer, is_nothing, members

__all__ = ["usage_in", "usage_of"]


class _Details(Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_creation_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Counts(Struct, gc=False):
    prompt_tokens: int | None = None
    """Includes what came from a cache."""
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    prompt_token_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: int | None = None
    """DeepSeek."""
    num_cached_tokens: int | None = None
    """Mistral."""
    cached_tokens: int | None = None
    """Together, Moonshot."""
    reasoning_tokens: int | None = None


_COUNTS: Final = msgspec.json.Decoder(_Counts).decode
_OBJECTS: Final = frozenset([name for name in _Counts.__struct_fields__ if name.endswith("_details")])
_NO_DETAILS: Final = _Details()
_Some = TypeVar("_Some", bound=Struct)


def usage_in(fields: Mapping[str, Raw]) -> Usage | None:
    """The counts in the members of a reply, a chunk or a choice; None if there are none."""
    found = fields.get("usage")
    if found is None or is_nothing(found):
        groq = fields.get("x_groq")
        found = members(groq).get("usage") if groq is not None and bytes(groq).startswith(b"{") else None
    return None if found is None else usage_of(found)


def usage_of(raw: Raw) -> Usage | None:
    """The counts of a `usage` member; None if it counts nothing."""
    try:
        counts = _COUNTS(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        counts = _leniently(raw, _Counts)
        if counts is None:
            return None
    read, written, total = counts.prompt_tokens, counts.completion_tokens, counts.total_tokens
    if read is None and written is None and total is None:
        return None
    prompt, completion = counts.prompt_tokens_details or _NO_DETAILS, counts.completion_tokens_details
    reasoning = counts.reasoning_tokens if completion is None else completion.reasoning_tokens
    if reasoning is None:
        reasoning = counts.reasoning_tokens
    if reasoning and read is not None and written is not None and total == read + written + reasoning:
        # xAI counts reasoning beside the completion; here it is a part of the output.
        written += reasoning
    cached, created = prompt.cached_tokens, prompt.cache_write_tokens
    return Usage(
        input=read,
        output=written,
        cache_read=_cached_elsewhere(counts) if cached is None else cached,
        cache_write=prompt.cache_creation_tokens if created is None else created,
        reasoning=reasoning,
        total=total,
    )


def _cached_elsewhere(counts: _Counts) -> int | None:
    """How many tokens came from a cache, where the usual place does not say it."""
    details = counts.prompt_token_details
    if details is not None and details.cached_tokens is not None:
        return details.cached_tokens
    if counts.prompt_cache_hit_tokens is not None:
        return counts.prompt_cache_hit_tokens
    return counts.cached_tokens if counts.num_cached_tokens is None else counts.num_cached_tokens


def _leniently(raw: Raw | None, kind: type[_Some]) -> _Some | None:
    """The same member by member: what is not a count is passed over. None if it is not an object at all."""
    if raw is None or not bytes(raw).lstrip().startswith(b"{"):
        return None
    try:
        fields = members(raw)
    except ProtocolError:
        return None
    return kind(**{
        name: _leniently(fields.get(name), _Details) if name in _OBJECTS else integer(fields.get(name))
        for name in kind.__struct_fields__
    })  # fmt: skip
