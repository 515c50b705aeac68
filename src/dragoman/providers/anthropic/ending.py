"""How a reply ends: why, and what it cost.

Owns: the table of stop reasons, and the counting of tokens.
Must not know: blocks, and how bytes become events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import StopReason, Usage

from .wire import ABSENT, joined, known, members, number

__all__ = ["counted", "stop_reason_of", "usage_of"]

_STOP_REASONS: Final[dict[str, StopReason]] = {
    "end_turn": StopReason.END,
    "tool_use": StopReason.TOOL_CALLS,
    "max_tokens": StopReason.MAX_TOKENS,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "pause_turn": StopReason.PAUSED,
    "refusal": StopReason.REFUSAL,
    "model_context_window_exceeded": StopReason.CONTEXT_FULL,
}


def stop_reason_of(word: str) -> StopReason:
    """The stop reason for the provider's word."""
    return _STOP_REASONS.get(word, StopReason.OTHER)


def usage_of(counts: Mapping[str, Raw]) -> Usage:
    """The provider counts what was read from and written to its cache apart from `input_tokens`; we count it in."""
    fresh = number(counts.get("input_tokens"))
    read = number(counts.get("cache_read_input_tokens"))
    wrote = number(counts.get("cache_creation_input_tokens"))
    details = members(counts["output_tokens_details"]) if "output_tokens_details" in counts else {}
    return Usage(
        input=None if fresh is None else fresh + (read or 0) + (wrote or 0),
        output=number(counts.get("output_tokens")),
        cache_read=read,
        cache_write=wrote,
        reasoning=number(details.get("thinking_tokens")),
    )


# --- the counts of a whole reply ---


class _Details(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    thinking_tokens: int | None = None


# In the order in which the API gives them. What is not looked at is kept raw, so that it is written again as it came.
class _Counts(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation: Raw = ABSENT
    output_tokens: int | None = None
    output_tokens_details: _Details | None = None
    server_tool_use: Raw = ABSENT
    service_tier: Raw = ABSENT
    inference_geo: Raw = ABSENT


_decode_counts = msgspec.json.Decoder(_Counts).decode
_encode = msgspec.json.Encoder().encode


def counted(raw: Raw) -> tuple[Usage, Raw | None]:
    """The usage that the counts of a whole reply tell of, and what is kept of them: all but nulls.

    Counts that are written again exactly as they came are all worth keeping, and were read in full. Others are read
    member by member.
    """
    try:
        counts = _decode_counts(raw)
    except (msgspec.MsgspecError, UnicodeError):
        counts = None
    if counts is None or _encode(counts) != bytes(raw):
        fields = known(members(raw))
        return usage_of(fields), Raw(joined(fields.items())) if fields else None
    fresh, read, wrote = counts.input_tokens, counts.cache_read_input_tokens, counts.cache_creation_input_tokens
    usage = Usage(
        input=None if fresh is None else fresh + (read or 0) + (wrote or 0),
        output=counts.output_tokens,
        cache_read=read,
        cache_write=wrote,
        reasoning=None if counts.output_tokens_details is None else counts.output_tokens_details.thinking_tokens,
    )
    return usage, raw.copy() if len(raw) > 2 else None
