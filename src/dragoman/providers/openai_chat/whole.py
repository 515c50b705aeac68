"""The whole reply that most of them are: a text or calls of tools, or both, and the account of it.

Owns: the short road for it, without the state that other replies need while they are put together.
Must not know: any rule of its own. Whatever is not exactly this takes the long road (reply.py), and both give the same
events for it.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
    UsageReported,
)
from dragoman.providers.codec import Call

from .finish import CUT, FAILED, stop_reason_of
from .usage import usage_in
from .wire import Whole, WholeCall, reader_of

__all__ = ["plain_reply"]


def plain_reply(whole: Whole, call: Call, names: Mapping[str, str], events: list[ReplyEvent]) -> bool:
    """Append the events of a reply that is plain; False if it is something else, and nothing is appended."""
    choice, profile = whole.choices[0], call.profile
    message, reason = choice.message, choice.finish_reason or ""
    content, calls = message.content, message.tool_calls
    stop = _stop(reason, calls=bool(calls))
    if (
        not (content or calls)
        or message.refusal
        or message.reasoning_content
        or message.reasoning
        or reason.lower() in FAILED
        or "think_tags" in profile.quirks
        or (calls and (stop in CUT or not _can_be_told_apart(calls)))
    ):
        return False
    events.append(ReplyStarted(profile.provider, whole.model or call.model, whole.id or None))
    if content:
        events += (TextStarted(0, ""), TextDelta(0, "", content), TextEnded(0, ""))
    if calls:
        _take_calls(calls, names, 1 if content else 0, events)
    fields = whole.kept()
    usage = usage_in(fields)
    if usage is not None:
        events.append(UsageReported(usage))
    events.append(Completed(stop, reason or None, Native(reader_of(profile.provider), fields) if fields else None))
    return True


def _can_be_told_apart(calls: list[WholeCall]) -> bool:
    """Whether each call has an id of its own, and names a tool."""
    ids = {call.id for call in calls if call.id and call.function.name}
    return len(ids) == len(calls)


def _take_calls(calls: list[WholeCall], names: Mapping[str, str], first: int, events: list[ReplyEvent]) -> None:
    ends: list[ReplyEvent] = []
    for index, call in enumerate(calls, first):
        function, call_id = call.function, call.id or ""
        events.append(ToolCallStarted(index, call_id, names.get(function.name, function.name)))
        if function.arguments:
            events.append(ToolCallDelta(index, call_id, function.arguments))
        ends.append(ToolCallEnded(index, call_id))
    events += ends


@lru_cache(maxsize=64)  # there are few reasons, and each reply has one of them
def _stop(reason: str, *, calls: bool) -> StopReason:
    return stop_reason_of(reason, "", stop_sequence=False, refused=False, calls=calls)
