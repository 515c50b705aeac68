"""The whole reply that most of them are: texts and function calls, and the account of it.

Owns: the short road from its bytes to a message, without events and the state that other replies need.
Must not know: any rule of its own. Whatever is not exactly this takes the long road (decode.py), and both give the same
message for it.
"""

# ruff: noqa: N815 -- the wire's own names

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from dragoman.conversation import Block, Message, Native, Text, ToolCall
from dragoman.providers.codec import Call, Encoded

from .about import FINISH_UNKNOWN, stop_reason, usage_of
from .parts import arguments_of, made_up_id, mark_of
from .wire import ABSENT, READER, SIGNATURE, compact

__all__ = ["plain_message"]

# Unknown members make the decoder fail on purpose: such a reply is read again member by member, so that nothing is
# lost. A member that stands here and is not looked at says nothing by itself.


class _Function(Struct, forbid_unknown_fields=True, gc=False):
    name: str
    id: str | None = None
    args: Raw = ABSENT


class _Part(Struct, forbid_unknown_fields=True, gc=False):
    text: str | None = None
    functionCall: _Function | None = None
    thoughtSignature: Raw = ABSENT


class _Content(Struct, forbid_unknown_fields=True, gc=False):
    parts: list[_Part]
    role: str | None = None


class _Candidate(Struct, forbid_unknown_fields=True, gc=False):
    content: _Content
    finishReason: str
    index: int | None = None
    avgLogprobs: Raw = ABSENT
    finishMessage: Raw = ABSENT
    groundingMetadata: Raw = ABSENT
    safetyRatings: Raw = ABSENT


class _Whole(Struct, forbid_unknown_fields=True, gc=False):
    candidates: Annotated[list[_Candidate], Meta(min_length=1, max_length=1)]
    usageMetadata: Raw = ABSENT
    modelVersion: str | None = None
    responseId: str | None = None
    createTime: Raw = ABSENT


_decode = msgspec.json.Decoder(_Whole).decode
_NOTHING = frozenset([b"", b"null", b"{}", b"[]"])


def plain_message(body: bytes, call: Call, encoded: Encoded) -> Message | None:
    """The message of a reply that is plain; None if it is something else."""
    try:
        body.decode()  # members that are kept unread must be fit to be stored
        whole = _decode(body)
        candidate = whole.candidates[0]
        finish = candidate.finishReason
        if candidate.index or finish == FINISH_UNKNOWN:
            return None
        usage = usage_of(whole.usageMetadata) if whole.usageMetadata else None
        blocks, calls = _blocks(candidate.content.parts, whole.responseId, encoded.tool_names)
        if calls is None:
            return None
        kept = _kept(whole, candidate)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return Message(
        "assistant",
        tuple(blocks),
        call.profile.provider,
        whole.modelVersion or call.model,
        whole.responseId or None,
        usage,
        stop_reason(finish, calls=calls > 0),
        finish,
        None,
        Native(READER, kept) if kept else None,
    )


def _blocks(parts: list[_Part], reply_id: str | None, names: Mapping[str, str]) -> tuple[list[Block], int | None]:
    """The blocks, and how many of them are calls; None if there is a part that is not plain."""
    blocks: list[Block] = []
    ids = set[str]()
    for part in parts:
        text, function, signature = part.text, part.functionCall, part.thoughtSignature
        signed = Native(READER, {SIGNATURE: compact(signature)}) if signature and bytes(signature) != b"null" else None
        if function is not None:
            call_id = function.id or ""
            if not call_id or call_id in ids:
                mark = mark_of(reply_id)
                if not mark:
                    return blocks, None  # it is numbered among all calls of the conversation
                call_id = made_up_id(mark, len(ids))
            if text is not None or call_id in ids:
                return blocks, None
            ids.add(call_id)
            given = arguments_of(function.args) if function.args and bytes(function.args) != b"null" else ""
            blocks.append(ToolCall(call_id, names.get(function.name, function.name), given, native=signed))
        elif text:
            blocks.append(Text(text, signed))
        elif text is None or signed is not None:
            return blocks, None
    return blocks, len(ids)


def _kept(whole: _Whole, candidate: _Candidate) -> dict[str, Raw]:
    """The members that are kept raw, as far as they say something."""
    kept: dict[str, Raw] = {}
    if bytes(whole.createTime) not in _NOTHING:
        kept["createTime"] = compact(whole.createTime)
    if bytes(candidate.avgLogprobs) not in _NOTHING:
        kept["avgLogprobs"] = compact(candidate.avgLogprobs)
    if bytes(candidate.finishMessage) not in _NOTHING:
        kept["finishMessage"] = compact(candidate.finishMessage)
    if bytes(candidate.groundingMetadata) not in _NOTHING:
        kept["groundingMetadata"] = compact(candidate.groundingMetadata)
    if bytes(candidate.safetyRatings) not in _NOTHING:
        kept["safetyRatings"] = compact(candidate.safetyRatings)
    if bytes(whole.usageMetadata) not in _NOTHING:
        kept["usageMetadata"] = compact(whole.usageMetadata)
    return kept
