"""The whole reply that most of them are: texts, thoughts and calls, and the account of it.

Owns: the short road for it, without the state that other replies need while they are put together.
Must not know: any rule of its own. Whatever is not exactly this takes the long road (decode.py), and both give the same
events for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import (
    Completed,
    Native,
    ReplyEvent,
    ReplyStarted,
    TextDelta,
    TextEnded,
    TextStarted,
    ThinkingDelta,
    ThinkingEnded,
    ThinkingStarted,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
    UsageReported,
)
from dragoman.providers.codec import Call

from .ending import counted, stop_reason_of
from .wire import ABSENT, READER, members

__all__ = ["plain_reply"]

# Unknown members make the decoder fail on purpose: such a reply is read again member by member, so that nothing is
# lost. A member that stands here and is not looked at says nothing by itself.


class _Text(Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="text"):
    text: str
    citations: None = None


class _Thought(Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="thinking"):
    thinking: str
    signature: str | None = None


class _Call(Struct, forbid_unknown_fields=True, gc=False, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: Raw
    caller: Raw = ABSENT


class _Whole(Struct, forbid_unknown_fields=True, gc=False):
    content: list[_Text | _Thought | _Call]
    stop_reason: str
    id: str | None = None
    type: Literal["message"] | None = None
    role: str | None = None
    model: str | None = None
    usage: Raw = ABSENT
    stop_sequence: Raw = ABSENT
    stop_details: Raw = ABSENT
    container: Raw = ABSENT
    context_management: Raw = ABSENT


_decode = msgspec.json.Decoder(_Whole).decode


def plain_reply(body: bytes, call: Call, names: Mapping[str, str], events: list[ReplyEvent]) -> bool:
    """Append the events of a reply that is plain; False if it is something else, and nothing is appended."""
    found: list[ReplyEvent] = []
    try:
        body.decode()  # members that are kept unread must be fit to be stored
        whole = _decode(body)
        found.append(ReplyStarted(call.profile.provider, whole.model, whole.id))
        for index, block in enumerate(whole.content):
            if type(block) is _Text:
                found.append(TextStarted(index, ""))
                if block.text:
                    found.append(TextDelta(index, "", block.text))
                found.append(TextEnded(index, ""))
            elif type(block) is _Call:
                if not block.id:
                    return False
                _take_call(index, block, names, found)
            elif type(block) is _Thought:
                found.append(ThinkingStarted(index, "", READER))
                if block.thinking:
                    found.append(ThinkingDelta(index, "", block.thinking))
                found.append(ThinkingEnded(index, "", block.signature or None))
        kept = _kept(whole)
        if whole.usage and bytes(whole.usage) != b"null":
            usage, counts = counted(whole.usage)
            found.append(UsageReported(usage))
            if counts is not None:
                kept["usage"] = counts
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    reason = whole.stop_reason
    found.append(Completed(stop_reason_of(reason), reason, Native(READER, kept) if kept else None))
    events += found
    return True


def _take_call(index: int, block: _Call, names: Mapping[str, str], events: list[ReplyEvent]) -> None:
    id, name, given = block.id, block.name, block.input
    events.append(ToolCallStarted(index, id, names.get(name, name)))
    if members(given):
        events.append(ToolCallDelta(index, id, bytes(given).decode()))
    caller = block.caller
    if caller and bytes(caller) != b"null":
        native = Native(READER, {"caller": caller.copy()})
        events.append(ToolCallEnded(index, id, native))
    else:
        events.append(ToolCallEnded(index, id))


def _kept(whole: _Whole) -> dict[str, Raw]:
    """The members that are kept raw, as far as they say something."""
    kept: dict[str, Raw] = {}
    if whole.stop_sequence and bytes(whole.stop_sequence) != b"null":
        kept["stop_sequence"] = whole.stop_sequence.copy()
    if whole.stop_details and bytes(whole.stop_details) != b"null":
        kept["stop_details"] = whole.stop_details.copy()
    if whole.container and bytes(whole.container) != b"null":
        kept["container"] = whole.container.copy()
    if whole.context_management and bytes(whole.context_management) != b"null":
        kept["context_management"] = whole.context_management.copy()
    return kept
