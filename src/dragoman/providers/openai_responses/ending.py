"""How a reply ends: its status, its usage, and what else the response object says.

Owns: the tables of stop reasons and usage counts; which members of a response are worth keeping.
Must not know: items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from msgspec import Raw

from dragoman.conversation import Native, StopReason, Usage

from .wire import native, text_of, value_of

__all__ = ["EMPTY", "kept_of", "stop_of", "usage_of"]

_INCOMPLETE: Final[dict[str, StopReason]] = {
    "max_output_tokens": StopReason.MAX_TOKENS,
    "content_filter": StopReason.CONTENT_FILTER,
}
# `complete` is what some compatible servers say. A response that runs in the background is `queued` or `in_progress`:
# nothing went wrong, but this is no answer yet, which OTHER and the raw word say.
_COMPLETE: Final = frozenset([None, "completed", "complete"])
_STATUS: Final[dict[str, StopReason]] = {"cancelled": StopReason.INTERRUPTED}

_USAGE: Final = frozenset([
    "input_tokens",
    "input_tokens_details",
    "output_tokens",
    "output_tokens_details",
    "total_tokens",
])  # fmt: skip

# What the caller knows because the request said it, and what has a place of its own in our values.
_NOT_KEPT: Final = frozenset([
    *("id", "object", "created_at", "completed_at", "model", "status", "output", "output_text", "error", "usage"),
    *("background", "frequency_penalty", "include", "instructions", "max_output_tokens", "max_tool_calls", "metadata"),
    *("parallel_tool_calls", "presence_penalty", "previous_response_id", "prompt", "prompt_cache_key"),
    *("prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier", "store", "stream"),
    *("stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user"),
])  # fmt: skip
EMPTY: Final = frozenset([b"null", b"[]", b"{}", b'""'])
"""Values that say nothing, and are not kept."""


def stop_of(members: Mapping[str, Raw], *, called: bool, refused: bool) -> tuple[StopReason, str | None]:
    """Why the reply ended, in our word and the provider's."""
    status = text_of(members.get("status"))
    if status == "incomplete":
        details = value_of(members.get("incomplete_details"))
        reason = cast("dict[str, object]", details).get("reason") if isinstance(details, dict) else None
        word = reason if isinstance(reason, str) else status
        return _INCOMPLETE.get(word, StopReason.OTHER), word
    if status not in _COMPLETE:
        return _STATUS.get(cast("str", status), StopReason.OTHER), status
    if called:
        return StopReason.TOOL_CALLS, status
    return (StopReason.REFUSAL if refused else StopReason.END), status


def usage_of(members: Mapping[str, Raw]) -> Usage | None:
    """The token counts; None where the response has none."""
    counts = value_of(members.get("usage"))
    if not isinstance(counts, dict):
        return None
    counts = cast("object", counts)
    return Usage(
        input=_count(counts, "input_tokens"),
        output=_count(counts, "output_tokens"),
        cache_read=_count(counts, "input_tokens_details", "cached_tokens"),
        cache_write=_count(counts, "input_tokens_details", "cache_write_tokens"),
        reasoning=_count(counts, "output_tokens_details", "reasoning_tokens"),
        total=_count(counts, "total_tokens"),
    )


def kept_of(members: Mapping[str, Raw], unknown_events: list[bytes]) -> Native | None:
    """What is kept of the response beside the message: what neither the request nor our values say."""
    kept = {name: raw for name, raw in members.items() if name not in _NOT_KEPT and bytes(raw) not in EMPTY}
    usage = members.get("usage")
    counts = value_of(usage)
    if usage is not None and isinstance(counts, dict) and not cast("dict[str, object]", counts).keys() <= _USAGE:
        kept["usage"] = usage
    if unknown_events:
        kept["events"] = Raw(b"[" + b",".join(unknown_events) + b"]")
    return native(kept) if kept else None


def _count(counts: object, *path: str) -> int | None:
    for name in path:
        if not isinstance(counts, dict):
            return None
        counts = cast("dict[str, object]", counts).get(name)
    if isinstance(counts, float) and counts.is_integer():
        return int(counts)
    return counts if isinstance(counts, int) and not isinstance(counts, bool) else None
