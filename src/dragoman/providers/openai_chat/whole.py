"""The whole reply that most of them are: one text, and the account of it.

Owns: the short road for it, without the state that other replies need while they are put together.
Must not know: any rule of its own. Whatever is not exactly this takes the long road (reply.py), and both give the same
events for it.
"""

from __future__ import annotations

from functools import lru_cache

from dragoman.conversation import (
    Completed,
    Native,
    ReplyEvent,
    ReplyStarted,
    StopReason,
    TextDelta,
    TextEnded,
    TextStarted,
    UsageReported,
)
from dragoman.providers.codec import Call

from .finish import FAILED, stop_reason_of
from .usage import usage_in
from .wire import Whole, reader_of

__all__ = ["text_reply"]


def text_reply(whole: Whole, call: Call, events: list[ReplyEvent]) -> bool:
    """Append the events of a reply that is one text; False if it is something else, and nothing is appended."""
    choice, profile = whole.choices[0], call.profile
    message, reason = choice.message, choice.finish_reason or ""
    if (
        not message.content
        or message.tool_calls
        or message.refusal
        or message.reasoning_content
        or message.reasoning
        or reason.lower() in FAILED
        or "think_tags" in profile.quirks
    ):
        return False
    events += (
        ReplyStarted(profile.provider, whole.model or call.model, whole.id or None),
        TextStarted(0, ""),
        TextDelta(0, "", message.content),
        TextEnded(0, ""),
    )
    fields = whole.kept()
    usage = usage_in(fields)
    if usage is not None:
        events.append(UsageReported(usage))
    events.append(
        Completed(_stop(reason), reason or None, Native(reader_of(profile.provider), fields) if fields else None)
    )
    return True


@lru_cache(maxsize=64)  # there are few reasons, and each reply has one of them
def _stop(reason: str) -> StopReason:
    return stop_reason_of(reason, "", stop_sequence=False, refused=False, calls=False)
