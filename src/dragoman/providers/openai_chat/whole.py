"""The whole reply that most of them are: a text or calls of tools, or both, and the account of it.

Owns: the short road from its bytes to a message, without events and the state that other replies need.
Must not know: any rule of its own. Whatever is not exactly this takes the long road (decode.py), and both give the same
message for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

from dragoman.conversation import Block, Message, Native, StopReason, Text, ToolCall
from dragoman.providers.codec import Call, Encoded

from .finish import CUT, FAILED, stop_reason_of
from .usage import usage_in
from .wire import NoLogprobs, is_nothing, reader_of

__all__ = ["plain_message"]

# Unknown members make the decoder fail on purpose: such a reply is read again member by member, so that nothing is
# lost. A member that stands here and is not looked at says nothing by itself.

_Empty: TypeAlias = Annotated[list[None], Meta(max_length=0)] | None


class _Function(Struct, forbid_unknown_fields=True, gc=False):
    """What a call calls, and with what."""

    name: str
    arguments: str


class _Call(Struct, forbid_unknown_fields=True, gc=False):
    """One tool call."""

    function: _Function
    id: str | None = None
    type: Literal["function"] | None = None
    index: int | None = None


class _Message(Struct, forbid_unknown_fields=True, gc=False):
    """The message."""

    content: str | None = None
    role: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None
    channel: str | None = None
    annotations: _Empty = None
    function_call: None = None
    audio: None = None


class _Choice(Struct, forbid_unknown_fields=True, gc=False):
    """One of the answers; we ask for one."""

    message: _Message
    index: int = 0
    finish_reason: str | None = None
    logprobs: NoLogprobs | None = None
    matched_stop: None = None
    stop_reason: None = None
    token_ids: None = None


_ABSENT: Final = Raw(b"")


class _Whole(Struct, forbid_unknown_fields=True, gc=False):
    """A whole reply of one plain answer; what is not read is kept raw."""

    choices: Annotated[list[_Choice], Meta(min_length=1, max_length=1)]
    id: str | None = None
    object: str | None = None
    created: Raw = _ABSENT
    model: str | None = None
    usage: Raw = _ABSENT
    usage_breakdown: Raw = _ABSENT
    service_tier: Raw = _ABSENT
    system_fingerprint: Raw = _ABSENT
    x_groq: Raw = _ABSENT
    error: None = None

    def kept(self) -> dict[str, Raw]:
        """The members that are kept raw, as far as they say something."""
        found: dict[str, Raw] = {}
        if self.created and not is_nothing(self.created):
            found["created"] = self.created.copy()
        if self.usage and not is_nothing(self.usage):
            found["usage"] = self.usage.copy()
        if self.usage_breakdown and not is_nothing(self.usage_breakdown):
            found["usage_breakdown"] = self.usage_breakdown.copy()
        if self.service_tier and not is_nothing(self.service_tier):
            found["service_tier"] = self.service_tier.copy()
        if self.system_fingerprint and not is_nothing(self.system_fingerprint):
            found["system_fingerprint"] = self.system_fingerprint.copy()
        if self.x_groq and not is_nothing(self.x_groq):
            found["x_groq"] = self.x_groq.copy()
        return found


_decode: Final = msgspec.json.Decoder(_Whole).decode


def plain_message(body: bytes, call: Call, encoded: Encoded) -> Message | None:
    """The message of a reply that is plain; None if it is something else."""
    try:
        body.decode()  # members that are kept unread must be fit to be stored
        whole = _decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
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
        return None
    blocks: tuple[Block, ...] = (Text(content),) if content else ()
    if calls:
        blocks += _called(calls, encoded.tool_names)
    kept = whole.kept()
    return Message(
        "assistant",
        blocks,
        profile.provider,
        whole.model or call.model,
        whole.id or None,
        usage_in(kept),
        stop,
        reason or None,
        None,
        Native(reader_of(profile.provider), kept) if kept else None,
    )


def _can_be_told_apart(calls: list[_Call]) -> bool:
    """Whether each call has an id of its own, and names a tool."""
    ids = {call.id for call in calls if call.id and call.function.name}
    return len(ids) == len(calls)


def _called(calls: list[_Call], names: Mapping[str, str]) -> tuple[ToolCall, ...]:
    return tuple([
        ToolCall(call.id or "", names.get(call.function.name, call.function.name), call.function.arguments)
        for call in calls
    ])  # fmt: skip


@lru_cache(maxsize=64)  # there are few reasons, and each reply has one of them
def _stop(reason: str, *, calls: bool) -> StopReason:
    return stop_reason_of(reason, "", stop_sequence=False, refused=False, calls=calls)
