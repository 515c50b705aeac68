"""The whole reply that most of them are: texts, thoughts and calls, and the account of it.

Owns: the short road from its bytes to a message, without events and the state that other replies need.
Must not know: any rule of its own. Whatever is not exactly this takes the long road (decode.py), and both give the same
message for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Block, Message, Native, Text, Thinking, ToolCall
from dragoman.providers.codec import Call, Encoded

from .ending import counted, stop_reason_of
from .wire import ABSENT, READER, members

__all__ = ["plain_message"]

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


def plain_message(body: bytes, call: Call, encoded: Encoded) -> Message | None:
    """The message of a reply that is plain; None if it is something else."""
    blocks: list[Block] = []
    usage = None
    try:
        body.decode()  # members that are kept unread must be fit to be stored
        whole = _decode(body)
        for block in whole.content:
            if type(block) is _Text:
                blocks.append(Text(block.text))
            elif type(block) is _Call:
                if not block.id:
                    return None
                blocks.append(_called(block, encoded.tool_names))
            elif type(block) is _Thought:
                blocks.append(Thinking(block.thinking, READER, block.signature or None))
        kept = _kept(whole)
        if whole.usage and bytes(whole.usage) != b"null":
            usage, counts = counted(whole.usage)
            if counts is not None:
                kept["usage"] = counts
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    reason = whole.stop_reason
    return Message(
        "assistant",
        tuple(blocks),
        call.profile.provider,
        whole.model,
        whole.id,
        usage,
        stop_reason_of(reason),
        reason,
        None,
        Native(READER, kept) if kept else None,
    )


def _called(block: _Call, names: Mapping[str, str]) -> ToolCall:
    name, given, caller = block.name, block.input, block.caller
    return ToolCall(
        block.id,
        names.get(name, name),
        bytes(given).decode() if members(given) else "",
        native=Native(READER, {"caller": caller.copy()}) if caller and bytes(caller) != b"null" else None,
    )


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
