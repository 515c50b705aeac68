"""What a reply says of itself beside its content: why it ended, what it cost, what it was grounded in.

Owns: the table of finish reasons; the counting of tokens; putting together metadata that comes in pieces.
Must not know: content.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Native, StopReason, Usage

from .wire import ABSENT, READER, compact, raw_list, raw_members

__all__ = ["FINISH_UNKNOWN", "About", "stop_reason", "usage_of"]

FINISH_UNKNOWN: Final = "FINISH_REASON_UNSPECIFIED"
"""A finish reason that is none."""

_STOP_REASONS: Final[dict[str, StopReason]] = {
    "STOP": StopReason.END,
    "MAX_TOKENS": StopReason.MAX_TOKENS,
    "SAFETY": StopReason.CONTENT_FILTER,
    "RECITATION": StopReason.CONTENT_FILTER,
    "BLOCKLIST": StopReason.CONTENT_FILTER,
    "PROHIBITED_CONTENT": StopReason.CONTENT_FILTER,
    "SPII": StopReason.CONTENT_FILTER,
    "MODEL_ARMOR": StopReason.CONTENT_FILTER,
    "IMAGE_SAFETY": StopReason.CONTENT_FILTER,
    "IMAGE_PROHIBITED_CONTENT": StopReason.CONTENT_FILTER,
    "IMAGE_RECITATION": StopReason.CONTENT_FILTER,
    "MALFORMED_FUNCTION_CALL": StopReason.ERROR,
    "MALFORMED_RESPONSE": StopReason.ERROR,
    "MISSING_THOUGHT_SIGNATURE": StopReason.ERROR,
    "UNEXPECTED_TOOL_CALL": StopReason.ERROR,
    # The reply is longer than one request gives; the token that came with it fetches the rest.
    "CONTINUATION": StopReason.PAUSED,
}
"""What is not here (OTHER, LANGUAGE, NO_IMAGE, TOO_MANY_TOOL_CALLS, …) is OTHER; the word itself is kept."""

# A reply that calls functions ends like any other. An "unexpected" call names a function that was not offered: it is a
# call all the same, and the model learns of its mistake from the result.
_CALLING: Final = frozenset(["STOP", "UNEXPECTED_TOOL_CALL"])


def stop_reason(word: str | None, *, calls: bool) -> StopReason:
    """The stop reason for a finish reason, in a reply with or without function calls."""
    if calls and word in _CALLING:
        return StopReason.TOOL_CALLS
    return _STOP_REASONS.get(word or "", StopReason.OTHER)


class _Counts(Struct, gc=False):
    promptTokenCount: int | None = None  # noqa: N815 -- the wire's own names
    cachedContentTokenCount: int | None = None  # noqa: N815
    candidatesTokenCount: int | None = None  # noqa: N815
    thoughtsTokenCount: int | None = None  # noqa: N815
    toolUsePromptTokenCount: int | None = None  # noqa: N815
    totalTokenCount: int | None = None  # noqa: N815


_decode_counts = msgspec.json.Decoder(_Counts | None, strict=False).decode


def usage_of(raw: Raw) -> Usage | None:
    """The usage that a `usageMetadata` tells of; None if it has no counts at all."""
    counts = _decode_counts(raw) or _Counts()
    read, said, thought = counts.promptTokenCount, counts.candidatesTokenCount, counts.thoughtsTokenCount
    written = None
    if said is not None or thought is not None or counts.totalTokenCount is not None:
        # A count of zero is left out of the JSON: where the total is known, what is absent is nothing.
        written = (said or 0) + (thought or 0)
    elif read is None:
        return None
    if counts.toolUsePromptTokenCount is not None:  # what the provider's own tools brought, and the model read
        read = (read or 0) + counts.toolUsePromptTokenCount
    return Usage(
        input=read,
        output=written,
        cache_read=counts.cachedContentTokenCount,
        reasoning=thought,
        total=counts.totalTokenCount,
    )


class About(Struct, eq=False):
    """Collects what the chunks of a reply say of it."""

    finish: str | None = None
    """The finish reason, once one has come."""
    usage: Raw = ABSENT
    """The newest `usageMetadata`: each replaces the one before."""
    _first: Usage | None = None
    _fields: dict[str, Raw] = {}

    def first_usage(self) -> Usage | None:
        """The usage of the first chunk, which has what the prompt cost even if the reply breaks off."""
        self._first = usage_of(self.usage)
        return self._first

    def last_usage(self) -> Usage | None:
        """The usage as last reported. A cached part that only the first chunk told of is not forgotten."""
        if self.usage is ABSENT:
            return None
        last, first = usage_of(self.usage), self._first
        if last is None or last.cache_read is not None or first is None or first.cache_read is None:
            return last
        return msgspec.structs.replace(last, cache_read=first.cache_read)

    def note(self, name: str, raw: Raw) -> None:
        """Keep a member of a chunk or of its candidate that has no place in our values."""
        if bytes(raw) in (b"{}", b"[]", b"null"):
            return
        raw = compact(raw)
        known = self._fields.get(name)
        self._fields[name] = raw if known is None else _joined(known, raw)

    def native(self) -> Native | None:
        """All that was noted, and the usage with its details."""
        if self.usage is not ABSENT:
            bytes(self.usage).decode()  # nothing has looked into it yet, and what is kept must be UTF-8
            self.note("usageMetadata", self.usage)
        return Native(READER, self._fields) if self._fields else None


def _joined(old: Raw, new: Raw) -> Raw:
    """Metadata of two chunks as one. Some models send it anew with each chunk, some only what is new: a list that does
    not begin with what is known is taken for its continuation; other values replace the known ones."""
    old_bytes, new_bytes = bytes(old), bytes(new)
    if old_bytes == new_bytes:
        return old
    kinds = old_bytes[:1] + new_bytes[:1]
    if kinds == b"[[":
        elements, more = _elements(old), _elements(new)
        both = more if more[: len(elements)] == elements else elements + more
        return Raw(b"[" + b",".join(both) + b"]")
    if kinds != b"{{":
        return new
    members = raw_members(old)
    for name, raw in raw_members(new).items():
        members[name] = _joined(members[name], raw) if name in members else raw
    return Raw(msgspec.json.encode(members))


def _elements(raw: Raw) -> list[bytes]:
    return [bytes(element) for element in raw_list(raw)]
