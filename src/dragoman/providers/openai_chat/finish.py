"""Why a reply ended, in the words of all the servers that speak this dialect.

Owns: the table of finish reasons, and which of them are failures in disguise.
Must not know: JSON, events.
"""

from __future__ import annotations

from typing import Final

from dragoman.conversation import StopReason

__all__ = ["CUT", "FAILED", "stop_reason_of"]

_REASONS: Final[dict[str, StopReason]] = {
    "stop": StopReason.END,
    "eos": StopReason.END,
    "eos_token": StopReason.END,
    "end_turn": StopReason.END,
    "completed": StopReason.END,
    "length": StopReason.MAX_TOKENS,
    "max_tokens": StopReason.MAX_TOKENS,
    "max_output_tokens": StopReason.MAX_TOKENS,
    "tool_calls": StopReason.TOOL_CALLS,
    "tool_use": StopReason.TOOL_CALLS,
    "function_call": StopReason.TOOL_CALLS,
    "content_filter": StopReason.CONTENT_FILTER,
    "sensitive": StopReason.CONTENT_FILTER,  # Z.ai
    "safety": StopReason.CONTENT_FILTER,
    "recitation": StopReason.CONTENT_FILTER,
    "prohibited_content": StopReason.CONTENT_FILTER,
    "refusal": StopReason.REFUSAL,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "model_length": StopReason.CONTEXT_FULL,  # Mistral
    "model_context_window_exceeded": StopReason.CONTEXT_FULL,  # Z.ai, and Claude behind OpenRouter
    "pause_turn": StopReason.PAUSED,
}

FAILED: Final[dict[str, str]] = {
    "error": "the server reports that it failed while it answered",
    "abort": "the server aborted the answer",
    "insufficient_system_resource": "the server ran out of resources while it answered",  # DeepSeek
    "network_error": "the server lost its own connection to the model",  # Z.ai
}
"""Finish reasons that say that the answer was not finished, and what they mean."""

CUT: Final = frozenset([StopReason.MAX_TOKENS, StopReason.CONTEXT_FULL, StopReason.CONTENT_FILTER])
"""Why the last call may be cut off in the middle of its arguments."""


def stop_reason_of(reason: str, native: str, *, stop_sequence: bool, refused: bool, calls: bool) -> StopReason:
    """The stop reason for a finish reason (empty if there was none) and what else the reply shows.

    `native` is the word of the server behind a router, `stop_sequence` whether the server named a stop sequence.
    """
    found = _REASONS.get(reason.lower()) if reason else StopReason.OTHER
    if found is None:
        return StopReason.OTHER
    if found is StopReason.END:
        found = _REASONS.get(native.lower(), StopReason.END)
    if found not in (StopReason.END, StopReason.OTHER):
        return found
    if refused:
        return StopReason.REFUSAL
    if calls:  # several servers say "stop" even then
        return StopReason.TOOL_CALLS
    return StopReason.STOP_SEQUENCE if stop_sequence else found
